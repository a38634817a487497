"""Set each figure of the memory, issue, contention and fetch to neutral, and write docs/figures.md.

    python bench/figures.py [--jobs 2] [--figure GLOB ...]        # what is not kept yet, then the page
    python bench/figures.py --without NAME NAME ...               # what all of these cost together

The rows are those of docs/left-suite.md, as they are (bench/replay_models.py --count has counted them). What
neutral means says `NEUTRAL`: none of what is optional, a factor of 1, no extra cycles, no limit. A figure
whose neutral says as much as it does can go, with its code. The rule (issue 62): it earns less than .1 point
of the error over all rows, and less than 1 point on every suite.

Answers are kept by the contents of code and figures, so that a run that was stopped goes on.
"""

import analyzer  # first, from PYTHONPATH: modules of the bench put their own checkout before it

# isort: split
import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from figure_edits import Edit, Row, Value, answer_edits
from kernels.recipes import ROOT
from leaving_out import load_taught
from markdown import render_table
from replay_models import ROWS
from running import publish_page, run_main
from variant_predictions import digest_simulation_code

from analyzer.evaluation.case_table import Case, read_cases
from analyzer.hardware.gpu_database import load_gpu
from analyzer.worker_pool import run_in_processes

PAGE = ROOT / "docs" / "figures.md"
NONE, SAME, LIMITLESS = None, 1.0, 1e9

# What neutral means for a figure: a value, the name of a figure beside it whose value it takes, or None for
# an optional one that is not there. Of several, the one that loses least.
NEUTRAL: Mapping[str, tuple[Value, ...]] = {
    # load/store path and L1
    "memory.read_release_cycles": (0.0,),
    "memory.lines_per_store_pass": (32.0, 1.0),
    "memory.store_line_cycles": (0.0, 1.0),
    "memory.line_fill_cycles": (0.0,),
    "memory.barrier_path_cycles": (0.0,),
    "memory.path_queue_cycles": (LIMITLESS, 0.0),
    "memory.copy_line_path_cycles": (NONE,),
    "memory.second_look_cycles": (NONE,),
    "memory.dispatch_cycles": (NONE,),
    "memory.matrix_conflict_share": (NONE,),
    "memory.warpgroup_operand_bytes_per_cycle": (NONE,),
    "memory.system_fence_cycles": (0.0,),
    # CTAs
    "memory.cta_start_cycles": (0.0,),
    "memory.cta_turnover_cycles": (0.0,),
    # L2
    "memory.l2_port_bytes_per_cycle": (LIMITLESS,),
    "memory.l2_store_line_cycles": (0.0,),
    "memory.lines_per_pass": (1.0, 32.0),
    "memory.l2_burst_cycles": (0.0, LIMITLESS),
    "memory.l2_kept_share": (1.0,),
    "memory.atomic_line_cycles": (0.0,),
    "memory.atomic_float_cycles": (0.0, "atomic_line_cycles"),
    "memory.atomic_combined_lanes": (1.0, 32.0),
    "memory.atomic_slice_bytes": ("line_bytes", 4096.0),
    "memory.copy_request_cycles": (NONE,),
    "memory.copy_stream_factor": (SAME, LIMITLESS),
    "l2.store_factor": (NONE,),
    "l2.kept_share": (NONE,),
    "l2.lost_share": (NONE,),
    "l2.scattered_share": (NONE,),
    "l2.slice_gbps": (NONE,),
    "l2.first_wave_lookup_share": (NONE,),
    "l2.lookup_share_growth": (NONE,),
    "l2.miss_lookups": (NONE,),
    "l2.miss_requests": (NONE,),
    "l2.requests_per_us": (NONE,),
    "l2.missed_lines_per_us": (NONE,),
    # spilled registers
    "memory.spill_dram_factor": (SAME,),
    "memory.spill_lost_from": (0.0, 1.0),
    "memory.local_store_l2_share": (NONE,),
    # DRAM
    "memory.dram_load_cycles": (0.0,),
    "memory.dram_burst_cycles": (NONE,),
    "memory.dram_batch_cycles": (NONE,),
    "memory.dram_efficiency": (SAME,),
    "memory.dram_read_efficiency": ("dram_efficiency", SAME),
    "memory.dram_turnaround_factor": (SAME,),
    "memory.partial_write_factor": (SAME, 2.0),
    # instruction fetch
    "memory.instruction_miss_cycles": (0.0,),
    "instruction_caches.line_cycles": (0.0,),
    "instruction_caches.miss_bytes": (128.0,),
    "instruction_caches.shared_ways": (1.0, 1024.0),
    "instruction_caches.miss_cycles": (0.0,),
    # issue
    "issue.other_pipe_cycles": (0.0,),
    "issue.guard_cycles": (0.0,),
    "issue.uniform_guard_cycles": (0.0,),
    "issue.uniform_address_cycles": (0.0,),
    "issue.uniform_interval_cycles": (0.0,),
    "issue.memory_interval_cycles": (0.0,),
    "issue.product_interval_cycles": (0.0,),
    "issue.product_operand_cycles": (0.0,),
    "issue.barrier_cycles": (0.0,),
    "issue.scoreboard_cycles": (0.0,),
    "issue.wide_beside_warpgroup_cycles": (NONE,),
    "issue.runs_in_turns": (NONE,),
    "issue.operand_window_cycles": (NONE,),
    # contention with products of warpgroups
    "warpgroup_contention.alu_factor": (SAME,),
    "warpgroup_contention.max_queued_products": (0.0,),
}
# What the others are counted in: latencies, rates, sizes.
BASE = frozenset(
    f"{table}.{name}"
    for table, names in {
        "memory": (
            *("l1_latency_cycles", "shared_latency_cycles", "l2_latency_cycles", "dram_latency_cycles"),
            *("l1_bytes_per_cycle_per_sm", "shared_bytes_per_cycle_per_sm", "l2_bytes_per_cycle_per_sm"),
            *("l1_shared_bytes_per_sm", "instruction_cache_bytes", "constant_line_bytes", "line_bytes"),
            *("sector_bytes", "l1_ways", "l2_ways", "shared_pass_cycles"),
        ),
        "instruction_caches": ("sm_bytes",),
    }.items()
    for name in names
)
# Figures that speak of one thing, set to neutral together (the first neutral of each), or a whole table.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "all contention": ("warpgroup_contention",),
    "all fetch by caches": ("instruction_caches",),
    "all fetch": ("instruction_caches", "memory.instruction_miss_cycles"),
    "spilled registers": tuple(key for key in NEUTRAL if "spill" in key),
    "further lines of stores": ("memory.lines_per_store_pass", "memory.store_line_cycles"),
    "look-ups of the L2": (
        *("l2.slice_gbps", "l2.first_wave_lookup_share", "l2.lookup_share_growth"),
        *("l2.miss_lookups", "l2.miss_requests"),
    ),
    "shares that the L2 keeps": ("l2.kept_share", "l2.lost_share", "l2.scattered_share"),
    "requests of the L2": ("l2.requests_per_us", "l2.missed_lines_per_us"),
    "load of the DRAM": ("memory.dram_load_cycles", "memory.dram_burst_cycles"),
    "atomics": tuple(key for key in NEUTRAL if "atomic_" in key and "line" not in key),
    "stall counts of code without control words": tuple(
        key for key in NEUTRAL if key.startswith("issue.") and NEUTRAL[key] == (0.0,)
    ),
}
_MOST_LOST, _MOST_LOST_OF_SUITE = 0.001, 0.01


