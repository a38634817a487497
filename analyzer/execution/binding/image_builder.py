"""Construction of the constant banks that a kernel reads in a launch (`ConstantImage`).

1. Resolve the arguments and find the parameter layout.
2. Write the words of the driver (block and grid size, windows).
3. Write the parameters. Each pointer leads to an allocation of its own, at a fixed distance from the others,
   so an address identifies its argument. A value that is not given is unknown, with a reason.
4. Write the other constant banks of the binary, and arguments that are given by offset.
"""

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.binding.argument_targets import (
    ArgumentTarget,
    check_ordinals,
    check_value_fits,
    collect_parameter_values,
    encode_number,
    format_parameter_label,
    resolve_targets,
)
from analyzer.execution.binding.constant_banks import (
    WORD_BYTES,
    AddressWindows,
    ConstantBankBuilder,
    UnknownReasons,
    build_driver_words,
)
from analyzer.execution.binding.constant_image import (
    ALLOCATION_SPACING_BYTES,
    ANY_BANK,
    FIRST_ALLOCATION_ADDRESS,
    Allocation,
    ConstantImage,
    MappedTensor,
)
from analyzer.execution.binding.constant_reads import find_constant_reads
from analyzer.execution.binding.fill_patterns import encode_fill_pattern
from analyzer.execution.binding.parameter_layout import (
    POINTER_BYTES,
    TENSOR_MAP_BYTES,
    ParameterLayout,
    find_parameter_layout,
)
from analyzer.execution.profile.missing_inputs import MissingInput, make_scalar_option
from analyzer.hardware.schema import Arch, HardwareParameter
from analyzer.ir.launch import (
    ArgumentValue,
    Buffer,
    Dim3,
    FilledBuffer,
    Launch,
    NullPointer,
    Pointer,
    TensorMap,
)
from analyzer.ir.module import ConstantBank, Kernel, Parameter
from analyzer.text.errors import UsageError

__all__ = ["Allocation", "ConstantImage", "build_constant_image"]

_MAX_NAMED_PARAMETER_BYTES = 1 << 12
_MAX_BANK_BYTES = 1 << 16
_MAX_BANKS = 6
_USER_CONSTANT_BANK = 3
_UNKNOWN_DRIVER_WORD = "a word of constant bank 0 of which nothing is known"


def build_constant_image(
    kernel: Kernel, launch: Launch, arch: Arch, *, assumes_pointers: bool = True
) -> ConstantImage:
    """Build the constant banks of a launch.

    An 8-byte parameter without a value is assumed to be a pointer, which is noted in `assumptions`.
    Raises UsageError for an argument that matches no parameter, or none of its size.

    assumes_pointers: assume so too if neither the input nor the code shows that the parameter is a pointer
    """
    targets = resolve_targets(kernel, launch.arguments)
    layout = find_parameter_layout(kernel, collect_parameter_values(targets), arch)
    check_ordinals(kernel, targets, layout.parameters)
    builder = _ImageBuilder(kernel, launch, layout, arch, targets, assumes_pointers)
    builder.write_driver_words()
    builder.write_parameters()
    builder.write_other_banks()
    builder.write_offset_arguments()
    return builder.build()


