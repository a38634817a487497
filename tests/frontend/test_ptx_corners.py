"""Properties of the PTX parser: generated programs, damaged ones, and ones that nobody should feed."""

import random
import struct
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import CASES
from ptx_printer import format_operand, format_ptx

from analyzer.frontend.cubin_elf import CubinElf
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.grammar import build_parser
from analyzer.frontend.ptx.constants import PtxSyntaxError, parse_number
from analyzer.frontend.ptx.declarations import DeclarationReader
from analyzer.frontend.ptx.parser import parse_ptx
from analyzer.frontend.ptx.scopes import FunctionNames, Scope
from analyzer.frontend.ptx.shapes import OperandReader
from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxBranchTargets,
    PtxFunction,
    PtxGuard,
    PtxImmediate,
    PtxInstruction,
    PtxLabel,
    PtxModule,
    PtxOperand,
    PtxPair,
    PtxRegister,
    PtxStatement,
    PtxSymbol,
    PtxVariable,
    PtxVector,
)
from analyzer.ir.module import SourceLine
from analyzer.text.errors import InputError, format_diagnostic

HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n"
SAMPLES = [
    path.read_bytes() for path in sorted((CASES / "ptx").glob("*.test")) if not path.stem.startswith("error")
]


def comparable(module: PtxModule) -> object:
    """Everything but the layout of the text; floats by their bits, since NaN differs from itself."""

    def reduce(value: object) -> object:
        if isinstance(value, dict):
            is_place = "file" in value  # a line of source, not one of the PTX file
            return {
                key: reduce(v) for key, v in value.items() if key != "text" and (key != "line" or is_place)
            }
        if isinstance(value, list | tuple):
            return [reduce(v) for v in value]
        return struct.pack("<d", value) if isinstance(value, float) else value

    return reduce(msgspec.to_builtins(module, builtin_types=(bytes,)))


# Programs.

REGISTERS = {
    **{f"%r{i}": "b32" for i in range(8)},
    **{f"%rd{i}": "b64" for i in range(4)},
    **{f"%p{i}": "pred" for i in range(4)},
    "t": "b32",
    "t$1": "b32",
    **{f"v.{lane}": "f32" for lane in "xyzw"},
}
LABELS = ("$L__BB0_1", "DONE", "DONE$1")
registers = st.builds(PtxRegister, st.sampled_from([*REGISTERS, "%tid.x", "%laneid", "_"]))
predicates = st.sampled_from([name for name, kind in REGISTERS.items() if kind == "pred"])
addresses_of = st.builds(PtxSymbol, st.sampled_from(["smem", "param0", "f"]))
integers = st.integers(-(2**63), 2**64 - 1)
immediates = st.builds(PtxImmediate, integers | st.floats(width=32) | st.floats())
offsets = st.integers(-(2**31), 2**31 - 1)
scalars = registers | st.builds(PtxRegister, predicates, st.just(True)) | immediates
symbols = st.builds(PtxSymbol, st.sampled_from(["smem", "f"]), offsets, st.booleans())
vectors = st.builds(PtxVector, st.lists(registers | immediates, min_size=1, max_size=4).map(tuple))
addresses = st.builds(
    PtxAddress,
    registers | addresses_of,
    offsets,
    st.lists(registers | immediates, max_size=3).map(tuple),
) | st.builds(PtxAddress, registers, st.just(0), st.just((PtxImmediate(1),)), registers)
pairs = st.builds(PtxPair, registers, registers)
operands = scalars | symbols | vectors | addresses | pairs | st.builds(PtxAddress, st.none(), integers)
names = st.sampled_from(["add", "ld", "mma", "tcgen05", "cp", "setp"])
modifiers = st.lists(
    st.sampled_from(["u32", "f64", "global", "shared::cta", "m16n8k16", "1d", "L2::128B", "kind::f16"]),
    max_size=6,
).map(tuple)
callers = st.builds(SourceLine, st.sampled_from(["/a/k.cu", "k.py"]), st.integers(1, 9999))
inlined = st.builds(SourceLine, st.just("/b/x.h"), st.integers(1, 9999), callers)
source_lines = callers | inlined | st.builds(SourceLine, st.just("/c/y.h"), st.integers(1, 9999), inlined)


