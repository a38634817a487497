"""Judge policies that choose configurations, on measured times of shapes that taught them nothing.

    python bench/tuning.py lists          fused MoE on A100, A40, H800: lists of the best configurations
    python bench/tuning.py splits         the same, five more divisions, without boosted trees (a minute each)
    python bench/tuning.py plan           H100: WaveTune's plan teaches, the sweep of real shapes judges
    python bench/tuning.py sweep-gemm     H100: half of the shapes of a sweep teaches, the other judges;
                                          also sweep-moe, sweep-attention, sweep-causal-attention
    python bench/tuning.py kernel_tuner   one problem size: a part of the configurations teaches
    python bench/tuning.py --write ...    puts the tables into docs/tuning-accuracy.md

Data: `../shared/data` beside the repository, or --data; `traces/h100` is in the repository.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from markdown import render_table
from tuning_data import h100_sweep
from tuning_data.kernel_tuner import load_kernel
from tuning_data.moe_tuning import GPUS, load_default_times, load_lists

from analyzer.hardware.gpu_database import load_gpu
from analyzer.tuning.evaluation import Evaluation, PolicyScore, evaluate, judge_choices
from analyzer.tuning.measured_table import MeasuredTable, split_shapes, tabulate
from analyzer.tuning.policies import Policy, PolicyName, PolicyOptions, fit_policy

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tuning-accuracy.md"
SEED = 47  # of the committed division; its keys are in bench/splits/moe_tuning.csv
OTHER_SEEDS = (1, 2, 3, 4, 5)
LIST_CAP = 1.03  # what is not listed counts as 3 % above the best, for all policies that learn from lists
_PAPER = (PolicyName.WAVETUNE, PolicyName.STEP, PolicyName.LINEAR)


def fit_all(
    names: Sequence[PolicyName],
    table: MeasuredTable,
    n_sms: int,
    *,
    is_list: bool,
    offers_unknown: bool = False,
) -> list[Policy]:
    """Return policies that have learned from one table."""
    options = PolicyOptions(n_sms, SEED, LIST_CAP if is_list else None, offers_unknown=offers_unknown)
    return [fit_policy(name, table, options) for name in names]


def judge_lists(
    data: Path, name: str, seed: int, names: Sequence[PolicyName]
) -> tuple[Evaluation, list[Policy], MeasuredTable]:
    """Return the evaluation on one GPU of the lists, and the policies and the half that judged them."""
    table = load_lists(data, name)
    learns = split_shapes(table, 0.5, seed)
    test = table.select_shapes(~learns)
    n_sms = load_gpu(table.gpu).sm_count
    policies = fit_all(names, table.select_shapes(learns), n_sms, is_list=True)
    return evaluate(policies, test, int(learns.sum()), is_list=True), policies, test


def make_lists_table(data: Path) -> Iterator[str]:
    """Yield the table of the committed division, and what default times are published on its shapes."""
    rows: dict[str, list[str]] = {}
    speedups = []
    for name in GPUS:
        found, policies, test = judge_lists(data, name, SEED, list(PolicyName))
        for score in found.scores[:-1]:
            row = rows.setdefault(score.policy, [score.policy])
            row.append(f"{100 * score.hits:.0f}")
            if name == list(GPUS)[-1]:
                row += [_format_us(score.decision_us), _format_size(score.size_bytes)]
        speedups.append(_compare_with_defaults(data, name, policies, test))
    head = ["policy", *(f"{name.split('-')[0]}, hits %" for name in GPUS), "choice, us", "size, KB"]
    yield render_table(head, rows.values())
    yield "\n" + " ".join(speedups) + "\n"


def _compare_with_defaults(data: Path, name: str, policies: Sequence[Policy], test: MeasuredTable) -> str:
    """Return a sentence on shapes of the test whose default time is published."""
    defaults = load_default_times(data, name)
    known = np.array([tuple(shape) in defaults for shape in test.shapes.tolist()])
    if not known.any():
        return f"{name}: none."
    part = test.select_shapes(known)
    default = np.array([defaults[tuple(shape)] for shape in part.shapes.tolist()])
    smoothed = next(policy for policy in policies if policy.name == PolicyName.SMOOTHED)
    chosen, _ = judge_choices(smoothed, part, is_list=True)
    listed = np.isfinite(chosen)
    gain = np.exp(np.log(default[listed] / chosen[listed]).mean()) if listed.any() else float("nan")
    most = np.exp(np.log(default / part.find_best_us()).mean())
    return (
        f"{name}: {len(default)} shapes, the best is {most:.2f} times as fast as the default; the choice is "
        f"listed on {int(listed.sum())} of them, and there {gain:.2f} times as fast."
    )


def make_splits_table(data: Path) -> Iterator[str]:
    """Yield hits over other divisions: mean, and least to most."""
    rows: dict[str, list[str]] = {}
    cheap = [name for name in PolicyName if name is not PolicyName.BOOSTED]
    for name in GPUS:
        hits: dict[str, list[float]] = {}
        for seed in OTHER_SEEDS:
            for score in judge_lists(data, name, seed, cheap)[0].scores[:-1]:
                hits.setdefault(score.policy, []).append(100 * score.hits)
        for policy, values in hits.items():
            row = rows.setdefault(policy, [policy])
            row.append(f"{np.mean(values):.0f} ({min(values):.0f} to {max(values):.0f})")
    yield render_table(["policy", *(name.split("-")[0] for name in GPUS)], rows.values())


def make_plan_table(_data: Path) -> Iterator[str]:
    """Yield the table of the paper's protocol: the plan teaches, other shapes judge."""
    plan, sweep = tabulate(h100_sweep.load_plan()), tabulate(h100_sweep.load_sweep("gemm"))
    names = (PolicyName.DEFAULT, *_PAPER, PolicyName.BOOSTED, PolicyName.TREE)
    policies = fit_all(names, plan, h100_sweep.N_SMS, is_list=False)
    found = evaluate(policies, sweep, len(plan.shapes))
    yield _render_scores(found.scores)
    columns = sweep.find_configs(plan.configs)
    offered = MeasuredTable(
        sweep.space,
        sweep.gpu,
        sweep.shapes,
        plan.configs,
        np.where(columns >= 0, sweep.time_us[:, columns], np.nan),
    )
    share = sweep.find_best_us() / offered.find_best_us()
    usable = np.isfinite(share)
    yield (
        f"\n{found.scores[0].shapes} of {len(sweep.shapes)} shapes are judged. "
        f"{len(plan.configs)} configurations are in the plan; the best of them has "
        f"{100 * np.exp(np.log(share[usable]).mean()):.0f} % of the oracle's speed over all "
        f"{len(sweep.configs)}, and bounds every policy here.\n"
    )


