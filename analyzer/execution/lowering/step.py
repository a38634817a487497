"""One instruction compiled for abstract execution: what it reads, what it writes, and a numpy function.

Values are arrays that broadcast to [n_warp, 32]: a register that is the same in all lanes has shape
[n_warp, 1], one that is the same in all warps [1, 32], a constant [1, 1]. Registers are uint32,
predicates bool. Storage numbers are those of `analyzer.isa.register_operands`.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

WordArray = NDArray[np.uint32]
BoolArray = NDArray[np.bool_]
Value = NDArray[Any]  # Words or Bits

LaneFunction = Callable[..., tuple[Value, ...]]


class ConstantRead(Struct, frozen=True):
    """A 32-bit word of a constant bank at `offset` plus the register `base`, where there is one."""

    bank: int
    offset: int
    base: int | None = None


class SpecialRead(Struct, frozen=True):
    """A special register by its printed name: SR_TID.X, SR_CTAID.Y, SR_LANEID ..."""

    name: str


StepInput = int | ConstantRead | SpecialRead


class AffineRule(StrEnum):
    """How results behave when inputs grow by a constant each iteration: input(t) = v + d * t.

    Closing a loop in one step rests on this, so a rule must be a theorem, not a habit.

    LINEAR: each uint32 result is, modulo 2^32, a sum of inputs with factors that no varying input enters
        (add, subtract, move, bit complement, select by a fixed predicate, shift left by a fixed amount).
        Predicates among the results are monotone in t while no varying input wraps (carries).
    PRODUCT: LINEAR, while of the two groups of reads in `factors` only one varies.
    PAIR: two results that are the low and high word of a 64-bit sum of sign- or zero-extended inputs and
        64-bit pairs; `factors` as for PRODUCT. Linear modulo 2^64 while no varying input wraps.
    MONOTONE: every result is constant as long as the values of `compute_invariants` (the results themselves
    where it is
        None) are; each of those is a monotone function of t while no varying input wraps, signed or unsigned.
    SELECT: results are LINEAR as long as the values of `compute_invariants`, each monotone in t, stay the
    same. BITWISE: each result bit depends on the same bit of each input only (LOP3).
    FIXED: nothing is known: no input may vary.
    """

    LINEAR = "linear"
    PRODUCT = "product"
    PAIR_LINEAR = "pair"
    MONOTONE = "monotone"
    PIECEWISE_LINEAR = "select"
    BITWISE = "bitwise"
    UNKNOWN = "fixed"


class Step(Struct, frozen=True, kw_only=True, eq=False):
    """A compiled instruction.

    reads: raw words that `apply` takes, in order (no negation applied yet); writes: storage numbers of its
    results, in order, -1 for a result that nothing keeps (RZ, PT). The guard is not among the reads.
    uses_mask: `apply` takes the active lanes, a bool array that broadcasts to [n_warp, 32], before the words;
    it combines lanes, so results may depend on every active lane of the warp.
    factors: places in `reads` of the two factors of a product; watch: see `AffineRule`. is_upper: a result is
    the upper word of a number, or its carry, whose lower word comes of a sum or a left shift: lanes whose
    numbers lie so far apart differ there by carries alone. quotient: place of a result that is one, the upper
    word of a product with a reciprocal, of which nobody wants the lower one. alike: of one that combines
    lanes, what it comes to where all lanes hold the same in its first word. is_equality: it asks whether its
    first two words are equal.
    """

    reads: tuple[StepInput, ...]
    writes: tuple[int, ...]
    apply: LaneFunction
    affine_rule: AffineRule
    uses_active_mask: bool = False
    factors: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    compute_invariants: LaneFunction | None = None
    is_upper_word: bool = False
    quotient_index: int | None = None
    uniform_variant: "Step | None" = None
    is_equality_compare: bool = False

    @property
    def rounded_index(self) -> int | None:
        """Place of a word that grows as what it is made of does, but not evenly."""
        is_rounded = (
            self.affine_rule is AffineRule.MONOTONE
            and self.compute_invariants is None
            and not self.uses_active_mask
        )
        return 0 if is_rounded else self.quotient_index

    def copy_if_rounding(self) -> "Step":
        """What rounds does so in its own way at each place in the code, even where the text is the same."""
        return self if self.rounded_index is None else replace(self)
