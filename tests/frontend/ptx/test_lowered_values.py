"""Lowered PTX computes what the PTX ISA says: each instruction against a reference on Python's integers."""

from collections.abc import Callable

import pytest
from frontend.ptx.straight_line import StraightLine, make_kernel
from hypothesis import given, settings
from hypothesis import strategies as st

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def s32(x: int) -> int:
    """Return the low 32 bits as a signed number."""
    x &= M32
    return x - (x >> 31 << 32)


def s64(x: int) -> int:
    """Return the low 64 bits as a signed number."""
    x &= M64
    return x - (x >> 63 << 64)


def s16(x: int) -> int:
    """Return the low 16 bits as a signed number."""
    x &= 0xFFFF
    return x - (x >> 15 << 16)


def truncate_division(a: int, b: int, ones: int) -> int:
    """Return a / b rounded to zero; all ones by zero, as ptxas's code gives."""
    if b == 0:
        return ones
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def remainder(a: int, b: int) -> int:
    """Return the remainder of `truncate_division`."""
    return a - truncate_division(a, b, 0) * b


def extract(x: int, start: int, width: int, *, signed: bool) -> int:
    """Return bfe of a word."""
    start, width = start & 0xFF, width & 0xFF
    sign = x >> 31 & 1 if signed else 0
    if width == 0 or start >= 32:
        return M32 if sign and width else 0
    field = x >> start & ((1 << width) - 1)
    top = min(start + width - 1, 31)
    negative = signed and x >> top & 1
    return field | (M32 & ~((1 << min(width, 32 - start)) - 1) if negative else 0) & M32


def insert(a: int, b: int, start: int, width: int) -> int:
    """Return bfi of words: bits of a put into b."""
    start, width = start & 0xFF, width & 0xFF
    mask = ((1 << width) - 1) << start & M32
    return (a << start & mask) | (b & ~mask)


def permute(a: int, b: int, selector: int) -> int:
    """Return prmt."""
    pair, result = a | b << 32, 0
    for place in range(4):
        nibble = selector >> 4 * place & 0xF
        byte = pair >> 8 * (nibble & 7) & 0xFF
        if nibble & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * place
    return result


def shift(x: int, n: int, bits: int, *, left: bool, signed: bool = False) -> int:
    """Return a shift whose amount is clamped."""
    n = min(n & M32, bits)
    if left:
        return x << n & ((1 << bits) - 1)
    return (s32(x) if bits == 32 else s64(x)) >> n if signed else x >> n


Reference = Callable[[int, int, int, int], int]

