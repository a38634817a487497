"""Names of a function: registers, variables and labels, each with the block in which it is declared.

A block `{ … }` inside a function has names of its own. `Scope` maps a word of the text to the operand that it
stands for, under a name that is unique in the function, so blocks leave no other trace:

    { .reg .b32 t; mov.b32 t, 1; }     t
    { .reg .b32 t; mov.b32 t, 2; }     t$1
"""

import re
from functools import lru_cache

from msgspec import Struct

from analyzer.frontend.ptx.constants import PtxSyntaxError, parse_number
from analyzer.frontend.ptx.statements import (
    PtxImmediate,
    PtxOperand,
    PtxRegister,
    PtxSymbol,
    PtxVector,
)

MAX_SCOPES = 64  # of blocks inside each other
COMPONENTS = ("x", "y", "z", "w")
_COLORS = {"r": "x", "g": "y", "b": "z", "a": "w"}  # other names of the components
_NAMED_CONSTANTS = {"WARP_SZ": PtxImmediate(32)}
_SINK = PtxRegister("_")
_MAX_PREFIX_DIGITS = 64  # with which the name of a range may end

_SPECIAL_REGISTER = re.compile(
    r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)(?:\.[xyzw])?"
    r"|%(?:laneid|n?warpid|n?smid|gridid|is_explicit_cluster|cluster_n?ctarank|lanemask_(?:eq|[lg][et])"
    r"|clock(?:_hi|64)?|pm\d(?:_64)?|envreg\d+|globaltimer(?:_lo|_hi)?|reserved_smem_offset_\w+"
    r"|(?:total|aggr|dynamic)_smem_size|current_graph_exec)"
)


class RegisterType(Struct, frozen=True):
    """The type of declared registers, and 2 or 4 for vectors of them."""

    type_name: str
    n_lanes: int = 1


class FunctionNames:
    """Names that a function has taken, and the types of its registers."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._suffixes: dict[str, int] = {}  # last one given to each name
        self.register_types: dict[str, str] = {}
        self.unknown_registers: list[str] = []  # neither declared nor a special register of PTX

    def take(self, name: str, *, is_new: bool = True) -> str:
        """Return a name that is unique in the function; `name` itself if it is free."""
        unique = name
        while unique in self.taken or not is_new:
            is_new = True
            self._suffixes[name] = number = self._suffixes.get(name, 0) + 1
            unique = f"{name}${number}"
        self.taken.add(unique)
        return unique


class Scope(dict[str, PtxOperand]):
    """What each word of a block stands for; words are resolved when they first occur."""

    def __init__(self, names: FunctionNames, parent: "Scope | None" = None) -> None:
        super().__init__()
        self.names = names
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.registers: dict[str, RegisterType] = {}
        self.ranges: dict[str, tuple[int, RegisterType]] = {}  # `%r<237>`: prefix to count and type
        self.symbols: dict[str, str] = {}  # variables and labels that are declared here, to unique names

    def declare_register(self, name: str, kind: RegisterType, count: int | None = None) -> None:
        """Declare a register, or `count` of them, whose names end with their numbers."""
        if count is None:
            self.registers[name] = kind
            self.pop(name, None)
        else:
            self.ranges[name] = (count, kind)

    def declare_symbol(self, name: str) -> str:
        """Declare a variable or label, and return its unique name."""
        unique = self.symbols[name] = self.names.take(name)
        self.pop(name, None)
        return unique

    def declare_label(self, name: str) -> None:
        """Declare a label of an inner block, before it is reached: a branch may stand before it.

        Its name always changes, since the function may have a label of this name further down.
        """
        if self.parent is None:
            self.symbols[name] = self.names.take(name)
        elif name not in self.symbols:
            self.symbols[name] = self.names.take(name, is_new=False)

    def __missing__(self, word: str) -> PtxOperand:
        """Resolve a word. Raises PtxSyntaxError if it is none."""
        operand: PtxOperand
        if word[0].isdecimal():
            operand = _make_immediate(word)
        elif word == "_":
            operand = _SINK
        else:
            operand = self._resolve_name(word)
        self[word] = operand
        return operand

    def _resolve_name(self, word: str) -> PtxOperand:
        base, _, part = word.partition(".")
        if kind := self._find_register(base):
            return self._make_register(base, part, kind)
        if base in self.symbols and not part:
            return PtxSymbol(self.symbols[base])
        if self.parent is not None:
            return self.parent[word]
        if constant := _NAMED_CONSTANTS.get(word):
            return constant
        if word[0] != "%":
            if part:
                raise PtxSyntaxError("no register of this name is declared", text=word)
            return PtxSymbol(word)
        if not _SPECIAL_REGISTER.fullmatch(word):
            self.names.unknown_registers.append(word)
        return PtxRegister(word)

    def _find_register(self, name: str) -> RegisterType | None:
        if kind := self.registers.get(name):
            return kind
        prefix = name.rstrip("0123456789")
        if self.ranges and len(prefix) < len(name):
            for start in range(len(prefix), min(len(name), len(prefix) + _MAX_PREFIX_DIGITS)):
                count, kind = self.ranges.get(name[:start], (0, None))
                digits = name[start:]
                if kind and len(digits) < 11 and int(digits) < count and str(int(digits)) == digits:
                    return kind
        return None

    def _make_register(self, name: str, part: str, kind: RegisterType) -> PtxOperand:
        """Return a register of this scope, a vector of registers, or a component of one."""
        if part:
            whole = self[name]
            if isinstance(whole, PtxVector):
                return _select_component(whole, part, f"{name}.{part}")
            if isinstance(whole, PtxRegister) and re.fullmatch(r"b[0-3]|h[01]|[xyzwrgba]", part):
                return PtxRegister(whole.name, part=part)
            raise PtxSyntaxError("this is no part of a register", text=f"{name}.{part}")
        unique = self.names.take(name, is_new=not self._is_declared_outside(name))
        if kind.n_lanes == 1:
            self.names.register_types[unique] = kind.type_name
            return PtxRegister(unique)
        lanes = [f"{unique}.{component}" for component in COMPONENTS[: kind.n_lanes]]
        self.names.register_types.update(dict.fromkeys(lanes, kind.type_name))
        return PtxVector(tuple(PtxRegister(lane) for lane in lanes))

    def _is_declared_outside(self, name: str) -> bool:
        scope = self.parent
        while scope is not None:
            if scope._find_register(name):
                return True
            scope = scope.parent
        return False


def _select_component(vector: PtxVector, part: str, word: str) -> PtxOperand:
    part = _COLORS.get(part, part)
    if part in COMPONENTS[: len(vector.elements)]:
        return vector.elements[COMPONENTS.index(part)]
    raise PtxSyntaxError("this is no component of a vector", text=word)


@lru_cache(maxsize=1 << 12)
def _make_immediate(word: str) -> PtxImmediate:
    return PtxImmediate(parse_number(word))
