"""Learn the weights of the hybrid model, and say how right it is on what did not teach it.

    python bench/hybrid_rows.py ROWS.npz && python bench/learn_hybrid.py ROWS.npz [--learner trees|mlp|both]

Teaching: the learning half of the measured kernels (bench/kernels/split.csv) and SynPerf's rows through the
production binaries. Each problem is left out in one of five folds (bench/splits/hybrid.csv, by hash of its
key), and each GPU in turn; these errors choose learner and share, and give the intervals. The judging half of
the measured kernels is looked at once, at the end. Suites whose source states no licence judge alone. Writes
hwdb/weights/hybrid-kernels.safetensors and its card.
"""

import argparse
import csv
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hybrid_rows import load_rows
from markdown import render_table
from numpy.typing import NDArray

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.fit_extra_trees import fit_extra_trees
from analyzer.learning.fit_mlp import fit_mlp
from analyzer.models.hybrid.features import STALLS
from analyzer.models.hybrid.weights import SHIPPED_NAME, HybridWeights, TaughtLaunches, save_hybrid_weights
from analyzer.models.learned.correction import Correction, ResidualInterval, Situation
from analyzer.operators.hardware_figures import compute_hardware_features, read_operator_hardware

ROOT = Path(__file__).resolve().parents[1]
SPLIT = ROOT / "bench" / "splits" / "hybrid.csv"
WEIGHTS = ROOT / "hwdb" / "weights" / f"{SHIPPED_NAME}.safetensors"
DATASET = "kernels measured by others (bench/kernels), SynPerf's rows by production binaries"
EVALUATION_ONLY_SUITES = ("report16", "learn_cuda_sm80")  # no licence: nothing of them is shipped
LEARNERS = ("trees", "mlp", "both")
N_FOLDS = 5
_SHARES = (0.25, 0.5, 0.75, 1.0)
_REACH, _N_NEEDED, _N_AROUND = (
    0.25,
    3,
    8,
)  # nearly all launches of a kernel lie so near those of other problems
_EDGES_US, _FEWEST_IN_BIN = (10.0, 50.0), 60
_COVERAGE = (0.1, 0.9)
_HELPED = 0.95  # of the error of `sm`: a suite whose error is larger is not corrected

