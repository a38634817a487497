"""Case 24: forms of PTX that had no lowering, debug PTX, external calls, tiles of tcgen05 at PTX level."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from frontend.ptx.straight_line import StraightLine, make_kernel

from analyzer.cli.app import run
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.ptx.lowering import read_ptx_module
from analyzer.ir.module import Module

Capture = pytest.CaptureFixture[str]
M32, M64 = (1 << 32) - 1, (1 << 64) - 1
TARGETS = ("sm_80", "sm_90", "sm_100")


def signed(x: int, bits: int) -> int:
    """Return the low bits as a signed number."""
    x &= (1 << bits) - 1
    return x - (x >> bits - 1 << bits)


def lanes(x: int, bits: int, *, is_signed: bool) -> list[int]:
    """Return the parts of a word, lowest first."""
    parts = [x >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    return [signed(part, bits) for part in parts] if is_signed else parts


def join(parts: list[int], bits: int) -> int:
    return sum((part & (1 << bits) - 1) << bits * place for place, part in enumerate(parts))


def clamp(x: int, bits: int, *, is_signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return max(low, min(high, x))


def chain(a: int, b: int, c: int, d: int) -> int:
    """Return the sum of two numbers of 64 bits, of which a and c are the low words."""
    return ((a | b << 32) + (c | d << 32)) & M64


def find_first(x: int, *, is_signed: bool) -> int:
    x &= M64
    x ^= M64 if is_signed and x >> 63 else 0
    return x.bit_length() - 1 & M32


def extract(x: int, start: int, width: int, *, is_signed: bool) -> int:
    """Return bfe of 64 bits."""
    start, width = start & 0xFF, min(width & 0xFF, 64)
    moved = (signed(x, 64) if is_signed else x & M64) >> min(start, 64)
    if not width:
        return 0
    return (signed(moved, width) if is_signed else moved & (1 << width) - 1) & M64


def insert(a: int, b: int, start: int, width: int) -> int:
    """Return bfi of 64 bits."""
    start, width = start & 0xFF, min(width & 0xFF, 64)
    mask = ((1 << width) - 1) << start & M64
    return (a << start & mask) | (b & M64 & ~mask)


def permute(a: int, b: int, mode: int, table: tuple[int, ...]) -> int:
    pair, selector = a | b << 32, table[mode & 3]
    return join([pair >> 8 * (selector >> 4 * place & 7) & 0xFF for place in range(4)], 8)


Reference = Callable[..., int]
# PTX -> what it computes of four words
WORDS: dict[str, Reference] = {
    "add.cc.u32 %r1, %a0, %a1; addc.u32 %r0, %a2, %a3;": lambda a, b, c, d: c + d + (a + b >> 32),
    "sub.cc.u32 %r1, %a0, %a1; subc.u32 %r0, %a2, %a3;": lambda a, b, c, d: c - d - (a < b),
    "mad.lo.cc.u32 %r1, %a0, %a1, %a2; madc.hi.u32 %r0, %a0, %a1, %a3;": lambda a, b, c, d: (
        (a * b >> 32) + d + ((a * b & M32) + c >> 32)
    ),
    "mad.hi.cc.u32 %r1, %a0, %a1, %a2; addc.u32 %r0, 0, 0;": lambda a, b, c, d: (a * b >> 32) + c >> 32,
    "add.cc.u32 %r1, %a0, %a1; addc.cc.u32 %r2, %a2, %a3; addc.u32 %r0, 0, 0;": lambda a, b, c, d: (
        c + d + (a + b >> 32) >> 32
    ),
    "sad.u32 %r0, %a0, %a1, %a2;": lambda a, b, c, d: abs(a - b) + c,
    "cvt.u16.u32 %h0, %a0; cvt.u16.u32 %h1, %a1; sad.s16 %h2, %h0, %h1, %h1; cvt.u32.u16 %r0, %h2;": (
        lambda a, b, c, d: (abs(signed(a, 16) - signed(b, 16)) + b) & 0xFFFF
    ),
    "mul24.hi.u32 %r0, %a0, %a1;": lambda a, b, c, d: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16,
    "mul24.lo.s32 %r0, %a0, %a1;": lambda a, b, c, d: signed(a, 24) * signed(b, 24),
    "mad24.hi.s32 %r0, %a0, %a1, %a2;": lambda a, b, c, d: (signed(a, 24) * signed(b, 24) >> 16) + c,
    "min.s16x2 %r0, %a0, %a1;": lambda a, b, c, d: join(
        list(map(min, lanes(a, 16, is_signed=True), lanes(b, 16, is_signed=True))), 16
    ),
    "max.u16x2 %r0, %a0, %a1;": lambda a, b, c, d: join(
        list(map(max, lanes(a, 16, is_signed=False), lanes(b, 16, is_signed=False))), 16
    ),
    "bmsk.clamp.b32 %r0, 7, %a3; and.b32 %r0, %r0, -1;": lambda a, b, c, d: (1 << min(d, 32)) - 1 << 7,
    "szext.wrap.s32 %r0, %a0, 12;": lambda a, b, c, d: signed(a, 12),
    "prmt.b32.f4e %r0, %a0, %a1, %a2;": lambda a, b, c, d: permute(a, b, c, (0x3210, 0x4321, 0x5432, 0x6543)),
    "prmt.b32.b4e %r0, %a0, %a1, %a2;": lambda a, b, c, d: permute(a, b, c, (0x5670, 0x6701, 0x7012, 0x0123)),
    "prmt.b32.rc8 %r0, %a0, %a1, 2;": lambda a, b, c, d: permute(a, b, 2, (0x0000, 0x1111, 0x2222, 0x3333)),
    "prmt.b32.ecr %r0, %a0, %a1, %a2;": lambda a, b, c, d: permute(a, b, c, (0x0000, 0x1110, 0x2210, 0x3210)),
    "cvt.pack.sat.s16.s32 %r0, %a0, %a1;": lambda a, b, c, d: join(
        [clamp(signed(x, 32), 16, is_signed=True) for x in (b, a)], 16
    ),
    "cvt.pack.sat.u8.s32.b32 %r0, %a0, %a1, %a2;": lambda a, b, c, d: (
        join([clamp(signed(x, 32), 8, is_signed=False) for x in (b, a)], 8) | c << 16
    ),
    "cvt.sat.s8.s32 %r0, %a0;": lambda a, b, c, d: clamp(signed(a, 32), 8, is_signed=True),
    "cvt.sat.u16.u32 %r0, %a0;": lambda a, b, c, d: min(a, 0xFFFF),
    "vadd.s32.s32.s32 %r0, %a0.b1, %a1.h1;": lambda a, b, c, d: signed(a >> 8, 8) + signed(b >> 16, 16),
    "vsub.u32.u32.u32.add %r0, %a0, %a1, %a2;": lambda a, b, c, d: a - b + c,
    "vmax.s32.s32.s32 %r0, %a0.b3, %a1.b0;": lambda a, b, c, d: max(signed(a >> 24, 8), signed(b, 8)),
    "vset.u32.u32.lt %r0, %a0, %a1;": lambda a, b, c, d: int(a < b),
    "vshl.u32.u32.u32.wrap %r0, %a0, %a1;": lambda a, b, c, d: a << (b & 31),
    "vadd4.u32.u32.u32 %r0, %a0, %a1, %a2;": lambda a, b, c, d: join(
        [x + y for x, y in zip(lanes(a, 8, is_signed=False), lanes(b, 8, is_signed=False), strict=True)], 8
    ),
    "vabsdiff4.u32.u32.u32.add %r0, %a0, %a1, %a2;": lambda a, b, c, d: (
        sum(
            abs(x - y)
            for x, y in zip(lanes(a, 8, is_signed=False), lanes(b, 8, is_signed=False), strict=True)
        )
        + c
    ),
    "vsub2.s32.s32.s32.sat %r0, %a0, %a1, %a2;": lambda a, b, c, d: join(
        [
            clamp(x - y, 16, is_signed=True)
            for x, y in zip(lanes(a, 16, is_signed=True), lanes(b, 16, is_signed=True), strict=True)
        ],
        16,
    ),
    "mov.v2.u32 {%r1, %r2}, {%a0, %a1}; mov.v2.u32 {%r2, %r1}, {%r1, %r2}; sub.u32 %r0, %r1, %r2;": (
        lambda a, b, c, d: b - a
    ),
    "set.lt.and.u32.u32 %r0, %a0, %a1, %p1;": lambda a, b, c, d: M32 if a < b and d & 1 else 0,
    "mov.u32 %r1, %a0+5; sub.u32 %r0, %r1, %a1;": lambda a, b, c, d: a + 5 - b,
}
PAIRS: dict[str, Reference] = {
    "add.cc.u64 %q1, %d0, %d1; addc.u64 %q0, %d2, %d3;": lambda a, b, c, d: c + d + (a + b >> 64),
    "sub.cc.s64 %q1, %d0, %d1; subc.s64 %q0, %d2, %d3;": lambda a, b, c, d: c - d - (a < b),
    "mad.lo.cc.u64 %q1, %d0, %d1, %d2; madc.hi.u64 %q0, %d0, %d1, %d3;": lambda a, b, c, d: (
        (a * b >> 64) + d + ((a * b & M64) + c >> 64)
    ),
    "mad.hi.s64 %q0, %d0, %d1, %d2;": lambda a, b, c, d: (signed(a, 64) * signed(b, 64) >> 64) + c,
    "sad.s64 %q0, %d0, %d1, %d2;": lambda a, b, c, d: abs(signed(a, 64) - signed(b, 64)) + c,
    "sad.u64 %q0, %d0, %d1, %d2;": lambda a, b, c, d: abs(a - b) + c,
    "bfe.u64 %q0, %d0, %a1, %a2;": lambda a, b, c, d: extract(a, b, c, is_signed=False),
    "bfe.s64 %q0, %d0, %a1, %a2;": lambda a, b, c, d: extract(a, b, c, is_signed=True),
    "bfi.b64 %q0, %d0, %d1, %a2, %a3;": insert,
    "bfi.b64 %q0, %d0, %d1, 9, 40;": lambda a, b, c, d: insert(a, b, 9, 40),
    "bfind.u64 %r1, %d0; cvt.u64.u32 %q0, %r1;": lambda a, b, c, d: find_first(a, is_signed=False),
    "bfind.s64 %r1, %d0; cvt.u64.u32 %q0, %r1;": lambda a, b, c, d: find_first(a, is_signed=True),
    "mov.u64 %q0, %d0+3;": lambda a, b, c, d: a + 3,
}


def draw(rng: random.Random, bits: int) -> tuple[int, ...]:
    """Return four inputs: small, large, at the ends, and anything."""
    ends = (0, 1, 7, 31, 63, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1)
    return tuple(rng.choice((rng.choice(ends), rng.getrandbits(bits), rng.getrandbits(7))) for _ in range(4))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", [*WORDS, *PAIRS])
def test_forms_compute_what_the_isa_says(body: str, target: str) -> None:
    wide = body in PAIRS
    setup = "and.b32 %r9, %a3, 1; setp.eq.u32 %p1, %r9, 1;\n" if "%p1" in body else ""
    code = StraightLine(make_kernel(setup + body, wide=wide, target=target))
    rng, mask = random.Random(body), M64 if wide else M32
    for _ in range(60):
        inputs = draw(rng, 64 if wide else 32)
        expected = (PAIRS if wide else WORDS)[body](*inputs) & mask
        assert code.run(inputs) & mask == expected, inputs


# Memory, and what is not known

KERNEL = """.version 9.0
.target {target}
.address_size 64
{before}.visible .entry k(.param .u64 p, .param .u32 n)
{{
.reg .pred %p<9>; .reg .b32 %r<99>; .reg .f32 %f<99>; .reg .b64 %rd<19>;
ld.param.u64 %rd1, [p]; ld.param.u32 %r9, [n]; mov.u32 %r1, %tid.x;
{body}
ret;
}}
"""


def read(body: str, target: str = "sm_90", before: str = "") -> Module:
    return read_ptx_module(KERNEL.format(target=target, before=before, body=body), "k.ptx", target)


def list_mnemonics(module: Module) -> list[str]:
    (kernel,) = module.kernels
    return [kernel.decode_form(row).text.split()[0] for row in range(len(kernel))]


@pytest.mark.parametrize(
    ("body", "mnemonic"),
    [
        ("multimem.ld_reduce.relaxed.sys.global.add.f32 %f1, [%rd1];", "LDGMC.E.ADD.F32.STRONG.SYS"),
        ("multimem.st.weak.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};", "STG.E.128.STRONG.GPU"),
        ("multimem.red.relaxed.sys.global.add.f32 [%rd1], %f1;", "REDG.E.ADD.F32.STRONG.SYS"),
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}];", "TEX"),
        ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];", "TLD.LZ"),
        ("tld4.g.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}];", "TLD4.G"),
    ],
)
def test_accesses_are_those_of_the_target(body: str, mnemonic: str) -> None:
    module = read(body)
    assert mnemonic in list_mnemonics(module)
    assert not [each for each in module.diagnostics if each.code == "unknown-ptx"]


@pytest.mark.parametrize(
    "form",
    [
        "fns.b32 %r2, %r1, %r1, %r1", "add.sat.s32 %r2, %r1, %r1", "add.u16x2 %r2, %r1, %r1",
        "vmad.s32.s32.s32.shr7 %r2, %r1, %r1, %r1", "mad24.hi.sat.s32 %r2, %r1, %r1, %r1",
        "max.relu.s32 %r2, %r1, %r1", "txq.width.b32 %r2, [%rd1]",
    ],
)  # fmt: skip
def test_a_form_without_a_lowering_is_counted(form: str) -> None:
    """What a modifier changes is not left out: the result is unknown, not that of another instruction."""
    module = read(f"{form};\n{form};\nst.global.u32 [%rd1], %r2;")
    (warning,) = [each for each in module.diagnostics if each.code == "unknown-ptx"]
    assert form.split()[0] in warning.message
    assert warning.count == 2
    assert any(text.startswith("PTX_") for text in list_mnemonics(module))


# Calls


def analyze(tmp_path: Path, capsys: Capture, text: str, *options: str) -> str:
    path = tmp_path / "k.ptx"
    path.write_text(text)
    assert run(["analyze", str(path), "--virtual", "--no-cache", *options]) == 0
    return capsys.readouterr().out


VPRINTF = """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.func (.param .b32 r) twice(.param .b32 x)
{ .reg .b32 %r<3>; ld.param.u32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [r+0], %r2; ret; }
"""
CALLS = """{ .param .b32 a; st.param.b32 [a+0], %r1; .param .b32 b; call (b), twice, (a); ld.param.b32 %r2, [b+0]; }
{ .param .b64 f; .param .b64 a; .param .b32 b; call (b), vprintf, (f, a); ld.param.b32 %r3, [b+0]; }
mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r2;
"""


def test_an_external_call_is_named_and_no_count_is_exact(tmp_path: Path, capsys: Capture) -> None:
    text = KERNEL.format(target="sm_80", before=VPRINTF, body=CALLS)
    out = analyze(tmp_path, capsys, text, "--grid", "2", "--block", "64")
    assert "vprintf is printf of CUDA's device runtime: what runs there is not counted" in out
    assert "counts exact" not in out
    assert "twice" not in out  # it is followed
    inner = CALLS.splitlines(keepends=True)
    out = analyze(tmp_path, capsys, text.replace(inner[1], ""), "--grid", "2", "--block", "64")
    assert "counts exact" in out


def test_registers_are_kept_across_an_external_call(tmp_path: Path, capsys: Capture) -> None:
    text = KERNEL.format(target="sm_80", before=VPRINTF, body=CALLS)
    assert "256 B global" not in analyze(tmp_path, capsys, text, "--grid", "2", "--block", "32")
    assert "128 B global" in analyze(tmp_path, capsys, text, "--grid", "2", "--block", "32")


@pytest.mark.parametrize(
    "options",
    [
        ("--virtual",),
        pytest.param(
            (), marks=pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
        ),
    ],
    ids=["virtual", "ptxas"],
)
def test_debug_code_with_functions_is_followed(capsys: Capture, options: tuple[str, ...]) -> None:
    """The launch is the kernels' alone; `square`, which nothing inlines, is executed where it is called."""
    path = Path(__file__).parent / "24-debug-ptx" / "debug_80.ptx"
    launch = ("--no-cache", "-g", "a100", "--grid", "4,4", "--block", "16,16", "--arg", "3=64")
    assert run(["analyze", str(path), *options, *launch]) == 0
    out = capsys.readouterr().out
    assert re.findall("^kernel (.*)", out, re.MULTILINE) == ["saxpy", "tiled"]
    assert out.count("counts exact") == 2
    flops = 32 * (2 * 64 + 1)  # of a warp: a column's product, and its square
    assert f"{flops:,} flop " in out


