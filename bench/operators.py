"""Learn the shipped weights of the operator models, and write the page of their errors.

    python bench/operators.py learn [SET ...]            hwdb/weights anew: all sets of weights, or some
    python bench/operators.py table > docs/operators.md  the page, from the cards that `learn` wrote

The split is part of the code: shapes by hash of their key (`analyzer.learning.splits`), and each GPU, or each
architecture, left out in turn. The data lie in ../shared/data and stay there. Finished fits are kept in
.cache/operators, so a run that was interrupted goes on.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli
from operator_teaching import TEACHINGS
from tabulate import tabulate

from analyzer.learning.corrections import Learned
from analyzer.learning.judging import judge_errors
from analyzer.learning.learn import group_by_weights, learn_set, write_learned
from analyzer.models.operators import ours

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "operators"
GOALS = Path(__file__).with_name("operator_goals.md")
WEIGHTS = ROOT / "hwdb" / "weights"
_FIGURES = ("mean", "median", "p90", "bias", "short_mean", "probes_3", "probes_10", "held")
_HEADERS = (
    "left out",
    "as",
    "rows",
    "mean",
    "median",
    "P90",
    "bias",
    "< 50 us",
    "3 probes",
    "10 probes",
    "held",
)
_HEAD = """# Operators: errors on what was left out

Written by `python bench/operators.py table` from the cards of `hwdb/weights`, which
`python bench/operators.py learn` writes with the weights. Relative errors of the time in percent.

- **shapes**: GPUs that taught, other shapes (by hash of their key: (n, k) of products, head layouts, model
  dimensions). The other rows leave out a GPU, or an architecture, as a whole; reference, correction and
  interval were learned without it. As `sibling` it is corrected as one whose architecture taught.
- **3 probes**, **10 probes**: after `calibrate` with so many of its rows, drawn at random (mean of 20 draws),
  judged on the others. **held**: part of the rows in the 80 % interval that was made without them.
- Which of the few corrections ships (none, trees, perceptrons, how much of it) was chosen by these same
  errors, and references were designed with all GPUs in view: expect somewhat more on others. Figures where
  the fits of mixtures of experts begin come from sweeps on A100, A40, H800 and H100.

Peers are printed by `bench/operator_gemm.py`, `operator_rows.py`, `operator_attention.py`, `operator_moe.py`,
`operator_synperf.py` and `operator_neusight.py`: the papers' models reproduced, roofline, linear regression,
the nearest GPU's time. A dash: too few rows to say.
"""


def main() -> None:
    """Run the command of the module's docstring."""
    command, *names = sys.argv[1:] or ["table"]
    if command == "learn":
        learn(names)
    else:
        print(make_page(), end="")


def learn(names: Sequence[str]) -> None:
    """Learn and write the sets of weights with these names, all if none."""
    for teaching in TEACHINGS:
        if names and not any(teaching.may_make(name) for name in names):
            continue
        _report(f"{teaching.name}: loading")
        for name, (family, batches) in sorted(group_by_weights(teaching.load()).items()):
            if not name.startswith(teaching.sets) or not teaching.is_asked(name, names):
                continue
            options = teaching.find_options(name)
            learned = learn_set(name, family, batches, options, cache=CACHE, report=_report)
            write_learned(learned, WEIGHTS, options, teaching.provenance)
            print(name, _describe(learned), flush=True)


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _describe(learned: Learned) -> str:
    return ", ".join(
        f"{figures.what} {figures.situation}: {figures.mean_percent:.1f} %"
        for figures in judge_errors(learned.errors)
    )


def make_page() -> str:
    """Return the page in Markdown."""
    parts = [_HEAD]
    for path in sorted(WEIGHTS.glob(f"{ours.NAME}-*.toml")):
        card = tomli.loads(path.read_text())
        taught = ", ".join(f"{gpu} {n_rows:,}" for gpu, n_rows in card["rows"].items())
        rows = [_make_row(figures) for figures in card["left_out"]]
        parts += [
            f"## {card['name']}\n",
            f"{card['data']} ({card['licence']}), {card['timing']} times: {taught}.\n",
            tabulate(_add_means(rows), headers=_HEADERS, tablefmt="github", floatfmt=".1f", missingval="-"),
            "",
        ]
    return "\n".join([*parts, GOALS.read_text()])


def _make_row(figures: Mapping[str, Any]) -> list[Any]:
    values = [figures.get(f"{name}_percent") for name in _FIGURES]
    return [figures["what"], figures["situation"], figures["rows"], *values]


def _add_means(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return rows with the mean of each situation that has several, each thing left out counting the same."""
    found: list[Sequence[Any]] = []
    for situation in dict.fromkeys(row[1] for row in rows):
        of_situation = [row for row in rows if row[1] == situation]
        found += of_situation
        if len(of_situation) > 1:
            columns = [
                [row[i] for row in of_situation if row[i] is not None] for i in range(3, len(_HEADERS))
            ]
            means = [sum(values) / len(values) if values else None for values in columns]
            found.append(["mean", situation, sum(row[2] for row in of_situation), *means])
    return found


if __name__ == "__main__":
    main()