Column = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Launches as columns; n of them."""

    suite: NDArray[np.str_]
    gpu: NDArray[np.str_]
    key: NDArray[np.str_]
    is_judge: Mask
    time_us: Column
    sm_us: Column
    is_inside_sm: Mask  # the measured time lies in the interval of `sm`
    features: Column  # [n, feature]
    hardware: Column  # [n, figure]

    def __len__(self) -> int:
        return len(self.gpu)

    @property
    def target(self) -> Column:
        """Logarithm of measured over predicted time."""
        return np.log(self.time_us / self.sm_us)

    def select(self, where: NDArray[Any]) -> "Rows":
        """Return the rows of a mask or of positions."""
        return Rows(**{name: column[where] for name, column in vars(self).items()})


def read_rows(paths: Sequence[Path]) -> Rows:
    """Return the counted rows of the files of `hybrid_rows.py`; a case that is in several counts once."""
    parts = [load_rows(path) for path in paths]
    columns = {
        name: np.concatenate([np.array(getattr(one, name)) for one in parts]) for name in vars(parts[0])
    }
    figures = {
        gpu: compute_hardware_features(read_operator_hardware(load_gpu(gpu))) for gpu in set(columns["gpu"])
    }
    rows = Rows(
        suite=columns["suite"],
        gpu=columns["gpu"],
        key=columns["key"],
        is_judge=columns["split"] == "judge",
        time_us=columns["time_us"],
        sm_us=columns["sm_us"],
        is_inside_sm=(columns["low_us"] <= columns["time_us"]) & (columns["time_us"] <= columns["high_us"]),
        features=columns["features"],
        hardware=np.array([figures[gpu] for gpu in columns["gpu"]]),
    )
    _, first = np.unique(columns["case"], return_index=True)
    is_first = np.isin(np.arange(len(rows)), first)
    may_teach = ~np.isin(rows.suite, EVALUATION_ONLY_SUITES)
    return rows.select(columns["counted"] & is_first & (may_teach | rows.is_judge))


def read_folds(rows: Rows) -> NDArray[np.int64]:
    """Return the fold of each row from bench/splits/hybrid.csv; keys that it lacks are added."""
    found: dict[str, int] = {}
    if SPLIT.exists():
        with SPLIT.open(newline="", encoding="utf-8") as file:
            found = {line["key"]: int(line["fold"]) for line in csv.DictReader(file)}
    missing = [key for key in dict.fromkeys(rows.key.tolist()) if key not in found]
    found |= {key: int(hashlib.sha256(key.encode()).hexdigest(), 16) % N_FOLDS for key in missing}
    if missing:
        SPLIT.parent.mkdir(exist_ok=True)
        with SPLIT.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("key", "fold"))
            writer.writerows(sorted(found.items()))
    return np.array([found[key] for key in rows.key.tolist()])


def fit(rows: Rows, situation: Situation, learner: str, share: float = 1.0) -> Correction:
    """Return a correction learned from rows; for GPUs that taught nothing, all GPUs count the same."""
    is_known = situation is Situation.KNOWN
    inputs = np.hstack([rows.features, rows.hardware]) if is_known else rows.features
    weights = np.ones(len(rows))
    if not is_known:
        names, index = np.unique(rows.gpu, return_inverse=True)
        weights = 1.0 / np.sqrt(np.bincount(index, minlength=len(names))[index])
        weights /= weights.mean()
    trees = mlp = None
    if learner != "mlp":
        leaf = 2 if is_known else 4
        trees = fit_extra_trees(
            inputs, rows.target, weights, n_trees=120, depth=8, min_leaf_rows=leaf, seed=0
        )
    if learner != "trees":
        decay = 0.03 if is_known else 0.3
        mlp = fit_mlp(
            inputs,
            rows.target,
            weights,
            n_members=5,
            hidden=(32, 32),
            n_steps=600,
            batch_rows=160,
            weight_decay=decay,
            seed=0,
        )
    return Correction(trees, mlp, share, sees_hardware=is_known)


def make_taught(rows: Rows) -> TaughtLaunches:
    """Return what says which launches are near those that taught."""
    gpus = tuple(sorted(set(rows.gpu.tolist())))
    index = np.array([gpus.index(gpu) for gpu in rows.gpu.tolist()], dtype=np.int16)
    stacks = rows.features[:, : len(STALLS)].astype(np.float32)
    return TaughtLaunches(stacks, index, gpus, _REACH, _N_NEEDED, _N_AROUND)


def find_situations(taught: TaughtLaunches, rows: Rows) -> NDArray[np.object_]:
    """Return the situation of each row, None where too little taught."""
    pairs = zip(rows.features, rows.gpu.tolist(), strict=True)
    return np.array([taught.find_situation(row, gpu) for row, gpu in pairs], dtype=object)


@dataclass(frozen=True)
class LeftOut:
    """Corrections of rows by what did not see them, by learner; rows out of reach have none."""

    rows: Rows
    is_in_reach: Mask
    by_learner: Mapping[str, Column]  # in log time, share 1

    def correct(self, learner: str, share: float) -> Column:
        """Return log(measured / corrected time)."""
        return self.rows.target - share * np.where(self.is_in_reach, self.by_learner[learner], 0.0)


def leave_out(
    rows: Rows, situation: Situation, groups: NDArray[Any], judged: Rows | None = None
) -> tuple[LeftOut, LeftOut]:
    """Leave each group of rows out in turn; of `judged` rows, a group is that of the same GPU.

    Returns what holds for the rows themselves, and for `judged` rows.
    """
    asked = rows if judged is None else judged
    own, other = _make_empty(rows), _make_empty(asked)
    for group in np.unique(groups):
        held = groups == group
        teaching, taught = rows.select(~held), make_taught(rows.select(~held))
        pairs = [(own, rows, held)]
        if judged is not None:
            pairs.append((other, judged, judged.gpu == group))
        corrections = {name: fit(teaching, situation, name) for name in ("trees", "mlp")}
        for table, source, where in pairs:
            if not where.any():
                continue
            part = source.select(where)
            found = find_situations(taught, part)
            table["reach"][where] = (found != None) if situation is Situation.UNSEEN else found == situation  # noqa: E711
            inputs = (
                np.hstack([part.features, part.hardware]) if situation is Situation.KNOWN else part.features
            )
            for name, correction in corrections.items():
                table[name][where] = correction.predict(inputs)
    return _pack(rows, own), _pack(asked, other)


def _make_empty(rows: Rows) -> dict[str, Column]:
    return {name: np.zeros(len(rows)) for name in ("reach", "trees", "mlp")}


def _pack(rows: Rows, table: Mapping[str, Column]) -> LeftOut:
    both = (table["trees"] + table["mlp"]) / 2.0
    by_learner = {"trees": table["trees"], "mlp": table["mlp"], "both": both}
    return LeftOut(rows, table["reach"] > 0, by_learner)


def measure_error(log_error: Column) -> float:
    """Return the mean absolute error of predictions whose log(measured / predicted) is given."""
    return float(np.abs(np.exp(-log_error) - 1.0).mean()) if len(log_error) else 0.0


def choose(left_out: LeftOut, learners: Sequence[str]) -> tuple[str, float]:
    """Return the learner and the share with the least error, each suite and GPU counting the same."""
    groups = np.char.add(left_out.rows.suite, left_out.rows.gpu)

    def measure(learner: str, share: float) -> float:
        errors = left_out.correct(learner, share)
        return float(np.mean([measure_error(errors[groups == group]) for group in np.unique(groups)]))

    return min(((name, share) for name in learners for share in _SHARES), key=lambda pair: measure(*pair))


def make_interval(left_out: LeftOut, learner: str, share: float) -> ResidualInterval:
    """Return the 80 % interval of rows within reach that were left out, by predicted time."""
    errors = left_out.correct(learner, share)[left_out.is_in_reach]
    if not len(errors):
        raise SystemExit("no row is within reach of what was not left out with it")
    predicted = left_out.rows.time_us[left_out.is_in_reach] / np.exp(errors)
    bins = np.searchsorted(np.array(_EDGES_US), predicted, side="right")
    low, high = [], []
    for number in range(len(_EDGES_US) + 1):
        inside = errors[bins == number] if (bins == number).sum() >= _FEWEST_IN_BIN else errors
        ends = np.quantile(inside, _COVERAGE)
        low.append(float(ends[0]))
        high.append(float(ends[1]))
    return ResidualInterval(_EDGES_US, tuple(low), tuple(high))


def find_helped(left_out: LeftOut, learner: str, share: float) -> Mask:
    """Return the rows of suites that the correction helped where it had not seen the problem, [n].

    The others teach no range: launches like theirs keep the time of `sm`.
    """
    rows, errors = left_out.rows, left_out.correct(learner, share)
    helped = [
        suite
        for suite in np.unique(rows.suite)
        if measure_error(errors[rows.suite == suite])
        < _HELPED * measure_error(rows.target[rows.suite == suite])
    ]
    return np.isin(rows.suite, helped)


def correct_as_shipped(weights: HybridWeights, rows: Rows) -> LeftOut:
    """Return the corrections that the finished weights give for rows that did not teach them."""
    found = find_situations(weights.taught, rows)
    is_known = np.array([one is Situation.KNOWN for one in found])
    is_unseen = np.array([one is Situation.UNSEEN for one in found])
    value = np.where(
        is_known,
        weights.known.predict(np.hstack([rows.features, rows.hardware])),
        np.where(is_unseen, weights.unseen.predict(rows.features), 0.0),
    )
    return LeftOut(rows, is_known | is_unseen, {"both": value})


_COLUMNS = (
    "what",
    "suite",
    "GPU",
    "rows",
    "sm",
    "hybrid",
    "sm median",
    "hybrid median",
    "in reach",
    "inside",
)


def make_lines(
    what: str, left_out: LeftOut, learner: str, share: float, interval: ResidualInterval, *, by_gpu: bool
) -> Iterator[tuple[str, ...]]:
    """Yield lines of the table: by suite, and by GPU of each suite where asked for; then all."""
    rows, errors = left_out.rows, left_out.correct(learner, share)
    if not len(rows):
        return
    low, high = interval.find(rows.time_us / np.exp(errors))
    inside = np.where(
        left_out.is_in_reach,
        (np.minimum(low, 0) <= errors) & (errors <= np.maximum(high, 0)),
        rows.is_inside_sm,
    )
    groups: list[tuple[str, str, Mask]] = []
    for suite in dict.fromkeys(rows.suite.tolist()):
        own = rows.suite == suite
        if by_gpu:
            groups += [(suite, gpu, own & (rows.gpu == gpu)) for gpu in dict.fromkeys(rows.gpu[own].tolist())]
        groups.append((suite, "all", own))
    groups.append(("all", "all", np.ones(len(rows), dtype=bool)))
    for suite, gpu, where in groups:
        before, after = rows.target[where], errors[where]
        yield (
            *(
                what,
                suite,
                gpu,
                str(where.sum()),
                f"{measure_error(before):.1%}",
                f"{measure_error(after):.1%}",
            ),
            *(f"{_median_error(before):.1%}", f"{_median_error(after):.1%}"),
            *(f"{left_out.is_in_reach[where].mean():.0%}", f"{inside[where].mean():.0%}"),
        )


def _median_error(log_error: Column) -> float:
    return float(np.median(np.abs(np.exp(-log_error) - 1.0)))


def write_card(
    lines: Sequence[tuple[str, ...]], rows: Rows, choices: Mapping[str, object], path: Path
) -> None:
    """Write the card: data, choices, and errors on what was left out."""
    text = [
        f"# Card of {WEIGHTS.name}, written by bench/learn_hybrid.py.",
        f'data = "{DATASET}: ../shared/data/measured, zksainx/pipeweave @55e03178"',
        'licence = "Apache-2.0 (pipeweave); measured kernels: see ../shared/data/measured/README.md"',
        'split = "problems in five folds (bench/splits/hybrid.csv); each GPU left out in turn; measured '
        'kernels: bench/kernels/split.csv, whose judging half taught nothing"',
        *(f'{name} = "{value}"' for name, value in choices.items()),
        "",
        "[rows]",
        *(f'"{gpu}" = {int((rows.gpu == gpu).sum())}' for gpu in sorted(set(rows.gpu.tolist()))),
        "",
    ]
    for line in lines:
        names = (
            "what",
            "suite",
            "gpu",
            "rows",
            "sm",
            "hybrid",
            "sm_median",
            "hybrid_median",
            "in_reach",
            "inside",
        )
        text += ["[[errors]]", *(f'{name} = "{cell}"' for name, cell in zip(names, line, strict=True)), ""]
    path.write_text("\n".join(text), encoding="utf-8")


def main() -> None:
    """Learn, print the tables, write the weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="+", type=Path, help="files of bench/hybrid_rows.py")
    parser.add_argument("--learner", choices=LEARNERS, help="the better one where not given")
    parser.add_argument("--output", type=Path, default=WEIGHTS)
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    rows = read_rows(arguments.rows)
    learners = (arguments.learner,) if arguments.learner else LEARNERS
    teaching, judged = rows.select(~rows.is_judge), rows.select(rows.is_judge)
    folds, _ = leave_out(teaching, Situation.KNOWN, read_folds(rows)[~rows.is_judge])
    known, known_share = choose(folds, learners)
    is_helped = find_helped(folds, known, known_share)
    folds = LeftOut(teaching, folds.is_in_reach & is_helped, folds.by_learner)
    print(f"known GPUs: {known}, share {known_share}", file=sys.stderr)
    helping = teaching.select(is_helped)
    by_gpu, judged_by_gpu = leave_out(helping, Situation.UNSEEN, helping.gpu, judged)
    unseen, unseen_share = choose(by_gpu, learners)
    print(f"other GPUs: {unseen}, share {unseen_share}", file=sys.stderr)
    intervals = {
        Situation.KNOWN: make_interval(folds, known, known_share),
        Situation.UNSEEN: make_interval(by_gpu, unseen, unseen_share),
    }
    intervals[Situation.SIBLING] = intervals[Situation.UNSEEN]
    weights = HybridWeights(
        DATASET,
        fit(teaching, Situation.KNOWN, known, known_share),
        fit(helping, Situation.UNSEEN, unseen, unseen_share),
        intervals,
        make_taught(helping),
    )
    save_hybrid_weights(weights, arguments.output)
    judging = correct_as_shipped(weights, judged)
    known_interval, unseen_interval = intervals[Situation.KNOWN], intervals[Situation.UNSEEN]
    lines = [
        *make_lines("problem left out", folds, known, known_share, known_interval, by_gpu=True),
        *make_lines("judging half", judging, "both", 1.0, known_interval, by_gpu=True),
        *make_lines("GPU left out", by_gpu, unseen, unseen_share, unseen_interval, by_gpu=True),
        *make_lines(
            "GPU left out, judging half", judged_by_gpu, unseen, unseen_share, unseen_interval, by_gpu=True
        ),
    ]
    print(render_table(_COLUMNS, lines))
    choices = {"known": f"{known} x {known_share}", "unseen": f"{unseen} x {unseen_share}"}
    write_card(lines, teaching, choices, arguments.output.with_suffix(".toml"))


if __name__ == "__main__":
    main()