# ---- edits -------------------------------------------------------------------------------------------


def list_edits() -> Iterator[Edit]:
    """Yield the edits of single figures, then those of groups."""
    for key, neutrals in NEUTRAL.items():
        for value in neutrals:
            yield Edit(f"{key} = {_format_neutral(value)}", ((key, value),))
    for name, keys in GROUPS.items():
        yield make_joint_edit(name, keys)


def make_joint_edit(name: str, keys: Sequence[str]) -> Edit:
    """Return the edit of several figures; `memory.x=2` says to what, else it is the first neutral."""
    values: list[tuple[str, Value]] = []
    for key in keys:
        path, _, text = key.partition("=")
        values.append((path, _read_value(text) if text else NEUTRAL.get(path, (NONE,))[0]))
    return Edit(name, tuple(values))


def _read_value(text: str) -> Value:
    if text == "none":
        return None
    return float(text) if text[0].isdigit() else text


def _format_neutral(value: Value) -> str:
    if value is None:
        return "none"
    if value == LIMITLESS:
        return "no limit"
    return value if isinstance(value, str) else f"{value:g}"


# ---- answers -----------------------------------------------------------------------------------------


def predict_edits(cases: Sequence[Case], edits: Sequence[Edit], jobs: int) -> list[Row]:
    """Return the rows with the answers on GPUs with these edits."""
    answer = partial(answer_edits, edits=tuple(edits), code=digest_simulation_code())
    found = []
    for place, (_, row) in enumerate(run_in_processes(answer, cases, jobs), start=1):
        print(f"\r{place} of {len(cases)} rows", end="", file=sys.stderr, flush=True)
        found.append(row)
    print(file=sys.stderr)
    return found


