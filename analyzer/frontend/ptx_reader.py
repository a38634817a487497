"""PTX as an input: assembled by ptxas for the GPUs at hand, then read as the cubins that come out.

The report of PTX is that of its cubin, so what is said of stalls and registers holds. Lines of the PTX stand
where the cubin has no source lines, and beside them where it has.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.files import read_file
from analyzer.frontend.cubin_elf import CubinElf, DamagedElfError
from analyzer.frontend.line_tables import PTX_SECTION, LineTable, read_line_tables
from analyzer.frontend.ptx_assembler import (
    AssembledPtx,
    MissingAssemblerError,
    assemble_ptx,
    list_assemblers,
)
from analyzer.frontend.ptx_completion import complete_ptx, is_incomplete
from analyzer.frontend.ptx_parameters import add_parameter_types
from analyzer.frontend.ptx_pieces import choose_ptx_modules, split_ptx_modules
from analyzer.frontend.ptx_targets import choose_targets, describe_target, find_ptx_target
from analyzer.hardware.gpu_selection import find_gpus
from analyzer.ir.arrays import IntArray
from analyzer.ir.module import Kernel, Module, SourceFormat, SourceLine
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic, Severity

_MAX_CUBIN_BYTES = 1 << 30


class PtxOptions(Struct, frozen=True, kw_only=True):
    """How PTX becomes instructions."""

    arch: str = ""  # assembled for, goes before the GPUs; "": theirs, or the PTX's own where there are none
    gpus: tuple[str, ...] = ()  # by name or TOML file
    ptxas: str | None = None  # path of the program; None: searched for
    optimization_level: int | None = None  # 0 to 3; None: ptxas's own
    is_virtual: bool = False  # leave ptxas out
    is_part: bool = False  # of a kernel: what it leaves in registers counts as used


def read_ptx(
    display_path: str, text: bytes, options: PtxOptions, read_cubin: Callable[[str, str], Module]
) -> Module:
    """Return the kernels of PTX, once for each architecture among the targets.

    read_cubin: reads a cubin, called with the name for its errors and its path.
    Raises InputError for what is wrong with the PTX, at its line; ToolError where ptxas or a disassembler
    is missing or fails; UsageError where the ptxas that was named is no program; HardwareError for a GPU.
    """
    wanted = list_wanted_archs(options)
    if is_incomplete(text):
        made = [
            _read_incomplete(display_path, text, options, arch, read_cubin)
            for arch in dict.fromkeys(wanted or ("",))
        ]
        return join_modules(made)
    modules = split_ptx_modules(text)
    if len(modules) == 1:
        return _read_module(display_path, modules[0], options, wanted, read_cubin)
    found = [
        _read_module(display_path, module, options, archs, read_cubin)
        for module, archs in choose_ptx_modules(display_path, modules, wanted)
    ]
    return replace(join_modules(found), toolchain=", ".join(dict.fromkeys(each.toolchain for each in found)))


def _read_incomplete(
    display_path: str,
    text: bytes,
    options: PtxOptions,
    arch: str,
    read_cubin: Callable[[str, str], Module],
) -> Module:
    """Return the kernels of PTX without a header, or of a body, for one architecture.

    ptxas would leave out of a part what nothing stores, so it is not asked.
    """
    whole = complete_ptx(text, arch, Path(display_path).stem)
    if whole.is_part:
        options = replace(options, is_virtual=True, is_part=True)
    try:
        module = _read_module(display_path, whole.text, options, (arch,) if arch else (), read_cubin)
    except InputError as error:
        place = error.diagnostic.location
        if place is None or place.line > 1:
            raise
        column, line = max(1, place.column - whole.n_added), place.text[whole.n_added :]
        where = replace(place, column=column, text=line)
        raise InputError(error.diagnostic.message, location=where, hint=error.diagnostic.hint) from None
    return replace(module, diagnostics=(*whole.diagnostics, *module.diagnostics))


def _read_module(
    display_path: str,
    text: bytes,
    options: PtxOptions,
    wanted: Sequence[str],
    read_cubin: Callable[[str, str], Module],
) -> Module:
    """Return the kernels of one PTX module for the architectures that are wanted; its own where none is."""
    archs, refused = choose_targets(display_path, text, wanted)
    if options.is_virtual:
        return _read_virtual(display_path, text, archs, is_part=options.is_part)
    try:
        return _read_assembled(display_path, text, options, archs, refused, read_cubin)
    except MissingAssemblerError as error:
        if options.ptxas is not None:
            raise
        module = _read_virtual(display_path, text, archs)
        message = f"read without ptxas, so registers and stalls are estimated: {error.diagnostic.message}"
        warning = Diagnostic(Severity.WARNING, "no-ptxas", message, hint=error.diagnostic.hint)
        return replace(module, diagnostics=(*module.diagnostics, warning))


def _read_assembled(
    display_path: str,
    text: bytes,
    options: PtxOptions,
    archs: Sequence[str],
    refused: Sequence[str],
    read_cubin: Callable[[str, str], Module],
) -> Module:
    """Return the kernels as ptxas makes them. Raises MissingAssemblerError where none takes the PTX."""
    tools = list_assemblers(options.ptxas)
    modules, made = list[Module](), list[AssembledPtx]()
    for arch in archs:
        with assemble_ptx(display_path, text, arch, tools, options.optimization_level) as assembled:
            _check_has_code(display_path, assembled.path)
            module = read_cubin(display_path, assembled.path)
            modules.append(add_ptx_lines(module, read_ptx_line_tables(assembled.path), display_path))
            made.append(assembled)
    joined = add_parameter_types(join_modules(modules), text)
    notes = _list_refusals(display_path, text, refused)
    return replace(
        joined,
        source_format=SourceFormat.PTX,
        toolchain=_describe(made, options),
        diagnostics=(*joined.diagnostics, *notes),
    )


def _read_virtual(display_path: str, text: bytes, archs: Sequence[str], *, is_part: bool = False) -> Module:
    """Return the kernels lowered to each architecture without ptxas."""
    from analyzer.frontend.ptx.lowering import lower_ptx_module
    from analyzer.frontend.ptx.parser import parse_ptx

    ptx, warnings = parse_ptx(text, display_path)
    return join_modules(
        [lower_ptx_module(ptx, display_path, arch, warnings, is_part=is_part) for arch in archs]
    )


def list_wanted_archs(options: PtxOptions) -> tuple[str, ...]:
    """Return the architectures that PTX is assembled for; none: its own. Raises HardwareError."""
    return (options.arch,) if options.arch else tuple(gpu.code[0] for gpu in find_gpus(options.gpus))


def _check_has_code(display_path: str, cubin_path: str) -> None:
    """Raise InputError for a cubin without code: ptxas leaves out functions that no kernel calls."""
    try:
        sections = CubinElf(read_file(cubin_path, _MAX_CUBIN_BYTES)).sections
    except (InputError, DamagedElfError):  # whoever reads the code says so
        return
    if not any(section.find_kernel_name(".text.") for section in sections):
        raise InputError(
            f"{display_path}: PTX without a kernel, from which ptxas makes no code",
            hint="give the PTX that has the .entry; functions alone must be linked first",
        )


def join_modules(modules: Sequence[Module]) -> Module:
    """Return the kernels of several modules as one, which has the path of the first."""
    return replace(
        modules[0],
        kernels=tuple(kernel for module in modules for kernel in module.kernels),
        diagnostics=tuple(dict.fromkeys(each for module in modules for each in module.diagnostics)),
    )


def read_ptx_line_tables(cubin_path: str) -> dict[str, LineTable]:
    """Return the PTX lines of each function in a cubin; none where the cubin does not have them."""
    with suppress(OSError, InputError, DamagedElfError):
        return read_line_tables(CubinElf(read_file(cubin_path, _MAX_CUBIN_BYTES)), PTX_SECTION)
    return {}


def add_ptx_lines(module: Module, tables: dict[str, LineTable], ptx_path: str) -> Module:
    """Return the module with the PTX line of each instruction: the source line where there is no other."""
    kernels = tuple(
        _add_kernel_lines(kernel, tables[kernel.name], ptx_path) if kernel.name in tables else kernel
        for kernel in module.kernels
    )
    return replace(module, kernels=kernels)


def add_ptx_lines_later(module: Module, cubin_path: str, ptx_path: str) -> Module:
    """Return the module of a cubin with the lines of PTX; they are read when asked for, if it has others."""
    if any(kernel.source_line_ids is None for kernel in module.kernels):
        return add_ptx_lines(module, read_ptx_line_tables(cubin_path), ptx_path)
    read_tables = cache(partial(read_ptx_line_tables, cubin_path))

    def read_lines(kernel: Kernel) -> IntArray:
        table = read_tables().get(kernel.name)
        return np.zeros(len(kernel), np.int64) if table is None else table.find_lines(kernel.addresses)

    kernels = tuple(replace(one, read_ptx_lines=partial(read_lines, one)) for one in module.kernels)
    return replace(module, kernels=kernels)


def _add_kernel_lines(kernel: Kernel, table: LineTable, ptx_path: str) -> Kernel:
    lines = table.find_lines(kernel.addresses)
    if kernel.source_line_ids is not None:
        return replace(kernel, ptx_lines=lines)
    numbers = sorted(set(lines[lines > 0].tolist()))
    places = {line: place for place, line in enumerate(numbers)}
    ids = lines.astype(kernel.text_ids.dtype)
    ids[:] = [places.get(line, -1) for line in lines.tolist()]
    return replace(
        kernel, source_line_ids=ids, source_lines=tuple(SourceLine(ptx_path, line) for line in numbers)
    )


def _describe(made: Sequence[AssembledPtx], options: PtxOptions) -> str:
    """Return `ptxas 13.0 for sm_80, sm_90`, and so on for each release that was taken."""
    level = "" if options.optimization_level is None else f" -O{options.optimization_level}"
    archs: dict[tuple[str, str], list[str]] = {}
    for one in made:
        release = f" {one.release}" if one.release else ""
        version = f", read as PTX {one.read_as_version}" if one.read_as_version else ""
        archs.setdefault((f"ptxas{release}{level}", version), []).append(one.arch)
    return "; ".join(f"{tool} for {', '.join(found)}{version}" for (tool, version), found in archs.items())


def _list_refusals(path: str, text: bytes, refused: Sequence[str]) -> tuple[Diagnostic, ...]:
    if not refused:
        return ()
    target = find_ptx_target(path, text)
    message = (
        f"PTX for {target.arch} cannot be assembled for {', '.join(refused)}: {describe_target(target)}; "
        "GPUs of these architectures take the code as it is"
    )
    return (Diagnostic(Severity.WARNING, "unsupported-architecture", message),)
