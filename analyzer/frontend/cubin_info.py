"""Resources, parameters and constants of the kernels in a cubin.

Sizes of shared and local memory are those of the sections `.nv.shared.KERNEL` and `.nv.local.KERNEL`. The
rest are attributes in `.nv.info` (for all kernels, by symbol) and `.nv.info.KERNEL`. `cuobjdump -elf` prints
the names of their numbers (EIATTR_...).
"""

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum

from msgspec import Struct, field

from analyzer.frontend.cubin_constants import read_constant_banks, read_relocation_entries
from analyzer.frontend.cubin_elf import (
    OSABI_CUDA_13,
    SHT_REL,
    SHT_RELA,
    CubinElf,
    DamagedElfError,
    Section,
    unpack_fields,
)
from analyzer.frontend.kernel_metadata import KernelMetadata
from analyzer.frontend.linking import CodeRelocation
from analyzer.ir.module import INSTRUCTION_BYTES, KernelResources
from analyzer.text.errors import InputError

_TWO_WORDS = struct.Struct("<II")
_THREE_WORDS = struct.Struct("<III")
_BANK_RANGE_LAYOUT = struct.Struct("<IHH")
_PARAMETER_LAYOUT = struct.Struct("<IHHI")
_ATTRIBUTE_LAYOUT = struct.Struct("<BBH")
_UNBOUNDED_STACK = 0xFFFFFFFF  # recursion
_HIGH_RELOCATIONS = frozenset({57})  # R_CUDA_ABS32_HI_32, as cuobjdump -elf names it
_EIFMT_SVAL = 4  # the 16-bit value is the size of the payload after it


class _Attribute(IntEnum):
    """EIATTR numbers."""

    PARAM_CBANK = 0x0A
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    REGCOUNT = 0x2F
    CTA_PER_CLUSTER = 0x3D
    KPARAM_INFO_V2 = 0x45
    NUM_BARRIERS = 0x4C


_SYMBOL_ATTRIBUTES = (_Attribute.REGCOUNT, _Attribute.FRAME_SIZE, _Attribute.MIN_STACK_SIZE)


class _KernelInfo(Struct, kw_only=True):
    """Data on one kernel under construction; None if not stated."""

    metadata: KernelMetadata = field(default_factory=KernelMetadata)
    code_bytes: int
    registers: int | None = None
    stack_bytes: int | None = None
    frame_bytes: int | None = None
    shared_bytes: int = 0
    local_bytes: int = 0
    barriers: int = 0

    def build_resources(self) -> KernelResources:
        """Return the resources; a device function has a frame only, a kernel a stack with its callees."""
        stack_bytes = self.frame_bytes if self.stack_bytes is None else self.stack_bytes
        threads = self.metadata.required_block_threads
        return KernelResources(
            registers=self.registers,
            has_exact_registers=self.registers is not None,
            shared_bytes=self.shared_bytes,
            local_bytes=self.local_bytes,
            stack_bytes=None if stack_bytes == _UNBOUNDED_STACK else stack_bytes,
            barriers=self.barriers,
            block_threads=threads,
            has_exact_block_threads=threads is not None,
        )


class CubinInfo(Struct, frozen=True):
    """Data on each kernel and device function with code of its own, by name."""

    resources: Mapping[str, KernelResources]
    metadata: Mapping[str, KernelMetadata]
    code_bytes: Mapping[str, int]


def parse_cubin(data: bytes) -> CubinInfo:
    """Parse all of a cubin that is read without a tool.

    Resources are those of `cuobjdump -res-usage`: from sm_90 on `shared_bytes` includes the 1024 bytes that
    the system reserves in each CTA. `block_threads` is that of `.reqntid` alone: `.maxntid` is a bound.
    Raises InputError if the bytes are not a cubin, or an offset points outside them.
    """
    try:
        kernels = _parse_kernels(CubinElf(data))
    except DamagedElfError as error:
        raise InputError(f"the cubin is damaged: {error}", hint="build or copy it again") from None
    return CubinInfo(
        resources={name: kernel.build_resources() for name, kernel in kernels.items()},
        metadata={name: kernel.metadata for name, kernel in kernels.items()},
        code_bytes={name: kernel.code_bytes for name, kernel in kernels.items()},
    )


