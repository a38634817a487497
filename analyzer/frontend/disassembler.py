"""SASS text of cubins, objects, libraries and archives, printed by NVIDIA's disassemblers.

A cubin is given to nvdisasm, which prints labels, jump tables and source lines; cuobjdump is the fallback.
Where one release does not know the architecture, the next one that is found is asked.
All other files, and very large cubins, are given to cuobjdump. A file with code for several architectures is
read one by one, because cuobjdump gives up the whole file at the first architecture that it does not know.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from msgspec import Struct

from analyzer.child_processes import ToolLimitError, ToolRun
from analyzer.files import read_file
from analyzer.frontend.cuda_tools import (
    FOLDER_VARIABLE,
    TIMEOUT_VARIABLE,
    CudaTool,
    find_max_silence_s,
    find_tool,
    find_tools,
    make_install_hint,
    make_tool_environment,
)
from analyzer.frontend.input_format import HEAD_BYTES, InputFormat, detect_format
from analyzer.frontend.resource_usage import read_resource_usage
from analyzer.frontend.sass_diagnostics import MIN_ARCH
from analyzer.ir.module import KernelResources
from analyzer.text.errors import InputError, ToolError

# The time and memory of nvdisasm grow faster than the file.
_MAX_NVDISASM_BYTES = 24_000_000
_MAX_CUBIN_BYTES = 1 << 30
# The tools print as they go, but first read the whole file; text is some 20 times as large as code, and code
# in a fatbin may be compressed.
_BASE_SILENCE_S = 12.0
_BYTES_PER_SILENT_S = 20_000
_BASE_OUTPUT_BYTES = 64 << 20
_MAX_OUTPUT_RATIO = 1000
_MAX_MESSAGE_CHARACTERS = 200
_HINT_RELEASE = (
    "each CUDA release prints some architectures: the newest tools know the newest GPUs, those of 12.8 still "
    "print sm_50 to sm_72. pip install triton==3.4.0 beside warplens brings those of 12.8, or set "
    f"{FOLDER_VARIABLE} to a folder that holds the right ones"
)
_HINT_DAMAGED = "the file is damaged, or holds no code for a GPU (PTX alone must be assembled with ptxas)"
_HINT_STOPPED = f"{TIMEOUT_VARIABLE}=SECONDS gives the tool more time"
_RELEASE_MISMATCH = re.compile(
    r"deprecated|[Cc]annot decode architecture|not defined for option|[Uu]nsupported arch"
)
_ARCHIVE_MEMBER_LINE = re.compile(rb"^member [^\n]*\n", re.M)
_CUBIN_NAME = re.compile(r"\.(sm_\d+[a-z]?)\.cubin$")
_ARCH_NUMBER = re.compile(r"sm_(\d{1,4})(?!\d)")


class _ToolCommand(Struct, frozen=True):
    """A command line that disassembles a file."""

    tool: CudaTool
    arguments: tuple[str, ...]  # the last one is the file
    folder: str | None = None  # working folder, None for ours


class ToolStoppedError(ToolError):
    """A tool took too long or printed too much; another way to call it would do no better."""


class Cubin(Struct, frozen=True):
    """A cubin that was extracted from a file."""

    arch: str
    content: bytes


def disassemble(
    path: str, *, archs: Sequence[str] | None = None, refused: list[str] | None = None
) -> Iterator[bytes]:
    """Yield the SASS text of a binary as the tool prints it, in pieces cut anywhere.

    archs: architectures in the file, as `read_binary_resource_usage` finds them; looked up if None.
    refused: receives one message for each architecture that the tool cannot read. If it is None, or the tool
    can read no architecture, that is an error.

    Raises InputError if the file cannot be opened, ToolError if no tool is found or none can read it.
    """
    found = _detect_file_format(path)
    if found is InputFormat.CUBIN and os.path.getsize(path) < _MAX_NVDISASM_BYTES:
        return _run_first_working(_make_cubin_commands(path))
    tools = _require_tools("cuobjdump")
    if archs is None:
        archs = () if found is InputFormat.CUBIN else _collect_archs(read_binary_resource_usage(path))
    numbers = sorted({int(match[1]) for arch in archs if (match := _ARCH_NUMBER.match(arch))})
    if len(numbers) < 2:
        chunks = _run_tool("cuobjdump", ("-sass", os.path.abspath(path)))
    else:
        chunks = _disassemble_each_arch(
            tools, path, [number for number in numbers if number >= MIN_ARCH], refused
        )
    return _remove_member_lines(chunks) if found is InputFormat.ARCHIVE else chunks


def disassemble_functions(path: str, symbols: Sequence[int]) -> Iterator[bytes]:
    """Yield the text of some functions of a cubin, given by indices of its symbols; see `disassemble`.

    It is that part of the whole text, but for the numbers of labels and lines.
    """
    arguments = ("-c", "-hex", "-gi", "-fun", ",".join(map(str, symbols)), os.path.abspath(path))
    return _run_tool("nvdisasm", arguments)


def read_binary_resource_usage(path: str) -> dict[tuple[str, str], KernelResources]:
    """Return the resources by (architecture, kernel) of a binary; see `read_resource_usage`.

    Raises ToolError if cuobjdump is missing or finds no GPU code.
    """
    with NamedTemporaryFile(prefix="warplens-", suffix=".res") as file:
        arguments = ("-res-usage", os.path.abspath(path))
        for chunk in _run_tool("cuobjdump", arguments):
            file.write(chunk)
        file.flush()
        try:
            return read_resource_usage(Path(file.name))
        except ValueError as error:
            raise ToolError(f"{path}: cuobjdump -res-usage printed what cannot be read: {error}") from error


def extract_cubins(path: str) -> Iterator[Cubin]:
    """Yield the cubins in an object or library, which cuobjdump extracts into a temporary folder.

    Raises ToolError if cuobjdump is missing or fails.
    """
    with TemporaryDirectory(prefix="warplens-") as folder:
        arguments = ("-xelf", "all", os.path.abspath(path))
        for _ in _run_tool("cuobjdump", arguments, folder):
            pass
        for found in sorted(Path(folder).iterdir()):
            if match := _CUBIN_NAME.search(found.name):
                yield Cubin(match[1], read_file(found, _MAX_CUBIN_BYTES))
                found.unlink()


def _collect_archs(usage: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple({arch for arch, _ in usage})


def _detect_file_format(path: str) -> InputFormat:
    try:
        with open(path, "rb") as file:
            return detect_format(file.read(HEAD_BYTES))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint="check the path") from None


def _require_tools(name: str) -> tuple[CudaTool, ...]:
    """Return the installed versions of cuobjdump, which calls nvdisasm, or of nvdisasm. Raises ToolError."""
    tools = find_tools(name)
    if not tools:
        raise ToolError(f"{name} is not found, and reading this file needs it", hint=make_install_hint())
    if find_tool("nvdisasm") is None:
        raise ToolError("cuobjdump is found but not nvdisasm, which it calls", hint=make_install_hint())
    return tools


def _run_tool(name: str, arguments: tuple[str, ...], folder: str | None = None) -> Iterator[bytes]:
    """Yield the output of the first installed version of a tool that works. Raises ToolError."""
    return _run_first_working([_ToolCommand(tool, arguments, folder) for tool in _require_tools(name)])


def _make_cubin_commands(path: str) -> list[_ToolCommand]:
    """Return the commands that read a cubin, first the one that prints most (labels, jump tables, lines)."""
    file = os.path.abspath(path)
    printing = (("-c", "-hex", "-gi", file), ("-c", "-hex", file))
    return [
        *(_ToolCommand(tool, arguments) for tool in _require_tools("nvdisasm") for arguments in printing),
        *(_ToolCommand(tool, ("-sass", file)) for tool in find_tools("cuobjdump")),
    ]


def _run_first_working(commands: Sequence[_ToolCommand]) -> Iterator[bytes]:
    """Yield the output of the first command that works, or comes beyond its first piece of output.

    cuobjdump prints a heading before it finds that it does not know the architecture.
    """
    first_error: ToolError | None = None
    for command in commands:
        started, held = False, b""
        try:
            for chunk in _run_command(command):
                if held:
                    started = True
                    yield held
                held = chunk
            yield held
            return
        except ToolError as error:
            if started or isinstance(error, ToolStoppedError):
                raise
            first_error = first_error or error
    if first_error is not None:
        raise first_error


def _disassemble_each_arch(
    tools: Sequence[CudaTool], path: str, numbers: Sequence[int], refused: list[str] | None
) -> Iterator[bytes]:
    """Yield the output of one cuobjdump run per architecture; see the module."""
    errors = []
    for number in numbers:
        started = False
        arguments = ("-sass", "-arch", f"sm_{number}", os.path.abspath(path))
        try:
            for chunk in _run_first_working([_ToolCommand(tool, arguments) for tool in tools]):
                started = True
                yield chunk
        except ToolError as error:
            if started or refused is None:
                raise
            errors.append(error)
            refused.append(f"sm_{number} code is left out: {error}")
    if len(errors) == len(numbers):
        raise errors[0] if errors else ToolError(f"{path}: no code for sm_{MIN_ARCH} or later")


def _remove_member_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text without the lines that name an archive's members, which are no part of a dump."""
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        end = text.rfind(b"\n") + 1
        yield _ARCHIVE_MEMBER_LINE.sub(b"", text[:end])
        rest = text[end:]
    yield rest


