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

from analyzer.execution.lanes import UNEVEN, Origins, View, joined, uneven
from analyzer.execution.program import Access, CompiledKernel
from analyzer.execution.step import AffineRule, Bits, Step, Value
from analyzer.execution.tickets import MANY, counts_up
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind

_FLOATING = frozenset({OpKind.FLOAT, OpKind.HALF, OpKind.DOUBLE, OpKind.CONVERT})
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)


class Trust(IntEnum):
    """What may be believed of an access's addresses.

    ROW: how lanes lie to each other, in a row that a loaded word names; PATTERN: the same, but that
    arguments say where; PLACE: also which bytes are shared with other requests, by assumption; ALL: no word
    stands for an unknown one.
    """

    NOTHING = 0
    ROW = 1
    PATTERN = 2
    PLACE = 3
    ALL = 4


class UnknownWords:
    """Which values an unknown word moves alike in all lanes, and how far addresses may be believed then.

    tickets: atomics whose numbers were taken to be unlike others.
    """

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel
        self.tickets: set[int] = set()
        self._numbers: dict[int, bool] = {}

    def origin_of(
        self,
        access: Access,
        active: Bits,
        addresses: NDArray[np.uint64] | None,
        unknown: Origins | None,
    ) -> int:
        """Of words that nobody knows; unknown: the origin of what their own address hangs on."""
        is_shared = access.kind is OpKind.LOAD and addresses is not None and _are_alike(addresses, active)
        if is_shared and self.trust(unknown, active) is not Trust.NOTHING:
            return access.row + 1
        return uneven(access.row)

    def makes_uneven(
        self, step: Step, words: Sequence[Value], sources: Sequence[Origins | None], origin: Origins
    ) -> bool:
        """Whether what is unknown decides how far lanes' results lie apart: a pitch times a lane's row."""
        if step.rule is AffineRule.LINEAR or not any(word.shape[-1] > 1 for word in words):
            return False
        if step.is_upper and self._are_loaded(origin):
            return False
        unknown = [source is not None for source in sources]
        spreads = [word.shape[-1] > 1 for word in words]
        if step.rule is AffineRule.BITWISE:  # bits that are joined: a sum, as a rule
            mixed = [one and other for one, other in zip(unknown, spreads, strict=True)]
            mixes = any(mixed)
            if mixes and self._are_loaded(origin):
                mixes = not _is_sum(step, words, mixed)
        elif step.rule in (AffineRule.PRODUCT, AffineRule.PAIR):
            left, right = step.factors
            mixes = (_any(unknown, left) and _any(spreads, right)) or (
                _any(unknown, right) and _any(spreads, left)
            )
        else:
            mixes = True
        return mixes and (_is_uneven(origin) or not all(map(self.is_number, _rows(origin))))

    def is_told(self, words: Sequence[Value], sources: Sequence[Origins | None], view: View) -> bool:
        """Whether two words are told to be unlike: one is a known number, the other hangs on what an atomic
        hands out as it counts, and it hands out many (see `tickets`).
        """
        unknown = [source for source in sources if source is not None]
        if len(unknown) != 1 or len(sources) != 2:
            return False
        known = words[0] if sources[0] is None else words[1]
        rows = instruction_rows(np.where(view.active, unknown[0], 0))
        if len(rows) != 1 or rows[0] >= len(self._kernel.cfg.kernel):
            return False
        is_large = int(np.where(view.active, known, MANY).min()) >= MANY - 1
        if not is_large or not counts_up(self._kernel.cfg.kernel.opcode(rows[0])):
            return False
        self.tickets.add(rows[0])
        return True

    def trust(self, origin: Origins | None, active: Bits) -> Trust:
        """Of addresses whose unknown parts have these origins."""
        if origin is None:
            return Trust.ALL
        here = np.where(active, origin, 0)
        if _is_uneven(here):
            return Trust.NOTHING
        rows = _rows(here)
        if not rows:
            return Trust.ALL
        places = [row for row in rows if not self.is_number(row)]
        if not places:
            return Trust.PLACE
        return Trust.ROW if any(map(self._is_loaded, places)) else Trust.PATTERN

    def namers(self, origin: Origins | None, active: Bits) -> frozenset[int]:
        """Loads whose words name the rows that such addresses lie in."""
        rows = [] if origin is None else _rows(np.where(active, origin, 0))
        return frozenset(row for row in rows if self._is_loaded(row) and not self.is_number(row))

    def _are_loaded(self, origin: Origins) -> bool:
        """Unknown words; an argument that is not given is a pitch as a rule, by which CTAs lie apart too."""
        return not _is_uneven(origin) and all(map(self._is_loaded, _rows(origin)))

    def _is_loaded(self, row: int) -> bool:
        kernel = self._kernel.cfg.kernel
        if row >= len(kernel):
            return False
        opcode = kernel.opcode(row)
        return opcode.kind is OpKind.LOAD and opcode.space in GLOBAL_SPACES

    def is_number(self, row: int) -> bool:
        """Whether who first reads what this instruction loads computes in floating point."""
        if row not in self._numbers:
            self._numbers[row] = row < len(self._kernel.cfg.kernel) and self._is_read_as_number(row)
        return self._numbers[row]

    def _is_read_as_number(self, row: int) -> bool:
        kernel, rows = self._kernel.cfg.kernel, self._kernel.slice.rows
        words = set(kernel.form(row).written)
        for later in range(row + 1, len(kernel)):
            form = kernel.form(later)
            if rows[later] and words.intersection(form.read):
                return form.opcode.kind in _FLOATING
            words.difference_update(form.written)
            if not words:
                return False
        return False


