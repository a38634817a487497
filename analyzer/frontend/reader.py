"""Any input to a `Module`: what it is, who reads it, and what lies beside it."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.detect import HEAD_BYTES, InputFormat, detect
from analyzer.frontend.kernel_facts import KernelFacts, with_facts
from analyzer.frontend.resource_usage import read_usage
from analyzer.frontend.sass import parse_sass
from analyzer.frontend.triton_metadata import TritonMetadata, read_metadata, with_metadata
from analyzer.frontend.variants import find_variant
from analyzer.ir.program import INSTRUCTION_BYTES, Kernel, Module, Resources
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic, Severity

if TYPE_CHECKING:
    from analyzer.frontend.cubin_info import CubinInfo

STANDARD_INPUT = "-"
_CHUNK_BYTES = 8 << 20
_UTF8_MARK = b"\xef\xbb\xbf"
_USAGE_SUFFIXES = (".res", ".res-usage")
_ELF_SUFFIXES = (".elf", ".elf.txt")
_ELF_MAGIC = b"\x7fELF"
_RESERVING_ARCH = 90
_RESERVED_SHARED_BYTES = 1024
_ARCH = re.compile(r"sm_(\d+)")
_BINARIES = (InputFormat.CUBIN, InputFormat.FATBIN, InputFormat.HOST_BINARY, InputFormat.ARCHIVE)


class _Refusal(Struct, frozen=True):
    """Why a format is not read, and what to do."""

    message: str
    hint: str


_REFUSALS = {
    InputFormat.PTX: _Refusal(
        "this is PTX, from which ptxas has yet to make instructions",
        "assemble it first: ptxas -arch=sm_90 kernel.ptx -o kernel.cubin",
    ),
    InputFormat.TRITON_IR: _Refusal(
        "this is Triton's intermediate code, not instructions",
        "take the .cubin that lies beside it in Triton's cache (~/.triton/cache)",
    ),
    InputFormat.EMPTY: _Refusal(
        "the input is empty", "make a dump with: cuobjdump -sass kernel.cubin > kernel.sass"
    ),
    InputFormat.UTF16: _Refusal(
        "the text is UTF-16, as PowerShell's `>` writes it",
        "dump again with: cuobjdump -sass kernel.cubin | Out-File -Encoding utf8 kernel.sass",
    ),
    InputFormat.UNKNOWN_BINARY: _Refusal(
        "this is neither text nor a binary that holds GPU code",
        "give a SASS dump, a cubin, a fatbin, or an ELF object or library; unpack it if it is compressed",
    ),
}


def read_module(path: str, *, usage_path: str | None = None) -> Module:
    """Read a SASS dump, a GPU binary or a trace, told apart by content; ``-`` is standard input.

    usage_path: `cuobjdump -res-usage` text; without it `NAME.res` or `NAME.res-usage` beside a dump is taken.
    Cubins give parameters and constants of their kernels, also those in objects and libraries.
    `NAME.elf` or `NAME.elf.txt` (`cuobjdump -elf` text), or `NAME.cubin`, beside a dump gives parameters and
    constants, and so does such text in the dump itself.
    Triton's `NAME.json` beside the input gives block size, dynamic shared memory and the arguments' names.
    `shared_bytes` of the kernels leaves out what the system reserves in each CTA (1024 bytes from sm_90 on).

    Raises InputError where the input cannot be read as what it is, ToolError where a CUDA tool is missing
    or fails.
    """
    usage = None if usage_path is None else _read_usage(Path(usage_path))
    with _opened(path) as file:
        module, is_dump = _read(path, file)
    if usage is None and is_dump:
        usage = _sibling_usage(path)
    if is_dump and (find_facts := _sibling_facts(path)) is not None:
        module = with_facts(module, find_facts)
    if usage:
        module = _with_resources(module, lambda kernel: find_variant(usage, kernel.arch, kernel.name))
    metadata = _sibling_metadata(path)
    return replace(module, kernels=tuple(_settled(kernel, metadata) for kernel in module.kernels))


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """The input as a binary file; whatever the system refuses is an InputError."""
    try:
        if path == STANDARD_INPUT:
            yield sys.stdin.buffer
        else:
            with open(path, "rb") as file:
                yield file
    except IsADirectoryError:
        raise InputError(f"{path}: this is a folder", hint="name one of the files in it") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", hint=f"looked in {Path.cwd()}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path!s}: {reason}", hint="check the path and its permissions") from None


def _read(path: str, file: BinaryIO) -> tuple[Module, bool]:
    """The module, and whether it was read from a text dump."""
    head = file.read(HEAD_BYTES)
    found = detect(head)
    if refusal := _REFUSALS.get(found):
        raise InputError(f"{_shown(path)}: {refusal.message}", hint=refusal.hint)
    if found is InputFormat.TRACE:
        from analyzer.frontend.trace_files import read_trace_module

        return read_trace_module(_shown(path), _chunks(head.removeprefix(_UTF8_MARK), file)), False
    if found not in _BINARIES:
        return _read_dump(_shown(path), head.removeprefix(_UTF8_MARK), file), True
    if path != STANDARD_INPUT:
        return _read_binary(path, path, found), False
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile(prefix="warplens-") as copy:
        for chunk in _chunks(head, file):
            copy.write(chunk)
        copy.flush()
        return _read_binary(_shown(path), copy.name, found), False


def _read_dump(shown: str, head: bytes, file: BinaryIO) -> Module:
    """A text dump, which `cuobjdump -elf -sass` begins with tables."""
    if b"ELF:" not in head and b"elf:" not in head:
        return parse_sass(shown, _chunks(head, file))
    from analyzer.frontend.elf_text import ElfFilter

    tables = ElfFilter()
    module = parse_sass(shown, tables.chunks(_chunks(head, file)))
    facts = tables.facts()
    return with_facts(module, lambda kernel: find_variant(facts, kernel.arch, kernel.name))


def _shown(path: str) -> str:
    return "<stdin>" if path == STANDARD_INPUT else path


def _chunks(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    return chain([head], iter(lambda: file.read(_CHUNK_BYTES), b""))


def _read_binary(shown: str, path: str, found: InputFormat) -> Module:
    from analyzer.frontend.binaries import disassemble, read_binary_usage
    from analyzer.frontend.binary_facts import read_binary_facts

    if found is InputFormat.CUBIN:
        stated = _cubin_info(shown, path)
        module = parse_sass(shown, disassemble(path))
        module = _with_resources(module, lambda kernel: stated.resources.get(kernel.name))
        return with_facts(module, lambda kernel: stated.facts.get(kernel.name))
    usage = read_binary_usage(path)
    refused: list[str] = []
    archs = sorted({arch for arch, _ in usage})
    module = parse_sass(shown, disassemble(path, archs=archs, refused=refused))
    notes = tuple(Diagnostic(Severity.WARNING, "unsupported-architecture", text) for text in refused)
    module = replace(module, diagnostics=(*module.diagnostics, *notes))
    module = _with_resources(module, lambda kernel: find_variant(usage, kernel.arch, kernel.name))
    facts = read_binary_facts(path)
    return with_facts(module, lambda kernel: find_variant(facts, kernel.arch, kernel.name))


def _cubin_info(shown: str, path: str) -> "CubinInfo":
    from analyzer.frontend.cubin_info import read_cubin

    try:
        return read_cubin(Path(path).read_bytes())
    except InputError as error:
        raise InputError(f"{shown}: {error}", hint=error.diagnostic.hint) from None


def _read_usage(path: Path) -> dict[tuple[str, str], Resources]:
    hint = "make it with: cuobjdump -res-usage kernel.cubin > kernel.res"
    try:
        usage = read_usage(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint=hint) from None
    except ValueError:
        raise InputError(f"{path}: this is not resource usage as cuobjdump prints it", hint=hint) from None
    if not usage:
        raise InputError(f"{path}: no resource usage found", hint=hint)
    return usage


def _sibling_usage(path: str) -> dict[tuple[str, str], Resources] | None:
    for suffix in _USAGE_SUFFIXES:
        if (beside := _sibling(path, suffix)) is not None:
            return _read_usage(beside)
    return None


def _sibling_facts(path: str) -> Callable[[Kernel], KernelFacts | None] | None:
    """What finds the facts of a kernel in a file beside the dump; None where there is no such file."""
    for suffix in (*_ELF_SUFFIXES, ".cubin"):
        if (beside := _sibling(path, suffix)) is None:
            continue
        try:
            with beside.open("rb") as file:
                is_binary = file.read(len(_ELF_MAGIC)) == _ELF_MAGIC
        except OSError as error:
            raise InputError(f"{beside}: {error.strerror or error}", hint="check its permissions") from None
        return _cubin_facts(beside) if is_binary else _elf_text_facts(beside)
    return None


def _cubin_facts(path: Path) -> Callable[[Kernel], KernelFacts | None]:
    """Facts of kernels whose code is as long in the cubin as in the dump: it may be of another build."""
    stated = _cubin_info(str(path), str(path))

    def find(kernel: Kernel) -> KernelFacts | None:
        same = stated.code_bytes.get(kernel.name) == len(kernel) * INSTRUCTION_BYTES
        return stated.facts.get(kernel.name) if same else None

    return find


def _elf_text_facts(path: Path) -> Callable[[Kernel], KernelFacts | None]:
    from analyzer.frontend.elf_text import read_elf_text

    hint = "make it with: cuobjdump -elf kernel.cubin > kernel.elf"
    try:
        facts = read_elf_text(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint=hint) from None
    if not facts:
        raise InputError(f"{path}: this is not what cuobjdump -elf prints", hint=hint)
    return lambda kernel: find_variant(facts, kernel.arch, kernel.name)


def _sibling(path: str, suffix: str) -> Path | None:
    """The file of the same stem with this suffix, if it exists and is not the input itself."""
    own = Path(path)
    if path == STANDARD_INPUT or not own.name or own.suffix == suffix:
        return None
    beside = own.with_suffix(suffix)
    return beside if beside.is_file() else None


def _with_resources(module: Module, find: Callable[[Kernel], Resources | None]) -> Module:
    kernels = []
    for kernel in module.kernels:
        found = find(kernel)
        kernels.append(
            kernel if found is None else replace(kernel, resources=_merged(kernel.resources, found))
        )
    return replace(module, kernels=tuple(kernels))


def _merged(base: Resources, over: Resources) -> Resources:
    """`over` where it says something, `base` elsewhere."""

    def pick(first: int | None, second: int | None) -> int | None:
        return second if first is None else first

    return Resources(
        registers=pick(over.registers, base.registers),
        registers_exact=over.registers_exact if over.registers is not None else base.registers_exact,
        shared_bytes=pick(over.shared_bytes, base.shared_bytes),
        dynamic_shared_bytes=pick(over.dynamic_shared_bytes, base.dynamic_shared_bytes),
        local_bytes=pick(over.local_bytes, base.local_bytes),
        stack_bytes=pick(over.stack_bytes, base.stack_bytes),
        barriers=pick(over.barriers, base.barriers),
        block_threads=pick(over.block_threads, base.block_threads),
        block_threads_exact=(
            over.block_threads_exact if over.block_threads is not None else base.block_threads_exact
        ),
    )


def _sibling_metadata(path: str) -> TritonMetadata | None:
    """Triton's metadata beside the input; None where that file is missing or is something else."""
    beside = _sibling(path, ".json")
    return None if beside is None else read_metadata(beside)


def _settled(kernel: Kernel, metadata: TritonMetadata | None) -> Kernel:
    """The kernel without the system's shared memory, and with what Triton's metadata adds."""
    resources = _without_reserve(kernel.resources, kernel.arch)
    if resources is not kernel.resources:
        kernel = replace(kernel, resources=resources)
    if metadata is not None and metadata.name == kernel.name:
        kernel = with_metadata(kernel, metadata)
    return kernel


def _without_reserve(resources: Resources, arch: str) -> Resources:
    """From sm_90 on the tools count the reserve of each CTA as the kernel's own; occupancy adds it again."""
    match = _ARCH.match(arch)
    stated = resources.shared_bytes
    if match is None or int(match[1]) < _RESERVING_ARCH or stated is None:
        return resources
    return replace(resources, shared_bytes=max(0, stated - _RESERVED_SHARED_BYTES))
