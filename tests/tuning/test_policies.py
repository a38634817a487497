"""Policies on machines whose best configuration is known, and their judgement by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from tuned_profiles import N_SMS, make_samples

from analyzer.text.errors import InputError, UsageError
from analyzer.tuning.default_configs import choose_default
from analyzer.tuning.evaluation import evaluate, judge_choices
from analyzer.tuning.kernel_space import Integers, find_kernel
from analyzer.tuning.measured_table import MeasuredTable, split_shapes, tabulate
from analyzer.tuning.policies import PolicyName, PolicyOptions, fit_policy, parse_policies
from analyzer.tuning.smoothed_waves import SmoothingOptions, fit_smoothed

OPTIONS = PolicyOptions(N_SMS, n_trees=20)
GEMM = find_kernel("gemm").space


@pytest.mark.parametrize("kernel", ["gemm", "grouped_gemm"])
def test_each_policy_ranks_configurations_of_the_table(kernel: str) -> None:
    table = tabulate(make_samples(kernel))
    for name in PolicyName:
        policy = fit_policy(name, table, OPTIONS)
        ranked = policy.rank(table.shapes[:7], 3)
        assert ranked.shape == (7, 3, table.configs.shape[1])
        if name is not PolicyName.DEFAULT:
            assert (table.find_configs(ranked[:, 0]) >= 0).all(), name
        assert policy.choose_one(tuple(table.shapes[0].tolist())) is not None


@pytest.mark.parametrize("name", [PolicyName.WAVETUNE, PolicyName.SMOOTHED, PolicyName.BOOSTED])
def test_what_taught_is_remembered(name: PolicyName) -> None:
    """On the shapes that taught, a choice is near the best of six configurations."""
    table = tabulate(make_samples())
    chosen, known = judge_choices(fit_policy(name, table, OPTIONS), table, is_list=False)
    assert known.all()
    assert np.exp(np.log(chosen / table.find_best_us()).mean()) < 1.1


def test_smoothed_waves_beat_the_others_where_only_the_best_are_listed() -> None:
    """The machine's best tile depends on tokens per expert, which G and L do not tell."""
    table = make_listed_table()
    learns = split_shapes(table, 0.5, 1)
    options = PolicyOptions(N_SMS, list_cap=1.03, n_trees=50)
    names = (PolicyName.DEFAULT, PolicyName.SMOOTHED, PolicyName.WAVETUNE, PolicyName.TREE)
    policies = [fit_policy(name, table.select_shapes(learns), options) for name in names]
    found = evaluate(policies, table.select_shapes(~learns), int(learns.sum()), is_list=True, clock=None)
    hits = {score.policy: score.hits for score in found.scores}
    assert hits["wavetune-smoothed"] > 0.9
    assert hits["wavetune-smoothed"] >= max(hits["wavetune"], hits["tree"], hits["default"])
    assert all(score.speedup is None for score in found.scores)


def make_listed_table() -> MeasuredTable:
    """Return lists of the configurations within 1 %: the tile of rows is the tokens per expert, rounded up."""
    space = find_kernel("grouped_gemm").space
    rows, times = [], []
    for experts in (8, 16, 32, 64):
        for width in (1024, 1536, 2048):
            for m in (1, 4, 16, 64, 256, 1024, 2048):
                per_expert = max(1, m * 2 / experts)
                best = min(128, max(16, 1 << int(np.ceil(np.log2(per_expert)))))
                rows.append((m, experts, 2, width, 1024, best, 64, 64, 1, 4, 3))
                times.append(10.0 + m * experts / 100)
    table = np.array(rows, dtype=np.int64)
    from analyzer.tuning.samples import Samples

    return tabulate(Samples(space, "h100-sxm", table[:, :5], table[:, 5:8], table[:, 8:], np.array(times)))


@settings(max_examples=20, deadline=None)
@given(shapes=st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 64), st.integers(1, 8), st.integers(64, 4096), st.integers(64, 8192)), min_size=1, max_size=8))  # fmt: skip
def test_one_choice_of_the_smoothed_waves_is_the_first_of_its_ranking(shapes: list[tuple[int, ...]]) -> None:
    tables = fit_smoothed(tabulate(make_samples("grouped_gemm")), N_SMS, SmoothingOptions(prunes=False))
    choose = tables.make_chooser()
    ranked = tables.rank(np.array(shapes, dtype=np.int64), 1)[:, 0].tolist()
    assert [list(choose(shape).values()) for shape in shapes] == ranked


