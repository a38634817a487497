"""Splits lines of Triton IR into shapes and what fills them, and lines into nested operations.

One compiled expression cuts values, types, attributes, locations, numbers, strings and names out of a line;
they are the line's slots. What is left between them, with the kinds of the slots, is its skeleton:

    %8 = tt.load %7 evictionPolicy = evict_last : tensor<128x!tt.ptr<f32>> loc(#loc4)
    slots     %8, %7, tensor<128x!tt.ptr<f32>>, loc(#loc4)
    skeleton  "", " = tt.load ", " evictionPolicy = evict_last : ", " ", "" of kinds % % t l

A kernel has thousands of lines but few skeletons, so what is done per skeleton (the grammar) is done once.

An operation with regions spans lines; those between braces belong to operations inside. Its own text is put
together from its first line and what follows each closing brace, so that

    %r = scf.if %c -> (i32) { … } else { … } loc(#loc1)

is one operation with the shape `% = scf.if % -> (!) {} else {} loc` and two regions.
"""

import re

from analyzer.frontend.triton.syntax_errors import TritonSyntaxError

MAX_NESTING = 64
_MAX_BRACKETS = 8

_STRING = r'"(?:[^"\\\n]++|\\.)*+"'


def _nest(opening: str, closing: str) -> str:
    """Return an expression of what follows an opening bracket up to the closing one; brackets nest in it.

    Strings may hold any brackets; an arrow holds none.
    """
    plain = rf'[^{opening}{closing}"\n-]++|->|-|{_STRING}'
    body = rf"(?:{plain})*+"
    for _ in range(_MAX_BRACKETS - 1):
        body = rf"(?:{plain}|{re.escape(opening)}{body}{re.escape(closing)})*+"
    return body + re.escape(closing)


_ANGLE = _nest("<", ">")
_PARENTHESES = _nest("(", ")")
_BRACES = _nest("{", "}")
_NAME = r"[A-Za-z_][\w$.]*+"
_SCALAR = r"(?:[us]?i\d++|bf16|f\d++(?:E\d++M\d++\w*+)?|index)"
# It starts with a set of characters, so that the search skips quickly; then the first one decides.
_SLOT = re.compile(
    r"""([%!#{<"@^/\-0-9a-z](?:"""
    r"(?<=%)[\w$.\-]++(?:[#:]\d++)?"
    rf"|(?<=!){_NAME}(?:<{_ANGLE})?+"
    rf"|(?<=#){_NAME}(?:<{_ANGLE})?+"
    r"|(?<=[a-z])(?<!\w.)(?:"
    rf"(?<=l)oc\({_PARENTHESES}"
    rf"|(?<=t)ensor<{_ANGLE}|(?<=[us])i\d++\b(?![.<])|(?<=i)(?:\d++|ndex)\b(?![.<])"
    r"|(?<=b)f16\b(?![.<])|(?<=f)\d++(?:E\d++M\d++\w*+)?\b(?![.<])"
    rf"|(?<=v)ector<{_ANGLE}|(?<=m)emref<{_ANGLE}"
    rf"|(?<=d)ense(?:_resource)?<{_ANGLE}|(?<=a)(?:rray|ffine_map|ffine_set)<{_ANGLE})"
    rf"|(?<={{){_BRACES}"
    rf"|(?<=<)(?=[\d?]++x|tensor<|{_SCALAR}[>,]){_ANGLE}"
    rf'|(?<=")(?<![\w$.].){_STRING[1:]}(?!\s*\()'
    r"|(?<=[\-0-9])(?<![\w$.].)(?:(?<=-)\d)?+"
    r"(?:(?<=0)x[0-9A-Fa-f]++|\d*+(?<=\d)(?:\.\d*+)?(?:[eE][+\-]?\d++)?)(?!\w)"
    rf"|(?<=@)(?:[\w$.]++|{_STRING})(?:::@(?:[\w$.]++|{_STRING}))*+"
    r"|(?<=\^)[\w$.\-]++"
    r"|(?<=/)/[^\n]*+"
    "))"
)
split_slots = _SLOT.split

