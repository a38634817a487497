"""Measured operators that lie far below what their shape could reach: SynPerf's ceiling (section VII-B)."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from analyzer.baselines.synperf.model import measure_gap
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.operator_rows import OperatorRows
from analyzer.report.validation_schema import CaseEntry, CeilingEntry
from analyzer.text.errors import WarplensError


class _Gap(Struct, frozen=True):
    place: int
    efficiency: float
    ceiling: float


def list_underperforming(rows: OperatorRows, cases: Sequence[CaseEntry]) -> tuple[CeilingEntry, ...]:
    """Return the rows that lie more than .1 of efficiency below the ceiling, the widest gap first.

    Operators for which no ceiling ships are left out. cases: the same rows as the report has them.
    """
    gaps: list[_Gap] = []
    for part in rows.batches:
        time_us = np.array([cases[place].time_us for place in part.places])
        try:
            found = measure_gap(part.batch, load_gpu(part.gpu), time_us)
        except WarplensError:
            continue
        gaps += [
            _Gap(int(part.places[i]), float(found.efficiency[i]), float(found.ceiling[i]))
            for i in np.flatnonzero(found.underperforms)
        ]
    gaps.sort(key=lambda gap: (gap.efficiency - gap.ceiling, gap.place))
    return tuple(_make_entry(gap, cases[gap.place]) for gap in gaps)


def _make_entry(gap: _Gap, case: CaseEntry) -> CeilingEntry:
    return CeilingEntry(
        case=case.case,
        line=case.line,
        gpu=case.gpu,
        gpu_name=case.gpu_name,
        kernel=case.kernel,
        measured_us=case.time_us,
        ceiling_us=case.time_us * gap.efficiency / gap.ceiling,
        efficiency=gap.efficiency,
        ceiling=gap.ceiling,
    )