def test_pruning_keeps_the_winners() -> None:
    table = tabulate(make_samples())
    whole = fit_smoothed(table, N_SMS, SmoothingOptions(prunes=False))
    pruned = fit_smoothed(table, N_SMS)
    assert len(pruned.macros) <= len(whole.macros)
    assert np.array_equal(pruned.rank(table.shapes, 1), whole.rank(table.shapes, 1))


class Fixed(Struct, frozen=True):
    """A policy that ranks what it is told."""

    name: str
    ranking: tuple[tuple[int, ...], ...]
    size_bytes: int = 0

    def rank(self, shapes: Integers, count: int) -> Integers:
        own = np.full((count, 5), -1, dtype=np.int64)
        own[: len(self.ranking)] = self.ranking[:count]
        return np.broadcast_to(own, (len(shapes), count, 5))

    def choose_one(self, shape: Sequence[int]) -> object:
        return self.ranking[0]


A, B, C = (16, 64, 64, 4, 3), (64, 64, 64, 4, 3), (128, 64, 64, 4, 3)


def make_small_table(times: list[list[float]]) -> MeasuredTable:
    shapes = np.array([(16 * (row + 1), 1024, 1024) for row in range(len(times))], dtype=np.int64)
    return MeasuredTable(GEMM, "h100-sxm", shapes, np.array([A, B, C], dtype=np.int64), np.array(times))


def test_scores_by_hand() -> None:
    nan, inf = float("nan"), float("inf")
    table = make_small_table([[4.0, 2.0, 2.01], [8.0, inf, 2.0], [4.0, 4.0, nan], [nan, nan, nan]])
    policies = [Fixed("default", (A,)), Fixed("second", (B, C)), Fixed("lost", ((1, 1, 1, 1, 1),))]
    found = evaluate(policies, table, 0, clock=None)
    default, second, lost, oracle = found.scores
    assert (default.shapes, found.left_out) == (3, 1)
    assert default.speedup == pytest.approx(1.0)
    assert second.speedup == pytest.approx((2 * 4 * 1) ** (1 / 3))  # where B cannot run, C counts
    assert second.hits == 1.0
    assert second.no_time == pytest.approx(1 / 3)
    assert (lost.speedup, lost.hits, lost.no_time) == (pytest.approx(1.0), 0.0, 1.0)
    assert lost.oracle_share is None
    assert oracle.oracle_share == 1.0
    assert default.hits == pytest.approx(1 / 3)


def test_in_a_list_what_is_not_listed_is_a_miss_of_unknown_time() -> None:
    nan = float("nan")
    table = make_small_table([[2.0, nan, nan], [nan, 2.0, 2.01]])
    found = evaluate([Fixed("default", (C,)), Fixed("other", (A, B))], table, 0, is_list=True, clock=None)
    default, other = found.scores[:2]
    assert (default.hits, other.hits) == (0.5, 0.5)  # B, the second choice, is not looked at
    assert (other.no_time, other.oracle_share, other.speedup) == (0.5, 1.0, None)


def test_nothing_to_judge_by_is_one_error() -> None:
    table = make_small_table([[float("nan"), 1.0, 1.0]])
    with pytest.raises(InputError, match="time of the default"):
        evaluate([Fixed("default", (A,))], table, 0, clock=None)


def test_decisions_are_timed_on_shapes_that_are_new() -> None:
    seen: list[tuple[int, ...]] = []

    class Spy(Fixed, frozen=True):
        def choose_one(self, shape: Sequence[int]) -> object:
            seen.append(tuple(shape))
            return None

    ticks = iter(number**2 for number in range(400))  # a decision takes 1, 5, 9, ... 797
    table = make_small_table([[4.0, 2.0, 2.0], [4.0, 2.0, 2.0]])
    found = evaluate([Spy("default", (A,))], table, 0, clock=lambda: float(next(ticks)))
    assert found.scores[0].decision_us == pytest.approx(399e6)
    assert len(set(seen)) == len(seen)


def test_defaults_are_those_of_the_frameworks() -> None:
    space = find_kernel("grouped_gemm").space
    few, many = choose_default(space, (8, 8, 2, 1024, 512)), choose_default(space, (9, 8, 2, 1024, 512))
    assert list(few.values()) == [16, 32, 64, 1, 4, 3]
    assert list(many.values()) == [64, 64, 32, 8, 4, 3]
    assert choose_default(GEMM, (17, 1, 1))["BLOCK_SIZE_M"] == 32
    assert choose_default(GEMM, (4096, 1, 1))["BLOCK_SIZE_M"] == 128


def test_policies_by_name() -> None:
    assert parse_policies([])[0] is PolicyName.DEFAULT
    assert parse_policies(["tree", "default"]) == (PolicyName.DEFAULT, PolicyName.TREE)
    with pytest.raises(UsageError, match="--policy best"):
        parse_policies(["best"])
