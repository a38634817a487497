"""Reads any input to a `Module`: detects its format, calls its reader, and adds what files beside it say.

Files beside an input have its name with another suffix: resource usage (`.res`), ELF tables (`.elf`,
`.cubin`) and Triton's metadata (`.json`).
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from analyzer.files import limit_bytes, read_file, split_dense_pieces
from analyzer.frontend.arch_lookup import find_arch_entry, find_compiled_name, set_missing_arch
from analyzer.frontend.format_refusals import check_readable
from analyzer.frontend.input_folder import KernelFiles, is_folder, list_kernels
from analyzer.frontend.input_format import HEAD_BYTES, InputFormat, detect_format
from analyzer.frontend.kernel_metadata import KernelMetadata, add_kernel_metadata
from analyzer.frontend.linking import CodeRelocation, link_callees
from analyzer.frontend.pasted_text import PASTED_BYTES, is_pasted, undo_pasting
from analyzer.frontend.ptx_reader import PtxOptions, add_ptx_lines_later, read_ptx
from analyzer.frontend.resource_usage import read_resource_usage
from analyzer.frontend.sass_diagnostics import MIN_ARCH, is_unsupported_arch, make_old_arch_error
from analyzer.frontend.sass_parser import parse_sass
from analyzer.frontend.triton_metadata import (
    IR_SUFFIXES,
    TritonMetadata,
    add_triton_metadata,
    read_triton_metadata,
)
from analyzer.ir.module import INSTRUCTION_BYTES, Kernel, KernelResources, Module, SourceFormat
from analyzer.text.errors import InputError, ToolError, WarplensError
from analyzer.text.source import Diagnostic, Severity

if TYPE_CHECKING:
    from analyzer.frontend.cubin_info import CubinInfo

STANDARD_INPUT = "-"
_CHUNK_BYTES = 8 << 20
_MAX_INPUT_BYTES = 64 << 30
_MAX_LISTING_BYTES = 128 << 20
_MAX_CUBIN_BYTES = 1 << 30
_MAX_PTX_BYTES = 256 << 20
_UTF8_BOM = b"\xef\xbb\xbf"
_USAGE_SUFFIXES = (".res", ".res-usage")
_ELF_SUFFIXES = (".elf", ".elf.txt")
_CUBIN_SUFFIX = ".cubin"
_PTX_SUFFIX = ".ptx"
# Of what `analyze` reads beside an input, with --levels the same kernel at other levels.
_SIBLING_SUFFIXES = (*_USAGE_SUFFIXES, *_ELF_SUFFIXES, _CUBIN_SUFFIX, _PTX_SUFFIX, ".sass", *IR_SUFFIXES)
_ELF_HEADER_BYTES = 64
_ELF_MAGIC = b"\x7fELF"
_MIN_RESERVED_SHARED_ARCH = 90
_RESERVED_SHARED_BYTES = 1024
_ARCH = re.compile(r"sm_(\d{1,4})(?!\d)")
_LISTING_FORMATS: Mapping[InputFormat, SourceFormat] = MappingProxyType(
    {
        InputFormat.LISTING: SourceFormat.LISTING,
        InputFormat.CUASSEMBLER: SourceFormat.CUASSEMBLER,
        InputFormat.CUDA_GDB: SourceFormat.CUDA_GDB,
        InputFormat.NVDISASM_JSON: SourceFormat.NVDISASM_JSON,
        InputFormat.SOURCE_PAGE: SourceFormat.SOURCE_PAGE,
    }
)
_LATE_CODE_FORMATS = (InputFormat.ELF_TABLES, InputFormat.RESOURCE_USAGE)
_BINARY_FORMATS = (InputFormat.CUBIN, InputFormat.FATBIN, InputFormat.HOST_BINARY, InputFormat.ARCHIVE)


def read_module(
    path: str, *, usage_path: str | None = None, arch: str = "", ptx: PtxOptions | None = None
) -> Module:
    """Read a SASS dump, a GPU binary, PTX or a trace, as its content shows; ``-`` is standard input.

    - Parameters and constants come from cubins, also those in objects and libraries. For a dump they come
      from `cuobjdump -elf` text in the dump, or from `NAME.elf`, `NAME.elf.txt` or `NAME.cubin` beside it.
    - Block size, dynamic shared memory and names of arguments come from Triton's `NAME.json` beside the
      input.
    - `shared_bytes` of a kernel excludes what the system reserves in each CTA (1024 bytes from sm_90 on).

    usage_path: `cuobjdump -res-usage` text; if None, `NAME.res` or `NAME.res-usage` beside a dump is read.
    arch: architecture of kernels for which the input names none, or that PTX is for; see `parse_arch`.
    ptx: how PTX becomes instructions.

    Raises InputError if the input cannot be read, ToolError if a CUDA tool is missing or fails.
    """
    usage = None if usage_path is None else _read_usage_file(Path(usage_path))
    with _open_input(path) as file:
        head, rest, notes = _undo_pasting(path, file)
        module, is_dump = _read_input(path, head, rest, _choose_ptx_options(ptx, arch))
        module = replace(module, diagnostics=(*notes, *module.diagnostics))
    if is_dump:
        module = link_callees(module)
    if arch:
        module = set_missing_arch(module, arch)
    if usage is None and is_dump:
        usage = _read_sibling_usage(path)
    if is_dump and (find_metadata := _make_sibling_metadata_finder(path)) is not None:
        module = add_kernel_metadata(module, find_metadata)
    if usage:
        module = _add_resources(module, lambda kernel: find_arch_entry(usage, kernel.arch, kernel.name))
    return _finalize_module(module, _read_sibling_triton_metadata(path))


def read_modules(
    paths: Sequence[str],
    *,
    usage_path: str | None = None,
    arch: str = "",
    ptx: PtxOptions | None = None,
    jobs: int = 1,
) -> Iterator[tuple[str, Module | WarplensError]]:
    """Yield each file with its module, or with the error if it cannot be read; see `read_module`.

    Cubins of one kernel each, as Triton writes them, are read together.
    jobs: tools that run at a time.
    """
    cubins = [path for path in paths if path.endswith(_CUBIN_SUFFIX)]
    metadata: dict[str, TritonMetadata | None] = {}

    def read_metadata() -> None:
        metadata.update((path, _read_sibling_triton_metadata(path)) for path in cubins)

    together = {}
    if len(cubins) > 1 and not arch and usage_path is None:
        from analyzer.frontend.cubin_batch import read_cubins
        from analyzer.frontend.disassembler import disassemble

        def read_alone(path: str) -> Module:
            return parse_sass(_make_display_path(path), disassemble(path))

        together = read_cubins(cubins, read_alone, jobs, read_metadata)
    for path in paths:
        try:
            if path in together:
                module = _add_sibling_ptx_lines(_add_cubin_info(*together[path]), path)
                module = replace(module, path=_make_display_path(path))
                yield path, _finalize_module(module, metadata[path])
            else:
                yield path, read_module(path, usage_path=usage_path, arch=arch, ptx=ptx)
        except (InputError, ToolError) as error:
            yield path, error


def read_cubin_text(path: str, chunks: Iterable[bytes]) -> Module:
    """Read the cubin of which `chunks` are nvdisasm's text, of all or some of its functions.

    Raises InputError and ToolError as `read_module` does.
    """
    display_path = _make_display_path(path)
    _check_cubin_arch(display_path, path)
    cubin_info = _read_cubin_info(display_path, path)
    module = _add_cubin_info(parse_sass(display_path, chunks), cubin_info)
    return _finalize_module(_add_sibling_ptx_lines(module, path), _read_sibling_triton_metadata(path))


def _finalize_module(module: Module, metadata: TritonMetadata | None) -> Module:
    kernels = tuple(_finalize_kernel(kernel, metadata) for kernel in module.kernels)
    return replace(module, kernels=kernels, triton={} if metadata is None else metadata.details)


def _choose_ptx_options(options: PtxOptions | None, arch: str) -> PtxOptions:
    chosen = options or PtxOptions()
    return replace(chosen, arch=arch) if arch else chosen


@contextmanager
def _open_input(path: str) -> Iterator[BinaryIO]:
    """Open the input as a binary file. Raises InputError if that fails."""
    if path == STANDARD_INPUT:
        if sys.stdin is None:  # `<&-`
            raise InputError("<stdin>: standard input is closed", hint="give a file, or a pipe")
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115, closed below: only opening it is in the `try`
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise _make_open_error(path, error) from None
    with file:
        yield file


def _make_open_error(path: str, error: OSError | ValueError) -> InputError:
    if isinstance(error, IsADirectoryError):
        return InputError(f"{path}: this is a folder", hint="name one of the files in it")
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file", hint=f"looked in {Path.cwd()}")
    reason = getattr(error, "strerror", None) or error
    return InputError(f"{path!s}: {reason}", hint="check the path and its permissions")


def _read_bytes(path: str, file: BinaryIO, n_bytes: int) -> bytes:
    """Read up to `n_bytes` bytes of the input. Raises InputError for an error of the operating system."""
    try:
        return file.read(n_bytes)
    except OSError as error:
        raise _make_open_error(path, error) from None


def _undo_pasting(path: str, file: BinaryIO) -> tuple[bytes, BinaryIO, tuple[Diagnostic, ...]]:
    """Return the first bytes of an input, the rest of it, and what was taken away, if it was pasted text."""
    head = _read_bytes(path, file, PASTED_BYTES)
    if not is_pasted(head):
        return head, file, ()
    text = _join_bounded(path, _read_chunks(path, head, file), _MAX_LISTING_BYTES)
    cleaned = undo_pasting(text)
    return (text, BytesIO(), ()) if cleaned is None else (cleaned.text, BytesIO(), cleaned.diagnostics)


def _read_input(path: str, head: bytes, file: BinaryIO, ptx: PtxOptions) -> tuple[Module, bool]:
    """Return the module, and whether it was read from a text dump."""
    found = detect_format(head)
    if found in _LATE_CODE_FORMATS and len(head) >= HEAD_BYTES:
        return _read_late_code(path, head.removeprefix(_UTF8_BOM), file, found), True
    check_readable(_make_display_path(path), found)
    if found is InputFormat.PTX:
        text = _join_bounded(path, _read_chunks(path, head.removeprefix(_UTF8_BOM), file), _MAX_PTX_BYTES)
        return read_ptx(_make_display_path(path), text, ptx, _read_cubin), False
    if found is InputFormat.TRACE:
        from analyzer.frontend.trace_files import read_trace_module

        chunks = _read_chunks(path, head.removeprefix(_UTF8_BOM), file)
        return read_trace_module(_make_display_path(path), chunks), False
    if found in _LISTING_FORMATS:
        chunks = _read_chunks(path, head.removeprefix(_UTF8_BOM), file)
        return _read_listing(path, _join_bounded(path, chunks, _MAX_LISTING_BYTES), found), True
    if found not in _BINARY_FORMATS:
        return _read_dump(path, head.removeprefix(_UTF8_BOM), file), True
    if path != STANDARD_INPUT:
        return _read_binary(path, path, found), False
    from tempfile import NamedTemporaryFile

    try:
        copy = NamedTemporaryFile(prefix="warplens-")  # noqa: SIM115, closed below
        for chunk in _read_chunks(path, head, file):
            copy.write(chunk)
        copy.flush()
    except OSError as error:
        reason = f"cannot keep a copy of the binary: {error.strerror or error}"
        raise InputError(f"{_make_display_path(path)}: {reason}", hint="free space in TMPDIR") from None
    with copy:
        return _read_binary(_make_display_path(path), copy.name, found), False


def _read_dump(path: str, head: bytes, file: BinaryIO) -> Module:
    """Read a text dump; `cuobjdump -elf -sass` prints ELF tables before it."""
    display_path, chunks = _make_display_path(path), _read_chunks(path, head, file)
    if b"ELF:" not in head and b"elf:" not in head:
        return parse_sass(display_path, chunks)
    from analyzer.frontend.elf_text import ElfTextFilter

    tables = ElfTextFilter()
    module = parse_sass(display_path, tables.filter_chunks(chunks))
    metadata = tables.collect_metadata()
    return add_kernel_metadata(module, lambda kernel: find_arch_entry(metadata, kernel.arch, kernel.name))


def _read_late_code(path: str, head: bytes, file: BinaryIO, found: InputFormat) -> Module:
    """Read a long text whose first part has no code: `cuobjdump -elf -sass` prints tables first.

    Raises InputError, which names the format, if no code follows.
    """
    try:
        return _read_dump(path, head, file)
    except InputError as error:
        if error.diagnostic.location is None:
            check_readable(_make_display_path(path), found)
        raise


def _join_bounded(path: str, chunks: Iterable[bytes], max_bytes: int) -> bytes:
    """Return a whole text. Raises InputError if it is larger than any that people or compilers make."""
    try:
        return b"".join(limit_bytes(chunks, max_bytes))
    except OSError as error:
        raise _make_open_error(_make_display_path(path), error) from None


def _read_listing(path: str, data: bytes, found: InputFormat) -> Module:
    """Read code that is not in the text of cuobjdump or nvdisasm."""
    from analyzer.frontend.listing_parser import parse_listing
    from analyzer.frontend.nvdisasm_json import parse_nvdisasm_json
    from analyzer.frontend.source_page import parse_source_page

    display_path = _make_display_path(path)
    name = display_path.strip("<>") if path == STANDARD_INPUT else Path(path).stem
    if found is InputFormat.NVDISASM_JSON:
        return parse_nvdisasm_json(display_path, data)
    if found is InputFormat.SOURCE_PAGE:
        return parse_source_page(display_path, data, name)
    return parse_listing(display_path, data, _LISTING_FORMATS[found], name)


def _make_display_path(path: str) -> str:
    """Return the path as it is shown; bytes that are no UTF-8 as their codes."""
    if path == STANDARD_INPUT:
        return "<stdin>"
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _read_chunks(path: str, head: bytes, file: BinaryIO) -> Iterator[bytes]:
    pieces = chain([head], iter(lambda: _read_bytes(path, file, _CHUNK_BYTES), b""))
    try:
        yield from split_dense_pieces(limit_bytes(pieces, _MAX_INPUT_BYTES))
    except OSError as error:
        raise _make_open_error(path, error) from None


def _read_binary(display_path: str, path: str, found: InputFormat) -> Module:
    """Read a cubin, object, library or archive; errors name it by `display_path`."""
    from analyzer.frontend.binary_metadata import read_binary_metadata
    from analyzer.frontend.disassembler import disassemble, read_binary_resource_usage

    if found is InputFormat.CUBIN:
        return _add_sibling_ptx_lines(_read_cubin(display_path, path), path)
    usage = read_binary_resource_usage(path)
    refused: list[str] = []
    archs = sorted({arch for arch, _ in usage})
    old = [arch for arch in archs if is_unsupported_arch(arch)]
    if old and len(old) == len(archs):
        raise make_old_arch_error(", ".join(old), path=display_path)
    refused += [f"{arch} code is left out: encodings before sm_{MIN_ARCH} are not read" for arch in old]
    module = parse_sass(display_path, disassemble(path, archs=archs, refused=refused))
    notes = tuple(Diagnostic(Severity.WARNING, "unsupported-architecture", text) for text in refused)
    module = replace(module, diagnostics=(*module.diagnostics, *notes))
    module = _add_resources(module, lambda kernel: find_arch_entry(usage, kernel.arch, kernel.name))
    metadata = read_binary_metadata(path)
    return add_kernel_metadata(module, lambda kernel: find_arch_entry(metadata, kernel.arch, kernel.name))


def _read_cubin(display_path: str, path: str) -> Module:
    from analyzer.frontend.disassembler import disassemble

    _check_cubin_arch(display_path, path)
    cubin_info = _read_cubin_info(display_path, path)
    return _add_cubin_info(parse_sass(display_path, disassemble(path)), cubin_info)


def _add_cubin_info(module: Module, cubin_info: "CubinInfo") -> Module:
    module = _add_resources(module, lambda kernel: cubin_info.resources.get(kernel.name))
    module = add_kernel_metadata(module, lambda kernel: cubin_info.metadata.get(kernel.name))
    return link_callees(module, lambda kernel: _list_code_relocations(cubin_info, kernel))


def _list_code_relocations(cubin_info: "CubinInfo", kernel: Kernel) -> Sequence[CodeRelocation]:
    metadata = cubin_info.metadata.get(kernel.name)
    return () if metadata is None else metadata.code_relocations


def _add_sibling_ptx_lines(module: Module, path: str) -> Module:
    """Return the module of a cubin with the lines of the PTX beside it, if it lies there."""
    sibling = _find_sibling(path, _PTX_SUFFIX)
    return module if sibling is None else add_ptx_lines_later(module, path, str(sibling))


def _check_cubin_arch(display_path: str, path: str) -> None:
    """Raise InputError for a cubin that is too old, which only tools of old CUDA releases disassemble."""
    from analyzer.frontend.cubin_elf import read_cubin_arch

    with open(path, "rb") as file:
        number = read_cubin_arch(file.read(_ELF_HEADER_BYTES))
    if 0 < number < MIN_ARCH:
        raise make_old_arch_error(f"sm_{number}", path=display_path)


def _read_cubin_info(display_path: str, path: str) -> "CubinInfo":
    from analyzer.frontend.cubin_info import parse_cubin

    try:
        return parse_cubin(read_file(path, _MAX_CUBIN_BYTES))
    except OSError as error:
        raise _make_open_error(display_path, error) from None
    except InputError as error:
        raise InputError(f"{display_path}: {error}", hint=error.diagnostic.hint) from None


def _read_usage_file(path: Path) -> dict[tuple[str, str], KernelResources]:
    hint = "make it with: cuobjdump -res-usage kernel.cubin > kernel.res"
    try:
        usage = read_resource_usage(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint=hint) from None
    except ValueError:
        raise InputError(f"{path}: this is not resource usage as cuobjdump prints it", hint=hint) from None
    if not usage:
        raise InputError(f"{path}: no resource usage found", hint=hint)
    return usage


def _read_sibling_usage(path: str) -> dict[tuple[str, str], KernelResources] | None:
    for suffix in _USAGE_SUFFIXES:
        if (sibling := _find_sibling(path, suffix)) is not None:
            return _read_usage_file(sibling)
    return None


def _make_sibling_metadata_finder(path: str) -> Callable[[Kernel], KernelMetadata | None] | None:
    """Return a function that finds a kernel's metadata in a file beside the dump; None without a file."""
    for suffix in (*_ELF_SUFFIXES, ".cubin"):
        if (sibling := _find_sibling(path, suffix)) is None:
            continue
        try:
            with sibling.open("rb") as file:
                is_binary = file.read(len(_ELF_MAGIC)) == _ELF_MAGIC
        except OSError as error:
            raise InputError(f"{sibling}: {error.strerror or error}", hint="check its permissions") from None
        return _make_cubin_metadata_finder(sibling) if is_binary else _make_elf_text_metadata_finder(sibling)
    return None