def make_instruction(
    name: str,
    kinds: tuple[str, ...],
    guard: tuple[str, bool] | None,
    items: tuple[PtxOperand, ...],
    line: SourceLine | None,
    pragmas: tuple[str, ...],
) -> PtxInstruction:
    return PtxInstruction(
        name=name,
        modifiers=kinds,
        guard=PtxGuard(*guard) if guard else None,
        operands=items,
        text="",
        line=0,
        source_line=line,
        pragmas=pragmas,
    )


instructions = st.builds(
    make_instruction,
    names,
    modifiers,
    st.none() | st.tuples(predicates, st.booleans()),
    st.lists(operands, max_size=3).map(tuple),
    st.none() | source_lines,
    st.lists(st.sampled_from(["nounroll", "frequency 7"]), max_size=2).map(tuple),
)
calls = st.builds(
    make_instruction,
    st.just("call"),
    st.sampled_from([(), ("uni",)]),
    st.none(),
    st.tuples(
        st.builds(PtxVector, st.lists(addresses_of, min_size=1, max_size=2).map(tuple)),
        st.just(PtxSymbol("f")),
        st.builds(PtxVector, st.lists(addresses_of | registers | immediates, max_size=3).map(tuple)),
    ),
    st.none(),
    st.just(()),
)
branches = st.builds(
    make_instruction,
    st.just("bra"),
    st.sampled_from([(), ("uni",)]),
    st.none() | st.tuples(predicates, st.booleans()),
    st.sampled_from(LABELS).map(lambda label: (PtxSymbol(label),)),
    st.none(),
    st.just(()),
)
variables = st.builds(
    lambda space, count, alignment, initial: PtxVariable(
        name="smem",
        space=space,
        type_name="b8",
        n_elements=count,
        n_bytes=count,
        alignment_bytes=alignment,
        initial=initial if space == "const" and count > 1 else None,
    ),
    st.sampled_from(["shared", "local", "const"]),
    st.integers(1, 2**40),
    st.sampled_from([1, 16, 128]),
    st.none() | st.binary(min_size=1, max_size=9),
)


@st.composite
def modules(draw: st.DrawFn) -> PtxModule:
    """Draw a module with a declared function and a kernel."""
    statements: list[PtxStatement] = [PtxLabel(label, 0) for label in LABELS]
    statements.append(
        PtxBranchTargets("ts", draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=3).map(tuple)))
    )
    for statement in draw(st.lists(instructions | calls | branches, max_size=4)):
        statements.insert(draw(st.integers(0, len(statements))), statement)
    named = {name for name in REGISTERS if name in set(_find_names(msgspec.to_builtins(statements)))}
    lanes = {name for name in REGISTERS if name.startswith("v.")}
    function = PtxFunction(
        name="k",
        is_entry=True,
        is_declaration=False,
        parameters=(),
        results=(),
        register_types={name: REGISTERS[name] for name in named | (lanes if named & lanes else set())},
        variables=(draw(variables),),
        statements=tuple(statements),
        line=0,
        max_threads=draw(st.sampled_from([(), (128,), (32, 2, 1)])),
        min_ctas_per_sm=draw(st.none() | st.integers(1, 32)),
        linkage=draw(st.sampled_from(["", "visible", "weak"])),
    )
    return PtxModule(
        version=draw(st.sampled_from(["7.4", "9.0"])),
        target=draw(st.sampled_from(["sm_75", "sm_100a"])),
        address_bits=64,
        variables=(),
        functions=(function,),
    )


@settings(deadline=None, max_examples=40)
@given(modules())
def test_generated_modules_print_and_parse_to_themselves(module: PtxModule) -> None:
    text = format_ptx(module)
    parsed, _ = parse_ptx(text, "generated.ptx")
    assert comparable_names(parsed) == comparable_names(module)