def _parse_kernels(elf: CubinElf) -> dict[str, _KernelInfo]:
    kernels: dict[str, _KernelInfo] = {}
    for section in elf.sections:
        if name := section.find_kernel_name(".text."):
            kernels[name] = _KernelInfo(barriers=_find_flag_barriers(elf, section), code_bytes=section.size)
    for section in elf.sections:
        if kernel := kernels.get(section.find_kernel_name(".nv.shared.")):
            kernel.shared_bytes = section.size
        elif kernel := kernels.get(section.find_kernel_name(".nv.local.")):
            kernel.local_bytes = section.size
    for section in elf.sections:
        if section.name == ".nv.info" or section.name.startswith(".nv.info."):
            _apply_attributes(elf, section, kernels)
    _read_code_relocations(elf, kernels)
    banks = read_constant_banks(elf)
    for name, kernel in kernels.items():
        kernel.metadata.constant_banks = banks.find_banks(name)
    return kernels


def _read_code_relocations(elf: CubinElf, kernels: dict[str, _KernelInfo]) -> None:
    """Note where code has addresses that the loader writes."""
    for section in elf.sections:
        if section.type not in (SHT_REL, SHT_RELA) or section.info >= len(elf.sections):
            continue
        if kernel := kernels.get(elf.sections[section.info].find_kernel_name(".text.")):
            kernel.metadata.code_relocations += [
                CodeRelocation(
                    address=offset - offset % INSTRUCTION_BYTES,
                    symbol=elf.read_symbol(index).name,
                    addend=addend,
                    is_high=kind in _HIGH_RELOCATIONS,
                )
                for offset, kind, index, addend in read_relocation_entries(elf, section)
            ]


def _find_flag_barriers(elf: CubinElf, section: Section) -> int:
    """Return the barriers in the section's flags, where CUDA before 13 stores them; 0 for later ones."""
    return 0 if elf.os_abi == OSABI_CUDA_13 else section.flags >> 20 & 0x7F


def _apply_attributes(elf: CubinElf, section: Section, kernels: dict[str, _KernelInfo]) -> None:
    owner = kernels.get(section.find_kernel_name(".nv.info."))
    if owner is not None:
        owner.metadata.has_parameter_info = True
    for number, value, payload in _parse_attributes(elf.read_section(section)):
        if number in _SYMBOL_ATTRIBUTES:
            index, amount = unpack_fields(_TWO_WORDS, payload, 0, "an attribute")
            _apply_symbol_attribute(number, amount, kernels.get(elf.read_symbol(index).name))
        elif owner is not None:
            _apply_kernel_attribute(number, value, payload, owner)


def _apply_symbol_attribute(number: int, amount: int, kernel: _KernelInfo | None) -> None:
    if kernel is None:
        return
    if number == _Attribute.REGCOUNT:
        kernel.registers = amount
    elif number == _Attribute.FRAME_SIZE:
        kernel.frame_bytes = amount
    else:
        kernel.stack_bytes = amount


def _apply_kernel_attribute(number: int, value: int, payload: bytes, kernel: _KernelInfo) -> None:
    """Apply an attribute of the section's own kernel."""
    metadata = kernel.metadata
    match number:
        case _Attribute.NUM_BARRIERS:
            kernel.barriers = value & 0xFF
        case _Attribute.REQNTID:
            metadata.set_required_block(*_unpack_dimensions(payload, "the required block size"))
        case _Attribute.CTA_PER_CLUSTER:
            metadata.set_cluster(*_unpack_dimensions(payload, "the cluster size"))
        case _Attribute.PARAM_CBANK:
            metadata.parameter_base = unpack_fields(
                _BANK_RANGE_LAYOUT, payload, 0, "the place of the parameters"
            )[1]
        case _Attribute.KPARAM_INFO:
            _, ordinal, offset, packed = unpack_fields(_PARAMETER_LAYOUT, payload, 0, "a parameter")
            metadata.add_parameter(ordinal, offset, packed >> 18, packed >> 8 & 0xF)
        case _Attribute.KPARAM_INFO_V2:
            _, ordinal, offset, packed = unpack_fields(_PARAMETER_LAYOUT, payload, 0, "a parameter")
            metadata.add_parameter(ordinal, offset, packed & 0xFFFFFF, packed >> 24 & 0xF)
        case _:
            pass


def _unpack_dimensions(payload: bytes, what: str) -> tuple[int, int, int]:
    x, y, z = unpack_fields(_THREE_WORDS, payload, 0, what)
    return x, y, z


def _parse_attributes(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, 16-bit value, payload) of each attribute of an `.nv.info` section."""
    position = 0
    while position < len(body):
        form, number, value = unpack_fields(_ATTRIBUTE_LAYOUT, body, position, "an attribute")
        position += _ATTRIBUTE_LAYOUT.size
        size = value if form == _EIFMT_SVAL else 0
        if position + size > len(body):
            raise DamagedElfError("an attribute is longer than its section")
        yield number, value, body[position : position + size]
        position += size
