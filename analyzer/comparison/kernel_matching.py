"""Pairs of kernels of two inputs: which kernel of one side is which of the other.

Kernels are paired one to one, by the strongest reason first:

1. equal name and architecture; several of one name by equal code, then by similar code;
2. equal name on another architecture, the nearest one;
3. equal normal form of the name (`normal_names`), again with equal architectures first;
4. equal code under any name;
5. similar code: the opcode mix shortlists, and the normalized Indel similarity of the opcode sequences
   decides.

Reasons 2 to 5 compare only what the ones before left over. Ties go to the kernels that come first, so that
the pairs do not depend on anything but the two inputs.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import StrEnum
from functools import partial

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.comparison.normal_names import N_FORMS, list_name_forms

# Below, code of other kernels is as similar: all kernels of nvcc compute an index, test it and leave.
MIN_SIMILARITY = 0.70
MIN_COMPARED_INSTRUCTIONS = 12  # without padding: shorter code is alike by chance
_SHORTLIST = 8
_MAX_MIX_PRODUCTS = 1 << 26


class MatchReason(StrEnum):
    """Why two kernels are compared."""

    NAME = "name"
    NORMAL_NAME = "normal name"
    CODE = "equal code"
    SIMILAR_CODE = "similar code"


class ComparedKernel(Struct, frozen=True, eq=False):
    """What matching looks at in one kernel."""

    name: str
    architecture: str
    digest: str = ""  # of code and resources; "" where there is no code
    opcodes: Callable[[], Sequence[str]] = tuple  # with modifiers, in the order of the code, without padding
    mix: Callable[[], Mapping[str, int]] = dict  # instructions by opcode


class KernelMatch(Struct, frozen=True):
    """A pair: indices into the two lists."""

    old: int
    new: int
    reason: MatchReason
    similarity: float = 1.0  # of the code, where it decided


def match_kernels(old: Sequence[ComparedKernel], new: Sequence[ComparedKernel]) -> list[KernelMatch]:
    """Return the pairs in the order of the new side; the other kernels are new or removed."""
    matcher = _Matcher(old, new)
    matcher.pair_by(lambda each: (each.name, each.architecture), MatchReason.NAME)
    matcher.pair_by(lambda each: each.name, MatchReason.NAME)
    for form in range(N_FORMS):
        matcher.pair_by(partial(_find_form_on_architecture, form), MatchReason.NORMAL_NAME)
        matcher.pair_by(partial(_find_form, form), MatchReason.NORMAL_NAME)
    matcher.pair_by(lambda each: each.digest or None, MatchReason.CODE)
    matcher.pair_similar()
    return sorted(matcher.matches, key=lambda match: match.new)


def _find_form(form: int, kernel: ComparedKernel) -> str:
    return list_name_forms(kernel.name)[form]


def _find_form_on_architecture(form: int, kernel: ComparedKernel) -> tuple[str, str]:
    return list_name_forms(kernel.name)[form], kernel.architecture


class _Matcher:
    """Kernels that have no partner yet, and the pairs that were found."""

    def __init__(self, old: Sequence[ComparedKernel], new: Sequence[ComparedKernel]) -> None:
        self.old, self.new = old, new
        self.free_old = dict.fromkeys(range(len(old)))
        self.free_new = dict.fromkeys(range(len(new)))
        self.matches: list[KernelMatch] = []

    def pair_by(self, key: Callable[[ComparedKernel], Hashable | None], reason: MatchReason) -> None:
        """Pair free kernels with equal keys; a key of None fits nothing."""
        groups: dict[Hashable, tuple[list[int], list[int]]] = {}
        for side, (kernels, free) in enumerate(((self.old, self.free_old), (self.new, self.free_new))):
            for index in free:
                if (found := key(kernels[index])) is not None:
                    groups.setdefault(found, ([], []))[side].append(index)
        for olds, news in groups.values():
            if olds and news:
                self._pair_group(olds, news, reason)

    def _pair_group(self, olds: list[int], news: list[int], reason: MatchReason) -> None:
        """Pair kernels of equal keys: those with equal code, then the most similar ones, then by order."""
        by_digest: dict[str, list[int]] = {}
        for index in olds:
            by_digest.setdefault(self.old[index].digest, []).append(index)
        for index in news:
            same = by_digest.get(self.new[index].digest)
            if same and self.new[index].digest:
                self._take(same.pop(0), index, reason)
        olds = [index for index in olds if index in self.free_old]
        news = [index for index in news if index in self.free_new]
        if len(olds) > 1 or len(news) > 1:
            self._take_most_similar(self._rate_near(olds, news), 0.0, reason)
        for a, b in zip(
            [index for index in olds if index in self.free_old],
            [index for index in news if index in self.free_new],
            strict=False,
        ):
            self._take(a, b, reason)

    def pair_similar(self) -> None:
        """Pair free kernels of similar code; shorter ones than `MIN_COMPARED_INSTRUCTIONS` stay alone."""
        olds = [index for index in self.free_old if _is_long_enough(self.old[index])]
        news = [index for index in self.free_new if _is_long_enough(self.new[index])]
        if not olds or not news:
            return
        self._take_most_similar(self._rate_near(olds, news), MIN_SIMILARITY, MatchReason.SIMILAR_CODE)

    def _rate_near(self, olds: Sequence[int], news: Sequence[int]) -> list[tuple[float, int, int]]:
        """Return (similarity, old, new) of the pairs that the opcode mix shortlists."""
        from rapidfuzz.distance import Indel

        near = shortlist([self.old[i].mix() for i in olds], [self.new[i].mix() for i in news])
        old_codes = {i: self.old[i].opcodes() for i in olds}
        new_codes = {i: self.new[i].opcodes() for i in news}
        return [
            (round(Indel.normalized_similarity(old_codes[olds[a]], new_codes[news[b]]), 6), olds[a], news[b])
            for a, b in near
        ]

    def _take_most_similar(
        self, rated: list[tuple[float, int, int]], least: float, reason: MatchReason
    ) -> None:
        for similarity, a, b in sorted(rated, key=lambda each: (-each[0], each[1], each[2])):
            if similarity >= least and a in self.free_old and b in self.free_new:
                self._take(a, b, reason, similarity)

    def _take(self, old: int, new: int, reason: MatchReason, similarity: float = 1.0) -> None:
        del self.free_old[old], self.free_new[new]
        self.matches.append(KernelMatch(old, new, reason, similarity))


def _is_long_enough(kernel: ComparedKernel) -> bool:
    return sum(kernel.mix().values()) >= MIN_COMPARED_INSTRUCTIONS


def shortlist(old: Sequence[Mapping[str, int]], new: Sequence[Mapping[str, int]]) -> list[tuple[int, int]]:
    """Return for each kernel of either side the partners with the nearest opcode mix, by their cosine."""
    names = {name: at for at, name in enumerate(sorted({name for mix in (*old, *new) for name in mix}))}
    olds, news = _make_vectors(old, names), _make_vectors(new, names)
    pairs: set[tuple[int, int]] = set()
    step = max(1, _MAX_MIX_PRODUCTS // max(1, len(new)))
    for start in range(0, len(old), step):
        nearness = np.round(olds[start : start + step] @ news.T, 9)
        for row, best in enumerate(np.argsort(-nearness, axis=1, kind="stable")[:, :_SHORTLIST]):
            pairs |= {(start + row, int(column)) for column in best}
    step = max(1, _MAX_MIX_PRODUCTS // max(1, len(old)))
    for start in range(0, len(new), step):
        nearness = np.round(news[start : start + step] @ olds.T, 9)
        for row, best in enumerate(np.argsort(-nearness, axis=1, kind="stable")[:, :_SHORTLIST]):
            pairs |= {(int(column), start + row) for column in best}
    return sorted(pairs)


def _make_vectors(mixes: Sequence[Mapping[str, int]], names: Mapping[str, int]) -> NDArray[np.float64]:
    vectors = np.zeros((len(mixes), len(names)))
    for row, mix in enumerate(mixes):
        for name, count in mix.items():
            vectors[row, names[name]] = count
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