def _make_cubin_metadata_finder(path: Path) -> Callable[[Kernel], KernelMetadata | None]:
    """Return a function that finds a kernel's metadata in a cubin.

    It finds none for a kernel whose code is not as long in the cubin as in the dump: the cubin may be of
    another build.
    """
    cubin_info = _read_cubin_info(str(path), str(path))

    def find(kernel: Kernel) -> KernelMetadata | None:
        name = find_compiled_name(cubin_info.code_bytes, kernel.name)
        same = cubin_info.code_bytes.get(name) == len(kernel) * INSTRUCTION_BYTES
        return cubin_info.metadata.get(name) if same else None

    return find


def _make_elf_text_metadata_finder(path: Path) -> Callable[[Kernel], KernelMetadata | None]:
    from analyzer.frontend.elf_text import read_elf_text

    hint = "make it with: cuobjdump -elf kernel.cubin > kernel.elf"
    try:
        metadata = read_elf_text(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint=hint) from None
    if not metadata:
        raise InputError(f"{path}: this is not what cuobjdump -elf prints", hint=hint)
    return lambda kernel: find_arch_entry(metadata, kernel.arch, kernel.name)


def list_read_paths(path: str) -> list[str]:
    """Return the files that are read for an input: itself and those beside it, of a folder all kernels'."""
    if not is_folder(path):
        return [path, *_list_sibling_paths(path)]
    with suppress(InputError):
        kernels = chain(*list_kernels(path))
        return [file for one in kernels for file in _list_level_paths(one)]
    return []


