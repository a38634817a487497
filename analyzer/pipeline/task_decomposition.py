"""Tasks of a launch, from Triton IR at tile level, or from the executed instructions of compiled code."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from analyzer.demand.launch_work import LaunchWork, count_launch_work
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import INEXACT_PROVENANCES, Provenance
from analyzer.frontend.triton_file import read_triton_module
from analyzer.ir.launch import Launch, LaunchTable
from analyzer.ir.tile_operations import TritonModule
from analyzer.pipeline.analysis import choose_kernels
from analyzer.pipeline.kernel_analyzer import find_launches
from analyzer.pipeline.launch_execution import ExecutedLaunch, execute_kernel, find_matrix_descriptors
from analyzer.pipeline.loaded_program import LoadedKernel, Program
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import WarningEntry
from analyzer.report.input_entries import make_warning_entry
from analyzer.report.tasks_schema import (
    TASKS_SCHEMA,
    LoopEntry,
    RepeatedAmounts,
    TaskAmounts,
    TaskEntry,
    TasksReport,
    WorkEntry,
)
from analyzer.text.errors import UsageError
from analyzer.tiles.decomposition import Amounts, OperationTotal, TaskDecomposition, decompose_launch
from analyzer.tiles.decomposition import find_kernel as find_triton_kernel
from analyzer.tiles.work import Quantity
from analyzer.version import __version__

_GRID_HINT = "give --grid, or a --launch file"


class TritonTasks(Struct, frozen=True):
    """The tasks of a launch of a Triton kernel, with what they were found from."""

    module: TritonModule
    launch: Launch
    tasks: TaskDecomposition
    warnings: tuple[WarningEntry, ...]


def decompose_triton_file(path: str, options: Options) -> TritonTasks:
    """Return the tasks of the launch that options give to the kernel of a TTIR or TTGIR file.

    Raises InputError, or UsageError without a grid or with arguments that do not fit.
    """
    name = options.kernels[0] if options.kernels else None
    module, diagnostics = read_triton_module(path, name)
    kernel = find_triton_kernel(module, name)
    launch = _choose_launch(kernel.name, options.launch, options.launch_table)
    assert launch.grid is not None
    tasks = decompose_launch(module, launch.grid, launch.arguments, kernel.name)
    unknown = {each for each, _ in module.unknown_operations}
    warnings = [make_warning_entry(path, each) for each in diagnostics]
    return TritonTasks(module, launch, tasks, (*warnings, *_warn_of_uncounted(path, tasks, unknown)))


def _warn_of_uncounted(path: str, tasks: TaskDecomposition, unknown: set[str]) -> list[WarningEntry]:
    """Return a warning of the operations that are known, but not how much they ask for."""
    names = [
        each.operation.callee or each.operation.name
        for each in tasks.operations
        if each.work.uncounted and each.operation.name not in unknown
    ]
    if not names:
        return []
    told = ", ".join(sorted(set(names)))
    message = f"operations whose work is not counted, or not all of it: {told}"
    return [WarningEntry(code="uncounted-work", message=message, path=path, line=None, count=len(names))]


def _choose_launch(name: str, launch: Launch, table: LaunchTable | None) -> Launch:
    found = table.find_launches(name) if table else ()
    if len(found) > 1:
        raise UsageError(f"{name} has {len(found)} launches", hint="tasks are of one: give --grid and --arg")
    chosen = found[0] if found else launch
    if chosen.grid is None:
        raise UsageError(f"the grid of {name} is not known", hint=_GRID_HINT)
    return chosen


def make_triton_tasks_report(path: str, options: Options) -> TasksReport:
    """Return the report on the tasks of a TTIR or TTGIR file's launch; errors as `decompose_triton_file`."""
    found = decompose_triton_file(path, options)
    return make_tasks_report(path, found.tasks, found.warnings)


def make_tasks_report(
    path: str, found: TaskDecomposition, warnings: tuple[WarningEntry, ...] = ()
) -> TasksReport:
    """Return the report on tasks that were decomposed."""
    return TasksReport(
        schema=TASKS_SCHEMA,
        tool_version=__version__,
        input=path,
        kernel=found.kernel,
        level="ttgir" if found.threads.has_layouts else "ttir",
        grid=found.grid.sizes,
        tasks=tuple(
            TaskEntry(
                count=each.count,
                trips=each.trips,
                first_program=each.first_program,
                loops=tuple(LoopEntry(line=loop.line, trips=loop.trips) for loop in each.loops),
                repeated=_make_repeated(each.amounts),
                **_name_amounts(each.amounts),
            )
            for each in found.classes
        ),
        total=TaskAmounts(
            count=found.grid.count,
            trips=found.total_trips,
            repeated=_make_repeated(found.total),
            **_name_amounts(found.total),
        ),
        assumptions=found.assumptions,
        operations=tuple(
            _make_work_entry(each)
            for each in found.operations
            if any(each.amounts.values) or (each.work.uncounted and each.executions)
        ),
        inexact=_name_inexact(found),
        warnings=warnings,
    )


def _name_inexact(found: TaskDecomposition) -> dict[str, str]:
    """Return the provenance of the totals that are not exact, by the names of their fields."""
    marks = {
        name: (Provenance.UNKNOWN if quantity in found.uncounted else Provenance.ASSUMED).value
        for name, quantity in _FIELDS.items()
        if quantity in found.uncounted | found.assumed
    }
    return marks | ({"trips": Provenance.ASSUMED.value} if found.has_assumed_trips else {})