_CONTINUATION = re.compile(r"(?:default|partition\d+|else|do|case)\b(?!\.)|:|->|,|\*")
_UNFINISHED = ("(", "[", ",", ":", "=", "->", "*")
_LONG_LINE = 2000
_MAX_SKELETON = 1 << 15
_NO_BRACKETS = re.compile(rf"{_STRING}|->|[^<>(){{}}]")


class RawBlock:
    """A block as text: its label, if it has one, and operations."""

    __slots__ = ("label", "line", "operations")

    def __init__(self, label: "Shape | None", line: int) -> None:
        self.label = label
        self.line = line
        self.operations: list[RawOperation] = []


class RawOperation:
    """An operation as text: its shape and regions."""

    __slots__ = ("line", "regions", "shape")

    def __init__(self, shape: "Shape", line: int) -> None:
        self.shape = shape
        self.line = line
        self.regions: list[list[RawBlock]] = []


Shape = tuple[str, str, list[str]]  # skeleton with \0 for slots, kinds of the slots (see `MARKS`), slots

MARKS = {"%": "%", "t": "!", "#": "#", "{": "{.}", "l": "loc", '"': '""', "0": "0", "@": "@", "^": "^"}
# The first character of a slot gives its kind.
_FIRST_TO_KIND = str.maketrans("!tvm<iusfbda-123456789", "t" * 10 + "##" + "0" * 10)


def split_line(line: str) -> Shape | None:
    """Return the shape of a line; None if it is blank or a comment."""
    pieces = split_slots(line.strip())
    if "//" in line:
        pieces = _drop_comment(pieces)
    slots = pieces[1::2]
    if not slots and not pieces[0].strip():
        return None
    return "\0".join(pieces[::2]), "".join([slot[0] for slot in slots]).translate(_FIRST_TO_KIND), slots


def _drop_comment(pieces: list[str]) -> list[str]:
    """Return the pieces without a comment, which is the last slot."""
    if len(pieces) > 1 and pieces[-2].startswith("//"):
        pieces = pieces[:-2]
        pieces[-1] = pieces[-1].rstrip()
    return pieces


class LineKind:
    """What a skeleton says of the structure around it."""

    __slots__ = ("closes", "continues", "is_label", "is_unfinished", "opens")

    def __init__(self, skeleton: str, kinds: str) -> None:
        self.closes = skeleton.startswith("}")
        self.opens = skeleton.endswith("{")
        self.is_label = kinds.startswith("^") and skeleton.startswith("\0")
        is_slot = skeleton.startswith("\0") and kinds[0] not in "%^"
        self.continues = is_slot or _CONTINUATION.match(skeleton) is not None
        own = skeleton.removesuffix("({").removeprefix("})") if self.opens or self.closes else skeleton
        depth = own.count("(") + own.count("[") - own.count(")") - own.count("]")
        self.is_unfinished = not self.opens and (
            depth > 0 or (own.rstrip().endswith(_UNFINISHED) and not self.is_label)
        )


_kinds: dict[tuple[str, str], LineKind] = {}
_MAX_KINDS = 1 << 13


def _find_kind(skeleton: str, kinds: str) -> LineKind:
    found = _kinds.get((skeleton, kinds))
    if found is None:
        if len(_kinds) >= _MAX_KINDS:
            _kinds.clear()
        found = _kinds[skeleton, kinds] = LineKind(skeleton, kinds)
    return found