# (PTX, reference on the four inputs); a, b, c, e are %a0 … or %d0 …
WORDS: dict[str, Reference] = {
    "add.s32 %r0, %a0, %a1;": lambda a, b, c, e: a + b,
    "sub.s32 %r0, %a0, %a1;": lambda a, b, c, e: a - b,
    "sub.s32 %r0, 7, %a1;": lambda a, b, c, e: 7 - b,
    "mul.lo.s32 %r0, %a0, %a1;": lambda a, b, c, e: a * b,
    "mul.hi.s32 %r0, %a0, %a1;": lambda a, b, c, e: s32(a) * s32(b) >> 32,
    "mul.hi.u32 %r0, %a0, %a1;": lambda a, b, c, e: a * b >> 32,
    "mad.lo.s32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: a * b + c,
    "mad.hi.u32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: (a * b >> 32) + c,
    "mad.lo.s32 %r0, %a0, 12, 5;": lambda a, b, c, e: a * 12 + 5,
    "sad.u32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: abs(a - b) + c,
    "sad.s32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: abs(s32(a) - s32(b)) + c,
    "div.s32 %r0, %a0, %a1;": lambda a, b, c, e: truncate_division(s32(a), s32(b), M32),
    "div.u32 %r0, %a0, %a1;": lambda a, b, c, e: truncate_division(a, b, M32),
    "rem.u32 %r0, %a0, 7;": lambda a, b, c, e: a % 7,
    "rem.s32 %r0, %a0, -12;": lambda a, b, c, e: remainder(s32(a), -12),
    "div.s32 %r0, %a0, 64;": lambda a, b, c, e: truncate_division(s32(a), 64, 0),
    "abs.s32 %r0, %a0;": lambda a, b, c, e: abs(s32(a)),
    "neg.s32 %r0, %a0;": lambda a, b, c, e: -a,
    "min.s32 %r0, %a0, %a1;": lambda a, b, c, e: min(s32(a), s32(b)),
    "max.u32 %r0, %a0, 17;": lambda a, b, c, e: max(a, 17),
    "and.b32 %r0, %a0, 0xff00;": lambda a, b, c, e: a & 0xFF00,
    "or.b32 %r0, %a0, %a1;": lambda a, b, c, e: a | b,
    "xor.b32 %r0, %a0, -1;": lambda a, b, c, e: a ^ M32,
    "not.b32 %r0, %a0;": lambda a, b, c, e: ~a,
    "cnot.b32 %r0, %a0;": lambda a, b, c, e: int(a == 0),
    "lop3.b32 %r0, %a0, %a1, %a2, 0x96;": lambda a, b, c, e: a ^ b ^ c,
    "shl.b32 %r0, %a0, %a1;": lambda a, b, c, e: shift(a, b, 32, left=True),
    "shl.b32 %r0, %a0, 5;": lambda a, b, c, e: a << 5,
    "shr.u32 %r0, %a0, %a1;": lambda a, b, c, e: shift(a, b, 32, left=False),
    "shr.s32 %r0, %a0, %a1;": lambda a, b, c, e: shift(a, b, 32, left=False, signed=True),
    "shf.l.wrap.b32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: ((b << 32 | a) << (c & 31)) >> 32,
    "shf.r.wrap.b32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: (b << 32 | a) >> (c & 31),
    "shf.l.clamp.b32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: ((b << 32 | a) << min(c, 32)) >> 32,
    "shf.r.clamp.b32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: (b << 32 | a) >> min(c, 32),
    "bfe.u32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: extract(a, b, c, signed=False),
    "bfe.u32 %r0, %a0, 4, 14;": lambda a, b, c, e: extract(a, 4, 14, signed=False),
    "bfe.s32 %r0, %a0, 3, 5;": lambda a, b, c, e: extract(a, 3, 5, signed=True),
    "bfi.b32 %r0, %a0, %a1, 5, 7;": lambda a, b, c, e: insert(a, b, 5, 7),
    "bfi.b32 %r0, %a0, %a1, %a2, %a3;": lambda a, b, c, e: insert(a, b, c, e),
    "prmt.b32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: permute(a, b, c),
    "prmt.b32 %r0, %a0, %a1, 0x3210;": lambda a, b, c, e: a,
    "popc.b32 %r0, %a0;": lambda a, b, c, e: a.bit_count(),
    "popc.b64 %r0, %d0;": lambda a, b, c, e: a.bit_count(),
    "clz.b32 %r0, %a0;": lambda a, b, c, e: 32 - a.bit_length(),
    "clz.b64 %r0, %d0;": lambda a, b, c, e: 64 - a.bit_length(),
    "brev.b32 %r0, %a0;": lambda a, b, c, e: int(f"{a:032b}"[::-1], 2),
    "bfind.u32 %r0, %a0;": lambda a, b, c, e: a.bit_length() - 1,
    "setp.lt.s32 %p1, %a0, %a1; selp.b32 %r0, %a2, %a3, %p1;": (
        lambda a, b, c, e: c if s32(a) < s32(b) else e
    ),
    "setp.ge.u32 %p1|%p2, %a0, %a1; selp.b32 %r0, 1, 0, %p2;": lambda a, b, c, e: int(a < b),
    "setp.ls.u32 %p1, %a0, %a1; selp.b32 %r0, 5, 9, %p1;": lambda a, b, c, e: 5 if a <= b else 9,
    "setp.eq.s32 %p1, %a0, %a1; setp.ne.or.s32 %p2, %a2, %a3, %p1; selp.b32 %r0, 1, 0, %p2;": (
        lambda a, b, c, e: int(a == b or c != e)
    ),
    "setp.lt.s64 %p1, %d0, %d1; selp.b32 %r0, 1, 0, %p1;": lambda a, b, c, e: int(s64(a) < s64(b)),
    "setp.gt.u64 %p1, %d0, 70000; selp.b32 %r0, 1, 0, %p1;": lambda a, b, c, e: int(a > 70000),
    "setp.eq.b64 %p1, %d0, %d1; selp.b32 %r0, 1, 0, %p1;": lambda a, b, c, e: int(a == b),
    "setp.lt.s16 %p1, %h1, %h2; selp.b32 %r0, 1, 0, %p1;": lambda a, b, c, e: 0,  # %h are 0
    "setp.ne.s32 %p1, %a0, 0; setp.ne.s32 %p2, %a1, 0; and.pred %p3, %p1, %p2; selp.b32 %r0, 1, 0, %p3;": (
        lambda a, b, c, e: int(a != 0 and b != 0)
    ),
    "setp.ne.s32 %p1, %a0, 0; setp.ne.s32 %p2, %a1, 0; xor.pred %p3, %p1, %p2; not.pred %p4, %p3; "
    "selp.b32 %r0, 1, 0, %p4;": lambda a, b, c, e: int((a != 0) == (b != 0)),
    "slct.u32.s32 %r0, %a0, %a1, %a2;": lambda a, b, c, e: a if s32(c) >= 0 else b,
    "set.lt.u32.u32 %r0, %a0, %a1;": lambda a, b, c, e: M32 if a < b else 0,
    "mov.b32 {%h1, %h2}, %a0; mov.b32 %r0, {%h2, %h1};": lambda a, b, c, e: a << 16 | a >> 16,
    "mov.b64 {%r1, %r2}, %d0; mov.b64 %q1, {%r2, %r1}; cvt.u32.u64 %r0, %q1;": lambda a, b, c, e: a >> 32,
    "cvt.u16.u32 %h1, %a0; cvt.u32.u16 %r0, %h1;": lambda a, b, c, e: a & 0xFFFF,
    "cvt.u16.u32 %h1, %a0; cvt.s32.s16 %r0, %h1;": lambda a, b, c, e: s16(a),
    "cvt.u16.u32 %h1, %a0; cvt.u16.u32 %h2, %a1; mul.wide.s16 %r0, %h1, %h2;": (
        lambda a, b, c, e: s16(a) * s16(b)
    ),
    "cvt.u16.u32 %h1, %a0; shr.u16 %h2, %h1, 3; cvt.u32.u16 %r0, %h2;": lambda a, b, c, e: (a & 0xFFFF) >> 3,
    "cvt.u16.u32 %h1, %a0; add.s16 %h2, %h1, 1; setp.lt.s16 %p1, %h2, 5; selp.b32 %r0, 1, 0, %p1;": (
        lambda a, b, c, e: int(s16(a + 1) < 5)
    ),
    "cvt.u16.u32 %h1, %a0; cvt.u16.u32 %h2, %a1; mul.hi.s16 %h3, %h1, %h2; cvt.u32.u16 %r0, %h3;": (
        lambda a, b, c, e: s16(a) * s16(b) >> 16 & 0xFFFF
    ),
    "cvt.s8.s32 %r1, %a0; cvt.s32.s8 %r0, %r1;": lambda a, b, c, e: (a & 0xFF) - ((a & 0x80) << 1),
    "cvt.u32.u8 %r0, %a0;": lambda a, b, c, e: a & 0xFF,
    "{ .reg .pred %x; setp.gt.u32 %x, %a0, %a1; mov.u32 %r0, 4; @%x add.u32 %r0, %r0, %a2; }": (
        lambda a, b, c, e: 4 + c if a > b else 4
    ),
    "mov.u32 %r0, 4; setp.gt.u32 %p1, %a0, %a1; @!%p1 shl.b32 %r0, %a2, 3;": (
        lambda a, b, c, e: 4 if a > b else c << 3
    ),
    "mov.u32 %r0, 4; setp.gt.u32 %p1, %a0, %a1; @%p1 div.u32 %r0, %a2, 10;": (
        lambda a, b, c, e: c // 10 if a > b else 4
    ),
}
PAIRS: dict[str, Reference] = {
    "add.s64 %q0, %d0, %d1;": lambda a, b, c, e: a + b,
    "add.s64 %q0, %d0, -8;": lambda a, b, c, e: a - 8,
    "add.s64 %q0, %d0, 4611686293305294850;": lambda a, b, c, e: a + 4611686293305294850,
    "sub.s64 %q0, %d0, %d1;": lambda a, b, c, e: a - b,
    "sub.s64 %q0, %d0, 5;": lambda a, b, c, e: a - 5,
    "mov.u64 %q0, %d0; add.s64 %q0, %d1, %q0;": lambda a, b, c, e: a + b,
    "mul.lo.s64 %q0, %d0, %d1;": lambda a, b, c, e: a * b,
    "mul.lo.s64 %q0, %d0, 24;": lambda a, b, c, e: a * 24,
    "mad.lo.s64 %q0, %d0, %d1, %d2;": lambda a, b, c, e: a * b + c,
    "mul.wide.s32 %q0, %a0, %a1;": lambda a, b, c, e: s32(a) * s32(b),
    "mul.wide.u32 %q0, %a0, 4;": lambda a, b, c, e: (a & M32) * 4,
    "mad.wide.s32 %q0, %a0, 4, %d1;": lambda a, b, c, e: s32(a) * 4 + b,
    "mul.wide.s32 %q1, %a0, 4; add.s64 %q0, %d1, %q1;": lambda a, b, c, e: s32(a) * 4 + b,
    "mul.wide.u32 %q1, %a0, 4; add.u32 %a0, %a0, 1; add.s64 %q0, %q1, %d1;": (
        lambda a, b, c, e: (a & M32) * 4 + b
    ),
    "mul.wide.u32 %q1, %a0, 4; add.s64 %q2, %q1, %d1; add.s64 %q0, %q1, %q2;": (
        lambda a, b, c, e: (a & M32) * 8 + b
    ),
    "mul.wide.s32 %q0, %a0, %a1; add.s64 %q0, %d1, %q0;": lambda a, b, c, e: s32(a) * s32(b) + b,
    "rem.s32 %r1, %a0, %a1; div.s32 %r2, %a2, %a1; mov.b64 %q0, {%r1, %r2};": (
        lambda a, b, c, e: (
            (remainder(s32(a), s32(b)) & M32 if b & M32 else M32)
            | (truncate_division(s32(c), s32(b), M32) & M32) << 32
        )
    ),
    "mul.hi.u64 %q0, %d0, %d1;": lambda a, b, c, e: a * b >> 64,
    "mul.hi.s64 %q0, %d0, %d1;": lambda a, b, c, e: s64(a) * s64(b) >> 64,
    "bfe.u64 %q0, %d0, 5, 33;": lambda a, b, c, e: a >> 5 & ((1 << 33) - 1),
    "bfe.s64 %q0, %d0, 0, 20;": lambda a, b, c, e: (a & 0xFFFFF) - ((a & 0x80000) << 1),
    "div.u64 %q0, %d0, %d1;": lambda a, b, c, e: truncate_division(a, b, M64),
    "rem.s64 %q0, %d0, 10;": lambda a, b, c, e: remainder(s64(a), 10),
    "abs.s64 %q0, %d0;": lambda a, b, c, e: abs(s64(a)),
    "neg.s64 %q0, %d0;": lambda a, b, c, e: -a,
    "min.s64 %q0, %d0, %d1;": lambda a, b, c, e: min(s64(a), s64(b)),
    "max.u64 %q0, %d0, %d1;": lambda a, b, c, e: max(a, b),
    "and.b64 %q0, %d0, 28;": lambda a, b, c, e: a & 28,
    "or.b64 %q0, %d0, 4611686293305294848;": lambda a, b, c, e: a | 4611686293305294848,
    "not.b64 %q0, %d0;": lambda a, b, c, e: ~a,
    "shl.b64 %q0, %d0, 2;": lambda a, b, c, e: a << 2,
    "shl.b64 %q0, %d0, 40;": lambda a, b, c, e: a << 40,
    "shl.b64 %q0, %d0, %a1;": lambda a, b, c, e: shift(a, b & M32, 64, left=True),
    "shr.u64 %q0, %d0, 33;": lambda a, b, c, e: a >> 33,
    "shr.s64 %q0, %d0, %a1;": lambda a, b, c, e: shift(a, b & M32, 64, left=False, signed=True),
    "mov.u64 %q0, %d0; shr.s64 %q0, %q0, 3;": lambda a, b, c, e: s64(a) >> 3,
    "cvt.s64.s32 %q0, %a0;": lambda a, b, c, e: s32(a),
    "cvt.u64.u32 %q0, %a0;": lambda a, b, c, e: a & M32,
    "cvt.u16.u32 %h1, %a0; cvt.u64.u16 %q0, %h1;": lambda a, b, c, e: a & 0xFFFF,
    "setp.lt.u32 %p1, %a0, %a1; selp.b64 %q0, %d2, %d3, %p1;": (
        lambda a, b, c, e: c if a & M32 < b & M32 else e
    ),
    "brev.b64 %q0, %d0;": lambda a, b, c, e: int(f"{a:064b}"[::-1], 2),
    "mov.b64 %q0, {%a1, %a0};": lambda a, b, c, e: a << 32 | b & M32,
    "mov.b64 {%r1, %r2}, %d0; mov.b64 %q0, {%r2, %r1};": lambda a, b, c, e: a << 32 | a >> 32,
    "cvta.to.global.u64 %q0, %d0;": lambda a, b, c, e: a,
}

