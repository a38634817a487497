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

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.comparison.normal_names import N_FORMS, list_name_forms
from analyzer.comparison.pairing import Pair, Pairing

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
    """Rounds over the kernels that have no partner yet, and the pairs that were found."""

    def __init__(self, old: Sequence[ComparedKernel], new: Sequence[ComparedKernel]) -> None:
        self.pairing = Pairing(old, new)
        self.matches: list[KernelMatch] = []

    def pair_by(self, key: Callable[[ComparedKernel], Hashable | None], reason: MatchReason) -> None:
        """Pair free kernels with equal keys; a key of None fits nothing."""
        self._add(self.pairing.pair_by(key, self._rank_group), reason)

    def _add(self, pairs: Iterable[Pair], reason: MatchReason) -> None:
        self.matches += (KernelMatch(pair.old, pair.new, reason, pair.similarity) for pair in pairs)

    def _rank_group(self, olds: Sequence[int], news: Sequence[int]) -> Iterator[Pair]:
        """Yield kernels of equal keys: those with equal code, then the most similar ones, then by order."""
        old, new = self.pairing.old, self.pairing.new
        by_digest: dict[str, list[int]] = {}
        for a in reversed(olds):
            by_digest.setdefault(old[a].digest, []).append(a)
        for b in news:
            if new[b].digest and (same := by_digest.get(new[b].digest)):
                yield Pair(same.pop(), b)
        olds, news = self.pairing.keep_free(olds, news)
        if len(olds) > 1 or len(news) > 1:
            yield from self._rank_near(olds, news)
        yield from map(Pair, *self.pairing.keep_free(olds, news))

    def pair_similar(self) -> None:
        """Pair free kernels of similar code; shorter ones than `MIN_COMPARED_INSTRUCTIONS` stay alone."""
        olds = [index for index in self.pairing.free_old if _is_long_enough(self.pairing.old[index])]
        news = [index for index in self.pairing.free_new if _is_long_enough(self.pairing.new[index])]
        if olds and news:
            near = (pair for pair in self._rank_near(olds, news) if pair.similarity >= MIN_SIMILARITY)
            self._add(self.pairing.take(near), MatchReason.SIMILAR_CODE)

    def _rank_near(self, olds: Sequence[int], news: Sequence[int]) -> list[Pair]:
        """Return the pairs that the opcode mix shortlists, the most similar first."""
        from rapidfuzz.distance import Indel

        old, new = self.pairing.old, self.pairing.new
        near = shortlist([old[i].mix() for i in olds], [new[i].mix() for i in news])
        old_codes = {i: old[i].opcodes() for i in olds}
        new_codes = {i: new[i].opcodes() for i in news}
        rated = [
            Pair(
                olds[a],
                news[b],
                round(Indel.normalized_similarity(old_codes[olds[a]], new_codes[news[b]]), 6),
            )
            for a, b in near
        ]
        return sorted(rated, key=lambda pair: (-pair.similarity, pair.old, pair.new))


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
