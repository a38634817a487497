"""Launches in what Nsight Compute exports by `ncu --csv`.

Page raw has one row per launch, a column per metric, and the units in a row of their own behind the header;
page details has one row per launch and metric. Lines before the header, such as those of `==PROF==`, are
skipped. Metrics that were not collected are not known: DRAM bytes follow from its throughput where that is
there.

    "ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum","launch__registers_per_thread"
    "","","","","us","register/thread"
    "0","saxpy","(256, 1, 1)","(4096, 1, 1)","95.84","12"
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from analyzer.evaluation.measured_table import MeasuredRow, MeasuredTable
from analyzer.evaluation.transfer_rows import MAX_REGISTERS, MAX_SHARED_BYTES, TransferRow
from analyzer.ir.launch import Dim3
from analyzer.text.csv_table import CsvTable
from analyzer.text.errors import InputError

_CAPABILITY = "CC"
_ID, _NAME, _METRIC, _UNIT, _VALUE = "ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"
# Each figure by its names on page raw and on page details, the first that is there counts.
_DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
_REGISTERS = ("launch__registers_per_thread", "Registers Per Thread")
_STATIC_SHARED = ("launch__shared_mem_per_block_static", "Static Shared Memory Per Block")
_DYNAMIC_SHARED = ("launch__shared_mem_per_block_dynamic", "Dynamic Shared Memory Per Block")
_GRID = ("Grid Size", "launch__grid_size")
_BLOCK = ("Block Size", "launch__block_size")
_DRAM_BYTES = ("dram__bytes.sum",)
_DRAM_PARTS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_DRAM_RATE = ("dram__bytes.sum.per_second", "Memory Throughput")
_FLOP_METRIC = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_FLOPS_BY_OPERATION = {"fadd": 1.0, "fmul": 1.0, "ffma": 2.0, "dadd": 1.0, "dmul": 1.0, "dfma": 2.0}
_HINT = "export by ncu --csv --page raw, or --page details, with the sections LaunchStats and SpeedOfLight"
_MAX_FIGURE = 1e18
_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}")
_UNIT_SCALE = re.compile(r"^([numkKMGT]?i?)(bytes?|B|second|sec|s)\b", re.I)
_DECIMAL_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY_PREFIXES = {"Ki": 1024.0, "Mi": 1024.0**2, "Gi": 1024.0**3}


class _Metric(Struct, frozen=True):
    """A value with its unit, as text."""

    value: str
    unit: str
    row: MeasuredRow
    column: str


Metrics = Mapping[str, _Metric]


def read_ncu_export(
    path: Path, data: bytes, header_offset: int
) -> tuple[tuple[TransferRow, ...], tuple[str, ...]]:
    """Return the launches of an export, and the architectures of their GPUs (`sm_80`).

    header_offset: of the line of the header in `data`. Raises InputError that shows any fault.
    """
    lines_before = data.count(b"\n", 0, header_offset)
    fields = CsvTable(str(path), data[header_offset:], first_line=lines_before + 1)
    table = MeasuredTable(path, fields, (_ID, _NAME))
    rows = list(table.read_rows())
    is_long = _METRIC in table.columns
    launches = _collect_long(rows) if is_long else _collect_wide(rows)
    archs = dict.fromkeys(f"sm_{row.read_optional(_CAPABILITY).replace('.', '')}" for row in rows)
    found = tuple(_make_row(table, number, metrics) for number, metrics in enumerate(launches, start=1))
    return found, tuple(arch for arch in archs if arch != "sm_")


def _collect_wide(rows: list[MeasuredRow]) -> Iterator[Metrics]:
    """Yield the metrics of each launch of page raw."""
    units: Mapping[str, str] = {}
    for row in rows:
        if not row.fields[_ID]:
            units = row.fields
            continue
        yield {
            column: _Metric(value, units.get(column, ""), row, column)
            for column, value in row.fields.items()
            if value
        }


def _collect_long(rows: list[MeasuredRow]) -> Iterator[Metrics]:
    """Yield the metrics of each launch of page details, whose rows follow each other."""
    launches: dict[str, dict[str, _Metric]] = {}
    for row in rows:
        found = launches.setdefault(row.fields[_ID], {})
        for column in (_NAME, _GRID[0], _BLOCK[0]):
            if row.read_optional(column):
                found.setdefault(column, _Metric(row.fields[column], "", row, column))
        name, unit = row.read_optional(_METRIC), row.read_optional(_UNIT)
        # A share of the peak has the same name as the rate itself, in another section.
        if name and unit != "%" and row.read_optional(_VALUE):
            found.setdefault(name, _Metric(row.fields[_VALUE], unit, row, _VALUE))
    yield from launches.values()


def _make_row(table: MeasuredTable, number: int, metrics: Metrics) -> TransferRow:
    seconds = _read_figure(metrics, _DURATION)
    grid, block = _read_dims(metrics, _GRID), _read_dims(metrics, _BLOCK)
    if not seconds or grid is None or block is None:
        lacking = "duration" if not seconds else "grid" if grid is None else "block"
        raise InputError(f"{table.path}: launch {number} has no {lacking}", hint=_HINT)
    registers = _read_figure(metrics, _REGISTERS, MAX_REGISTERS)
    shared = sum(
        _read_figure(metrics, names, MAX_SHARED_BYTES) or 0.0 for names in (_STATIC_SHARED, _DYNAMIC_SHARED)
    )
    row = TransferRow(
        line=number,
        fields=(),
        kernel=metrics[_NAME].value if _NAME in metrics else "",
        grid=grid,
        block=block,
        registers=None if registers is None else int(registers),
        shared_bytes=round(shared),
        flops=_sum_flops(metrics),
        moved_bytes=_find_dram_bytes(metrics, seconds),
        time_us=seconds * 1e6,
    )
    grid_from, block_from = metrics[_find_name(metrics, _GRID)], metrics[_find_name(metrics, _BLOCK)]
    grid_from.row.check_dims(grid, block, None, columns=(grid_from.column, block_from.column))
    return row.with_own_fields()


def _find_name(metrics: Metrics, names: tuple[str, ...]) -> str:
    return next((name for name in names if name in metrics), names[0])


def _read_figure(metrics: Metrics, names: tuple[str, ...], most: float = _MAX_FIGURE) -> float | None:
    """Return a metric in base units (seconds, bytes); None where it was not collected."""
    found = metrics.get(_find_name(metrics, names))
    if found is None:
        return None
    try:
        figure = float(found.value.replace(",", "")) * _find_scale(found.unit)
    except ValueError:
        figure = -1.0
    if not 0 <= figure <= most:
        raise found.row.make_error(found.column, f"{found.value!r} is no such number", _HINT)
    return figure


def _find_scale(unit: str) -> float:
    """Return what one of a unit is in seconds or bytes; 1 for units that are neither.

    >>> [_find_scale(unit) for unit in ("usecond", "Kbyte/block", "GB/s", "register/thread")]
    [1e-06, 1000.0, 1000000000.0, 1.0]
    """
    match = _UNIT_SCALE.match(unit)
    if match is None:
        return 1.0
    prefix = match[1]
    if prefix in _BINARY_PREFIXES:
        return _BINARY_PREFIXES[prefix]
    is_time = match[2].lower().startswith("s")
    return _DECIMAL_PREFIXES.get(prefix if is_time or prefix in "MGT" else prefix.lower(), 1.0)


def _read_dims(metrics: Metrics, names: tuple[str, ...]) -> Dim3 | None:
    """Return dimensions from `(32, 8, 1)`, or from their product."""
    found = metrics.get(_find_name(metrics, names))
    if found is None:
        return None
    parts = [part.replace(",", "") for part in found.value.strip("() ").split(", ")]
    if len(parts) > 3 or not all(_WHOLE_NUMBER.fullmatch(part) for part in parts):
        raise found.row.make_error(found.column, f"{found.value!r} is no size", _HINT)
    return Dim3(*map(int, parts))


def _sum_flops(metrics: Metrics) -> float | None:
    """Return floating-point operations on CUDA cores; None where no such instructions were counted."""
    found = {
        operation: _read_figure(metrics, (_FLOP_METRIC.format(operation),))
        for operation in _FLOPS_BY_OPERATION
    }
    if all(count is None for count in found.values()):
        return None
    return sum(_FLOPS_BY_OPERATION[operation] * (count or 0.0) for operation, count in found.items())


def _find_dram_bytes(metrics: Metrics, seconds: float) -> float | None:
    """Return the bytes that the device memory moved: counted, else by their rate."""
    counted = _read_figure(metrics, _DRAM_BYTES)
    if counted is not None:
        return counted
    parts = [_read_figure(metrics, (name,)) for name in _DRAM_PARTS]
    known = [part for part in parts if part is not None]
    if known:
        return sum(known)
    rate = _read_figure(metrics, _DRAM_RATE)
    return None if rate is None else rate * seconds
