"""Cubins, objects, libraries and archives as SASS text, through NVIDIA's own disassemblers."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory, TemporaryFile
from typing import IO

from msgspec import Struct

from analyzer.frontend.detect import HEAD_BYTES, InputFormat, detect
from analyzer.frontend.resource_usage import read_usage
from analyzer.frontend.sass_findings import MIN_ARCH
from analyzer.frontend.tools import CudaTool, find_tool, tool_environment
from analyzer.ir.program import Resources
from analyzer.text.errors import InputError, ToolError

# nvdisasm takes time and memory out of proportion on the largest files.
_NVDISASM_BYTES = 24_000_000
_CHUNK_BYTES = 4 << 20
_MESSAGE_BYTES = 4096
_MESSAGE_CHARS = 200
_HINT_GET = "put CUDA's bin folder on PATH, or: pip install 'warplens[tools]'"
_HINT_RELEASE = "use another CUDA release's tools: 12.x read sm_70 and older, the newest read the newest GPUs"
_HINT_DAMAGED = "the file is damaged, or holds no code for a GPU (PTX alone must be assembled with ptxas)"
_OTHER_RELEASE = re.compile(
    r"deprecated|[Cc]annot decode architecture|not defined for option|[Uu]nsupported arch"
)
_MEMBER = re.compile(rb"^member [^\n]*\n", re.M)
_CUBIN_NAME = re.compile(r"\.(sm_\d+[a-z]?)\.cubin$")
_NUMBER = re.compile(r"sm_(\d+)")


class _Command(Struct, frozen=True):
    """One way to disassemble a file."""

    tool: CudaTool
    arguments: tuple[str, ...]
    folder: str | None = None


class Cubin(Struct, frozen=True):
    """One of the images in a file."""

    arch: str
    content: bytes


def disassemble(
    path: str, *, archs: Sequence[str] | None = None, refused: list[str] | None = None
) -> Iterator[bytes]:
    """SASS text of a binary, in pieces cut anywhere, as the tool prints it.

    archs: the architectures in a file of several, as `read_binary_usage` finds them; looked up where None.
    refused: takes one message for each architecture that the tool cannot read; where it reads none, or
    nothing takes the messages, that is an error.

    Raises InputError where the file cannot be opened, ToolError where no tool is found or none can read it.
    """
    found = _format(path)
    if found is InputFormat.CUBIN and os.path.getsize(path) < _NVDISASM_BYTES:
        return _first_that_works(_cubin_commands(path))
    dumper = _dumper()
    if archs is None:
        archs = () if found is InputFormat.CUBIN else _archs(read_binary_usage(path))
    numbers = sorted({int(match[1]) for arch in archs if (match := _NUMBER.match(arch))})
    if len(numbers) < 2:
        chunks = _output(_Command(dumper, ("-sass", os.path.abspath(path))))
    else:
        chunks = _each_arch(dumper, path, [number for number in numbers if number >= MIN_ARCH], refused)
    return _without_members(chunks) if found is InputFormat.ARCHIVE else chunks


def read_binary_usage(path: str) -> dict[tuple[str, str], Resources]:
    """Resources by (architecture, kernel) of a file with several images; see `read_usage`.

    Raises ToolError where cuobjdump is missing or finds no GPU code.
    """
    with NamedTemporaryFile(prefix="warplens-", suffix=".res") as file:
        for chunk in _output(_Command(_dumper(), ("-res-usage", os.path.abspath(path)))):
            file.write(chunk)
        file.flush()
        try:
            return read_usage(Path(file.name))
        except ValueError as error:
            raise ToolError(f"{path}: cuobjdump -res-usage printed what cannot be read: {error}") from error


def extract_cubins(path: str) -> Iterator[Cubin]:
    """The cubins in an object or library, as cuobjdump takes them out into a folder of our own.

    Raises ToolError where cuobjdump is missing or fails.
    """
    with TemporaryDirectory(prefix="warplens-") as folder:
        for _ in _output(_Command(_dumper(), ("-xelf", "all", os.path.abspath(path)), folder)):
            pass
        for found in sorted(Path(folder).iterdir()):
            if match := _CUBIN_NAME.search(found.name):
                yield Cubin(match[1], found.read_bytes())
                found.unlink()


def _archs(usage: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple({arch for arch, _ in usage})


def _format(path: str) -> InputFormat:
    try:
        with open(path, "rb") as file:
            return detect(file.read(HEAD_BYTES))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint="check the path") from None


def _dumper() -> CudaTool:
    tool = find_tool("cuobjdump")
    if tool is None:
        raise ToolError("cuobjdump is not found, and reading this file needs it", hint=_HINT_GET)
    if find_tool("nvdisasm") is None:
        raise ToolError("cuobjdump is found but not nvdisasm, which it calls", hint=_HINT_GET)
    return tool


def _cubin_commands(path: str) -> list[_Command]:
    """The ways to read a cubin, the most telling first: nvdisasm gives labels, jump tables and lines."""
    file = os.path.abspath(path)
    commands = []
    disassembler, dumper = find_tool("nvdisasm"), find_tool("cuobjdump")
    if disassembler is None:
        raise ToolError("nvdisasm is not found, and reading a cubin needs it", hint=_HINT_GET)
    commands += [
        _Command(disassembler, ("-c", "-hex", "-gi", file)),
        _Command(disassembler, ("-c", "-hex", file)),
    ]
    if dumper is not None:
        commands.append(_Command(dumper, ("-sass", file)))
    return commands


def _first_that_works(commands: Sequence[_Command]) -> Iterator[bytes]:
    """Output of the first command that prints something; what fails later than that has failed."""
    first_error: ToolError | None = None
    for command in commands:
        started = False
        try:
            for chunk in _output(command):
                started = True
                yield chunk
            return
        except ToolError as error:
            if started:
                raise
            first_error = first_error or error
    if first_error is not None:
        raise first_error


def _each_arch(
    dumper: CudaTool, path: str, numbers: Sequence[int], refused: list[str] | None
) -> Iterator[bytes]:
    """One run for each architecture: cuobjdump gives up the whole file at the first it cannot read."""
    errors = []
    for number in numbers:
        started = False
        try:
            for chunk in _output(_Command(dumper, ("-sass", "-arch", f"sm_{number}", os.path.abspath(path)))):
                started = True
                yield chunk
        except ToolError as error:
            if started or refused is None:
                raise
            errors.append(error)
            refused.append(f"sm_{number} code is left out: {error}")
    if len(errors) == len(numbers):
        raise errors[0] if errors else ToolError(f"{path}: no code for sm_{MIN_ARCH} or later")


def _without_members(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Leaves out the lines that name an archive's members, which are no part of a dump."""
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        end = text.rfind(b"\n") + 1
        yield _MEMBER.sub(b"", text[:end])
        rest = text[end:]
    yield rest


