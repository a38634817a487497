"""One instruction compiled for abstract execution: its reads, its writes, and a numpy function.

Values are arrays that broadcast to [n_warp, 32]: a register that is the same in all lanes has shape
[n_warp, 1], one that is the same in all warps [1, 32], a constant [1, 1]. Registers are uint32,
predicates bool. Storage numbers are those of `analyzer.isa.register_operands`.

    IMAD R4, R2, 8, R6   becomes   reads (2, 6), writes (4,), apply(x, z) = (x * 8 + z,), rule LINEAR
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

WordArray = NDArray[np.uint32]
Value = NDArray[Any]  # WordArray or BoolArray

LaneFunction = Callable[..., tuple[Value, ...]]


class ConstantRead(Struct, frozen=True):
    """A 32-bit word of a constant bank at byte `offset`, plus the register `base` if it is not None."""

    bank: int
    offset: int
    base: int | None = None


class SpecialRead(Struct, frozen=True):
    """A special register by its printed name: SR_TID.X, SR_CTAID.Y, SR_LANEID ..."""

    name: str


StepInput = int | ConstantRead | SpecialRead


class AffineRule(StrEnum):
    """Behaviour of results when inputs are affine in the iteration t: input(t) = v + d * t.

    Loops are closed in one step on the strength of these rules, so each must hold for all inputs.

    LINEAR: each uint32 result is, modulo 2^32, a sum of inputs with factors that no varying input enters
        (add, subtract, move, bit complement, select by a fixed predicate, shift left by a fixed amount).
        Predicates among the results are monotone in t while no varying input wraps (carries).
    PRODUCT: LINEAR, while of the two groups of reads in `factors` only one varies.
    PAIR_LINEAR: two results that are the low and high word of a 64-bit sum of sign- or zero-extended inputs
        and 64-bit pairs; `factors` as for PRODUCT. Linear modulo 2^64 while no varying input wraps.
    MONOTONE: every result is constant as long as the values of `compute_invariants` are (if it is None, the
        results themselves); each of these is monotone in t while no varying input wraps, signed or unsigned.
    PIECEWISE_LINEAR: results are LINEAR as long as the values of `compute_invariants`, each monotone in t,
        stay the same.
    BITWISE: each result bit depends only on the same bit of each input (LOP3).
    UNKNOWN: no input may vary.
    """

    LINEAR = "linear"
    PRODUCT = "product"
    PAIR_LINEAR = "pair_linear"
    MONOTONE = "monotone"
    PIECEWISE_LINEAR = "piecewise_linear"
    BITWISE = "bitwise"
    UNKNOWN = "unknown"


class Step(Struct, frozen=True, kw_only=True, eq=False):
    """A compiled instruction, without its guard."""

    reads: tuple[StepInput, ...]  # raw words that `apply` takes, in order; no negation applied yet
    writes: tuple[int, ...]  # storage numbers of the results, in order; -1 for discarded ones (RZ, PT)
    apply: LaneFunction
    affine_rule: AffineRule
    # The instruction combines lanes: `apply` takes the active lanes before the words, as a bool array that
    # broadcasts to [n_warp, 32].
    uses_active_mask: bool = False
    factors: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # positions in `reads`: factors of a product
    compute_invariants: LaneFunction | None = None  # see `AffineRule`; takes the words of `apply`
    # A result is the upper word, or the carry, of a number whose lower word is a sum or a left shift: lanes
    # whose numbers differ by less than 2^32 differ in it only by carries.
    is_upper_word: bool = False
    # Index of a result that is a quotient: the upper word of a product with a reciprocal. The lower word is
    # not used then.
    quotient_index: int | None = None
    uniform_variant: "Step | None" = None  # equivalent step if all lanes hold the same first word
    error_ulps: int = 0  # by which hardware may differ from the result, in units of its last place
    is_equality_compare: bool = False  # it tests whether its first two words are equal

    @property
    def rounded_index(self) -> int | None:
        """Index of a result that is a rounded linear function of the inputs (a quotient or a right shift)."""
        is_rounded = (
            self.affine_rule is AffineRule.MONOTONE
            and self.compute_invariants is None
            and not self.uses_active_mask
        )
        return 0 if is_rounded else self.quotient_index

    def copy_if_rounding(self) -> "Step":
        """Return a copy of a rounding step, else the step itself.

        Analyses keep rounding errors by step, and equal texts round differently at different rows.
        """
        return self if self.rounded_index is None else replace(self)
