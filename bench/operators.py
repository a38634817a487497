"""Learn the shipped weights of the operator models, and print how far they are off on what was left out.

    python bench/operators.py learn [SET ...]            hwdb/weights anew: all sets of weights, or some
    python bench/operators.py table > docs/operators.md  the page; fits of `learn` are taken from the cache

The split is part of the code: shapes by hash of their key (`analyzer.learning.splits`), and each GPU, or each
architecture, left out in turn. The data lie in ../shared/data and stay there.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from operator_teaching import TEACHINGS, Teaching
from tabulate import tabulate

from analyzer.learning.corrections import Learned, LeftOutErrors, make_interval
from analyzer.learning.learn import group_by_weights, learn_set, write_learned
from analyzer.models.calibration import fit_level
from analyzer.models.learned.correction import Situation
from analyzer.operators.batches import Column

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "operators"
WEIGHTS = ROOT / "hwdb" / "weights"
_SHORT_US = 50.0
_N_DRAWS = 20  # of probes


class NamedLearned(Struct, frozen=True):
    """A learned set of weights with what taught it."""

    teaching: Teaching
    learned: Learned


def main() -> None:
    """Run the command of the module's docstring."""
    command, *names = sys.argv[1:] or ["table"]
    found = learn_all(names)
    if command == "learn":
        for each in found:
            write_learned(each.learned, WEIGHTS, each.teaching.options, each.teaching.provenance)
            print(each.learned.weights.name, _describe(each.learned), flush=True)
    else:
        print(make_page(found))


def learn_all(names: Sequence[str] = ()) -> list[NamedLearned]:
    """Return the sets of weights with these names, all if none; finished fits come from the cache."""
    found = []
    for teaching in TEACHINGS:
        if names and not any(teaching.may_make(name) for name in names):
            continue
        _report(f"{teaching.name}: loading")
        for name, (family, batches) in sorted(group_by_weights(teaching.load()).items()):
            if not name.startswith(teaching.sets) or not teaching.is_asked(name, names):
                continue
            found.append(
                NamedLearned(
                    teaching,
                    learn_set(name, family, batches, teaching.options, cache=CACHE, report=_report),
                )
            )
    return found


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _describe(learned: Learned) -> str:
    return ", ".join(
        f"{e.left_out} {e.situation}: {_mean_percent(e.log_error):.1f} %" for e in learned.errors
    )


def make_page(found: Sequence[NamedLearned]) -> str:
    """Return the page in Markdown."""
    parts = [_HEAD]
    for each in found:
        weights = each.learned.weights
        taught = ", ".join(f"{t.gpu} {t.n_rows:,}" for t in weights.taught)
        parts += [
            f"## {weights.name}\n",
            f"Rows of {weights.dataset} ({weights.timing} times): {taught}.\n",
            tabulate(_list_rows(each.learned), headers=_COLUMNS, tablefmt="github", floatfmt=".1f"),
            "",
        ]
    return "\n".join(parts)


_HEAD = """# Operators: errors on what was left out

Written by `python bench/operators.py table`. Relative errors in percent. "shapes" leaves out shapes (by hash
of their key) of GPUs that taught; the other rows leave out a GPU or an architecture as a whole, reference and
correction learned without it. "3 probes" and "10 probes": level of the GPU from so many of its rows drawn at
random (mean of 20 draws), judged on the others. "held": part of the rows within the 80 % interval, which was
made without them.
"""
_COLUMNS = (
    "left out",
    "as",
    "rows",
    "mean",
    "median",
    "P90",
    "bias",
    "under 50 us",
    "3 probes",
    "10 probes",
    "held",
)


def _list_rows(learned: Learned) -> list[list[object]]:
    """Return the rows of a set's table, and the mean of each situation."""
    rows: list[list[object]] = []
    for situation in Situation:
        errors = [e for e in learned.errors if e.situation is situation]
        of_situation = [_make_row(e, [o for o in errors if o is not e]) for e in errors]
        rows += of_situation
        if len(of_situation) > 1:
            rows.append(_average(situation, of_situation))
    return rows


def _make_row(errors: LeftOutErrors, others: Sequence[LeftOutErrors]) -> list[object]:
    log_error = errors.log_error
    relative = np.exp(-log_error) - 1.0
    short = np.abs(relative[errors.predicted_us * np.exp(log_error) < _SHORT_US])
    return [
        errors.left_out,
        errors.situation.value,
        len(relative),
        _mean_percent(log_error),
        100 * float(np.median(np.abs(relative))),
        100 * float(np.quantile(np.abs(relative), 0.9)),
        100 * float(np.exp(-np.mean(log_error)) - 1.0),
        100 * float(short.mean()) if len(short) else None,
        _probe(log_error, 3),
        _probe(log_error, 10),
        _find_held(errors, others),
    ]


def _average(situation: Situation, rows: Sequence[Sequence[object]]) -> list[object]:
    """Return the mean of rows, each thing left out counting the same."""
    means: list[object] = []
    for column in range(2, len(_COLUMNS)):
        values = [float(value) for row in rows if isinstance(value := row[column], int | float)]
        means.append(sum(values) / len(values) if values else None)
    means[0] = sum(n_rows for row in rows if isinstance(n_rows := row[2], int))
    return ["mean", situation.value, *means]


def _mean_percent(log_error: Column) -> float:
    return 100 * float(np.abs(np.exp(-log_error) - 1.0).mean())


def _probe(log_error: Column, n_probes: int) -> float | None:
    """Return the mean error after a level from so many rows, None for too few rows."""
    if len(log_error) < 2 * n_probes:
        return None
    random = np.random.default_rng(0)
    found = []
    for _ in range(_N_DRAWS):
        drawn = random.choice(len(log_error), n_probes, replace=False)
        rest = np.delete(log_error, drawn)
        found.append(_mean_percent(rest - fit_level("", log_error[drawn]).log_ratio))
    return float(np.mean(found))


def _find_held(errors: LeftOutErrors, others: Sequence[LeftOutErrors]) -> float | None:
    """Return the part of rows within the interval that the other things left out give, in percent.

    Where nothing else was left out, of one half of the rows in the interval of the other half.
    """
    if others:
        return _cover(errors, make_interval(others).find)
    even = np.arange(len(errors.log_error)) % 2 == 0
    return _cover(errors.select(~even), make_interval([errors.select(even)]).find)


def _cover(errors: LeftOutErrors, find: Callable[[Column], tuple[Column, Column]]) -> float:
    low, high = find(errors.predicted_us)
    return 100 * float(np.mean((errors.log_error >= low) & (errors.log_error <= high)))


if __name__ == "__main__":
    main()
