"""Unknown words of memory in addresses: they hold zero, and the address is believed as far as that allows.

1. All lanes of a warp load the same word (an argument that is not given, an entry of a table, a page number,
   a delay): it shifts the request as a whole. The lane pattern is that of the other terms of the address.
   a. An integer may shift it anywhere: which bytes it shares with other requests is unknown.
   b. A floating-point number is taken to be a distance, and a short one: 0.
2. Lanes load words of their own, or an unknown word is a factor of a term that differs among lanes: the lane
   pattern is unknown.
3. Results of TMA, atomics and textures: likewise unknown.

Example: `a[table[i] + lane]` with an unknown `table[i]` has the lane pattern of `a[lane]` (case 1a);
`a[index[lane]]` has none (case 2).
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.lowering.atomic_counters import MIN_COUNTER_PARTICIPANTS, is_atomic_counter
from analyzer.execution.lowering.segments import CompiledKernel, LoweredAccess
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.execution.machine.doubts import Doubt
from analyzer.execution.machine.register_state import (
    DIVERGENT_FLAG,
    ORIGIN_MASK,
    RegisterView,
    UnknownOrigins,
    find_followed,
    join_origins,
    make_divergent_origin,
)
from analyzer.ir.arrays import BoolArray
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind

_FLOATING_POINT_KINDS = frozenset({OpKind.FLOAT, OpKind.HALF, OpKind.DOUBLE, OpKind.CONVERT})
_MAX_ADDRESS = np.uint64(0xFFFFFFFFFFFFFFFF)


class AddressConfidence(IntEnum):
    """Known parts of an access's addresses."""

    NONE = 0
    INDEXED_ROW = 1  # distances between lanes, in a row that a loaded word selects
    LANE_PATTERN = 2  # distances between lanes, in a place that unknown arguments select
    LOCATION = 3  # by assumption also which bytes are shared with other requests
    POSSIBLE = 4  # all, of one of the addresses that the order of warps, or last bits, may lead to
    EXACT = 5  # all: addresses depend on no unknown word


class UnknownWords:
    """Rules for values and addresses that depend on unknown words."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel
        # rows of atomics whose results were taken to be unequal to a known number
        self.atomic_counters: set[int] = set()
        self.doubts: dict[int, Doubt] = {}  # by the row of the instruction that brought the value
        self._read_as_float: dict[int, bool] = {}

    def find_load_origin(
        self,
        access: LoweredAccess,
        active: BoolArray,
        addresses: NDArray[np.uint64] | None,
        unknown: UnknownOrigins | None,
    ) -> int:
        """Return the origin of unknown loaded words.

        unknown: the origin of their own addresses.
        """
        is_shared = (
            access.kind is OpKind.LOAD and addresses is not None and _has_uniform_addresses(addresses, active)
        )
        if is_shared and self.assess_confidence(unknown, active) is not AddressConfidence.NONE:
            return access.row + 1
        return make_divergent_origin(access.row)

    def makes_divergent(
        self,
        step: Step,
        words: Sequence[Value],
        sources: Sequence[UnknownOrigins | None],
        origin: UnknownOrigins,
    ) -> bool:
        """Return whether unknown inputs change the distances between lanes, as a pitch times a lane's row."""
        if step.affine_rule is AffineRule.LINEAR or not any(word.shape[-1] > 1 for word in words):
            return False
        if bool(find_followed(origin).all()):
            return False
        if step.is_upper_word and self._is_all_loaded(origin):
            return False
        unknown = [source is not None for source in sources]
        spreads = [word.shape[-1] > 1 for word in words]
        if step.affine_rule is AffineRule.BITWISE:  # combined bits: usually a sum
            mixed = [one and other for one, other in zip(unknown, spreads, strict=True)]
            mixes = any(mixed)
            if mixes and self._is_all_loaded(origin):
                mixes = not _is_bitwise_sum(step, words, mixed)
        elif step.affine_rule in (AffineRule.PRODUCT, AffineRule.PAIR_LINEAR):
            left, right = step.factors
            mixes = (_is_any_set(unknown, left) and _is_any_set(spreads, right)) or (
                _is_any_set(unknown, right) and _is_any_set(spreads, left)
            )
        else:
            mixes = True
        return mixes and (
            _has_divergent(origin) or not all(map(self.is_read_as_float, _find_origin_rows(origin)))
        )

    def is_known_unequal(
        self, words: Sequence[Value], sources: Sequence[UnknownOrigins | None], view: RegisterView
    ) -> bool:
        """Return whether two words are taken to be unequal.

        One is a known number, the other a result of an atomic that counts up for many participants: that it
        hits the number is improbable (see `is_atomic_counter`).
        """
        unknown = [source for source in sources if source is not None]
        if len(unknown) != 1 or len(sources) != 2:
            return False
        known = words[0] if sources[0] is None else words[1]
        rows = find_instruction_rows(np.where(view.active, unknown[0], 0))
        if len(rows) != 1 or rows[0] >= len(self._kernel.cfg.kernel):
            return False
        is_large = (
            int(np.where(view.active, known, MIN_COUNTER_PARTICIPANTS).min()) >= MIN_COUNTER_PARTICIPANTS - 1
        )
        if not is_large or not is_atomic_counter(self._kernel.cfg.kernel.find_opcode(rows[0])):
            return False
        self.atomic_counters.add(rows[0])
        return True

    def assess_confidence(self, origin: UnknownOrigins | None, active: BoolArray) -> AddressConfidence:
        """Return the confidence in addresses with these origins."""
        if origin is None:
            return AddressConfidence.EXACT
        here = np.where(active, origin, 0)
        if bool(find_followed(here).all()):
            return AddressConfidence.POSSIBLE if here.any() else AddressConfidence.EXACT
        if _has_divergent(here):
            return AddressConfidence.NONE
        rows = _find_origin_rows(here)
        if not rows:
            return AddressConfidence.EXACT
        places = [row for row in rows if not self.is_read_as_float(row)]
        if not places:
            return AddressConfidence.LOCATION
        return (
            AddressConfidence.INDEXED_ROW
            if any(map(self._is_global_load, places))
            else AddressConfidence.LANE_PATTERN
        )

    def find_index_loads(self, origin: UnknownOrigins | None, active: BoolArray) -> frozenset[int]:
        """Return the rows of loads whose unknown words select what these addresses access."""
        rows = [] if origin is None else _find_origin_rows(np.where(active, origin, 0))
        return frozenset(row for row in rows if self._is_global_load(row) and not self.is_read_as_float(row))

    def _is_all_loaded(self, origin: UnknownOrigins) -> bool:
        """Return whether all unknown parts are loaded; unknown arguments are usually pitches of CTAs too."""
        return not _has_divergent(origin) and all(map(self._is_global_load, _find_origin_rows(origin)))

    def _is_global_load(self, row: int) -> bool:
        kernel = self._kernel.cfg.kernel
        if row >= len(kernel):
            return False
        opcode = kernel.find_opcode(row)
        return opcode.kind is OpKind.LOAD and opcode.space in GLOBAL_SPACES

    def is_read_as_float(self, row: int) -> bool:
        """Return whether the first reader of the words that an instruction loads is floating-point code."""
        if row not in self._read_as_float:
            self._read_as_float[row] = row < len(self._kernel.cfg.kernel) and self._find_read_as_float(row)
        return self._read_as_float[row]

    def _find_read_as_float(self, row: int) -> bool:
        kernel, rows = self._kernel.cfg.kernel, self._kernel.slice.is_included
        words = set(kernel.decode_form(row).defs)
        for later in range(row + 1, len(kernel)):
            form = kernel.decode_form(later)
            if rows[later] and words.intersection(form.uses):
                return form.opcode.kind in _FLOATING_POINT_KINDS
            words.difference_update(form.defs)
            if not words:
                return False
        return False