def _find_names(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from (value.get("name"), value.get("register"))
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _find_names(item)


def comparable_names(module: PtxModule) -> object:
    """`comparable`, with registers in no order."""
    functions = tuple(
        msgspec.structs.replace(f, register_types=dict(sorted(f.register_types.items())))
        for f in module.functions
    )
    return comparable(msgspec.structs.replace(module, functions=functions))


# Operands out of the grammar itself.

TERMINALS = {
    "NAME": ("%r1", "%rd2", "smem", "generic", "_", "%tid.x", "$L1"),
    "NUMBER": ("0", "16", "0x1F", "017", "10U", "0b11", "1.5", "0f3F800000", "0d7FF8000000000000"),
    "WORD": (".b32", ".align", ".shared", ".v4", ".maxntid"),
    "CAST": (".s64", ".u64"),
    "EQUAL": ("==", "!="),
    "COMPARE": ("<", "<=", ">", ">="),
    "SHIFT": ("<<", ">>"),
    "TIMES": ("*", "/", "% "),
}


class TextMaker:
    """Makes random texts of a rule of the grammar."""

    def __init__(self) -> None:
        parser = build_parser("ptx")
        self.n_words = 0
        self.patterns = {terminal.name: terminal.pattern.value for terminal in parser.terminals}
        self.expansions: dict[str, list[list[str]]] = {}
        for rule in parser.rules:
            self.expansions.setdefault(rule.origin.name, []).append(
                [symbol.name for symbol in rule.expansion]
            )
        self.heights = {name: 0 for name in self.patterns}  # of the lowest tree of a symbol
        while len(self.heights) < len(self.patterns) + len(self.expansions):
            for name, expansions in self.expansions.items():
                known = [e for e in expansions if all(symbol in self.heights for symbol in e)]
                if known and name not in self.heights:
                    self.heights[name] = 1 + min(map(self.find_height, known))

    def find_height(self, expansion: list[str]) -> int:
        return max((self.heights[symbol] for symbol in expansion), default=0)

    def make_text(self, rng: random.Random, rule: str) -> str:
        """Return a text of a rule, of few words."""
        self.n_words = 0
        return self.make(rng, rule, rng.randint(1, 20))

    def make(self, rng: random.Random, symbol: str, depth: int) -> str:
        """Return a text of a symbol, whose tree is little higher than `depth`."""
        if symbol in self.patterns:
            text = rng.choice(TERMINALS.get(symbol, (self.patterns[symbol].replace("\\", ""),)))
            self.n_words += 1
            return text + rng.choice((" ", "\t "))
        expansions = self.expansions[symbol]
        if depth <= 0 or self.n_words > 40:
            lowest = min(map(self.find_height, expansions))
            expansions = [e for e in expansions if self.find_height(e) == lowest]
        return "".join(self.make(rng, part, depth - 1) for part in rng.choice(expansions))


@cache
def load_text_maker() -> TextMaker:
    return TextMaker()


@pytest.mark.parametrize("rule", ["operands", "call_operands"])
def test_texts_of_the_grammar_are_read_or_refused_and_print_to_what_they_are(rule: str) -> None:
    rng = random.Random(rule)
    n_read, refusals = 0, list[str]()
    maker, read = load_text_maker(), OperandReader(rule).read
    is_call = rule == "call_operands"
    for _ in range(160):
        text = maker.make_text(rng, rule)
        try:
            first = read(text, Scope(FunctionNames()))
        except PtxSyntaxError as error:
            refusals.append(error.message)  # it may have no meaning: a division by zero, `-%r1`
            continue
        printed = ", ".join(format_operand(o, is_call=is_call, is_double=True) for o in first)
        again = read(printed, Scope(FunctionNames()))
        assert printed == ", ".join(format_operand(o, is_call=is_call, is_double=True) for o in again)
        n_read += 1
    assert n_read > 20
    assert not any(reason.startswith("this is not an operand") for reason in refusals)  # the grammar made it


@pytest.mark.parametrize("rule", ["declaration", "attributes"])
def test_declarations_of_the_grammar_are_read(rule: str) -> None:
    rng = random.Random(rule)
    maker, reader = load_text_maker(), DeclarationReader()
    n_read = 0
    for _ in range(300):
        text = maker.make_text(rng, rule).replace("=", "= 1")
        with suppress(PtxSyntaxError):  # sizes that are no integers
            declaration = reader.read(text, rule=rule)
            assert declaration.specifiers or not text.strip()
            n_read += 1
    assert n_read > 50


@given(integers)
def test_integers_are_read_in_every_base(value: int) -> None:
    if value >= 0:
        for text in (
            str(value),
            hex(value),
            bin(value),
            f"0{value:o}",
            f"{value}U",
            f"{value:#X}".replace("X", "x"),
        ):
            assert parse_number(text) == value


@given(st.text(alphabet="0123456789abcdefxXUuFfDd.+-eE_ ", max_size=90))
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    with suppress(PtxSyntaxError):
        assert isinstance(parse_number(text), int | float)


# What is read means what ptxas takes it for.

PROGRAM = f"""{HEADER}
.global .align 4 .u32 table[2][3] = {{{{1, 0x10}}, {{3, 1+2*3, ~0}}}};
.global .u64 pointers[2] = {{table, generic(table)+8}};
.visible .func (.param .b32 r) twice(.param .b32 a)
{{ .reg .b32 t; ld.param.b32 t, [a]; add.s32 t, t, t; st.param.b32 [r], t; ret; }}
.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .u32 n) .maxntid 128
{{
  .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .v2 .f32 v;
  .shared .align 16 .b8 smem[64];
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1; ld.param.u32 %r1, [n];
  mov.f32 v.x, 0f3F800000; mov.f32 v.y, -2.5; st.global.v2.f32 [%rd1+-8], v;
  setp.lt.u32 %p1|%p2, %r1, 010;
  {{ .reg .b32 t; mov.b32 t, smem; L: ld.volatile.shared.b32 %r2, [t+4]; @%p1 bra L; st.global.b32 [%rd1], %r2; }}
  {{ .reg .b32 t, %r2; mov.b32 t, (1<<4)|3; L: add.s32 %r2, t, %r1; @!%p2 bra L; st.global.b32 [%rd1+4], %r2; }}
  st.global.b32 [%rd1+12], %r2;
  targets: .branchtargets A, B, A;
  brx.idx %r1, targets;
  A: ld.global.u64 %rd2, [pointers+8]; st.global.u64 [%rd1+16], %rd2;
  B: {{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call.uni (r), twice, (a); ld.param.b32 %r4, [r]; }}
  {{ .param .b32 a; .param .b32 r; st.param.b32 [a], 5; call.uni (r), twice, (a); ld.param.b32 %r5, [r]; }}
  st.global.v2.b32 [%rd1+24], {{%r4, %r5}};
  ret;
}}
"""


def assemble(text: str, folder: Path) -> dict[str, bytes]:
    """Sections of code and data that ptxas makes of a text."""
    ptxas = find_tool("ptxas")
    assert ptxas is not None
    (folder / "k.ptx").write_text(text)
    command = [str(ptxas.path), "-arch=sm_100a", "k.ptx", "-o", "k.cubin"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    elf = CubinElf((folder / "k.cubin").read_bytes())
    wanted = (".text", ".nv.global", ".nv.constant")
    return {s.name: bytes(elf.read_section(s)) for s in elf.sections if s.name.startswith(wanted)}


@pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
def test_a_printed_program_assembles_to_the_same_code(tmp_path: Path) -> None:
    module, diagnostics = parse_ptx(PROGRAM, "k.ptx")
    assert not diagnostics
    assert assemble(format_ptx(module), tmp_path) == assemble(PROGRAM, tmp_path)


# Damage.

WORDS = [
    b"{",
    b"}",
    b"(",
    b")",
    b"[",
    b"]",
    b";",
    b":",
    b".",
    b",",
    b"%",
    b'"',
    b"/*",
    b"*/",
    b"//",
    b"\n",
    b"@",
]
WORDS += [
    b".reg",
    b".loc 1 2 3",
    b".entry",
    b"=",
    b"\xff",
    b"\0",
    b"<",
    b">",
    b"9" * 30,
    b"-",
    b"0x",
    b"%r1",
    b"::",
]


def damage(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 5)):
        place, other = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
        size = rng.randint(1, 60)
        data = rng.choice(
            (
                data[:place] + data[place + size :],
                data[:place] + rng.choice(WORDS) * rng.choice((1, 1, 200)) + data[place:],
                data[:place] + data[other : other + size] + data[place:],
                data[:place],
                data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :],
            )
        )
    return data


