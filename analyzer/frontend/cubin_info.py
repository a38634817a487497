"""What a cubin states of its kernels: resources, parameters, constants.

The attribute numbers are those that `cuobjdump -elf` names.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct, field

from analyzer.frontend.cubin_constants import read_constants
from analyzer.frontend.cubin_elf import ABI_CUDA_13, CubinElf, DamagedError, Section, unpack
from analyzer.frontend.kernel_facts import KernelFacts
from analyzer.ir.program import Resources
from analyzer.text.errors import InputError

_TWO_WORDS = struct.Struct("<II")
_THREE_WORDS = struct.Struct("<III")
_BANK_RANGE = struct.Struct("<IHH")
_PARAMETER = struct.Struct("<IHHI")
_ATTRIBUTE = struct.Struct("<BBH")
_UNBOUNDED_STACK = 0xFFFFFFFF
_SIZED = 4  # EIFMT_SVAL: the 16-bit value is the size of what follows


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


_OF_SYMBOL = (_Attribute.REGCOUNT, _Attribute.FRAME_SIZE, _Attribute.MIN_STACK_SIZE)


class _Stated(Struct, kw_only=True):
    """What is known of one kernel so far; None where nothing was said."""

    facts: KernelFacts = field(default_factory=KernelFacts)
    code_bytes: int
    registers: int | None = None
    stack_bytes: int | None = None
    frame_bytes: int | None = None
    shared_bytes: int = 0
    local_bytes: int = 0
    barriers: int = 0

    def resources(self) -> Resources:
        """A device function has a frame only; the stack of a kernel counts what it calls too."""
        stack_bytes = self.frame_bytes if self.stack_bytes is None else self.stack_bytes
        threads = self.facts.block_threads
        return Resources(
            registers=self.registers,
            registers_exact=self.registers is not None,
            shared_bytes=self.shared_bytes,
            local_bytes=self.local_bytes,
            stack_bytes=None if stack_bytes == _UNBOUNDED_STACK else stack_bytes,
            barriers=self.barriers,
            block_threads=threads,
            block_threads_exact=threads is not None,
        )


class CubinInfo(Struct, frozen=True):
    """Resources, facts and size of each kernel and device function with code of its own, by name."""

    resources: dict[str, Resources]
    facts: dict[str, KernelFacts]
    code_bytes: dict[str, int]


def read_cubin(data: bytes) -> CubinInfo:
    """Everything that is read of a cubin without a tool; see `read_cubin_info`.

    Raises InputError where the bytes are not a cubin or an offset points outside them.
    """
    try:
        stated = _read(CubinElf(data))
    except DamagedError as error:
        raise InputError(f"the cubin is damaged: {error}", hint="build or copy it again") from None
    return CubinInfo(
        resources={name: kernel.resources() for name, kernel in stated.items()},
        facts={name: kernel.facts for name, kernel in stated.items()},
        code_bytes={name: kernel.code_bytes for name, kernel in stated.items()},
    )


def read_cubin_info(data: bytes) -> dict[str, Resources]:
    """Resources of each kernel and device function with code of its own, by name.

    Numbers are those of `cuobjdump -res-usage`: from sm_90 on `shared_bytes` includes the 1024 bytes that
    the system reserves in each CTA. `block_threads` comes from `.reqntid` only; `.maxntid` is a bound.
    Raises InputError where the bytes are not a cubin or an offset points outside them.
    """
    return read_cubin(data).resources


def _read(elf: CubinElf) -> dict[str, _Stated]:
    stated: dict[str, _Stated] = {}
    for section in elf.sections:
        if name := section.of(".text."):
            stated[name] = _Stated(barriers=_flag_barriers(elf, section), code_bytes=section.size)
    for section in elf.sections:
        if kernel := stated.get(section.of(".nv.shared.")):
            kernel.shared_bytes = section.size
        elif kernel := stated.get(section.of(".nv.local.")):
            kernel.local_bytes = section.size
    for section in elf.sections:
        if section.name == ".nv.info" or section.name.startswith(".nv.info."):
            _take_attributes(elf, section, stated)
    banks = read_constants(elf)
    for name, kernel in stated.items():
        kernel.facts.constants = banks.of(name)
    return stated


def _flag_barriers(elf: CubinElf, section: Section) -> int:
    """SHF_BARRIERS of the old layout; the new one has an attribute."""
    return 0 if elf.abi == ABI_CUDA_13 else section.flags >> 20 & 0x7F


def _take_attributes(elf: CubinElf, section: Section, stated: dict[str, _Stated]) -> None:
    owner = stated.get(section.of(".nv.info."))
    if owner is not None:
        owner.facts.has_layout = True
    for number, value, payload in _attributes(elf.body(section)):
        if number in _OF_SYMBOL:
            index, amount = unpack(_TWO_WORDS, payload, 0, "an attribute")
            _take_by_symbol(number, amount, stated.get(elf.symbol(index).name))
        elif owner is not None:
            _take(number, value, payload, owner)


def _take_by_symbol(number: int, amount: int, kernel: _Stated | None) -> None:
    if kernel is None:
        return
    if number == _Attribute.REGCOUNT:
        kernel.registers = amount
    elif number == _Attribute.FRAME_SIZE:
        kernel.frame_bytes = amount
    else:
        kernel.stack_bytes = amount


def _take(number: int, value: int, payload: bytes, kernel: _Stated) -> None:
    """An attribute of the section's own kernel."""
    facts = kernel.facts
    match number:
        case _Attribute.NUM_BARRIERS:
            kernel.barriers = value & 0xFF
        case _Attribute.REQNTID:
            facts.take_block(*_three(payload, "the required block size"))
        case _Attribute.CTA_PER_CLUSTER:
            facts.take_cluster(*_three(payload, "the cluster size"))
        case _Attribute.PARAM_CBANK:
            facts.parameter_base = unpack(_BANK_RANGE, payload, 0, "the place of the parameters")[1]
        case _Attribute.KPARAM_INFO:
            _, ordinal, offset, packed = unpack(_PARAMETER, payload, 0, "a parameter")
            facts.take_parameter(ordinal, offset, packed >> 18, packed >> 8 & 0xF)
        case _Attribute.KPARAM_INFO_V2:
            _, ordinal, offset, packed = unpack(_PARAMETER, payload, 0, "a parameter")
            facts.take_parameter(ordinal, offset, packed & 0xFFFFFF, packed >> 24 & 0xF)
        case _:
            pass


def _three(payload: bytes, what: str) -> tuple[int, int, int]:
    x, y, z = unpack(_THREE_WORDS, payload, 0, what)
    return x, y, z


def _attributes(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, 16-bit value, payload) of each attribute of an .nv.info section."""
    position = 0
    while position < len(body):
        form, number, value = unpack(_ATTRIBUTE, body, position, "an attribute")
        position += _ATTRIBUTE.size
        size = value if form == _SIZED else 0
        if position + size > len(body):
            raise DamagedError("an attribute is longer than its section")
        yield number, value, body[position : position + size]
        position += size
