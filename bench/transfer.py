"""Judge transfer between GPUs, and learn its intervals.

python bench/transfer.py report    # the cross-GPU report's kernels, RTX 2080 Ti and RTX 4070
python bench/transfer.py others    # kernels of PyTorch and tuning sweeps
python bench/transfer.py learn     # hwdb/transfer.toml, from `others` alone
"""

import argparse
import csv
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np
from markdown import render_table
from msgspec import Struct
from transfer_pairs import Pair, load_corrected_pairs, load_other_pairs, load_typed_pairs

from analyzer.evaluation.transfer import transfer
from analyzer.evaluation.transfer_rows import LAUNCH_COLUMNS
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Timing
from analyzer.models.transfer.algorithm1 import predict_algorithm1
from analyzer.models.transfer.analytic import Limit, find_occupancy, predict_transfer
from analyzer.models.transfer.gpu_figures import TransferFigures, read_transfer_figures
from analyzer.models.transfer.measured_launch import MeasuredLaunch
from analyzer.models.transfer.residuals import find_interval_us, load_transfer_residuals
from analyzer.models.transfer.static_ratio import StaticTime, predict_by_code
from analyzer.report.report_reader import read_report
from analyzer.report.validation_schema import CaseEntry, ValidationReport

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "hwdb" / "transfer.toml"
_ARCHS = {"rtx-2080-ti": "sm_75", "rtx-4070": "sm_89"}
_COVERAGE = 0.8
# Limits that the rows do not show, for they are of long launches beyond the L2, get the interval of all rows.
_LEAST_ROWS_OF_LIMIT, _LEAST_ROWS_OF_KIND, _LEAST_KINDS = 200, 20, 2


class Judged(Struct, frozen=True):
    """A pair and what is predicted for it, in us."""

    pair: Pair
    algorithm1_us: float
    roof_us: float
    predicted_us: float
    low_us: float
    high_us: float
    limit: Limit | None = None


@cache
def _find_figures(key: str) -> TransferFigures:
    return read_transfer_figures(load_gpu(key))


def judge(pairs: Iterable[Pair]) -> Iterator[Judged]:
    """Yield the predictions from figures alone; pairs that fit only one of the GPUs are left out."""
    for pair in pairs:
        source, target = _find_figures(pair.source), _find_figures(pair.target)
        launch = pair.row.make_launch(Timing.INTERVAL)
        algorithm1_us = predict_algorithm1(launch, source, target)
        roof_us = predict_algorithm1(launch, source, target, sustained=True)
        fits = all(find_occupancy(launch, figures).ctas_per_sm for figures in (source, target))
        if not fits or algorithm1_us is None or roof_us is None:
            continue
        estimate = predict_transfer(launch, source, target)
        low_us, high_us = find_interval_us(estimate)
        yield Judged(pair, algorithm1_us, roof_us, estimate.time_us, low_us, high_us, estimate.limit)


def judge_with_code(pairs: Sequence[Pair]) -> Iterator[Judged]:
    """Yield the predictions of the command for tables that name the dumps of both GPUs."""
    directions: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        directions[pair.source, pair.target].append(pair)
    with tempfile.TemporaryDirectory() as folder:
        for (source, target), of_direction in directions.items():
            table = Path(folder) / f"{source}.csv"
            _write_table(table, of_direction, _find_dump(source), _find_dump(target))
            report = transfer(table, source, target)
            for pair, row in zip(of_direction, report.rows, strict=True):
                if row.basis != "static":
                    raise SystemExit(f"{pair.row.kernel}: {row.reason}")
                yield Judged(
                    pair=pair,
                    algorithm1_us=row.algorithm1_us or math.nan,
                    roof_us=row.roof_us or math.nan,
                    predicted_us=row.predicted_us or math.nan,
                    low_us=row.low_us or math.nan,
                    high_us=row.high_us or math.nan,
                )


def _find_dump(gpu: str) -> Path:
    return ROOT / "traces" / "cuda" / _ARCHS[gpu] / "report16.sass"


