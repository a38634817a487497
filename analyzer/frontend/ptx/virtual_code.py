"""Code of a target on virtual registers: SASS whose registers have no numbers yet.

PTX is lowered to this, then `register_allocation` numbers the registers, and the texts that come out are
decoded like those of any listing. A value is a group of 32-bit words that lie side by side, because SASS
names pairs and quadruples by their first register:

    ld.global.v2.b32 {%r1, %r2}, [%rd1]     LDG.E.64 G7:0, [G3:0.64]     group 7 has the words %r1 and %r2
"""

from collections.abc import Sequence

from msgspec import Struct, field

from analyzer.ir.module import SourceLine


class WordRef(Struct, frozen=True):
    """`n_words` words of a group as one operand, named by the first."""

    group: int
    word: int = 0
    n_words: int = 1
    prefix: str = ""  # `-`, `~`
    suffix: str = ""  # `.64`, `.H0_H0`
    is_absolute: bool = False


class PredicateRef(Struct, frozen=True):
    """A virtual predicate as an operand or guard."""

    number: int
    is_negated: bool = False


class MemoryRef(Struct, frozen=True):
    """`[base+offset]`; without a base the offset is the address."""

    base: WordRef | None
    offset: int = 0
    kind: str = ""  # of a descriptor: `gdesc`, `tmem`
    suffix: str = ""


class ConstantRef(Struct, frozen=True):
    """`c[bank][base+offset]`."""

    bank: int
    offset: int
    base: WordRef | None = None
    prefix: str = ""


VirtualOperand = WordRef | PredicateRef | MemoryRef | ConstantRef | str

TRUE, NOT_TRUE, ZERO = "PT", "!PT", "RZ"


class VirtualInstruction(Struct):
    """One instruction; the first `n_defs` operands are written."""

    mnemonic: str
    operands: tuple[VirtualOperand, ...]
    n_defs: int
    guard: PredicateRef | None
    line: int  # of the PTX text
    source_line: SourceLine | None
    has_effect: bool = False  # stays even if nothing reads its results
    keeps_defs: bool = False  # it reads its first result too, as an accumulator


class VirtualBlock(Struct):
    """A basic block of virtual code; it ends with its branches."""

    label: str
    code: list[VirtualInstruction] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)


class VirtualCode(Struct):
    """The code of one kernel."""

    blocks: list[VirtualBlock] = field(default_factory=list)
    group_sizes: list[int] = field(default_factory=list)  # words of each group
    n_predicates: int = 0

    def add_group(self, n_words: int) -> int:
        """Add a group of words; return its number."""
        self.group_sizes.append(n_words)
        return len(self.group_sizes) - 1

    def add_predicate(self) -> int:
        """Add a predicate; return its number."""
        self.n_predicates += 1
        return self.n_predicates - 1


def list_word_refs(operand: VirtualOperand) -> tuple[WordRef, ...]:
    """Return the registers in an operand."""
    match operand:
        case WordRef():
            return (operand,)
        case MemoryRef(base=WordRef() as base) | ConstantRef(base=WordRef() as base):
            return (base,)
        case _:
            return ()


def format_operand(operand: VirtualOperand, words: Sequence[Sequence[int]], predicates: Sequence[str]) -> str:
    """Return an operand as SASS prints it.

    words: [group][word] register numbers
    predicates: names of the predicates
    """
    match operand:
        case WordRef():
            return _format_word(operand, words)
        case PredicateRef(number=number, is_negated=negated):
            return ("!" if negated else "") + predicates[number]
        case MemoryRef(base=base, offset=offset, kind=kind, suffix=suffix):
            return f"{kind}[{_format_sum(base, offset, words)}]{suffix}"
        case ConstantRef(bank=bank, base=base, offset=offset, prefix=prefix):
            return f"{prefix}c[{bank:#x}][{_format_sum(base, offset, words)}]"
        case _:
            return operand


def _format_word(ref: WordRef, words: Sequence[Sequence[int]]) -> str:
    text = f"R{words[ref.group][ref.word]}"
    if ref.is_absolute:
        return f"{ref.prefix}|{text}|{ref.suffix}"
    return f"{ref.prefix}{text}{ref.suffix}"


def _format_sum(base: WordRef | None, offset: int, words: Sequence[Sequence[int]]) -> str:
    number = f"-{-offset:#x}" if offset < 0 else f"{offset:#x}"
    if base is None:
        return number
    text = _format_word(base, words)
    return f"{text}+{number}" if offset else text