class StructureReader:
    """State while lines are nested into operations; `root` is the block of the file."""

    def __init__(self) -> None:
        self.root = RawBlock(None, 1)
        self.aliases: dict[str, tuple[str, int]] = {}
        self._block = self.root
        self._stack: list[tuple[RawOperation, RawBlock, int]] = []  # open operations, their blocks, lines
        self._pending: Shape | None = None
        self._pending_line = 0

    def read(self, lines: list[str]) -> None:
        """Read all lines of a file.

        Raises TritonSyntaxError for braces that do not match, or nest too deeply.
        """
        for number, line in enumerate(lines, 1):
            if line[:1] in ("#", "!") and self._add_alias(line, number):
                continue
            if len(line) > _LONG_LINE:
                _check_long_line(line, number)
            shape = split_line(line)
            if shape is not None:
                try:
                    self._add_line(shape, number)
                except TritonSyntaxError as error:
                    error.line = error.line or number
                    raise
        if self._pending is not None:
            raise TritonSyntaxError("the line is not complete", self._pending_line)
        if self._stack:
            raise TritonSyntaxError(
                "the brace that opens here is never closed", self._stack[-1][2], hint="the file seems cut off"
            )

    def _add_alias(self, line: str, number: int) -> bool:
        name, equals, text = line.partition("=")
        name = name.rstrip()
        if not equals or not _ALIAS_NAME.fullmatch(name):
            return False
        self.aliases.setdefault(name, (text.strip(), number))
        return True

    def _add_line(self, shape: Shape, number: int) -> None:
        if self._pending is not None:
            shape, number = _join(self._pending, shape, " "), self._pending_line
            self._pending = None
        _check_length(shape[0])
        kind = _find_kind(shape[0], shape[1])
        if kind.is_unfinished:
            self._pending, self._pending_line = shape, number
            return
        if kind.closes:
            self._close(shape, number)
        elif kind.is_label:
            self._add_block(shape, number)
            return
        elif kind.continues:
            self._continue(shape, number)
        else:
            self._block.operations.append(RawOperation(shape, number))
        if kind.opens:
            self._open(number)

    def _open(self, number: int) -> None:
        if len(self._stack) >= MAX_NESTING:
            raise TritonSyntaxError(f"regions nest more than {MAX_NESTING} deep", number)
        operation = self._block.operations[-1]
        self._stack.append((operation, self._block, number))
        self._block = RawBlock(None, number)
        operation.regions.append([self._block])

    def _close(self, shape: Shape, number: int) -> None:
        if not self._stack:
            raise TritonSyntaxError("this brace closes nothing", number)
        operation, self._block, _ = self._stack.pop()
        operation.shape = _join(operation.shape, shape, "")

    def _continue(self, shape: Shape, number: int) -> None:
        if not self._block.operations:
            raise TritonSyntaxError("this continues no operation", number)
        operation = self._block.operations[-1]
        operation.shape = _join(operation.shape, shape, " ")

    def _add_block(self, shape: Shape, number: int) -> None:
        if not self._stack:
            raise TritonSyntaxError("a block stands outside of any region", number)
        region = self._stack[-1][0].regions[-1]
        self._block = RawBlock(shape, number)
        if len(region) == 1 and region[0].label is None and not region[0].operations:
            region.clear()
        region.append(self._block)


def _check_long_line(line: str, number: int) -> None:
    """Raise TritonSyntaxError for brackets nested too deeply, on which the expression would run long.

    Each bracket that is never closed costs it a pass over the line.
    """
    brackets = _NO_BRACKETS.sub("", line)
    for opening, closing in ("<>", "()", "{}"):
        depth = 0
        for letter in brackets:
            depth = max(0, depth + (letter == opening) - (letter == closing))
            if depth > _MAX_BRACKETS:
                raise TritonSyntaxError(f"brackets nest more than {_MAX_BRACKETS} deep", number)


_ALIAS_NAME = re.compile(r"[#!][A-Za-z_][\w$.]*")


def _check_length(skeleton: str) -> None:
    if len(skeleton) > _MAX_SKELETON:
        raise TritonSyntaxError("this operation is longer than any that a compiler prints")


def _join(first: Shape, second: Shape, between: str) -> Shape:
    _check_length(first[0])
    return f"{first[0]}{between}{second[0]}", first[1] + second[1], first[2] + second[2]
