"""Abstract execution written down as a trace."""

from collections.abc import Sequence

from msgspec import Struct

from analyzer.demand.registers import with_registers
from analyzer.execution.guesses import Guesser
from analyzer.execution.recording import guard_table, record_launch
from analyzer.execution.trace_recorder import TraceRecorder, recorded_header
from analyzer.ir.trace import Trace
from analyzer.pipeline.analyst import Options, launches_of
from analyzer.pipeline.executing import prepare
from analyzer.pipeline.program import LoadedKernel, Program
from analyzer.pipeline.run import choose_kernels
from analyzer.text.errors import UsageError

_MOST_NAMES = 5


class RecordedTrace(Struct, frozen=True, eq=False):
    """A trace, and what it rests on."""

    trace: Trace
    assumptions: tuple[str, ...]


def trace_kernel(
    programs: Sequence[Program], options: Options, *, n_ctas: int | None = None
) -> RecordedTrace:
    """The trace of the one launch of the one kernel that `options` choose; n_ctas: of its first CTAs alone.

    Lanes that guards leave are exact where control flow or addresses hang on the guard or its predicate; any
    other guarded instruction has all lanes of its block. Raises UsageError, or HardwareError where the
    architecture is not known.
    """
    loaded = _the_one(programs, options)
    launches = launches_of(loaded.kernel, options)
    if len(launches) > 1:
        raise UsageError(
            f"{loaded.name} has {len(launches)} launches", hint="a trace is of one: give --grid and --arg"
        )
    launch = launches[0]
    header = recorded_header(with_registers(loaded.kernel), launch)
    ready = prepare(loaded, launch)
    guesser = Guesser(ready.compiled, options.trips, options.taken)
    recorder = TraceRecorder(loaded.cfg, header)
    recorded = record_launch(ready.compiled, ready.image, ready.shape, guesser, recorder, n_ctas)
    trace = recorder.trace(loaded.name)
    notes = list(ready.image.assumptions)
    notes += (
        f"branch at {int(loaded.kernel.addresses[row]):#06x}: {guesser.rules.get(row, 'all ways taken')}"
        for row in recorded.hanging
    )
    ran = {instruction.address for instruction in trace.instructions}
    blind = sum(int(loaded.kernel.addresses[row]) in ran for row in guard_table(ready.compiled).blind)
    if blind:
        notes.append(f"{blind} guarded instructions decide nothing: they have all lanes of their blocks")
    if recorded.n_ctas != header.grid.count:
        notes.append(f"the first {recorded.n_ctas:,} of {header.grid.count:,} thread blocks")
    return RecordedTrace(trace, tuple(notes))


def _the_one(programs: Sequence[Program], options: Options) -> LoadedKernel:
    chosen = [loaded for program in programs for loaded in choose_kernels(program, options)]
    names = [loaded.name for loaded in chosen or (k for p in programs for k in p.kernels)]
    shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    if not chosen:
        raise UsageError(f"no kernel fits {', '.join(options.kernels)}", hint=f"the input has: {shown}")
    if len(chosen) > 1:
        raise UsageError(f"a trace is of one kernel, {len(chosen)} fit: {shown}", hint="choose with -k NAME")
    if chosen[0].traces:
        raise UsageError(f"{chosen[0].name} was read from a trace", hint="give the dump that it ran from")
    return chosen[0]