def find_origin_if_all_unknown(step: Step, view: RegisterView, unknown: UnknownOrigins | None) -> int | None:
    """Return the origin of a step's results if all its inputs are unknown in all lanes, else None.

    None too for affine steps: with zero for unknown words their results still hold the base of an address.
    """
    if step.affine_rule is not AffineRule.UNKNOWN or step.uses_active_mask:
        return None
    for what in step.reads:
        if isinstance(what, int):
            unknown = join_origins(unknown, view.read_origin(what))
    return None if unknown is None or int(unknown.min()) < DIVERGENT_FLAG else int(unknown.max())


def _is_bitwise_sum(step: Step, words: Sequence[Value], mixed: Sequence[bool]) -> bool:
    """Return whether a bitwise operation is a sum: bits do not overlap, with zero for unknown words."""
    others = [np.zeros_like(word) if is_mixed else word for word, is_mixed in zip(words, mixed, strict=True)]
    (whole, *_), (rest, *_) = step.apply(*words), step.apply(*others)
    chosen = [word for word, is_mixed in zip(words, mixed, strict=True) if is_mixed]
    return len(chosen) == 1 and bool((whole == chosen[0] + rest).all())


def _has_uniform_addresses(addresses: NDArray[np.uint64], active: BoolArray) -> bool:
    """Return whether the active lanes of each warp have one address."""
    if addresses.shape[-1] == 1:
        return True
    most = np.where(active, addresses, np.uint64(0)).max(axis=-1)
    least = np.where(active, addresses, _MAX_ADDRESS).min(axis=-1)
    return bool(((most == least) | ~active.any(axis=-1)).all())


def _has_divergent(origin: UnknownOrigins) -> bool:
    """Return whether some lane is unknown with a divergent origin."""
    return int(origin.max()) > DIVERGENT_FLAG


def _find_origin_rows(origin: UnknownOrigins) -> list[int]:
    """Return the rows of instructions, or larger numbers, in origins."""
    return [one - 1 for one in np.unique(origin).tolist() if one]


def find_instruction_rows(origin: UnknownOrigins) -> list[int]:
    """Return the rows in origins without flags."""
    return [(one & ORIGIN_MASK) - 1 for one in np.unique(origin).tolist() if one]


def _is_any_set(flags: Sequence[bool], places: Sequence[int]) -> bool:
    return any(flags[place] for place in places)