class _ImageBuilder(Struct):
    """Builder of one image."""

    kernel: Kernel
    launch: Launch
    layout: ParameterLayout
    arch: Arch
    targets: Sequence[tuple[ArgumentTarget, ArgumentValue]]
    may_assume_pointers: bool
    assumes_pointers: bool = False
    reasons: UnknownReasons = field(default_factory=UnknownReasons)
    banks: dict[int, ConstantBankBuilder] = field(default_factory=dict)
    outside_origins: dict[int, int] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)
    tensors: list[MappedTensor] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    n_extra_allocations: int = 0

    def __post_init__(self) -> None:
        self.banks[0] = ConstantBankBuilder(self.layout.base, self.reasons, _UNKNOWN_DRIVER_WORD)
        self.outside_origins[0] = self.reasons.intern("a word of constant bank 0 beyond the arguments")
        self.outside_origins[ANY_BANK] = self.reasons.intern(_describe_missing_bank(self.kernel, None))
        self.assumptions += self.layout.assumptions

    def build(self) -> ConstantImage:
        """Return the image of all that was written."""
        return ConstantImage(
            unknown_reasons=tuple(self.reasons.texts),
            missing_inputs=tuple(self.reasons.missing),
            allocations=tuple(sorted(self.allocations, key=lambda a: a.address)),
            assumptions=tuple(self.assumptions),
            parameters=self.layout.parameters,
            parameter_base=self.layout.base,
            banks={number: bank.build_words() for number, bank in self.banks.items()},
            outside_origins=self.outside_origins,
            windows=AddressWindows(),
            assumes_pointers=self.assumes_pointers,
            tensors=tuple(self.tensors),
        )

    def write_driver_words(self) -> None:
        """Write the words of the driver below the parameters."""
        bank = self.banks[0]
        for word in build_driver_words(self.arch, self.launch, self._find_cluster()):
            if word.contents is None:
                bank.forget(word.offset, word.size_bytes, word.reason)
            else:
                bank.write(word.offset, word.contents)
        if self._has_operand_at(self.arch.constant_bank.workspace_low):
            self.assumptions.append(
                "the launch is taken as a cooperative one, for the code reads its workspace"
            )

    def _find_cluster(self) -> Dim3:
        """Return the cluster size of the launch or of the binary, else 1; raise UsageError if they differ."""
        requested, built, bank = self.launch.cluster, self.kernel.cluster, self.arch.constant_bank
        if requested is not None and built is not None and requested != built:
            raise UsageError(
                f"cluster {requested}: {self.kernel.name} is compiled for clusters of {built}",
                hint="leave the cluster out",
            )
        if requested is not None and requested.count > 1 and bank.cluster_dim is None:
            raise UsageError(
                f"cluster {requested}: {self.arch.name} has no clusters", hint="leave the cluster out"
            )
        words = (bank.explicit_cluster, bank.cluster_dim, bank.cluster_reciprocals, bank.cluster_counts)
        if (
            requested is None
            and built is None
            and any(map(self._has_operand_at, (*words, bank.cluster_ctas)))
        ):
            self.assumptions.append("no clusters: neither --cluster nor the input says otherwise")
        return requested or built or Dim3(1)

    def _has_operand_at(self, figure: HardwareParameter | None) -> bool:
        """Return whether an instruction has a constant operand at the first word of a figure."""
        if figure is None:
            return False
        ends = (f"[{int(figure.value):#x}]", f"+{int(figure.value):#x}]")
        texts = {self.kernel.form_table.texts[i] for i in set(self.kernel.text_ids.tolist())}
        return any("c[0x0]" in text and any(end in text for end in ends) for text in texts)

    def write_parameters(self) -> None:
        """Write all parameters; those without a value are assumed pointers or unknown."""
        values = collect_parameter_values(self.targets)
        touched = {t.ordinal for t, _ in self.targets if t.field_offset is not None}
        last = max((p.offset + p.size_bytes for p in self.layout.parameters), default=0)
        self.banks[0].write(self.layout.base, bytes(last))  # padding is zero
        assumed = []
        for parameter in self.layout.parameters:
            value = values.get(parameter.ordinal)
            if value is not None:
                check_value_fits(parameter, value)
                self._note_divisibility(parameter, value)
            elif parameter.is_hidden:
                value = NullPointer()
            elif self._is_taken_as_pointer(parameter) and parameter.ordinal not in touched:
                value = Pointer()
                assumed.append(parameter)
                self.assumes_pointers |= parameter.is_pointer is None
            self._write_parameter(parameter, value)
        if assumed:
            self.assumptions.append(_format_pointer_note(assumed))

    def _note_divisibility(self, parameter: Parameter, value: ArgumentValue) -> None:
        if isinstance(value, int) and not parameter.is_pointer and value % parameter.divisibility:
            self.assumptions.append(
                f"{format_parameter_label(parameter)} is {value}, but this code was compiled for multiples "
                f"of {parameter.divisibility}: Triton would run other code"
            )

    def _is_taken_as_pointer(self, parameter: Parameter) -> bool:
        if parameter.size_bytes != POINTER_BYTES:
            return False
        return self.may_assume_pointers if parameter.is_pointer is None else parameter.is_pointer

    def _write_parameter(self, parameter: Parameter, value: ArgumentValue | None) -> None:
        offset, size = self.layout.base + parameter.offset, parameter.size_bytes
        address = FIRST_ALLOCATION_ADDRESS + parameter.ordinal * ALLOCATION_SPACING_BYTES
        if value is None or isinstance(value, TensorMap):
            self._forget_parameter(parameter, is_map=value is not None)
            if value is not None:
                self._add_tensor(value, offset, address)
        else:
            owner = Allocation(
                address=address,
                size_bytes=None,
                label=format_parameter_label(parameter),
                ordinal=parameter.ordinal,
                name=parameter.name,
            )
            self._write_value(0, offset, size, value, owner, parameter.type_name)
        if size > POINTER_BYTES:
            self.allocations.append(
                Allocation(
                    address=AddressWindows().arguments + offset,
                    size_bytes=size,
                    label=format_parameter_label(parameter),
                    ordinal=parameter.ordinal,
                    name=parameter.name,
                    is_parameter=True,
                )
            )

    def _add_tensor(self, value: TensorMap, offset: int, base: int) -> None:
        """Add the tensor of a tensor map in constant bank 0, if its layout is given."""
        if value.layout is not None:
            self.tensors.append(MappedTensor(AddressWindows().arguments + offset, base, value.layout))

    def _forget_parameter(self, parameter: Parameter, *, is_map: bool) -> None:
        offset, size, what = (
            self.layout.base + parameter.offset,
            parameter.size_bytes,
            format_parameter_label(parameter),
        )
        bank = self.banks[0]
        if is_map or size <= POINTER_BYTES or size > _MAX_NAMED_PARAMETER_BYTES:
            missing = _make_missing_tensor_map(parameter) if is_map else _make_missing_scalar(parameter)
            bank.forget(offset, size, f"{what}, a tensor map" if is_map else what, missing)
            return
        pairs = (self.layout.reads or find_constant_reads(self.kernel)).pairs
        for inner in range(0, size, WORD_BYTES):
            first = inner - WORD_BYTES if offset + inner - WORD_BYTES in pairs else inner
            is_pair = offset + first in pairs
            missing = _make_missing_scalar(parameter, first, is_pointer=is_pair)
            bank.forget(offset + inner, min(WORD_BYTES, size - inner), f"{what} at +{inner}", missing)

    def _write_value(
        self, bank: int, offset: int, size: int, value: ArgumentValue, owner: Allocation, type_name: str = ""
    ) -> None:
        """Write a value to a bank; of a pointer, add its allocation.

        owner: the allocation without its contents; its label serves messages of other values too
        """
        builder = self.banks[bank]
        match value:
            case TensorMap():
                builder.forget(offset, size, f"{owner.label}, a tensor map")
                if bank == 0:
                    self._add_tensor(value, offset, owner.address)
            case NullPointer():
                builder.write(offset, bytes(size))
            case Pointer() | Buffer() | FilledBuffer():
                builder.write(offset, owner.address.to_bytes(POINTER_BYTES, "little"))
                self.allocations.append(_set_allocation_contents(owner, value))
            case _:
                builder.write(offset, encode_number(value, size, owner.label, type_name))

    def write_offset_arguments(self) -> None:
        """Write fields of structs, and locations in banks, that the user gives by offset."""
        for target, value in self.targets:
            if target.bank_offset is not None:
                self._write_at_offset(target, value, target.bank, target.bank_offset, None)
            elif target.field_offset is not None and target.ordinal is not None:
                parameter = self.layout.parameters[target.ordinal]
                offset = self.layout.base + parameter.offset + target.field_offset
                self._write_at_offset(target, value, 0, offset, parameter)

    def _write_at_offset(
        self,
        target: ArgumentTarget,
        value: ArgumentValue,
        bank: int,
        offset: int,
        parameter: Parameter | None,
    ) -> None:
        size = self._infer_value_bytes(value, bank, offset)
        if parameter is None:
            room, whole = _MAX_BANK_BYTES - offset, f"the {_MAX_BANK_BYTES} of a constant bank"
        else:
            room = parameter.size_bytes - (target.field_offset or 0)
            whole = f"the {parameter.size_bytes} of {format_parameter_label(parameter)}"
        if size > room:
            raise UsageError(f"argument {target.selector}: {size} bytes there go beyond {whole}")
        if bank not in self.banks:
            self.banks[bank] = ConstantBankBuilder(0, self.reasons, _describe_missing_bank(self.kernel, bank))
        owner = Allocation(
            address=self._allocate_address(),
            size_bytes=None,
            label=f"argument {target.selector}",
            ordinal=None if parameter is None else parameter.ordinal,
            name="" if parameter is None else parameter.name,
        )
        self._write_value(bank, offset, size, value, owner)

    def _allocate_address(self) -> int:
        """Return the address of an allocation that belongs to no whole parameter."""
        self.n_extra_allocations += 1
        return (
            FIRST_ALLOCATION_ADDRESS
            + (len(self.layout.parameters) + self.n_extra_allocations - 1) * ALLOCATION_SPACING_BYTES
        )

    def _infer_value_bytes(self, value: ArgumentValue, bank: int, offset: int) -> int:
        match value:
            case TensorMap():
                return TENSOR_MAP_BYTES
            case Pointer() | NullPointer() | Buffer() | FilledBuffer():
                return POINTER_BYTES
            case int() if not -(1 << 31) <= value < 1 << 32:
                return POINTER_BYTES
            case _:
                reads = self.layout.reads or find_constant_reads(self.kernel)
                return POINTER_BYTES if bank == 0 and offset in reads.pairs else WORD_BYTES

    def write_other_banks(self) -> None:
        """Write the constant banks that the binary holds."""
        for bank in self.kernel.constant_banks or ():
            self._write_bank(bank)
        for number in range(1, _MAX_BANKS):
            if number not in self.banks:
                self.outside_origins[number] = self.reasons.intern(
                    _describe_missing_bank(self.kernel, number)
                )

    def _write_bank(self, bank: ConstantBank) -> None:
        number = bank.number
        builder = self.banks[number] = ConstantBankBuilder(0, self.reasons, "")
        builder.write(0, bank.contents)
        self.outside_origins[number] = self.reasons.intern(f"a word beyond the end of constant bank {number}")
        for unset in bank.uninitialized:
            what = unset.name or f"a variable in constant bank {number}"
            option = make_scalar_option(f"c[{number:#x}][{unset.offset:#x}]")
            builder.forget(
                unset.offset,
                unset.size_bytes,
                f"{what}, which the host sets before the launch",
                MissingInput(option=option, name=unset.name),
            )
        if number == _USER_CONSTANT_BANK and any(bank.contents):
            self.assumptions.append(f"constant bank {number} holds what the file starts it with")
        for relocation in bank.relocations:
            if relocation.object_bytes is None or relocation.size_bytes != POINTER_BYTES:
                reason = f"the address of {relocation.symbol}"
                builder.forget(relocation.offset, relocation.size_bytes, reason)
                continue
            address = (
                self._find_object_address(relocation.symbol, relocation.object_bytes) + relocation.addend
            )
            builder.write(relocation.offset, (address % (1 << 64)).to_bytes(POINTER_BYTES, "little"))

    def _find_object_address(self, symbol: str, size_bytes: int) -> int:
        text = f"{symbol} (a variable of the module)"
        for allocation in self.allocations:
            if allocation.label == text:
                return allocation.address
        address = self._allocate_address()
        self.allocations.append(Allocation(address=address, size_bytes=size_bytes, label=text, name=symbol))
        return address


