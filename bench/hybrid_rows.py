"""Collect the launches that teach and judge the hybrid model: features of `sm`, and measured times.

    python bench/hybrid_rows.py OUT.npz [--part production|measured] [--table built/cases.csv]

Both parts are written to one file: the measured kernels of `bench/kernels` as far as they are built, and
the rows of `bench/production_rows.py`. A part that cannot be had is left out, with a message. A run that is
given an earlier file keeps its rows and adds what it lacks.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from production_rows import MissingWheelError, ProductionKernels, read_rows

from analyzer.evaluation.case_table import Case, load_case_gpu, make_launch, read_cases
from analyzer.models.hybrid.features import FEATURE_NAMES, compute_features
from analyzer.models.model_result import ModelResult
from analyzer.models.predictors import sm
from analyzer.pipeline.gpu_binding import Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import find_kernels, load
from analyzer.pipeline.options import Options
from analyzer.text.errors import WarplensError

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "bench" / "kernels" / "built" / "cases.csv"
_SAVE_EVERY = 10


@dataclass
class HybridRows:
    """Rows as columns; `case` is unique."""

    case: list[str] = field(default_factory=list)
    suite: list[str] = field(default_factory=list)
    gpu: list[str] = field(default_factory=list)
    key: list[str] = field(default_factory=list)  # rows of one key stay on one side of a split
    split: list[str] = field(default_factory=list)  # "learn" or "judge" of measured kernels, else empty
    counted: list[bool] = field(default_factory=list)
    time_us: list[float] = field(default_factory=list)
    sm_us: list[float] = field(default_factory=list)
    low_us: list[float] = field(default_factory=list)
    high_us: list[float] = field(default_factory=list)
    features: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, names: tuple[str, ...], *, counted: bool, time_us: float, result: ModelResult) -> None:
        """Add a launch; names: its case, suite, GPU, key and split."""
        for column, name in zip((self.case, self.suite, self.gpu, self.key, self.split), names, strict=True):
            column.append(name)
        self.counted.append(counted)
        self.time_us.append(time_us)
        self.sm_us.append(result.prediction.time_us)
        self.low_us.append(result.prediction.time_us_low)
        self.high_us.append(result.prediction.time_us_high)
        self.features.append(compute_features(result))

    def save(self, path: Path) -> None:
        """Write all columns to a file."""
        arrays: dict[str, Any] = {name: np.array(value) for name, value in vars(self).items()}
        beside = path.with_suffix(".partial.npz")
        np.savez(beside, names=np.array(FEATURE_NAMES), **arrays)
        beside.replace(path)


def load_rows(path: Path) -> HybridRows:
    """Return the rows of a file; none where there is none, or it lacks features."""
    if not path.exists():
        return HybridRows()
    with np.load(path) as file:
        names = file["names"].tolist()
        if not set(FEATURE_NAMES) <= set(names):
            return HybridRows()
        columns = {name: file[name] for name in vars(HybridRows())}
    features = list(columns.pop("features")[:, [names.index(name) for name in FEATURE_NAMES]])
    return HybridRows(**{name: column.tolist() for name, column in columns.items()}, features=features)


def add_production_rows(rows: HybridRows, path: Path) -> None:
    """Add SynPerf's rows through the production binaries. Raises MissingWheelError."""
    kernels, known = ProductionKernels(), set(rows.case)
    for row in read_rows():
        case = f"{row.shape_key} {row.gpu}"
        if case not in known:
            names = (case, row.kernel, row.gpu, row.shape_key, "")
            rows.add(names, counted=True, time_us=row.time_us, result=sm.predict(kernels.bind(row)))
            if len(rows.case) % _SAVE_EVERY == 0:
                rows.save(path)


def add_measured_rows(rows: HybridRows, path: Path, table: Path) -> None:
    """Add the measured kernels that are built; of one dump and launch the counts are kept for all GPUs."""
    known = set(rows.case)
    groups: dict[tuple[object, ...], list[Case]] = {}
    for case in read_cases(table):
        if case.name not in known and case.dump.is_file():
            groups.setdefault((case.dump, case.kernel, *case.execution_key), []).append(case)
    for group in groups.values():
        try:
            for case, result in simulate_group(group):
                key = f"{case.suite} {case.kernel} {case.config}"
                names = (case.name, case.suite, load_case_gpu(case).key, key, case.split)
                rows.add(names, counted=case.counted, time_us=case.time_us, result=result)
        except WarplensError as error:
            print(f"{group[0].name}: {error}", file=sys.stderr)
        if len(rows.case) % _SAVE_EVERY == 0:
            rows.save(path)


def simulate_group(group: Sequence[Case]) -> Iterator[tuple[Case, ModelResult]]:
    """Yield `sm`'s results of rows that share a dump, a kernel and a launch."""
    program = load(str(group[0].dump))
    (loaded,) = find_kernels(program.kernels, group[0].kernel) if group[0].kernel else program.kernels
    for case in group:
        (counted,) = KernelAnalyzer(Options(launch=make_launch(case))).count_launches(loaded)
        bound = bind_to_gpu(counted, load_case_gpu(case))
        if not isinstance(bound, Refusal):
            yield case, sm.predict(bound)


def main() -> None:
    """Collect the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--part", choices=("production", "measured"), help="both, if not given")
    parser.add_argument("--table", type=Path, default=TABLE)
    arguments = parser.parse_args()
    rows = load_rows(arguments.output)
    if arguments.part != "measured":
        try:
            add_production_rows(rows, arguments.output)
        except MissingWheelError as error:
            print(f"left out: {error}", file=sys.stderr)
    if arguments.part != "production" and arguments.table.exists():
        add_measured_rows(rows, arguments.output, arguments.table)
    rows.save(arguments.output)
    print(f"{arguments.output}: {len(rows.case)} rows")


if __name__ == "__main__":
    main()