def _list_level_paths(kernel: KernelFiles) -> list[str]:
    """Return the files of a kernel in a folder; JSON beside them is one where it is Triton's."""
    levels = [file for level, file in kernel.levels.items() if level != "json"]
    return [*levels, *_list_sibling_paths(levels[0])]


def _list_sibling_paths(path: str) -> list[str]:
    """Return the files beside an input that are read with it, as far as they exist and are what they seem."""
    found = (_find_sibling(path, suffix) for suffix in _SIBLING_SUFFIXES)
    siblings = [str(sibling) for sibling in found if sibling is not None]
    metadata = _find_sibling(path, ".json")
    if metadata is not None and read_triton_metadata(metadata) is not None:
        siblings.append(str(metadata))
    return siblings


def list_possible_siblings(path: str) -> list[Path]:
    """Return the files beside an input that decide what is read from it, whatever they turn out to be."""
    suffixes = (*_USAGE_SUFFIXES, *_ELF_SUFFIXES, _CUBIN_SUFFIX, _PTX_SUFFIX, ".json")
    return [sibling for suffix in suffixes if (sibling := _find_sibling(path, suffix)) is not None]


def _find_sibling(path: str, suffix: str) -> Path | None:
    """Return the file of the same stem with this suffix, if it exists and is not the input itself."""
    own = Path(path)
    if path == STANDARD_INPUT or not own.name or own.suffix == suffix:
        return None
    sibling = own.with_suffix(suffix)
    return sibling if sibling.is_file() else None