def make_sweep_table(name: str) -> Iterator[str]:
    """Yield the table of a sweep of the H100: each half of the shapes is judged by the other."""
    table = tabulate(h100_sweep.load_sweep(name))
    learns = split_shapes(table, 0.5, SEED, by_group=False)
    halves = []
    for side in (learns, ~learns):
        policies = fit_all(list(PolicyName), table.select_shapes(side), h100_sweep.N_SMS, is_list=False)
        halves.append(evaluate(policies, table.select_shapes(~side), int(side.sum())))
    scores = _merge(halves)
    yield _render_scores(scores)
    yield (
        f"\n{scores[0].shapes} of {len(table.shapes)} shapes judge, {len(table.configs)} configurations, "
        f"{100 * np.isfinite(table.time_us).mean():.0f} % of the pairs measured.\n"
    )


def _merge(halves: Sequence[Evaluation]) -> list[PolicyScore]:
    """Return scores over both halves, weighted by the shapes judged."""
    merged = []
    for parts in zip(*(half.scores for half in halves), strict=True):
        weights = np.array([part.shapes for part in parts], dtype=np.float64)

        def mean(values: Sequence[float | None], weights: np.ndarray = weights) -> float:
            return float(
                np.average([np.nan if value is None else value for value in values], weights=weights)
            )

        merged.append(
            PolicyScore(
                policy=parts[0].policy,
                shapes=int(weights.sum()),
                speedup=float(np.exp(mean([np.log(part.speedup or np.nan) for part in parts]))),
                oracle_share=float(np.exp(mean([np.log(part.oracle_share or np.nan) for part in parts]))),
                hits=mean([part.hits for part in parts]),
                no_time=mean([part.no_time for part in parts]),
                decision_us=None if parts[0].decision_us is None else mean([p.decision_us for p in parts]),
                size_bytes=max(part.size_bytes for part in parts),
            )
        )
    return merged