# ---- what other suites say --------------------------------------------------------------------------


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """What rows of suites that did not teach a figure say of it."""

    figure: str
    teachers: tuple[str, ...]  # globs of suites
    changed: int  # rows of others
    loss: float  # in the mean over these: what their error grows by without the figure, as a share


def list_unconfirmed(rows: Sequence[Row], names: Sequence[str]) -> list[Confirmation]:
    """Return the figures that rows taught and that no other row needs, by edits that set them to neutral."""
    teachers: dict[str, set[str]] = defaultdict(set)
    for taught in load_taught().figure:
        for key in taught.keys:
            teachers[key].update(taught.taught_by)
    found = []
    for name in names:
        key = name.partition(" = ")[0]
        grown = [
            abs(row.edited_us[name] / row.measured_us - 1.0) - abs(row.as_is_us / row.measured_us - 1.0)
            for row in rows
            if abs(row.edited_us.get(name, row.as_is_us) / row.as_is_us - 1.0) > 1e-9
            and not any(fnmatchcase(row.suite, pattern) for pattern in teachers[key])
        ]
        loss = float(np.mean(grown)) if grown else 0.0
        if key in teachers and loss <= 0.0:
            suites = tuple(sorted(teachers[key]))
            found.append(Confirmation(figure=name, teachers=suites, changed=len(grown), loss=loss))
    return sorted(found, key=lambda one: (one.changed > 0, one.loss))


# ---- page --------------------------------------------------------------------------------------------


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What the error grows by without a figure, as a share (.01: one point)."""

    edit: str
    archs: tuple[str, ...]
    changed: int  # rows
    over_all: float
    over_suites: float  # in the mean, in which a suite counts once
    of_h100: float
    of_h200: float
    worst: float  # of a suite
    worst_suite: str
    best: float  # least, of a suite: what it gains by having no such figure
    best_suite: str

    @property
    def can_go(self) -> bool:
        """Whether it earns as little as the rule says."""
        return self.over_all < _MOST_LOST and self.worst < _MOST_LOST_OF_SUITE


def measure_loss(rows: Sequence[Row], name: str) -> Loss:
    """Return what an edit loses."""
    before: dict[str, list[float]] = defaultdict(list)
    after: dict[str, list[float]] = defaultdict(list)
    archs = set()
    changed = 0
    for row in rows:
        new = row.edited_us.get(name, row.as_is_us)
        if name in row.edited_us:
            archs.add(load_gpu(row.gpu).file.arch)
        changed += abs(new / row.as_is_us - 1.0) > 1e-9
        error, old = abs(new / row.measured_us - 1.0), abs(row.as_is_us / row.measured_us - 1.0)
        for group in ("", row.suite, row.suite.split("/")[0] + "/"):
            after[group].append(error)
            before[group].append(old)
    growth = {group: float(np.mean(after[group]) - np.mean(before[group])) for group in before}
    suites = {group: lost for group, lost in growth.items() if group and not group.endswith("/")}
    worst, best = max(suites, key=lambda one: suites[one]), min(suites, key=lambda one: suites[one])
    return Loss(
        edit=name,
        archs=tuple(sorted(archs, key=lambda arch: int(arch[3:]))),
        changed=changed,
        over_all=growth[""],
        over_suites=float(np.mean(list(suites.values()))),
        of_h100=growth.get("h100/", 0.0),
        of_h200=growth.get("h200/", 0.0),
        worst=suites[worst],
        worst_suite=worst,
        best=suites[best],
        best_suite=best,
    )


_HEAD = """# What each figure earns

Made by `python bench/figures.py`: figures of the load/store path, the L2, the DRAM, instruction fetch, issue
and contention set to neutral, one at a time and in groups, and what the error of `sm` on the rows of
[left-suite.md](left-suite.md) (as it is) grows by, in points of its MAPE. A figure that several architectures
have is set on all of them. Of several neutral values the one that loses least is listed.

A figure can go where it earns less than {all} points over all rows and less than {suite} on every suite.
Base figures of the resources (latencies, rates, sizes) are not here.

"""
_UNCONFIRMED = """
## Figures that rows taught and no other suite confirms

Rows of suites that did not teach the figure, and what their error grows by in the mean where it is neutral:
it does not grow.