def _add_resources(module: Module, find: Callable[[Kernel], KernelResources | None]) -> Module:
    kernels = []
    for kernel in module.kernels:
        found = find(kernel)
        kernels.append(
            kernel if found is None else replace(kernel, resources=_merge_resources(kernel.resources, found))
        )
    return replace(module, kernels=tuple(kernels))


def _merge_resources(base: KernelResources, over: KernelResources) -> KernelResources:
    """Return the resources of `over`, and those of `base` where `over` has None."""

    def pick(first: int | None, second: int | None) -> int | None:
        return second if first is None else first

    return KernelResources(
        registers=pick(over.registers, base.registers),
        has_exact_registers=over.has_exact_registers
        if over.registers is not None
        else base.has_exact_registers,
        shared_bytes=pick(over.shared_bytes, base.shared_bytes),
        dynamic_shared_bytes=pick(over.dynamic_shared_bytes, base.dynamic_shared_bytes),
        local_bytes=pick(over.local_bytes, base.local_bytes),
        stack_bytes=pick(over.stack_bytes, base.stack_bytes),
        barriers=pick(over.barriers, base.barriers),
        block_threads=pick(over.block_threads, base.block_threads),
        has_exact_block_threads=(
            over.has_exact_block_threads if over.block_threads is not None else base.has_exact_block_threads
        ),
    )


def _read_sibling_triton_metadata(path: str) -> TritonMetadata | None:
    """Read Triton's metadata beside the input; None if that file is missing or is something else."""
    sibling = _find_sibling(path, ".json")
    return None if sibling is None else read_triton_metadata(sibling)


def _finalize_kernel(kernel: Kernel, metadata: TritonMetadata | None) -> Kernel:
    """Return the kernel without the system's shared memory, and with what Triton's metadata adds."""
    resources = _subtract_reserved_shared(kernel.resources, kernel.arch)
    if resources is not kernel.resources:
        kernel = replace(kernel, resources=resources)
    if metadata is not None and metadata.name == kernel.name:
        kernel = add_triton_metadata(kernel, metadata)
    return kernel


def _subtract_reserved_shared(resources: KernelResources, arch: str) -> KernelResources:
    """Subtract the system's reserve of each CTA, which the tools include from sm_90 on.

    `compute_occupancy` adds it again.
    """
    match = _ARCH.match(arch)
    shared_bytes = resources.shared_bytes
    if match is None or int(match[1]) < _MIN_RESERVED_SHARED_ARCH or shared_bytes is None:
        return resources
    return replace(resources, shared_bytes=max(0, shared_bytes - _RESERVED_SHARED_BYTES))