def _run_command(command: _ToolCommand) -> Iterator[bytes]:
    """Yield the standard output of a command, in pieces. Raises ToolError if it fails or prints nothing.

    Also if it works for too long without printing, or prints far more than its file can hold: see `ToolRun`.
    """
    tool, file = command.tool, command.arguments[-1]
    size_bytes = os.path.getsize(file)
    run = ToolRun(
        (tool.path, *command.arguments),
        folder=command.folder,
        environment=make_tool_environment(tool),
        max_silence_s=find_max_silence_s(_BASE_SILENCE_S + size_bytes / _BYTES_PER_SILENT_S),
        max_output_bytes=_BASE_OUTPUT_BYTES + _MAX_OUTPUT_RATIO * size_bytes,
    )
    n_bytes = 0
    try:
        for chunk in run.read_output():
            n_bytes += len(chunk)
            yield chunk
    except ToolLimitError as error:
        raise ToolStoppedError(f"{tool.name} was stopped on {file}: {error}", hint=_HINT_STOPPED) from None
    except OSError as error:
        raise ToolError(
            f"{tool.path} does not start: {error.strerror or error}", hint=make_install_hint()
        ) from None
    if run.status != 0 or n_bytes == 0:
        raise _make_tool_error(command, run.status, _find_last_message(run.messages))


def _find_last_message(messages: bytes) -> str:
    """Return the last line of standard error without the tool's own prefix."""
    lines = [line for line in messages.decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        return ""
    return re.sub(r"^\w+ (?:fatal|error|info)\s*:\s*", "", lines[-1].strip())[:_MAX_MESSAGE_CHARACTERS]


def _make_tool_error(command: _ToolCommand, status: int, reason: str) -> ToolError:
    file = command.arguments[-1]
    how = "was killed" if status < 0 else "failed" if status else "found nothing to print"
    message = f"{command.tool.name} {how} on {file}" + (f": {reason}" if reason else "")
    return ToolError(message, hint=_HINT_RELEASE if _RELEASE_MISMATCH.search(reason) else _HINT_DAMAGED)