"""
_COLUMNS = ("figure", "neutral", "on", "rows", "all", "suites", "h100", "h200", "most", "of", "least", "of")


def render_page(rows: Sequence[Row], edits: Sequence[Edit]) -> str:
    """Render the page in Markdown."""
    losses = {edit.name: measure_loss(rows, edit.name) for edit in edits}
    singles = []
    for key, neutrals in NEUTRAL.items():
        names = [f"{key} = {_format_neutral(value)}" for value in neutrals]
        if known := [losses[one] for one in names if one in losses]:
            singles.append(min(known, key=_rank))
    groups = [losses[name] for name in GROUPS if name in losses]
    error = np.mean([abs(row.as_is_us / row.measured_us - 1.0) for row in rows])
    ranked = sorted(singles, key=_rank)
    touching = [one for one in ranked if one.changed]
    idle = ", ".join(f"`{one.edit.partition(' = ')[0]}`" for one in ranked if not one.changed)
    free = sum(one.can_go for one in touching)
    return "".join(
        [
            _HEAD.format(all=f"{100 * _MOST_LOST:.1f}", suite=f"{100 * _MOST_LOST_OF_SUITE:.0f}"),
            f"{len(rows)} rows, MAPE {error:.2%}. Of {len(singles)} figures {len(singles) - len(touching)} "
            f"touch no row, {free} earn less than the rule asks for, {len(touching) - free} earn more.\n\n",
            "## Figures that earn next to nothing\n\n",
            render_table(_COLUMNS, [_make_line(one) for one in touching if one.can_go]),
            "\n## Figures that earn something\n\n",
            render_table(_COLUMNS, [_make_line(one) for one in touching if not one.can_go]),
            f"\n## Figures that touch no row\n\n{idle or 'None'}.\n\n## Groups\n\n",
            render_table(_COLUMNS, [_make_line(one) for one in groups]),
            _UNCONFIRMED,
            render_table(
                ("figure", "neutral", "taught by", "other rows", "their error"),
                [
                    (
                        *one.figure.split(" = "),
                        ", ".join(one.teachers),
                        str(one.changed),
                        f"{100 * one.loss:+.2f}",
                    )
                    for one in list_unconfirmed(rows, [one.edit for one in ranked])
                ],
            ),
        ]
    )


def _rank(loss: Loss) -> tuple[float, float]:
    return (loss.over_all, loss.worst)


def _make_line(loss: Loss) -> tuple[str, ...]:
    figure, _, neutral = loss.edit.partition(" = ")
    shares = (loss.over_all, loss.over_suites, loss.of_h100, loss.of_h200)
    return (
        *(figure, neutral, " ".join(arch[3:] for arch in loss.archs), str(loss.changed)),
        *(f"{100 * share:+.2f}" for share in shares),
        *(f"{100 * loss.worst:+.2f}", loss.worst_suite if loss.worst > 0 else ""),
        *(f"{100 * loss.best:+.2f}", loss.best_suite if loss.best < 0 else ""),
    )


def _select_cases(patterns: Sequence[str], sample: int | None) -> list[Case]:
    """Return the rows of suites that a glob names, the first so many of each suite and GPU."""
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in read_cases(ROWS):
        if not patterns or any(fnmatchcase(case.suite, pattern) for pattern in patterns):
            groups[case.suite, case.gpu].append(case)
    return [case for group in groups.values() for case in group[:sample]]


def main() -> None:
    """Predict and write the page, or print what several figures cost together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--figure", action="append", default=[], help="a glob of edits; the page is printed")
    parser.add_argument("--suite", action="append", default=[], help="a glob; the page is printed")
    parser.add_argument("--sample", type=int, help="so many rows of a suite and GPU; the page is printed")
    parser.add_argument("--first", action="store_true", help="first neutrals, no groups; the page is printed")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME[=VALUE]")
    given = parser.parse_args()
    edits = [
        edit
        for edit in list_edits()
        if not given.figure or any(fnmatchcase(edit.name, pattern) for pattern in given.figure)
        if not given.first or NEUTRAL.get(edit.values[0][0], (None,))[0] == edit.values[0][1]
        if not given.first or edit.name not in GROUPS
    ]
    if given.without:
        edits = [make_joint_edit("together", given.without)]
    cases = _select_cases(given.suite, given.sample)
    rows = predict_edits(cases, edits, given.jobs)
    if given.without:
        print(render_table(_COLUMNS, [_make_line(measure_loss(rows, "together"))]))
    elif given.figure or given.suite or given.sample or given.first:
        print(render_page(rows, edits))
    else:
        publish_page(PAGE, render_page(rows, edits))


# Worker processes look for modules in the same order.
sys.path.insert(0, str(Path(analyzer.__file__).parents[1]))

if __name__ == "__main__":
    run_main(main)
