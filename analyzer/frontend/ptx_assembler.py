"""Assembles PTX with NVIDIA's ptxas, in a temporary folder, with limits on time, memory and size.

Several ptxas may be installed: that of CUDA 13 no longer knows sm_70, that of CUDA 12.4 not yet sm_100. They
are tried as the search finds them (PATH first); the next one is asked only where one does not know the
architecture or the version of the PTX ISA. PTX of a version that none of them knows is given to the newest
one as of that one's own version, since compilers write the newest version whatever they use of it; ptxas
refuses what it does not know. What ptxas says of the PTX itself becomes an error at its line.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from analyzer.child_processes import ToolLimitError, ToolRun
from analyzer.frontend.cuda_tools import (
    TIMEOUT_VARIABLE,
    CudaTool,
    find_assemblers,
    find_max_silence_s,
    query_version,
)
from analyzer.text.errors import InputError, ToolError, UsageError
from analyzer.text.source import Location

_INPUT_NAME = "input.ptx"
_OUTPUT_NAME = "output.cubin"
_BASE_SILENCE_S = 60.0
_BYTES_PER_SILENT_S = 2_000  # loops that are unrolled take ptxas longest
_MAX_OUTPUT_BYTES = 16 << 20
_MAX_MESSAGE_BYTES = 256 << 10
_MAX_CUBIN_BYTES = 1 << 30
_MAX_MEMORY_BYTES = 16 << 30
_MAX_REASON_CHARACTERS = 300
_PLACED_MESSAGE = re.compile(r"^ptxas \S*input\.ptx, line (\d+); (error|fatal)\s*: (.*)$", re.M)
_MESSAGE = re.compile(r"^ptxas (error|fatal)\s*: (.*)$", re.M)
_UNKNOWN_NAME = "Unknown symbol"
_ABORTED = "Ptx assembly aborted"
_QUOTED = re.compile(r"'([^'\n]+)'")
_NEWER_VERSION = re.compile(r"Unsupported \.version [\d.]+; current version is '(\d+)\.(\d+)'")
_VERSION_DIRECTIVE = re.compile(rb"^([ \t]*\.version[ \t]+)(\d+\.\d+)", re.M)
_OTHER_RELEASE = re.compile(
    r"Unsupported \.version|is not defined for option 'gpu-name'|[Uu]nsupported gpu architecture"
)
_NEEDS_TARGET = re.compile(r"not supported on \.target|[Rr]equires (?:\.target )?'?sm_")
_HINT_PTX = "ptxas refuses this PTX; correct it, or make it again"
_HINT_TARGET = (
    "name the .target that has it (wgmma needs sm_90a, tcgen05 sm_100a), or compile the source again"
)
_HINT_STOPPED = f"{TIMEOUT_VARIABLE}=SECONDS gives it more time; --virtual reads PTX without it"
_HINT_NONE_FITS = "install a CUDA release that knows it, and name its ptxas with --ptxas; or give --virtual"


class AssembledPtx(Struct, frozen=True):
    """A cubin that ptxas made; the file is there as long as the context of `assemble_ptx`."""

    path: str
    arch: str
    tool: CudaTool  # with its version
    read_as_version: str = ""  # of the PTX ISA, where the PTX names a newer one than any ptxas knows

    @property
    def release(self) -> str:
        """`13.0` of version 13.0.88; empty where ptxas printed none."""
        return ".".join(self.tool.version.split(".")[:2])


class MissingAssemblerError(ToolError):
    """No ptxas is installed, or none knows the architecture or the version of the PTX ISA."""


class _OtherReleaseError(Exception):
    """This ptxas does not know the architecture, or the version of the PTX ISA."""

    @property
    def newest_version(self) -> tuple[int, int] | None:
        """Newest version of the PTX ISA that it knows, where that is what it lacks."""
        found = _NEWER_VERSION.search(str(self))
        return None if found is None else (int(found[1]), int(found[2]))


def list_assemblers(named: str | None) -> tuple[CudaTool, ...]:
    """Return the ptxas that was named, else all that are found. Raises UsageError if it is none."""
    if named is None:
        return tuple(find_assemblers())
    if not (os.path.isfile(named) and os.access(named, os.X_OK)):
        raise UsageError(f"--ptxas {named}: no program that can be run", hint="name the file ptxas itself")
    return (CudaTool("ptxas", os.path.abspath(named), "--ptxas"),)


@contextmanager
def assemble_ptx(
    display_path: str,
    text: bytes,
    arch: str,
    tools: tuple[CudaTool, ...],
    optimization_level: int | None = None,
) -> Iterator[AssembledPtx]:
    """Assemble PTX for an architecture by the first tool that knows it; the cubin is there in the context.

    Raises InputError for what is wrong with the PTX, ToolError if a tool fails, MissingAssemblerError if none
    can be used.
    """
    with TemporaryDirectory(prefix="warplens-") as folder:
        unfit: list[tuple[CudaTool, _OtherReleaseError]] = []
        for tool in tools:
            try:
                _run_assembler(display_path, text, arch, tool, folder, optimization_level)
            except _OtherReleaseError as error:
                unfit.append((tool, error))
                continue
            yield AssembledPtx(os.path.join(folder, _OUTPUT_NAME), arch, query_version(tool))
            return
        yield _assemble_as_older(display_path, text, arch, unfit, folder, optimization_level)


def _assemble_as_older(
    display_path: str,
    text: bytes,
    arch: str,
    unfit: Sequence[tuple[CudaTool, _OtherReleaseError]],
    folder: str,
    level: int | None,
) -> AssembledPtx:
    """Assemble PTX as of the newest version that a tool knows. Raises MissingAssemblerError if that fails."""
    known = [(version, tool) for tool, error in unfit if (version := error.newest_version) is not None]
    for (major, minor), tool in sorted(known, key=lambda each: each[0], reverse=True)[:1]:
        own_version = f"{major}.{minor}"
        older = _VERSION_DIRECTIVE.sub(rb"\g<1>" + own_version.encode(), text, count=1)
        with suppress(_OtherReleaseError, InputError):
            _run_assembler(display_path, older, arch, tool, folder, level)
            return AssembledPtx(os.path.join(folder, _OUTPUT_NAME), arch, query_version(tool), own_version)
    if not unfit:
        raise MissingAssemblerError("ptxas is not found, and assembling PTX needs it", hint=_HINT_NONE_FITS)
    reasons = "; ".join(f"{tool.path} ({error})" for tool, error in unfit)
    raise MissingAssemblerError(
        f"{display_path}: no ptxas assembles it for {arch}: {reasons}", hint=_HINT_NONE_FITS
    )


def _run_assembler(
    display_path: str, text: bytes, arch: str, tool: CudaTool, folder: str, level: int | None
) -> None:
    Path(folder, _INPUT_NAME).write_bytes(text)
    options = ["-lineinfo", f"-arch={arch}", *([] if level is None else [f"-O{level}"])]
    run = ToolRun(
        (tool.path, *options, _INPUT_NAME, "-o", _OUTPUT_NAME),
        folder=folder,
        max_silence_s=find_max_silence_s(_BASE_SILENCE_S + len(text) / _BYTES_PER_SILENT_S),
        max_output_bytes=_MAX_OUTPUT_BYTES,
        max_file_bytes=_MAX_CUBIN_BYTES,
        max_memory_bytes=_MAX_MEMORY_BYTES,
        max_message_bytes=_MAX_MESSAGE_BYTES,
    )
    try:
        for _ in run.read_output():
            pass
    except ToolLimitError as error:
        raise ToolError(f"ptxas was stopped on {display_path}: {error}", hint=_HINT_STOPPED) from None
    except OSError as error:
        raise ToolError(
            f"{tool.path} does not start: {error.strerror or error}", hint="name another one with --ptxas"
        ) from None
    messages = run.messages.decode("utf-8", "replace")
    if run.status < 0:
        raise ToolError(f"ptxas was killed on {display_path} (signal {-run.status})", hint=_HINT_STOPPED)
    if run.status:
        raise _make_error(display_path, text, messages)
    if not os.path.isfile(os.path.join(folder, _OUTPUT_NAME)):
        raise ToolError(f"{tool.path} made no cubin", hint="name a ptxas with --ptxas")


def _make_error(display_path: str, text: bytes, messages: str) -> Exception:
    """Return the error of a failed run: at the first line of the PTX that ptxas names, if it names one."""
    placed = _list_placed(messages)
    others = [message for _, message in _MESSAGE.findall(messages) if not message.startswith(_ABORTED)]
    reason = (placed[0][1] if placed else others[0] if others else messages.strip() or "it failed").strip()
    reason = reason[:_MAX_REASON_CHARACTERS]
    if _OTHER_RELEASE.search(reason):
        return _OtherReleaseError(reason)
    hint = _HINT_TARGET if _NEEDS_TARGET.search(reason) else _HINT_PTX
    if not placed:
        return InputError(f"{display_path}: ptxas: {reason}", hint=hint)
    more = f" (the first of {len(placed)} errors)" if len(placed) > 1 else ""
    location = _locate_message(display_path, text, placed[0][0], reason)
    return InputError(f"ptxas: {reason}{more}", location=location, hint=hint)


def _list_placed(messages: str) -> list[tuple[int, str]]:
    """Return the lines that messages name and what they say, in their order.

    Of an unknown name ptxas first says that the instruction does not take it: the name goes before.
    """
    placed = [(int(line), reason) for line, _, reason in _PLACED_MESSAGE.findall(messages)]
    cause = next((one for one in placed if one[0] == placed[0][0] and _UNKNOWN_NAME in one[1]), None)
    return placed if cause is None else [cause, *(one for one in placed if one is not cause)]


def _locate_message(path: str, text: bytes, number: int, reason: str) -> Location:
    """Return the place in a line that a message is about: what it quotes, else the statement there."""
    lines = text.split(b"\n")
    line = lines[number - 1].rstrip(b"\r").decode("utf-8", "replace") if 0 < number <= len(lines) else ""
    for quoted in reversed(_QUOTED.findall(reason)):
        if match := re.search(rf"(?<![\w%$]){re.escape(quoted)}(?!\w)", line):
            return Location(path, number, match.start() + 1, line, len(quoted))
    indent = len(line) - len(line.lstrip())
    return Location(path, number, indent + 1, line, max(1, len(line.strip())))