def test_the_misaligned_address_is_named(tmp_path: Path, capsys: Capture) -> None:
    body = "mul.wide.u32 %rd2, %r1, 7; add.s64 %rd3, %rd1, %rd2; st.global.u64 [%rd3], %rd2;"
    path = tmp_path / "k.ptx"
    path.write_text(KERNEL.format(target="sm_80", before="", body=body))
    assert run(["analyze", str(path), "--virtual", "--grid", "1", "--block", "32"]) == 2
    (address,) = re.findall(r"no multiple of 8, as (0x\w+)", capsys.readouterr().err)
    assert int(address, 16) % 8 == 7


# Products of sm_100

N_LIVE = 290  # values, more than there are registers
DESCRIPTOR = 8 << 24 | 8 << 17 | 0x10  # a tile of 128 x 64


def make_product(n_live: int, guard: str) -> str:
    """A kernel of a product whose descriptor lives as long as so many other values."""
    loads = "".join(f"ld.global.f32 %v{n}, [%rd1+{4 * n}];\n" for n in range(n_live))
    work = "".join(f"fma.rn.f32 %v{n}, %v{n}, %v{n}, %v{n};\n" for n in range(n_live))
    stores = "".join(f"st.global.f32 [%rd1+{4 * n}], %v{n};\n" for n in range(n_live))
    body = f""".reg .f32 %v<{n_live + 1}>;
mov.u32 %r2, {DESCRIPTOR & ~0xFF0000:#x}; or.b32 %r2, %r2, {DESCRIPTOR & 0xFF0000:#x};
setp.eq.u32 %p1, %r1, 0; mov.u64 %rd4, 0x4000004000010000; mov.u64 %rd5, 0x4000004000010100;
mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, bar; mov.u32 %r8, 0;
@%p1 mbarrier.init.shared::cta.b64 [%r7], 1; bar.sync 0;
{loads}
L: {guard} tcgen05.mma.cta_group::1.kind::f8f6f4 [%r5], %rd4, %rd5, %r2, %p1;
{guard} tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r7];
W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r7], %r8; @!%p3 bra W; xor.b32 %r8, %r8, 1;
{work} add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, %r9; @%p2 bra L;
{stores}"""
    return KERNEL.format(target="sm_100a", before=".shared .align 8 .b64 bar;\n", body=body)


@pytest.mark.parametrize("n_live", [2, N_LIVE], ids=["in a register", "spilled"])
def test_a_product_has_the_tile_of_its_descriptor(tmp_path: Path, capsys: Capture, n_live: int) -> None:
    options = ("-g", "b200", "--grid", "1", "--block", "128", "--arg", "1=8")
    out = analyze(tmp_path, capsys, make_product(n_live, "@%p1"), *options)
    assert ("kept in local memory" in out) is (n_live == N_LIVE)
    flop = 2 * (8 * 128 * 64 * 32 / 4 + 8 * 32 * n_live)  # one of four warps issues the products
    assert f"{flop:,.0f} flop" in out
    assert "counts exact (" in out


def test_an_unknown_tile_is_not_called_exact(tmp_path: Path, capsys: Capture) -> None:
    text = make_product(2, "@%p1").replace("or.b32 %r2, %r2,", "ld.global.u32 %r2, [%rd1]; or.b32 %r2, %r2,")
    out = analyze(tmp_path, capsys, text, "-g", "b200", "--grid", "1", "--block", "128", "--arg", "1=8")
    assert "tiles of products unknown" in out
    assert "multiply-adds assumed" in out