def _write_table(path: Path, pairs: Iterable[Pair], dump: Path, dump_to: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow((*LAUNCH_COLUMNS, "dump", "dump_to", "arguments"))
        for pair in pairs:
            fields = pair.row.with_own_fields().fields
            writer.writerow((*fields, dump, dump_to, pair.arguments))


def render_errors(judged: Sequence[Judged]) -> str:
    """Return absolute percentage errors by direction and kind, and what the intervals hold."""
    groups: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for one in judged:
        direction = f"{one.pair.source} > {one.pair.target}"
        groups[direction, one.pair.kind].append(one)
        groups[direction, "all"].append(one)
    head = (
        "direction",
        "kernels",
        "rows",
        "Algorithm 1",
        "sustained roof",
        "ours",
        "median",
        "P90",
        "inside",
    )
    return render_table(head, [(*place, *_format_errors(found)) for place, found in sorted(groups.items())])


def _format_errors(found: Sequence[Judged]) -> tuple[str, ...]:
    def measure(get_time: Callable[[Judged], float]) -> list[float]:
        return [abs(get_time(one) / one.pair.target_us - 1.0) for one in found]

    ours = measure(lambda one: one.predicted_us)
    inside = np.mean([one.low_us <= one.pair.target_us <= one.high_us for one in found])
    shown = (
        np.mean(measure(lambda one: one.algorithm1_us)),
        np.mean(measure(lambda one: one.roof_us)),
        np.mean(ours),
        np.median(ours),
        np.quantile(ours, 0.9),
    )
    return (str(len(found)), *(f"{error:.1%}" for error in shown), f"{inside:.0%}")


def report(_: argparse.Namespace) -> None:
    """Print the errors on the report's kernels."""
    corrected = load_corrected_pairs()
    print("As typed, without code\n")
    print(render_errors(list(judge(load_typed_pairs()))))
    print("Launches as they were, without code\n")
    print(render_errors(list(judge(corrected))))
    print("Launches as they were, with the code of both GPUs\n")
    print(render_errors(list(judge_with_code(corrected))))


def others(_: argparse.Namespace) -> None:
    """Print the errors on kernels of PyTorch and of tuning sweeps."""
    print(render_errors(list(judge(load_other_pairs()))))


def learn(arguments: argparse.Namespace) -> None:
    """Write the intervals: quantiles of measured over predicted time by limit, widened for new kernels."""
    judged = list(judge(load_other_pairs()))
    ratios: dict[Limit | None, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in judged:
        ratios[one.limit][one.pair.kind].append(one.pair.target_us / one.predicted_us)
        ratios[None][one.pair.kind].append(one.pair.target_us / one.predicted_us)
    lines = [
        '# Made by `python bench/transfer.py learn`.\nschema = "warplens/transfer-residuals/1"',
        f'evidence = "{len(judged):,} pairs of launches of sitar-lab/NeuSight @6945927 (MIT) and '
        'AutoTuningAssociation/benchmark_hub @8eeb99e (MIT)"',
    ]
    for limit, by_kind in sorted(ratios.items(), key=lambda item: str(item[0])):
        rows = sum(map(len, by_kind.values()))
        if limit is None:
            lines.append(_format_class("other", by_kind))
        elif rows >= _LEAST_ROWS_OF_LIMIT:
            lines.append(_format_class(f'limits."{limit.value}"', by_kind))
    kept = load_transfer_residuals().code
    lines.append(
        f"\n[code]\nlow = {kept.low}\nhigh = {kept.high}\nrows = {kept.rows}"
        if arguments.code is None
        else _format_class("code", _measure_code_ratios(arguments.code))
    )
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{TABLE}: {len(judged):,} pairs")


def _measure_code_ratios(path: Path) -> dict[str, list[float]]:
    """Return measured over predicted times of transfers by code, by suite."""
    found = read_report(path)
    assert isinstance(found, ValidationReport)
    groups: dict[tuple[str, str], list[CaseEntry]] = defaultdict(list)
    for case in found.cases:
        if case.predictions:
            groups[case.suite, case.config].append(case)
    ratios: dict[str, list[float]] = defaultdict(list)
    for (suite, _), cases in groups.items():
        for source, target in permutations(cases, 2):
            ratios[suite].append(target.time_us / _predict_case(source, target))
    return ratios


def _predict_case(source: CaseEntry, target: CaseEntry) -> float:
    launch = MeasuredLaunch(
        grid_ctas=math.prod(source.grid),
        block_threads=math.prod(source.block),
        registers=None,
        shared_bytes=0,
        flops=None,
        moved_bytes=None,
        time_us=source.time_us,
    )
    static = [StaticTime(one.predictions[0].time_us, one.predictions[0].bound) for one in (source, target)]
    figures = (_find_figures(source.gpu), _find_figures(target.gpu))
    return predict_by_code(launch, static[0], static[1], *figures).time_us


def _format_class(name: str, by_kind: Mapping[str, Sequence[float]]) -> str:
    end = math.exp(_find_end(by_kind.values()) * _find_widening(by_kind))
    rows = sum(map(len, by_kind.values()))
    return f"\n[{name}]\nlow = {1 / end:.3f}\nhigh = {end:.3f}\nrows = {rows}"


def _find_widening(by_kind: Mapping[str, Sequence[float]]) -> float:
    """Return the least factor with which the other kinds' interval holds 80 % of a kind, on average."""
    kinds = [kind for kind, ratios in by_kind.items() if len(ratios) >= _LEAST_ROWS_OF_KIND]
    if len(kinds) < _LEAST_KINDS:
        return 1.0
    ends = {kind: _find_end([by_kind[other] for other in kinds if other != kind]) for kind in kinds}
    widenings = np.arange(1.0, 3.0, 0.05).tolist()
    for widening in widenings:
        held = [np.mean(np.abs(np.log(by_kind[kind])) <= widening * end) for kind, end in ends.items()]
        if np.mean(held) >= _COVERAGE:
            break
    return float(widening)


def _find_end(groups: Iterable[Sequence[float]]) -> float:
    """Return the distance in log space that holds 80 % of the ratios, where all groups weigh the same.

    Both ends are as far from 1: a transfer and its reverse miss by reciprocal factors.
    """
    levels = np.linspace(0.005, 0.995, 100)
    distances = [np.quantile(np.abs(np.log(ratios)), levels) for ratios in groups]
    return float(np.quantile(np.concatenate(distances), _COVERAGE))


def main() -> None:
    """Run one of the commands above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = {"report": report, "others": others, "learn": learn}
    parser.add_argument("command", choices=commands)
    parser.add_argument("--code", type=Path, help="report of validate, for intervals with code")
    arguments = parser.parse_args()
    commands[arguments.command](arguments)


if __name__ == "__main__":
    main()
