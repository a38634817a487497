"""From a kernel and its launch to the constant banks that the code will read."""

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.arguments import (
    Target,
    check_fits,
    check_positions,
    encode_number,
    label,
    targets_of,
    whole_values,
)
from analyzer.execution.bank_words import WORD_BYTES, BankBuilder, Reasons, Windows, driver_words
from analyzer.execution.constant_image import (
    ALLOCATION_SPACING,
    ANY_BANK,
    FIRST_ALLOCATION,
    Allocation,
    ConstantImage,
    MappedTensor,
)
from analyzer.execution.constant_reads import constant_reads
from analyzer.execution.parameters import (
    POINTER_BYTES,
    TENSOR_MAP_BYTES,
    ParameterLayout,
    parameter_layout,
)
from analyzer.hardware.schema import Arch, Figure
from analyzer.ir.launch import ArgumentValue, Buffer, Dim3, Filled, Launch, Null, Pointer, TensorMap
from analyzer.ir.program import ConstantBank, Kernel, Parameter
from analyzer.text.errors import UsageError

__all__ = ["Allocation", "ConstantImage", "build_image"]

_MAX_NAMED_BYTES = 1 << 12
_MAX_BANK_BYTES = 1 << 16
_MAX_BANKS = 6
_USER_BANK = 3
_DRIVER_WORD = "a word of constant bank 0 of which nothing is known"


def build_image(kernel: Kernel, launch: Launch, arch: Arch, *, surmises: bool = True) -> ConstantImage:
    """What the kernel finds in its constant banks at this launch.

    Of an 8-byte parameter nothing is said: it counts as a pointer, and `assumptions` says so; where neither
    input nor code tell that it is one, only if `surmises` is on.
    Raises UsageError for an argument that no parameter, or no parameter of its size, can take.
    """
    targets = targets_of(kernel, launch.arguments)
    layout = parameter_layout(kernel, whole_values(targets), arch)
    check_positions(kernel, targets, layout.parameters)
    builder = _Builder(kernel, launch, layout, arch, targets, surmises)
    builder.write_driver_words()
    builder.write_parameters()
    builder.write_other_banks()
    builder.write_places()
    return builder.image()


