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

from collections.abc import Hashable, Iterable, Sequence
from functools import partial

from msgspec import Struct

from analyzer.comparison.normal_names import list_name_forms
from analyzer.comparison.pairing import Pair, Pairing
from analyzer.report.baseline_schema import BaselineKernel

_MAX_COMPARED_PAIRS = 250_000  # of one name; beyond, versions are paired in the order of their sizes
_N_USED_NAME_FORMS = 2  # looser ones drop template arguments, which make another kernel

Places = tuple[int, int]  # of one kernel, old and new


class Matching(Struct, frozen=True, kw_only=True):
    """Pairs (old index, new index), and what has no partner."""

    pairs: tuple[Places, ...]
    moved_launches: tuple[Places, ...]
    moved_architectures: tuple[Places, ...]
    added: tuple[int, ...]
    removed: tuple[int, ...]


def match_kernels(old: Sequence[BaselineKernel], new: Sequence[BaselineKernel]) -> Matching:
    """Return the pairs of a baseline's kernels and those of the inputs, in the order of the latter."""
    pairing = Pairing(old, new)
    rank = partial(_rank_nearest, old, new)
    pairs = _take_equal(pairing)
    for key in (
        lambda one: (one.input, one.name, one.architecture, one.launch_digest, one.code),
        lambda one: (one.name, one.architecture, one.launch_digest, one.code),
        lambda one: (one.input, one.name, one.architecture, one.launch_digest),
        lambda one: (one.input, one.architecture, one.launch_digest, one.code),
        lambda one: (one.architecture, one.launch_digest, one.code),
        lambda one: (one.name, one.architecture, one.launch_digest),
    ):
        pairs += pairing.pair_by(key, rank)
    for form in range(_N_USED_NAME_FORMS):
        pairs += pairing.pair_by(partial(_find_form, form), rank, only_single=True)
    moved_launches = pairing.pair_by(lambda one: (one.input, one.name, one.architecture), rank)
    moved_architectures = pairing.pair_by(lambda one: (one.input, one.name), rank)
    return Matching(
        pairs=_sort(pairs),
        moved_launches=_sort(moved_launches),
        moved_architectures=_sort(moved_architectures),
        added=tuple(pairing.free_new),
        removed=tuple(pairing.free_old),
    )


def _find_form(form: int, kernel: BaselineKernel) -> Hashable:
    return list_name_forms(kernel.name)[form], kernel.architecture, kernel.launch_digest


def _sort(pairs: Sequence[Pair]) -> tuple[Places, ...]:
    return tuple(sorted(((pair.old, pair.new) for pair in pairs), key=lambda places: places[::-1]))


def _take_equal(pairing: Pairing[BaselineKernel]) -> list[Pair]:
    """Return kernels that are equal in everything; several of the inputs may be one of the baseline."""
    by_key = {kernel.key: index for index, kernel in enumerate(pairing.old)}
    found = [Pair(by_key[one.key], index) for index, one in enumerate(pairing.new) if one.key in by_key]
    for pair in found:
        pairing.free_old.pop(pair.old, None)
        del pairing.free_new[pair.new]
    return found


def _rank_nearest(
    old: Sequence[BaselineKernel],
    new: Sequence[BaselineKernel],
    olds: Sequence[int],
    news: Sequence[int],
) -> Iterable[Pair]:
    """Return versions of one kernel, such as those of an autotuner, by code size, then by registers."""
    if len(olds) * len(news) > _MAX_COMPARED_PAIRS:
        return map(
            Pair,
            sorted(olds, key=lambda a: _measure_size(old[a])),
            sorted(news, key=lambda b: _measure_size(new[b])),
        )
    every = [Pair(a, b) for a in olds for b in news]
    return sorted(every, key=lambda pair: (_measure_distance(old[pair.old], new[pair.new]), pair))


def _measure_size(kernel: BaselineKernel) -> tuple[float, float]:
    return kernel.metrics.get("instructions", 0), kernel.metrics.get("registers", 0)


def _measure_distance(old: BaselineKernel, new: BaselineKernel) -> tuple[bool, float, float]:
    """Return whether the completed launches differ, and the differences of instructions and registers."""
    pairs = zip(_measure_size(old), _measure_size(new), strict=True)
    instructions, registers = (abs(left - right) for left, right in pairs)
    return old.launch != new.launch, instructions, registers