def _render_scores(scores: Sequence[PolicyScore]) -> str:
    head = [
        "policy",
        "over default",
        "of oracle, %",
        "hits, %",
        "first without time, %",
        "choice, us",
        "size, KB",
    ]
    return render_table(
        head,
        [
            [
                score.policy,
                "" if score.speedup is None else f"{score.speedup:.2f}",
                "" if score.oracle_share is None else f"{100 * score.oracle_share:.0f}",
                f"{100 * score.hits:.0f}",
                f"{100 * score.no_time:.0f}",
                _format_us(score.decision_us),
                _format_size(score.size_bytes),
            ]
            for score in scores
        ],
    )


def _format_us(time_us: float | None) -> str:
    return "" if time_us is None else f"{time_us:.1f}" if time_us < 100 else f"{time_us:,.0f}"


def _format_size(n_bytes: int) -> str:
    return f"{n_bytes / 1e3:,.0f}" if n_bytes else ""


def make_kernel_tuner_table(data: Path) -> Iterator[str]:
    """Yield the share of the oracle's speed after a part of the configurations has taught."""
    names = (PolicyName.SMOOTHED, *_PAPER, PolicyName.TREE, PolicyName.BOOSTED)
    shares = (0.1, 0.01)
    rows: dict[str, list[str]] = {name: [name] for name in names}
    heads = ["policy"]
    for kernel in ("gemm", "convolution"):
        tables = load_kernel(data, kernel)
        for share in shares:
            heads.append(f"{kernel}, {100 * share:.0f} % known")
            found: dict[str, list[float]] = {}
            for table in tables.values():
                known = _hide(table, share)
                n_sms = load_gpu(table.gpu).sm_count
                policies = fit_all(names, known, n_sms, is_list=False, offers_unknown=True)
                for policy in policies:
                    chosen, _ = judge_choices(policy, table, is_list=False)
                    found.setdefault(policy.name, []).append(float(table.find_best_us()[0] / chosen[0]))
            for name, values in found.items():
                rows[name].append(", ".join(f"{100 * value:.1f}" for value in values))
    yield render_table(heads, rows.values())
    yield from _carry_over(data)


def _hide(table: MeasuredTable, share: float) -> MeasuredTable:
    """Return a table of which a share of the configurations has its times."""
    shown = np.random.default_rng(SEED).random(len(table.configs)) < share
    return MeasuredTable(
        table.space, table.gpu, table.shapes, table.configs, np.where(shown, table.time_us, np.nan)
    )


def _carry_over(data: Path) -> Iterator[str]:
    """Yield how the best configuration of one GPU does on another."""
    parts = []
    for kernel in ("gemm", "convolution"):
        tables = load_kernel(data, kernel)
        for source, learned in tables.items():
            best = learned.configs[
                [int(np.nanargmin(np.where(np.isfinite(learned.time_us), learned.time_us, np.nan)))]
            ]
            for target, table in tables.items():
                column = int(table.find_configs(best)[0])
                if target != source and column >= 0 and np.isfinite(table.time_us[0, column]):
                    share = table.find_best_us()[0] / table.time_us[0, column]
                    parts.append(f"{kernel} {source} to {target} {100 * share:.0f} %")
    yield "\nThe best configuration of one GPU, of the oracle's speed on another: " + "; ".join(parts) + ".\n"


SECTIONS: dict[str, Callable[[Path], Iterator[str]]] = {
    "lists": make_lists_table,
    "splits": make_splits_table,
    "plan": make_plan_table,
    "sweep-gemm": lambda _: make_sweep_table("gemm"),
    "sweep-moe": lambda _: make_sweep_table("grouped_gemm"),
    "sweep-attention": lambda _: make_sweep_table("attention"),
    "sweep-causal-attention": lambda _: make_sweep_table("causal attention"),
    "kernel_tuner": make_kernel_tuner_table,
}


def write_section(name: str, text: str) -> None:
    """Replace what stands between the marks of a section of the page."""
    page = PAGE.read_text(encoding="utf-8")
    marks = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(marks[0]) + ".*?" + re.escape(marks[1]), re.S)
    page = pattern.sub(lambda _: f"{marks[0]}\n{text.strip()}\n\n{marks[1]}", page)
    PAGE.write_text(page, encoding="utf-8")


def main() -> None:
    """Print the tables that are asked for, all by default."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    for name in options.sections or SECTIONS:
        text = "".join(SECTIONS[name](options.data))
        print(f"## {name}\n\n{text}", flush=True)
        if options.write:
            write_section(name, text)


if __name__ == "__main__":
    main()