_FIELDS = {
    "mma_fma": Quantity.MMA_FMA,
    "xu_operations": Quantity.XU_OPERATIONS,
    "fma_operations": Quantity.FMA_OPERATIONS,
    "bytes_loaded": Quantity.BYTES_LOADED,
    "bytes_stored": Quantity.BYTES_STORED,
    "shared_bytes": Quantity.SHARED_BYTES,
    "atomics": Quantity.ATOMICS,
    "barriers": Quantity.BARRIERS,
}


def _name_amounts(amounts: Amounts) -> dict[str, Any]:
    return {name: amounts[quantity] for name, quantity in _FIELDS.items()}


def _make_repeated(amounts: Amounts) -> RepeatedAmounts:
    names = RepeatedAmounts.__struct_fields__
    return RepeatedAmounts(**{name: amounts.repeated[_FIELDS[name]] for name in names})


def _make_work_entry(total: OperationTotal) -> WorkEntry:
    named = {name: value for name, value in _name_amounts(total.amounts).items() if name != "barriers"}
    place = total.operation.source_line
    return WorkEntry(
        operation=total.operation.name,
        line=total.operation.line,
        source="" if place is None else place.place,
        type=total.work.type_name,
        executions=total.executions,
        is_assumed=total.is_assumed,
        uncounted=tuple(name for name, quantity in _FIELDS.items() if quantity in total.work.uncounted),
        **named,
    )


def make_code_tasks_report(programs: Sequence[Program], options: Options) -> TasksReport:
    """Return the report on the tasks of compiled code: totals of its execution, and means of a CTA.

    Raises UsageError unless the options choose one kernel with one known launch.
    """
    chosen = [loaded for kernels in choose_kernels(programs, options) for loaded in kernels]
    if len(chosen) != 1:
        raise UsageError(f"tasks are of one kernel, {len(chosen)} fit", hint="choose with -k NAME")
    loaded = chosen[0]
    launches = find_launches(loaded.kernel, options)
    if len(launches) > 1:
        raise UsageError(
            f"{loaded.name} has {len(launches)} launches", hint="tasks are of one: give --grid and --arg"
        )
    launch = launches[0]
    if launch.grid is None or launch.block is None:
        raise UsageError(f"grid and block of {loaded.name} are not known", hint="give --grid and --block")
    executed = execute_kernel(loaded, launch, trips=options.trip_rules, taken=options.branch_rules)
    if executed is None:
        raise UsageError(f"{loaded.name} cannot be executed: its architecture is not known")
    return _make_mean_report(loaded, executed, count_work(loaded, executed))


def count_work(loaded: LoadedKernel, executed: ExecutedLaunch) -> LaunchWork:
    """Return the work of an executed launch."""
    descriptors = find_matrix_descriptors(loaded, executed.profile, executed.prepared)
    return count_launch_work(loaded.cfg, executed.profile, descriptors)


def _make_mean_report(loaded: LoadedKernel, executed: ExecutedLaunch, work: LaunchWork) -> TasksReport:
    grid = executed.profile.launch.grid
    assert grid is not None
    trips = _count_trips(loaded, executed.profile)
    totals: dict[str, Any] = {
        "mma_fma": work.mma_fma,
        "xu_operations": work.xu_operations,
        "fma_operations": work.fma_operations,
        "bytes_loaded": work.global_loaded_bytes,
        "bytes_stored": work.global_stored_bytes,
        "shared_bytes": work.shared_bytes,
        "atomics": work.atomics,
        "barriers": work.barriers,
        "trips": trips,
    }
    means: dict[str, Any] = {name: _divide(value, grid.count) for name, value in totals.items()}
    provenance = executed.profile.provenance
    note = "the execution profile sums over CTAs: there is one class, of means"
    return TasksReport(
        schema=TASKS_SCHEMA,
        tool_version=__version__,
        input=loaded.input_path,
        kernel=loaded.name,
        level="code",
        grid=grid.sizes,
        tasks=(TaskEntry(count=grid.count, **means),),
        total=TaskAmounts(count=grid.count, **totals),
        assumptions=(note, *executed.profile.assumptions),
        inexact=dict.fromkeys(totals, provenance.value) if provenance in INEXACT_PROVENANCES else {},
    )


def _divide(value: int, count: int) -> int | float:
    return value // count if value % count == 0 else value / count


def _count_trips(loaded: LoadedKernel, profile: ExecutionProfile) -> int:
    """Return the trips of all CTAs in the innermost loops with products, else with memory accesses."""
    kernel, block_of = loaded.kernel, loaded.cfg.block_of
    is_product = kernel.form_table.make_opcode_mask(lambda opcode: opcode.mma_shape is not None)
    products = np.flatnonzero(is_product[kernel.opcode_ids[: len(block_of)]]).tolist()
    warps_per_cta = max(1, profile.n_warps // max(1, profile.launch.grid.count if profile.launch.grid else 1))
    for rows in (products, [access.row for access in profile.accesses]):
        loops = {loaded.loops.loop_of[block_of[row]] for row in rows} - {None}
        if loops:
            headers = [loaded.loops.loops[loop].header for loop in loops if loop is not None]
            return int(sum(int(profile.block_executions[header]) for header in headers)) // warps_per_cta
    return 0
