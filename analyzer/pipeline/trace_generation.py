"""Traces of launches that were executed abstractly, without a GPU."""

from collections.abc import Sequence

from msgspec import Struct

from analyzer.demand.register_count import add_register_count
from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.sampling.launch_preparation import prepare_launch
from analyzer.execution.traces.launch_recording import (
    DEFAULT_RECORDED_STEPS,
    build_guard_table,
    record_launch,
)
from analyzer.execution.traces.trace_recorder import TraceRecorder, make_trace_header
from analyzer.flow.missing_code import format_missing_code
from analyzer.ir.trace import Trace
from analyzer.pipeline.analysis import choose_kernels
from analyzer.pipeline.kernel_analyzer import find_launches
from analyzer.pipeline.loaded_program import LoadedKernel, Program
from analyzer.pipeline.options import Options
from analyzer.text.errors import UsageError
from analyzer.text.kernel_names import list_names_for_people


class RecordedTrace(Struct, frozen=True, eq=False):
    """A trace of an abstract execution."""

    trace: Trace
    assumptions: tuple[str, ...]  # sentences for the user


def trace_kernel(
    programs: Sequence[Program], options: Options, *, n_ctas: int | None = None
) -> RecordedTrace:
    """Return the trace of the one launch of the one kernel that `options` choose.

    Active lanes of a guarded instruction are exact where control flow or addresses depend on the guard or
    its predicate; any other guarded instruction has all active lanes of its block.

    n_ctas: trace this many CTAs from the first one; None for all.
    Raises UsageError, or HardwareError where the architecture is not known.
    """
    loaded = _choose_single_kernel(programs, options)
    launches = find_launches(loaded.kernel, options)
    if len(launches) > 1:
        raise UsageError(
            f"{loaded.name} has {len(launches)} launches", hint="a trace is of one: give --grid and --arg"
        )
    launch = launches[0]
    header = make_trace_header(add_register_count(loaded.kernel), launch)
    prepared = prepare_launch(loaded.cfg, loaded.loops, launch)
    branch_decider = BranchDecider(prepared.compiled, options.trip_rules, options.branch_rules)
    recorder = TraceRecorder(loaded.cfg, header)
    recorded = record_launch(
        prepared.compiled,
        prepared.image,
        prepared.shape,
        branch_decider,
        recorder,
        n_ctas,
        options.step_limit or DEFAULT_RECORDED_STEPS,
    )
    trace = recorder.build_trace(loaded.name)
    notes = [*prepared.image.assumptions, *format_missing_code(loaded.cfg)]
    notes += (
        f"branch at {int(loaded.kernel.addresses[row]):#06x}: "
        f"{branch_decider.reasons.get(row, 'all ways taken')}"
        for row in recorded.speculative_rows
    )
    ran = {instruction.address for instruction in trace.instructions}
    n_unknown = sum(
        int(loaded.kernel.addresses[row]) in ran
        for row in build_guard_table(prepared.compiled).unknown_guard_rows
    )
    if n_unknown:
        notes.append(f"{n_unknown} guarded instructions decide nothing: they have all lanes of their blocks")
    if recorded.n_ctas != header.grid.count:
        notes.append(f"the first {recorded.n_ctas:,} of {header.grid.count:,} thread blocks")
    return RecordedTrace(trace, tuple(notes))


def _choose_single_kernel(programs: Sequence[Program], options: Options) -> LoadedKernel:
    chosen = [loaded for kernels in choose_kernels(programs, options) for loaded in kernels]
    if len(chosen) > 1:
        shown = list_names_for_people([loaded.name for loaded in chosen])
        raise UsageError(f"a trace is of one kernel, {len(chosen)} fit: {shown}", hint="choose with -k NAME")
    if chosen[0].traces:
        raise UsageError(f"{chosen[0].name} was read from a trace", hint="give the dump that it ran from")
    return chosen[0]