EDGES = [
    0,
    1,
    2,
    31,
    32,
    33,
    63,
    64,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    M32,
    1 << 40,
    M64,
    1 << 63,
]
numbers = st.one_of(st.sampled_from(EDGES), st.integers(0, M64), st.integers(0, 64), st.integers(0, M32))


@pytest.mark.parametrize("body", WORDS)
def test_a_word_is_what_the_instruction_says(body: str) -> None:
    code = StraightLine(make_kernel(body, wide=False))

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(st.tuples(numbers, numbers, numbers, numbers))
    def check(inputs: tuple[int, ...]) -> None:
        takes_pairs = "%d" in body
        shown = inputs if takes_pairs else tuple(x & M32 for x in inputs)
        assert code.run(inputs) == WORDS[body](*shown) & M32

    check()


@pytest.mark.parametrize("target", ["sm_80", "sm_100"])
@pytest.mark.parametrize("body", PAIRS)
def test_a_pair_is_what_the_instruction_says(body: str, target: str) -> None:
    code = StraightLine(make_kernel(body, wide=True, target=target))

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(st.tuples(numbers, numbers, numbers, numbers))
    def check(inputs: tuple[int, ...]) -> None:
        assert code.run(inputs) == PAIRS[body](*inputs) & M64

    check()