def lost_origin(step: Step, view: View, unknown: Origins | None) -> int | None:
    """Where nothing is known of what a step reads, in any lane, and so nothing of its results: their origin.

    Of sums and the like zeros for unknown words still tell what an address is based on.
    """
    if step.rule is not AffineRule.FIXED or step.uses_mask:
        return None
    for what in step.reads:
        if isinstance(what, int):
            unknown = joined(unknown, view.origin(what))
    return None if unknown is None or int(unknown.min()) < UNEVEN else int(unknown.max())


def _is_sum(step: Step, words: Sequence[Value], mixed: Sequence[bool]) -> bool:
    """Whether bits are joined to these words where they have none, as zeros for what is unknown tell."""
    others = [np.zeros_like(word) if is_mixed else word for word, is_mixed in zip(words, mixed, strict=True)]
    (whole, *_), (rest, *_) = step.apply(*words), step.apply(*others)
    chosen = [word for word, is_mixed in zip(words, mixed, strict=True) if is_mixed]
    return len(chosen) == 1 and bool((whole == chosen[0] + rest).all())


def _are_alike(addresses: NDArray[np.uint64], active: Bits) -> bool:
    """Whether the active lanes of each warp have one address."""
    if addresses.shape[-1] == 1:
        return True
    most = np.where(active, addresses, np.uint64(0)).max(axis=-1)
    least = np.where(active, addresses, _LAST).min(axis=-1)
    return bool(((most == least) | ~active.any(axis=-1)).all())


def _is_uneven(origin: Origins) -> bool:
    """Whether some lane is one of which nothing is known."""
    return int(origin.max()) > UNEVEN


def _rows(origin: Origins) -> list[int]:
    """Rows of instructions, or larger numbers, that unknown lanes hang on."""
    return [one - 1 for one in np.unique(origin).tolist() if one]


def instruction_rows(origin: Origins) -> list[int]:
    """The same, also of lanes of which nothing is known."""
    return [row & ~UNEVEN for row in _rows(origin)]


def _any(flags: Sequence[bool], places: Sequence[int]) -> bool:
    return any(flags[place] for place in places)
