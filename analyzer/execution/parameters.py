"""Where a kernel's parameters stand in constant bank 0: as the binary says, else by the rules of C."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from analyzer.execution.constant_reads import WORD_BYTES, ConstantReads, constant_reads
from analyzer.hardware.schema import Arch
from analyzer.ir.launch import ArgumentValue, TensorMap
from analyzer.ir.program import Kernel, Parameter, ParameterType
from analyzer.text.errors import UsageError

TENSOR_MAP_BYTES = 128
# A CUtensorMap's in memory: of CUDA 12, and of CUDA 13 (cuda.h).
_TENSOR_MAP_ALIGNS = (64, 128)
POINTER_BYTES = 8
_MAX_PARAMETER_BYTES = 1 << 15
_MAX_SHOWN = 24
_INT32_SPAN = range(-(1 << 31), 1 << 32)


class ParameterLayout(Struct, frozen=True):
    """Parameters by ordinal, the bank offset at which they start, and what was assumed to find them.

    reads: what the code reads, where that had to be asked.
    """

    parameters: tuple[Parameter, ...]
    base: int
    assumptions: tuple[str, ...] = ()
    reads: ConstantReads | None = None


def parameter_layout(kernel: Kernel, given: Mapping[int, ArgumentValue], arch: Arch) -> ParameterLayout:
    """The layout from the binary, else from the signature, else from the values given and what is read."""
    start = int(arch.constant_bank.arguments.value)
    base = start if kernel.parameter_base is None else kernel.parameter_base
    if kernel.parameters is not None:
        return ParameterLayout(kernel.parameters, base)
    if kernel.signature is not None:
        return _from_signature(kernel, kernel.signature, base)
    reads = constant_reads(kernel)
    has_maps = any(isinstance(value, TensorMap) for value in given.values())
    guesses = [_Guess(reads, given, base, align) for align in _TENSOR_MAP_ALIGNS[: 1 + has_maps]]
    for each in guesses:
        each.run()
    guess = max(guesses, key=_n_met)
    _check_guess(guess)
    return ParameterLayout(tuple(guess.parameters), base, tuple(_doubts(guess)), reads)


def lay_out(types: Iterable[ParameterType], base: int) -> tuple[Parameter, ...]:
    """Parameters one after the other; alignment is that of the absolute address in the bank."""
    parameters = []
    position = base
    for ordinal, kind in enumerate(types):
        position = _aligned(position, kind.align_bytes)
        parameters.append(
            Parameter(
                ordinal=ordinal,
                offset=position - base,
                size_bytes=kind.size_bytes,
                name=kind.name,
                is_pointer=kind.is_pointer,
                type_name=kind.type_name,
                is_hidden=kind.is_hidden,
            )
        )
        position += kind.size_bytes
    return tuple(parameters)


def _aligned(position: int, align: int) -> int:
    return -(-position // align) * align


def _from_signature(kernel: Kernel, signature: Sequence[ParameterType], base: int) -> ParameterLayout:
    parameters = lay_out(signature, base)
    end = base + max((p.offset + p.size_bytes for p in parameters), default=0)
    reads = constant_reads(kernel)
    beyond = sorted(word for word in reads.words if word >= _aligned(end, POINTER_BYTES))
    doubts = [f"argument offsets follow from the metadata's signature, from {_place(base)}"]
    if beyond:
        doubts.append(
            f"the code reads {_places(beyond)}, beyond the last argument of the metadata's signature: "
            "give the cubin to be sure of the layout"
        )
    return ParameterLayout(parameters, base, tuple(doubts), reads)


class _Guess(Struct):
    """Parameters from the values given, in order, and from what the code reads where none is given."""

    reads: ConstantReads
    given: Mapping[int, ArgumentValue]
    base: int
    map_align: int
    parameters: list[Parameter] = field(default_factory=list)

    def run(self) -> None:
        last = max((w + WORD_BYTES for w in self.reads.words if w >= self.base), default=self.base)
        n_given = max(self.given, default=-1) + 1
        position = self.base
        while len(self.parameters) < n_given or position < last:
            if position - self.base > _MAX_PARAMETER_BYTES:
                break
            ordinal = len(self.parameters)
            value = self.given.get(ordinal)
            if value is None:
                position, size = self._unsaid(position)
            else:
                position, size = self._said(position, value)
            self.parameters.append(
                Parameter(
                    ordinal=ordinal,
                    offset=position - self.base,
                    size_bytes=size,
                    is_pointer=self._is_pointer(position, value),
                )
            )
            position += size

    def _is_pointer(self, position: int, value: ArgumentValue | None) -> bool | None:
        """What is neither said nor read as one long value is no pointer that matters."""
        if position in self.reads.addresses:
            return True
        return None if value is not None or position in self.reads.pairs else False

    def _said(self, position: int, value: ArgumentValue) -> tuple[int, int]:
        """(position, size) of a parameter of this value: a number is short unless a long one is read."""
        wide = _aligned(position, POINTER_BYTES)
        is_wide = wide in self.reads.pairs and (wide == position or position not in self.reads.words)
        match value:
            case TensorMap():
                return _aligned(position, self.map_align), TENSOR_MAP_BYTES
            case int() if not is_wide and value in _INT32_SPAN:
                return position, WORD_BYTES
            case float() if not is_wide:
                return position, WORD_BYTES
            case _:
                return wide, POINTER_BYTES

    def _unsaid(self, position: int) -> tuple[int, int]:
        """A long one where the code reads one or reads nothing, else a word."""
        wide = _aligned(position, POINTER_BYTES)
        if wide != position:
            if position not in self.reads.words and wide in self.reads.pairs:
                return wide, POINTER_BYTES
            return position, WORD_BYTES
        untouched = not {position, position + WORD_BYTES} & self.reads.words
        return position, POINTER_BYTES if position in self.reads.pairs or untouched else WORD_BYTES


def _check_guess(guess: _Guess) -> None:
    """Raises UsageError where a value cannot be what the code reads, or its place cannot be told."""
    for parameter in guess.parameters:
        value = guess.given.get(parameter.ordinal)
        position = guess.base + parameter.offset
        words, what = guess.reads.words, f"argument {parameter.ordinal}"
        half = position in words and position + WORD_BYTES not in words and position not in guess.reads.pairs
        if parameter.size_bytes == POINTER_BYTES and half and value is not None:
            needs = "a pointer has" if not isinstance(value, int | float) else f"{value} needs"
            raise UsageError(
                f"{what}: the code reads {WORD_BYTES} bytes at {_place(position)}, {needs} {POINTER_BYTES}",
                hint="check the order of the arguments; they count from 0",
            )
        if isinstance(value, float) and position in guess.reads.addresses:
            raise UsageError(
                f"{what} is used as an address, {value} is a float", hint=f"write {what[9:]}=ptr"
            )
    unsaid = [p.ordinal for p in guess.parameters if p.ordinal not in guess.given and not _is_read(p, guess)]
    last = max(guess.given, default=-1)
    if unsaid and unsaid[0] < last and not any(_is_read(p, guess) for p in guess.parameters[unsaid[0] :]):
        raise UsageError(
            f"argument {last}: its place is not known, for nothing is said of {_listed(unsaid)}, "
            "which the code does not read either",
            hint=f"the code reads arguments up to {unsaid[0] - 1}",
        )


def _doubts(guess: _Guess) -> Iterable[str]:
    """What the guess rests on, and where values and code do not fit each other."""
    if not guess.parameters:
        return
    base, reads = guess.base, guess.reads
    sizes = " ".join(str(p.size_bytes) for p in guess.parameters[:_MAX_SHOWN])
    sizes += " ..." if len(guess.parameters) > _MAX_SHOWN else ""
    yield (
        f"the input does not say where its arguments lie: taken as {sizes} bytes from {_place(base)}, "
        "from the values given and what the code reads; give the cubin, or the text of cuobjdump -elf "
        "as NAME.elf, to be sure"
    )
    inside = {base + p.offset: p for p in guess.parameters}
    for pair in sorted(p for p in reads.pairs if p >= base):
        if pair not in inside or inside[pair].size_bytes < POINTER_BYTES:
            yield (
                f"the code reads one 64-bit value at {_place(pair)}, where the arguments given have none: "
                "check them"
            )
    for position, parameter in inside.items():
        value = guess.given.get(parameter.ordinal)
        if parameter.size_bytes == POINTER_BYTES and not isinstance(value, int | float | None):
            words = {position, position + WORD_BYTES} & reads.words
            if words and position not in reads.pairs:
                yield (
                    f"argument {parameter.ordinal} is {value}, but the code reads no 64-bit value at "
                    f"{_place(position)}: check the order of the arguments"
                )
        if isinstance(value, int | float) and position in reads.addresses:
            yield (
                f"argument {parameter.ordinal} is {value}, but the code uses {_place(position)} "
                "as an address: check it"
            )
    unread = [p.ordinal for p in guess.parameters if not _is_read(p, guess)]
    if unread:
        yield (
            f"the code does not read {_listed(unread)}: the sizes of these, and so the places of later ones, "
            "are guessed"
        )
    inside_struct = sorted(offset for offset in reads.indexed if offset >= base)
    if inside_struct:
        yield f"the code indexes the arguments from {_places(inside_struct)}: an array passed by value"


def _n_met(guess: _Guess) -> int:
    """Arguments given that the code reads where they are taken to lie."""
    return sum(p.ordinal in guess.given and _is_read(p, guess) for p in guess.parameters)


def _is_read(parameter: Parameter, guess: _Guess) -> bool:
    first = guess.base + parameter.offset
    return any(word in guess.reads.words for word in range(first, first + parameter.size_bytes, WORD_BYTES))


def _listed(ordinals: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ordinals[:8])) + (" ..." if len(ordinals) > 8 else "")
    return f"argument{'s' if len(ordinals) > 1 else ''} {numbers}"


def _place(offset: int) -> str:
    return f"c[0x0][{offset:#x}]"


def _places(offsets: Sequence[int]) -> str:
    return ", ".join(map(_place, offsets[:4])) + (" ..." if len(offsets) > 4 else "")
