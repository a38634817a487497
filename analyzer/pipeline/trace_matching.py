"""Traces matched to the kernels that they were recorded of."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from analyzer.ir.launch import Launch
from analyzer.ir.module import Kernel
from analyzer.pipeline.loaded_program import LoadedKernel, Program
from analyzer.text.errors import InputError
from analyzer.text.kernel_names import is_same_function

if TYPE_CHECKING:
    from analyzer.ir.trace import Trace
    from analyzer.pipeline.launch_execution import ExecutedLaunch

_MAX_SHOWN_NAMES = 5
_ARCH_NAME = re.compile(r"sm_\d+")


class TracedLaunch(Struct, frozen=True, eq=False):
    """A recorded launch in the form of an executed one."""

    loaded: LoadedKernel
    launch: Launch
    executed: "ExecutedLaunch"


def make_traced_launch(loaded: LoadedKernel, trace: "Trace", user_launch: Launch) -> TracedLaunch:
    """Return the profile of a trace, with the traced launch instead of the user's.

    Raises InputError where the trace does not fit the kernel.
    """
    from analyzer.execution.traces.trace_profile import build_trace_profile  # traces are rare
    from analyzer.execution.traces.traced_launch import merge_traced_launch, merge_traced_registers
    from analyzer.pipeline.launch_execution import ExecutedLaunch

    profile = build_trace_profile(trace, loaded.cfg, loaded.loops)
    launch, profile = merge_traced_launch(profile, user_launch)
    resources = merge_traced_registers(loaded.kernel.resources, trace.header)
    if resources is not loaded.kernel.resources:
        loaded = replace(loaded, kernel=replace(loaded.kernel, resources=resources))
    return TracedLaunch(loaded, launch, ExecutedLaunch(profile, frozenset()))


def attach_traces(programs: Sequence[Program], paths: Sequence[str]) -> list[Program]:
    """Return the programs with each trace attached to the kernel that it was recorded of.

    That is the kernel of the trace's name and architecture whose code has the traced instructions.
    Raises InputError where there is none.
    """
    from analyzer.frontend.trace_files import load_traces

    found: list[list[tuple[int, Trace]]] = [list(program.traces) for program in programs]
    for path in paths:
        for trace in load_traces(path):
            program_index, kernel_index = _find_traced_kernel(programs, trace)
            found[program_index].append((kernel_index, trace))
    return [replace(program, traces=tuple(own)) for program, own in zip(programs, found, strict=True)]


def _find_traced_kernel(programs: Sequence[Program], trace: "Trace") -> tuple[int, int]:
    """Return the index of the program and of the kernel in it that a trace belongs to."""
    from analyzer.execution.traces.trace_profile import match_rows

    named = [
        (program_index, kernel_index, loaded)
        for program_index, program in enumerate(programs)
        for kernel_index, loaded in enumerate(program.kernels)
        if not program.module.traces and is_same_function(loaded.kernel.name, trace.header.name)
    ]
    if not named:
        raise _make_no_kernel_error(programs, trace)
    fitting = [one for one in named if _is_same_arch(one[2].kernel, trace)]
    if not fitting:
        archs = ", ".join(sorted({loaded.kernel.arch for _, _, loaded in named}))
        raise InputError(
            f"{trace.path}: traced was {trace.header.arch} code, {trace.header.name} is here for {archs}",
            hint="dump the code that ran: cuobjdump -sass program > program.sass",
        )
    refusal: InputError | None = None
    for program_index, kernel_index, loaded in fitting:
        try:
            match_rows(trace, loaded.cfg)
        except InputError as error:
            refusal = refusal or error
            continue
        return program_index, kernel_index
    assert refusal is not None
    raise refusal


def _make_no_kernel_error(programs: Sequence[Program], trace: "Trace") -> InputError:
    names = list(dict.fromkeys(loaded.name for program in programs for loaded in program.kernels))
    more = f" and {len(names) - _MAX_SHOWN_NAMES} more" if len(names) > _MAX_SHOWN_NAMES else ""
    return InputError(
        f"{trace.path}: the trace is of {trace.header.name}, which is not in the input",
        hint=f"the input has: {', '.join(names[:_MAX_SHOWN_NAMES])}{more}",
    )


def _is_same_arch(kernel: Kernel, trace: "Trace") -> bool:
    """Return whether the architectures are the same; `sm_90a` code is traced as `sm_90`."""
    match = _ARCH_NAME.match(kernel.arch)
    return not trace.header.arch or match is None or match[0] == trace.header.arch
