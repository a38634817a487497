"""Which kernel of a baseline is which kernel of the inputs.

Kernels are paired in rounds, each on a weaker sign of being the same one, and each over those that no earlier
round has paired:

1. everything is equal;
2. input, name, architecture, given launch and code: only metadata changed, such as the block size of Triton;
3. the same in another input, such as another folder of Triton's cache;
4. input, name, architecture and launch: the code changed;
5. architecture, launch and code: the kernel was renamed;
6. name, architecture and launch in another input;
7. the name without what compilers add to it, where only one kernel on each side has it.

What is left with equal input, name and architecture is a kernel whose given launch moved; with equal input
and name, one whose architecture moved. Neither can be compared. The rest is new or removed.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial

from msgspec import Struct

from analyzer.comparison.normal_names import list_name_forms
from analyzer.report.baseline_schema import BaselineKernel

_MAX_COMPARED_PAIRS = 250_000  # of one name; beyond, versions are paired in the order of their sizes
_N_USED_NAME_FORMS = 2  # looser ones drop template arguments, which make another kernel

Pair = tuple[int, int]
_KeyFunction = Callable[[BaselineKernel], Hashable]


class Matching(Struct, frozen=True, kw_only=True):
    """Pairs (old index, new index), and what has no partner."""

    pairs: tuple[Pair, ...]
    moved_launches: tuple[Pair, ...]
    moved_architectures: tuple[Pair, ...]
    added: tuple[int, ...]
    removed: tuple[int, ...]


def match_kernels(old: Sequence[BaselineKernel], new: Sequence[BaselineKernel]) -> Matching:
    """Return the pairs of a baseline's kernels and those of the inputs, in the order of the latter."""
    matcher = _Matcher(old, new)
    matcher.pair_equal()
    for key in (
        lambda one: (one.input, one.name, one.architecture, one.launch_digest, one.code),
        lambda one: (one.name, one.architecture, one.launch_digest, one.code),
        lambda one: (one.input, one.name, one.architecture, one.launch_digest),
        lambda one: (one.input, one.architecture, one.launch_digest, one.code),
        lambda one: (one.architecture, one.launch_digest, one.code),
        lambda one: (one.name, one.architecture, one.launch_digest),
    ):
        matcher.pair_by(key)
    for form in range(_N_USED_NAME_FORMS):
        matcher.pair_by(partial(_find_form, form), only_single=True)
    pairs = matcher.take_pairs()
    matcher.pair_by(lambda one: (one.input, one.name, one.architecture))
    moved_launches = matcher.take_pairs()
    matcher.pair_by(lambda one: (one.input, one.name))
    return Matching(
        pairs=pairs,
        moved_launches=moved_launches,
        moved_architectures=matcher.take_pairs(),
        added=tuple(sorted(matcher.free_new)),
        removed=tuple(sorted(matcher.free_old)),
    )


def _find_form(form: int, kernel: BaselineKernel) -> Hashable:
    return list_name_forms(kernel.name)[form], kernel.architecture, kernel.launch_digest


class _Matcher:
    """Kernels of both sides that have no partner yet."""

    __slots__ = ("_new", "_old", "_pairs", "free_new", "free_old")

    def __init__(self, old: Sequence[BaselineKernel], new: Sequence[BaselineKernel]) -> None:
        self._old, self._new = old, new
        self.free_old, self.free_new = set(range(len(old))), set(range(len(new)))
        self._pairs: list[Pair] = []

    def pair_equal(self) -> None:
        """Pair kernels that are equal in everything; several of the inputs may be one of the baseline."""
        by_key = {kernel.key: index for index, kernel in enumerate(self._old)}
        for index, kernel in enumerate(self._new):
            if (found := by_key.get(kernel.key)) is not None:
                self._add(found, index)

    def pair_by(self, key: _KeyFunction, *, only_single: bool = False) -> None:
        """Pair kernels of equal keys, of several the nearest; `only_single`: where there are not several."""
        groups: dict[Hashable, tuple[list[int], list[int]]] = {}
        if not self.free_old or not self.free_new:
            return
        for side, free, kernels in ((0, self.free_old, self._old), (1, self.free_new, self._new)):
            for index in sorted(free):
                groups.setdefault(key(kernels[index]), ([], []))[side].append(index)
        for olds, news in groups.values():
            if only_single and (len(olds) > 1 or len(news) > 1):
                continue
            self._pair_nearest(olds, news)

    def _pair_nearest(self, olds: list[int], news: list[int]) -> None:
        """Pair versions of one kernel, such as those of an autotuner, by code size, then by registers."""
        if len(olds) * len(news) > _MAX_COMPARED_PAIRS:
            olds.sort(key=lambda old: _measure_size(self._old[old]))
            news.sort(key=lambda new: _measure_size(self._new[new]))
            for old, new in zip(olds, news, strict=False):
                self._add(old, new)
            return
        costs = sorted(
            (_measure_distance(self._old[old], self._new[new]), old, new) for old in olds for new in news
        )
        for _, old, new in costs:
            if old in self.free_old and new in self.free_new:
                self._add(old, new)

    def _add(self, old: int, new: int) -> None:
        self.free_old.discard(old)
        self.free_new.discard(new)
        self._pairs.append((old, new))

    def take_pairs(self) -> tuple[Pair, ...]:
        """Return the pairs since the last call, in the order of the inputs."""
        pairs = tuple(sorted(self._pairs, key=lambda pair: (pair[1], pair[0])))
        self._pairs.clear()
        return pairs


def _measure_size(kernel: BaselineKernel) -> tuple[float, float]:
    return kernel.metrics.get("instructions", 0), kernel.metrics.get("registers", 0)


def _measure_distance(old: BaselineKernel, new: BaselineKernel) -> tuple[bool, float, float]:
    """Return whether the completed launches differ, and the differences of instructions and registers."""
    pairs = zip(_measure_size(old), _measure_size(new), strict=True)
    instructions, registers = (abs(left - right) for left, right in pairs)
    return old.launch != new.launch, instructions, registers