@pytest.mark.parametrize("seed", range(8))
def test_damaged_files_give_an_error_or_a_module(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        data = damage(rng.choice(SAMPLES), rng)
        try:
            _, diagnostics = parse_ptx(data, "damaged.ptx")
        except InputError as error:
            diagnostics = (error.diagnostic,)
        for diagnostic in diagnostics:
            message, location = format_diagnostic(diagnostic), diagnostic.location
            assert diagnostic.hint, message
            assert location is None or location.column <= len(location.text) + 2, message


# What nobody should feed.


def body(text: str) -> str:
    return f"{HEADER}.entry k() {{ .reg .b32 %r<9>; .reg .pred %p<9>;\n{text}\n}}\n"


HOSTILE: dict[str, Callable[[], str]] = {
    "registers without bound": lambda: body(".reg .b32 %q<4000000000>;\nmov.b32 %q3999999999, 1;" * 50),
    "a variable larger than memory": lambda: body(".shared .b8 s[4611686018427387904]; mov.b32 %r1, s;"),
    "an array larger than memory with a value": lambda: f"{HEADER}.global .b8 x[400000000000] = {{1}};",
    "rows without end": lambda: f"{HEADER}.global .b8 x[2][40000000000] = {{ {{1}}, {{2}} }};",
    "comments that are not closed": lambda: body("/* " * 100_000),
    "strings that are not closed": lambda: body('"' * 200_001),
    "blocks in blocks": lambda: body("{ " * 100_000),
    "empty blocks": lambda: body("{ L: } " * 20_000),
    "labels": lambda: body("".join(f"L{i}:\n" for i in range(30_000))),
    "names of digits": lambda: body(f"mov.b32 %r{'1' * 30_000}, 0;"),
    "prefixes of digits": lambda: body(f".reg .b32 a{'1' * 2000}<9>; mov.b32 a{'1' * 2000}{'9' * 2000}, 0;"),
    "operators": lambda: body(f"mov.b32 %r1, {'- ' * 20_000}1;"),
    "parentheses": lambda: body(f"mov.b32 %r1, {'(' * 20_000}1;"),
    "shifts": lambda: body("mov.b64 %r1, 1<<60<<60<<60<<60;" * 100),
    "blanks": lambda: body(" " * 2_000_000),
    "blanks at the end": lambda: body("ret;") + " \n" * 500_000,
    "no semicolon": lambda: body("mov " * 200_000),
    "inlined calls without end": lambda: (
        body(
            "\n".join(
                f".loc 1 {i + 2} 0, function_name f, inlined_at 1 {i + 1} 0\nmov.b32 %r1, 0;"
                for i in range(5000)
            )
        )
        + '.file 1 "a"\n'
    ),
    "shapes": lambda: body(
        "".join(f"mov.b32 {{{', '.join(['%r1'] * (i % 200 + 1))}}}, 1;\n" for i in range(200))
    ),
    "declarators": lambda: body(f".shared .b32 {', '.join(f'x{i}' for i in range(3_000))};"),
    "attributes": lambda: f"{HEADER}.entry k() {'.maxnreg 8 ' * 2_000} {{ ret; }}",
    "heads": lambda: f"{HEADER}.entry k({'(' * 50_000}",
    "attribute parentheses": lambda: f"{HEADER}.visible .func {'.attribute(' * 20_000} f;",
    "initializers": lambda: f"{HEADER}.global .b8 x[300000] = {{{'1, ' * 299_999}1}};",
    "equal signs": lambda: f"{HEADER}.global .b8 x {'= 1 ' * 50_000};",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_take_little_time(name: str) -> None:
    text = HOSTILE[name]()
    start = time.process_time()
    with suppress(InputError):
        parse_ptx(text, "hostile.ptx")
    assert time.process_time() - start < 4


@pytest.mark.parametrize("name", [name for name in HOSTILE if "memory" in name or "without" in name])
def test_sizes_in_a_file_take_no_memory(name: str) -> None:
    text = HOSTILE[name]()
    tracemalloc.start()
    with suppress(InputError):
        parse_ptx(text, "hostile.ptx")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 60 * len(text) + (64 << 20)