def _format_pointer_note(parameters: Sequence[Parameter]) -> str:
    shown = ", ".join(f"{p.ordinal}" + (f" ({p.name})" if p.name else "") for p in parameters[:12])
    more = f" and {len(parameters) - 12} more" if len(parameters) > 12 else ""
    if len(parameters) == 1:
        return f"argument {shown} is assumed to point to a separate buffer of unknown contents"
    return f"arguments {shown}{more} are assumed to point to separate buffers of unknown contents"


def _make_missing_scalar(
    parameter: Parameter, field_offset: int | None = None, *, is_pointer: bool = False
) -> MissingInput:
    """Return how to give a parameter, or the word at an offset into a struct, where a pointer may begin."""
    selector = f"{parameter.ordinal}" + ("" if field_offset is None else f"+{field_offset}")
    option = f"--arg {selector}=ptr" if is_pointer else make_scalar_option(selector)
    return MissingInput(option=option, name=parameter.name)


def _make_missing_tensor_map(parameter: Parameter) -> MissingInput:
    return MissingInput(option=f"--arg {parameter.ordinal}=tensormap:TYPE:EXTENTS:BOX", name=parameter.name)


def _set_allocation_contents(owner: Allocation, value: Pointer | Buffer | FilledBuffer) -> Allocation:
    match value:
        case Pointer(size_bytes=size):
            return replace(owner, size_bytes=size)
        case Buffer(contents=contents):
            return replace(owner, size_bytes=len(contents), contents=contents)
        case FilledBuffer():
            return replace(owner, fill_pattern=encode_fill_pattern(value))


def _describe_missing_bank(kernel: Kernel, number: int | None) -> str:
    bank = "another constant bank" if number is None else f"constant bank {number}"
    if kernel.constant_banks is None:
        return f"{bank}, which a bare dump lacks: give the cubin"
    return f"{bank}, which the input does not have"
