"""What unknown words of memory stand for in addresses: zero.

Where all lanes of a warp read the same word (an argument that is not given, an entry of a table, a page's
number, a delay), it moves their requests as a whole, whose pattern then is that of the address's other terms.
An integer may move them anywhere, so that nothing is said of which bytes they share with others; a number
that is computed with in floating point is taken for a distance, and for a short one. No pattern is known
where lanes read words of their own, or where an unknown word is a factor of what differs among lanes. Words
from TMA, atomics and textures stand for nothing.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.lowering.atomic_counters import MIN_COUNTER_PARTICIPANTS, is_atomic_counter
from analyzer.execution.lowering.segments import CompiledKernel, LoweredAccess
from analyzer.execution.lowering.step import AffineRule, BoolArray, Step, Value
from analyzer.execution.machine.register_state import (
    DIVERGENT_FLAG,
    RegisterView,
    UnknownOrigins,
    join_origins,
    make_divergent_origin,
)
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind

_FLOATING_POINT_KINDS = frozenset({OpKind.FLOAT, OpKind.HALF, OpKind.DOUBLE, OpKind.CONVERT})
_MAX_ADDRESS = np.uint64(0xFFFFFFFFFFFFFFFF)


class AddressConfidence(IntEnum):
    """What may be believed of an access's addresses.

    ROW: how lanes lie to each other, in a row that a loaded word names; PATTERN: the same, but that
    arguments say where; PLACE: also which bytes are shared with other requests, by assumption; ALL: no word
    stands for an unknown one.
    """

    NONE = 0
    INDEXED_ROW = 1
    LANE_PATTERN = 2
    LOCATION = 3
    EXACT = 4


class UnknownWords:
    """Which values an unknown word moves alike in all lanes, and how far addresses may be believed then.

    tickets: atomics whose numbers were taken to be unlike others.
    """

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel
        self.atomic_counters: set[int] = set()
        self._read_as_float: dict[int, bool] = {}

    def find_load_origin(
        self,
        access: LoweredAccess,
        active: BoolArray,
        addresses: NDArray[np.uint64] | None,
        unknown: UnknownOrigins | None,
    ) -> int:
        """Of words that nobody knows; unknown: the origin of what their own address hangs on."""
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
        """Whether what is unknown decides how far lanes' results lie apart: a pitch times a lane's row."""
        if step.affine_rule is AffineRule.LINEAR or not any(word.shape[-1] > 1 for word in words):
            return False
        if step.is_upper_word and self._is_all_loaded(origin):
            return False
        unknown = [source is not None for source in sources]
        spreads = [word.shape[-1] > 1 for word in words]
        if step.affine_rule is AffineRule.BITWISE:  # bits that are joined: a sum, as a rule
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
        """Whether two words are told to be unlike: one is a known number, the other hangs on what an atomic
        hands out as it counts, and it hands out many (see `tickets`).
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
        """Of addresses whose unknown parts have these origins."""
        if origin is None:
            return AddressConfidence.EXACT
        here = np.where(active, origin, 0)
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
        """Loads whose words name the rows that such addresses lie in."""
        rows = [] if origin is None else _find_origin_rows(np.where(active, origin, 0))
        return frozenset(row for row in rows if self._is_global_load(row) and not self.is_read_as_float(row))

    def _is_all_loaded(self, origin: UnknownOrigins) -> bool:
        """Unknown words; an argument that is not given is a pitch as a rule, by which CTAs lie apart too."""
        return not _has_divergent(origin) and all(map(self._is_global_load, _find_origin_rows(origin)))

    def _is_global_load(self, row: int) -> bool:
        kernel = self._kernel.cfg.kernel
        if row >= len(kernel):
            return False
        opcode = kernel.find_opcode(row)
        return opcode.kind is OpKind.LOAD and opcode.space in GLOBAL_SPACES

    def is_read_as_float(self, row: int) -> bool:
        """Whether who first reads what this instruction loads computes in floating point."""
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


def find_all_unknown_origin(step: Step, view: RegisterView, unknown: UnknownOrigins | None) -> int | None:
    """Where nothing is known of what a step reads, in any lane, and so nothing of its results: their origin.

    Of sums and the like zeros for unknown words still tell what an address is based on.
    """
    if step.affine_rule is not AffineRule.UNKNOWN or step.uses_active_mask:
        return None
    for what in step.reads:
        if isinstance(what, int):
            unknown = join_origins(unknown, view.read_origin(what))
    return None if unknown is None or int(unknown.min()) < DIVERGENT_FLAG else int(unknown.max())


def _is_bitwise_sum(step: Step, words: Sequence[Value], mixed: Sequence[bool]) -> bool:
    """Whether bits are joined to these words where they have none, as zeros for what is unknown tell."""
    others = [np.zeros_like(word) if is_mixed else word for word, is_mixed in zip(words, mixed, strict=True)]
    (whole, *_), (rest, *_) = step.apply(*words), step.apply(*others)
    chosen = [word for word, is_mixed in zip(words, mixed, strict=True) if is_mixed]
    return len(chosen) == 1 and bool((whole == chosen[0] + rest).all())


def _has_uniform_addresses(addresses: NDArray[np.uint64], active: BoolArray) -> bool:
    """Whether the active lanes of each warp have one address."""
    if addresses.shape[-1] == 1:
        return True
    most = np.where(active, addresses, np.uint64(0)).max(axis=-1)
    least = np.where(active, addresses, _MAX_ADDRESS).min(axis=-1)
    return bool(((most == least) | ~active.any(axis=-1)).all())


def _has_divergent(origin: UnknownOrigins) -> bool:
    """Whether some lane is one of which nothing is known."""
    return int(origin.max()) > DIVERGENT_FLAG


def _find_origin_rows(origin: UnknownOrigins) -> list[int]:
    """Rows of instructions, or larger numbers, that unknown lanes hang on."""
    return [one - 1 for one in np.unique(origin).tolist() if one]


def find_instruction_rows(origin: UnknownOrigins) -> list[int]:
    """The same, also of lanes of which nothing is known."""
    return [row & ~DIVERGENT_FLAG for row in _find_origin_rows(origin)]


def _is_any_set(flags: Sequence[bool], places: Sequence[int]) -> bool:
    return any(flags[place] for place in places)
