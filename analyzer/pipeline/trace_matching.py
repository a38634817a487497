"""Recorded launches beside the code that they ran."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from analyzer.ir.launch import Launch
from analyzer.ir.module import Kernel
from analyzer.pipeline.loaded_program import LoadedKernel, Program
from analyzer.text.demangling import demangle
from analyzer.text.errors import InputError

if TYPE_CHECKING:
    from analyzer.ir.trace import Trace
    from analyzer.pipeline.launch_execution import ExecutedLaunch

_MAX_SHOWN_NAMES = 5
_ARCH_NAME = re.compile(r"sm_\d+")


class TracedLaunch(Struct, frozen=True, eq=False):
    """A recorded launch as analysis takes it."""

    loaded: LoadedKernel
    launch: Launch
    executed: "ExecutedLaunch"


def make_traced_launch(loaded: LoadedKernel, trace: "Trace", user_launch: Launch) -> TracedLaunch:
    """The profile of a trace; what the trace says of its launch goes before `given`.

    Raises InputError where the trace does not fit the kernel.
    """
    from analyzer.execution.traces.trace_profile import build_trace_profile  # traces are rare
    from analyzer.pipeline.launch_execution import ExecutedLaunch

    profile = build_trace_profile(trace, loaded.cfg, loaded.loops)
    recorded_launch = profile.launch
    dynamic = recorded_launch.dynamic_shared_bytes
    launch = replace(
        user_launch,
        grid=recorded_launch.grid,
        block=recorded_launch.block,
        dynamic_shared_bytes=user_launch.dynamic_shared_bytes if dynamic is None else dynamic,
    )
    if notes := tuple(_describe_overrides(user_launch, launch)):
        profile = replace(profile, assumptions=(*notes, *profile.assumptions))
    resources = loaded.kernel.resources
    if trace.header.registers and not resources.has_exact_registers:
        resources = replace(resources, registers=trace.header.registers, has_exact_registers=True)
        loaded = replace(loaded, kernel=replace(loaded.kernel, resources=resources))
    return TracedLaunch(loaded, launch, ExecutedLaunch(profile, frozenset()))


def _describe_overrides(user_launch: Launch, traced: Launch) -> Iterator[str]:
    """What the user said of the launch and the trace denies."""
    for what, wanted, found in (
        ("grid", user_launch.grid, traced.grid),
        ("block", user_launch.block, traced.block),
    ):
        if wanted is not None and found is not None and wanted != found:
            yield f"{what} {wanted} is not used: {found} was traced"


def attach_traces(programs: Sequence[Program], paths: Sequence[str]) -> list[Program]:
    """Programs whose kernels have the launches that were recorded of them.

    A trace goes to the kernel of its name, as compiled or as people write it, and of its architecture whose
    code it fits. Raises InputError where there is none.
    """
    from analyzer.frontend.trace_files import load_traces

    found: list[list[tuple[int, Trace]]] = [list(program.traces) for program in programs]
    for path in paths:
        for trace in load_traces(path):
            index, place = _find_traced_kernel(programs, trace)
            found[index].append((place, trace))
    return [replace(program, traces=tuple(own)) for program, own in zip(programs, found, strict=True)]


def _find_traced_kernel(programs: Sequence[Program], trace: "Trace") -> tuple[int, int]:
    """Program and kernel that a trace belongs to."""
    from analyzer.execution.traces.trace_profile import match_rows

    named = [
        (index, place, loaded)
        for index, program in enumerate(programs)
        for place, loaded in enumerate(program.kernels)
        if not program.module.traces and _has_name(loaded.kernel, trace.header.name)
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
    for index, place, loaded in fitting:
        try:
            match_rows(trace, loaded.cfg)
        except InputError as error:
            refusal = refusal or error
            continue
        return index, place
    assert refusal is not None
    raise refusal


def _make_no_kernel_error(programs: Sequence[Program], trace: "Trace") -> InputError:
    names = list(dict.fromkeys(loaded.name for program in programs for loaded in program.kernels))
    more = f" and {len(names) - _MAX_SHOWN_NAMES} more" if len(names) > _MAX_SHOWN_NAMES else ""
    return InputError(
        f"{trace.path}: the trace is of {trace.header.name}, which is not in the input",
        hint=f"the input has: {', '.join(names[:_MAX_SHOWN_NAMES])}{more}",
    )


def _has_name(kernel: Kernel, name: str) -> bool:
    return name == kernel.name or _normalize_name(name) == _normalize_name(kernel.name)


def _normalize_name(name: str) -> str:
    """As people write it, without blanks, the type of the result and parameters."""
    text = demangle(name).removeprefix("void ")
    depth, end = 0, len(text)
    for place, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and not depth and not text.startswith("(anonymous namespace)", place):
            end = place
            break
    return text[:end].replace(" ", "")


def _is_same_arch(kernel: Kernel, trace: "Trace") -> bool:
    """`sm_90a` code is traced as `sm_90`."""
    match = _ARCH_NAME.match(kernel.arch)
    return not trace.header.arch or match is None or match[0] == trace.header.arch