def _output(command: _Command) -> Iterator[bytes]:
    """Standard output of a command, in pieces; ToolError where it fails or prints nothing."""
    with TemporaryFile() as messages:
        process = _start(command, messages)
        n_bytes = 0
        try:
            assert process.stdout is not None
            while chunk := process.stdout.read(_CHUNK_BYTES):
                n_bytes += len(chunk)
                yield chunk
            status = process.wait()
        finally:
            _end(process)
        if status != 0 or n_bytes == 0:
            raise _failure(command, status, _last_message(messages))


def _start(command: _Command, messages: IO[bytes]) -> subprocess.Popen[bytes]:
    tool = command.tool
    try:
        return subprocess.Popen(
            [tool.path, *command.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            cwd=command.folder,
            env=tool_environment(tool),
        )
    except OSError as error:
        raise ToolError(f"{tool.path} does not start: {error.strerror or error}", hint=_HINT_GET) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop the process where it still runs, and reap it."""
    if process.poll() is None:
        process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _last_message(messages: IO[bytes]) -> str:
    """The last line of standard error, less the tool's own prefix."""
    size = messages.seek(0, os.SEEK_END)
    messages.seek(max(0, size - _MESSAGE_BYTES))
    lines = [line for line in messages.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        return ""
    return re.sub(r"^\w+ (?:fatal|error|info)\s*:\s*", "", lines[-1].strip())[:_MESSAGE_CHARS]


def _failure(command: _Command, status: int, said: str) -> ToolError:
    file = command.arguments[-1]
    how = "was killed" if status < 0 else "failed" if status else "found nothing to print"
    message = f"{command.tool.name} {how} on {file}" + (f": {said}" if said else "")
    return ToolError(message, hint=_HINT_RELEASE if _OTHER_RELEASE.search(said) else _HINT_DAMAGED)