class _Builder(Struct):
    """One image in the making."""

    kernel: Kernel
    launch: Launch
    layout: ParameterLayout
    arch: Arch
    targets: Sequence[tuple[Target, ArgumentValue]]
    may_surmise: bool
    surmises: bool = False
    reasons: Reasons = field(default_factory=Reasons)
    banks: dict[int, BankBuilder] = field(default_factory=dict)
    outside: dict[int, int] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)
    tensors: list[MappedTensor] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    n_extra: int = 0

    def __post_init__(self) -> None:
        self.banks[0] = BankBuilder(self.layout.base, self.reasons, _DRIVER_WORD)
        self.outside[0] = self.reasons.number("a word of constant bank 0 beyond the arguments")
        self.outside[ANY_BANK] = self.reasons.number(_missing_bank(self.kernel, None))
        self.assumptions += self.layout.assumptions

    def image(self) -> ConstantImage:
        return ConstantImage(
            unknowns=tuple(self.reasons.texts),
            allocations=tuple(sorted(self.allocations, key=lambda a: a.address)),
            assumptions=tuple(self.assumptions),
            parameters=self.layout.parameters,
            parameter_base=self.layout.base,
            banks={number: bank.words() for number, bank in self.banks.items()},
            outside=self.outside,
            windows=Windows(),
            surmises=self.surmises,
            tensors=tuple(self.tensors),
        )

    def write_driver_words(self) -> None:
        bank = self.banks[0]
        for word in driver_words(self.arch, self.launch, self._cluster()):
            if word.contents is None:
                bank.forget(word.offset, word.size_bytes, word.why)
            else:
                bank.write(word.offset, word.contents)
        if self._reads(self.arch.constant_bank.workspace_low):
            self.assumptions.append(
                "the launch is taken as a cooperative one, for the code reads its workspace"
            )

    def _cluster(self) -> Dim3:
        """As launched or as compiled; with neither, no clusters."""
        asked, built, bank = self.launch.cluster, self.kernel.cluster, self.arch.constant_bank
        if asked is not None and built is not None and asked != built:
            raise UsageError(
                f"cluster {asked}: {self.kernel.name} is compiled for clusters of {built}",
                hint="leave the cluster out",
            )
        if asked is not None and asked.count > 1 and bank.cluster_dim is None:
            raise UsageError(
                f"cluster {asked}: {self.arch.name} has no clusters", hint="sm_90 and later have"
            )
        words = (bank.explicit_cluster, bank.cluster_dim, bank.cluster_reciprocals, bank.cluster_counts)
        if asked is None and built is None and any(map(self._reads, (*words, bank.cluster_ctas))):
            self.assumptions.append("no clusters: neither --cluster nor the input says otherwise")
        return asked or built or Dim3(1)

    def _reads(self, figure: Figure | None) -> bool:
        """Whether an instruction has a constant operand at the first word of this place."""
        if figure is None:
            return False
        ends = (f"[{int(figure.value):#x}]", f"+{int(figure.value):#x}]")
        texts = {self.kernel.vocabulary.texts[i] for i in set(self.kernel.text_ids.tolist())}
        return any("c[0x0]" in text and any(end in text for end in ends) for text in texts)

    def write_parameters(self) -> None:
        values = whole_values(self.targets)
        touched = {t.ordinal for t, _ in self.targets if t.field_offset is not None}
        last = max((p.offset + p.size_bytes for p in self.layout.parameters), default=0)
        self.banks[0].write(self.layout.base, bytes(last))  # what pads is zero
        guessed = []
        for parameter in self.layout.parameters:
            value = values.get(parameter.ordinal)
            if value is not None:
                check_fits(parameter, value)
            elif parameter.is_hidden:
                value = Null()
            elif self._counts_as_pointer(parameter) and parameter.ordinal not in touched:
                value = Pointer()
                guessed.append(parameter)
                self.surmises |= parameter.is_pointer is None
            self._write_parameter(parameter, value)
        if guessed:
            self.assumptions.append(_pointer_note(guessed))

    def _counts_as_pointer(self, parameter: Parameter) -> bool:
        if parameter.size_bytes != POINTER_BYTES:
            return False
        return self.may_surmise if parameter.is_pointer is None else parameter.is_pointer

    def _write_parameter(self, parameter: Parameter, value: ArgumentValue | None) -> None:
        offset, size = self.layout.base + parameter.offset, parameter.size_bytes
        address = FIRST_ALLOCATION + parameter.ordinal * ALLOCATION_SPACING
        if value is None or isinstance(value, TensorMap):
            self._forget_parameter(parameter, is_map=value is not None)
            if value is not None:
                self._map(value, offset, address)
        else:
            owner = Allocation(
                address=address,
                size_bytes=None,
                label=label(parameter),
                ordinal=parameter.ordinal,
                name=parameter.name,
            )
            self._write(0, offset, size, value, owner, parameter.type_name)
        if size > POINTER_BYTES:
            self.allocations.append(
                Allocation(
                    address=Windows().arguments + offset,
                    size_bytes=size,
                    label=label(parameter),
                    ordinal=parameter.ordinal,
                    name=parameter.name,
                    is_parameter=True,
                )
            )

    def _map(self, value: TensorMap, offset: int, base: int) -> None:
        """The tensor of a descriptor in constant bank 0, an allocation of its own."""
        if value.layout is not None:
            self.tensors.append(MappedTensor(Windows().arguments + offset, base, value.layout))

    def _forget_parameter(self, parameter: Parameter, *, is_map: bool) -> None:
        offset, size, what = self.layout.base + parameter.offset, parameter.size_bytes, label(parameter)
        bank = self.banks[0]
        if is_map or size <= POINTER_BYTES or size > _MAX_NAMED_BYTES:
            bank.forget(offset, size, f"{what}, a tensor map" if is_map else what)
            return
        for inner in range(0, size, WORD_BYTES):
            bank.forget(offset + inner, min(WORD_BYTES, size - inner), f"{what} at +{inner}")

    def _write(
        self, bank: int, offset: int, size: int, value: ArgumentValue, owner: Allocation, type_name: str = ""
    ) -> None:
        """A value, and the allocation of a pointer, which is `owner` but for what it holds."""
        builder = self.banks[bank]
        match value:
            case TensorMap():
                builder.forget(offset, size, f"{owner.label}, a tensor map")
                if bank == 0:
                    self._map(value, offset, owner.address)
            case Null():
                builder.write(offset, bytes(size))
            case Pointer() | Buffer() | Filled():
                builder.write(offset, owner.address.to_bytes(POINTER_BYTES, "little"))
                self.allocations.append(_holding(owner, value))
            case _:
                builder.write(offset, encode_number(value, size, owner.label, type_name))

    def write_places(self) -> None:
        """Fields of structs, and places in banks, that the user gives by offset."""
        for target, value in self.targets:
            if target.place is not None:
                self._write_place(target, value, target.bank, target.place, None)
            elif target.field_offset is not None and target.ordinal is not None:
                parameter = self.layout.parameters[target.ordinal]
                offset = self.layout.base + parameter.offset + target.field_offset
                self._write_place(target, value, 0, offset, parameter)

    def _write_place(
        self, target: Target, value: ArgumentValue, bank: int, offset: int, parameter: Parameter | None
    ) -> None:
        size = self._place_size(value, bank, offset)
        if parameter is None:
            room, whole = _MAX_BANK_BYTES - offset, f"the {_MAX_BANK_BYTES} of a constant bank"
        else:
            room = parameter.size_bytes - (target.field_offset or 0)
            whole = f"the {parameter.size_bytes} of {label(parameter)}"
        if size > room:
            raise UsageError(f"argument {target.which}: {size} bytes there go beyond {whole}")
        if bank not in self.banks:
            self.banks[bank] = BankBuilder(0, self.reasons, _missing_bank(self.kernel, bank))
        owner = Allocation(
            address=self._next_address(),
            size_bytes=None,
            label=f"argument {target.which}",
            ordinal=None if parameter is None else parameter.ordinal,
            name="" if parameter is None else parameter.name,
        )
        self._write(bank, offset, size, value, owner)

    def _next_address(self) -> int:
        """Of an allocation that no parameter has to itself."""
        self.n_extra += 1
        return FIRST_ALLOCATION + (len(self.layout.parameters) + self.n_extra - 1) * ALLOCATION_SPACING

    def _place_size(self, value: ArgumentValue, bank: int, offset: int) -> int:
        match value:
            case TensorMap():
                return TENSOR_MAP_BYTES
            case Pointer() | Null() | Buffer() | Filled():
                return POINTER_BYTES
            case int() if not -(1 << 31) <= value < 1 << 32:
                return POINTER_BYTES
            case _:
                reads = self.layout.reads or constant_reads(self.kernel)
                return POINTER_BYTES if bank == 0 and offset in reads.pairs else WORD_BYTES

    def write_other_banks(self) -> None:
        for bank in self.kernel.constants or ():
            self._write_bank(bank)
        for number in range(1, _MAX_BANKS):
            if number not in self.banks:
                self.outside[number] = self.reasons.number(_missing_bank(self.kernel, number))

    def _write_bank(self, bank: ConstantBank) -> None:
        number = bank.number
        builder = self.banks[number] = BankBuilder(0, self.reasons, "")
        builder.write(0, bank.contents)
        self.outside[number] = self.reasons.number(f"a word beyond the end of constant bank {number}")
        for unset in bank.unset:
            what = unset.name or f"a variable in constant bank {number}"
            builder.forget(unset.offset, unset.size_bytes, f"{what}, which the host sets before the launch")
        if number == _USER_BANK and any(bank.contents):
            self.assumptions.append(f"constant bank {number} holds what the file starts it with")
        for relocation in bank.relocations:
            if relocation.object_bytes is None or relocation.size_bytes != POINTER_BYTES:
                why = f"the address of {relocation.symbol}"
                builder.forget(relocation.offset, relocation.size_bytes, why)
                continue
            address = self._object_address(relocation.symbol, relocation.object_bytes) + relocation.addend
            builder.write(relocation.offset, (address % (1 << 64)).to_bytes(POINTER_BYTES, "little"))

    def _object_address(self, symbol: str, size_bytes: int) -> int:
        text = f"{symbol} (a variable of the module)"
        for allocation in self.allocations:
            if allocation.label == text:
                return allocation.address
        address = self._next_address()
        self.allocations.append(Allocation(address=address, size_bytes=size_bytes, label=text, name=symbol))
        return address


def _pointer_note(parameters: Sequence[Parameter]) -> str:
    shown = ", ".join(f"{p.ordinal}" + (f" ({p.name})" if p.name else "") for p in parameters[:12])
    more = f" and {len(parameters) - 12} more" if len(parameters) > 12 else ""
    if len(parameters) == 1:
        return f"argument {shown} counts as a pointer to an allocation of its own: nothing is said of it"
    return f"arguments {shown}{more} count as pointers to allocations of their own: nothing is said of them"


def _holding(owner: Allocation, value: Pointer | Buffer | Filled) -> Allocation:
    match value:
        case Pointer(size_bytes=size):
            return replace(owner, size_bytes=size)
        case Buffer(contents=contents):
            return replace(owner, size_bytes=len(contents), contents=contents)
        case Filled(value=number):
            word = encode_number(number, WORD_BYTES, owner.label)
            return replace(owner, fill=int.from_bytes(word, "little"))


def _missing_bank(kernel: Kernel, number: int | None) -> str:
    bank = "another constant bank" if number is None else f"constant bank {number}"
    if kernel.constants is None:
        return f"{bank}, which a bare dump lacks: give the cubin"
    return f"{bank}, which the input does not have"
