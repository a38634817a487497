"""Transfer of measured launches to another GPU: a table in, the same rows with times on the target out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.evaluation.case_table import Case
from analyzer.evaluation.result_keys import CaseResult
from analyzer.evaluation.transfer_rows import CodeReference, TransferRow, TransferTable
from analyzer.evaluation.transfer_table import read_transfer_table
from analyzer.evaluation.validation import ProgressCallback, evaluate_cases, prepare_cache_folder
from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Timing
from analyzer.models.transfer.algorithm1 import predict_algorithm1
from analyzer.models.transfer.analytic import find_occupancy, predict_transfer
from analyzer.models.transfer.gpu_figures import TransferFigures, read_transfer_figures
from analyzer.models.transfer.measured_launch import MeasuredLaunch
from analyzer.models.transfer.residuals import find_code_interval_us, find_interval_us
from analyzer.models.transfer.static_ratio import StaticTime, predict_by_code
from analyzer.report.transfer_schema import TRANSFER_SCHEMA, TransferReport, TransferRowEntry
from analyzer.text.errors import UsageError
from analyzer.version import __version__

STATIC_MODEL = "sm"
STATIC_BASIS, ANALYTIC_BASIS = "static", "analytic"


class _Task(Struct, frozen=True):
    """The two GPUs by name and by their figures, and how times were measured."""

    source_name: str  # as `load_gpu` takes it
    target_name: str
    source: TransferFigures
    target: TransferFigures
    timing: Timing


class _StaticTimes(Struct, frozen=True):
    """What the static model says of a row on both GPUs."""

    at_source: StaticTime
    at_target: StaticTime


def transfer(
    table: str | Path,
    source: str,
    target: str,
    *,
    timing: str | None = None,
    jobs: int | None = None,
    cache: str | Path | bool = True,
    progress: ProgressCallback | None = None,
) -> TransferReport:
    """Predict the times of measured launches on another GPU (docs/transfer.md has the columns).

    table: a CSV table, an export of Nsight Compute, or a trace of the PyTorch profiler.
    source, target: names, aliases or TOML paths of the GPUs.
    timing: `interval`, `kernel` or `ncu`; by default what the form of the table says.
    jobs, cache, progress: of predictions from code, as for `validate`.
    Raises InputError, HardwareError or UsageError; a row without an answer is there with its reason.
    """
    source_figures = read_transfer_figures(load_gpu(source))
    target_figures = read_transfer_figures(load_gpu(target))
    chosen = None if timing is None else _parse_timing(timing)
    found = read_transfer_table(Path(table))
    task = _Task(source, target, source_figures, target_figures, chosen or found.form.timing)
    static = _predict_statically(found, task, jobs, cache, progress)
    rows = tuple(_make_entry(row, task, static.get(index)) for index, row in enumerate(found.rows))
    return TransferReport(
        schema=TRANSFER_SCHEMA,
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        table=str(table),
        table_format=found.form.value,
        timing=task.timing.value,
        source=task.source.key,
        source_name=task.source.name,
        target=task.target.key,
        target_name=task.target.name,
        columns=found.columns,
        answered=sum(row.predicted_us is not None for row in rows),
        rows=rows,
        notes=_make_notes(task, found, rows),
    )


def _parse_timing(name: str) -> Timing:
    try:
        return Timing(name)
    except ValueError:
        hint = f"one of: {', '.join(timing.value for timing in Timing)}"
        raise UsageError(f"timing {name!r}: no such timing", hint=hint) from None


def _predict_statically(
    table: TransferTable,
    task: _Task,
    jobs: int | None,
    cache: str | Path | bool,
    progress: ProgressCallback | None,
) -> Mapping[int, _StaticTimes | str]:
    """Return the static times of the rows that name code, or why there are none, by index of the row."""
    named = [(index, row, row.code) for index, row in enumerate(table.rows) if row.code is not None]
    usable = [(index, row, code) for index, row, code in named if code.is_usable]
    found: dict[int, _StaticTimes | str] = {
        index: code.problem for index, _, code in named if not code.is_usable
    }
    if not usable:
        return found
    cases = [
        _make_case(table.path, row, code, task.timing, name, dump)
        for _, row, code in usable
        for name, dump in ((task.source_name, code.source_dump), (task.target_name, code.target_dump))
    ]
    results = evaluate_cases(cases, (STATIC_MODEL,), jobs, prepare_cache_folder(cache), progress)
    for number, (index, _, _) in enumerate(usable):
        pair = [results[2 * number + side, STATIC_MODEL] for side in (0, 1)]
        found[index] = _combine_results(*pair)
    return found


def _combine_results(at_source: CaseResult, at_target: CaseResult) -> _StaticTimes | str:
    reason = at_source.reason or at_target.reason
    if reason:
        return reason
    return _StaticTimes(
        StaticTime(at_source.time_us, at_source.bound), StaticTime(at_target.time_us, at_target.bound)
    )


def _make_case(
    table: Path, row: TransferRow, code: CodeReference, timing: Timing, gpu: str, dump: Path
) -> Case:
    """Return a row of `validate` that stands for the launch on one of the GPUs.

    Nsight Compute's durations are taken for those of kernels that find nothing in the L2.
    """
    return Case(
        table=table,
        line=row.line,
        name=str(row.line),
        suite="",
        dump=dump,
        dump_text=str(dump),
        kernel=row.kernel,
        gpu=gpu,
        grid=row.grid,
        block=row.block,
        cluster=code.cluster,
        dynamic_shared_bytes=code.dynamic_shared_bytes,
        arguments=code.arguments,
        time_us=row.time_us,
        split="",
        l2="cold" if timing is Timing.NCU else "",
        clock_mhz=None,
        timing=(Timing.INTERVAL if timing is Timing.INTERVAL else Timing.KERNEL).value,
        group="",
        counted=True,
        config="",
        note="",
    )


def _make_entry(row: TransferRow, task: _Task, static: _StaticTimes | str | None) -> TransferRowEntry:
    launch = row.make_launch(task.timing)
    entry = TransferRowEntry(
        line=row.line,
        fields=row.fields,
        kernel=row.kernel,
        grid=row.grid.sizes,
        block=row.block.sizes,
        time_us=row.time_us,
        reason=_find_refusal(launch, task),
    )
    if entry.reason:
        return entry
    if isinstance(static, _StaticTimes):
        estimate = predict_by_code(launch, static.at_source, static.at_target, task.source, task.target)
        low_us, high_us = find_code_interval_us(estimate, task.source.measured_key, task.target.measured_key)
        basis, reason = STATIC_BASIS, row.code.problem if row.code else ""
    else:
        estimate = predict_transfer(launch, task.source, task.target)
        low_us, high_us = find_interval_us(estimate)
        basis, reason = ANALYTIC_BASIS, f"not by its code: {static}" if static else ""
    return replace(
        entry,
        algorithm1_us=predict_algorithm1(launch, task.source, task.target),
        roof_us=predict_algorithm1(launch, task.source, task.target, sustained=True),
        predicted_us=estimate.time_us,
        low_us=low_us,
        high_us=high_us,
        basis=basis,
        limit=estimate.limit.value,
        reason=reason,
    )


def _find_refusal(launch: MeasuredLaunch, task: _Task) -> str:
    """Return why a launch cannot run on one of the GPUs; empty if it can."""
    if not launch.time_us:
        return "it has no time: the trace rounds it to 0 us"
    for figures in (task.source, task.target):
        occupancy = find_occupancy(launch, figures)
        if not occupancy.ctas_per_sm:
            return f"a CTA does not fit on {figures.name}: too much {occupancy.limiter.value}"
    return ""


def _make_notes(task: _Task, table: TransferTable, rows: Sequence[TransferRowEntry]) -> tuple[str, ...]:
    """Return what all rows rest on."""
    is_interval = task.timing is Timing.INTERVAL
    floors = [
        f"{figures.name} {figures.interval_us if is_interval else figures.kernel_us:.3g}"
        for figures in (task.source, task.target)
    ]
    what = "least time between launches" if is_interval else "duration of an empty kernel"
    notes = [f"times are of {task.timing.value}; {what}, in us: {', '.join(floors)}"]
    others = [arch for arch in table.archs if arch != task.source.arch]
    if others:
        measured = f"the file says {', '.join(others)}, {task.source.name} is {task.source.arch}"
        notes.append(f"{measured}: were these launches measured on it?")
    if any(row.predicted_us is not None and row.algorithm1_us is None for row in rows):
        notes.append("Algorithm 1 has no answer where operations and bytes are not known")
    return tuple(notes)
