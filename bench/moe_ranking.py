"""Judge the ranking of `tune rank` against published lists and sweeps, and write docs/moe-ranking.md.

    python bench/moe_ranking.py [--fit]

The lists (288 shapes each on A100, A40 and H800) name the configurations within 1 % of the best of a sweep;
the sweep of traces/h100 has all times of 20 shapes. Constants of the model are fitted on half of the shapes:
those where the number of the model (sorted by experts, topk, hidden, intermediate) and that of the batch add
up to an even one, of the H100 every other shape. `--fit` fits them again, and once without each GPU, in about
three minutes of one core; without it the figures of the constants in the code are shown.
"""

import argparse
import csv
import json
import lzma
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
from markdown import render_table
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from analyzer.hardware.gpu_selection import find_gpus
from analyzer.tuning.fused_moe_space import CONFIG_COLUMNS, KERNEL, Integers, MoeShape
from analyzer.tuning.kernel_facts import load_shipped_facts
from analyzer.tuning.moe_figures import MoeFigures, load_moe_figures
from analyzer.tuning.moe_ranking import compute_intervals, find_candidates
from analyzer.tuning.moe_time_model import Floats, MoeTimeModel

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "moe-ranking.md"
FITS = ROOT / "bench" / "splits" / "moe-ranking-fits.json"
DATA = ROOT.parent / "shared" / "data" / "pipeweave"
LISTS = {"a100-80gb-sxm": "A100-80GB_SXM", "a40": "A40", "h800-sxm": "H800"}
SWEEP_GPU = "h100-sxm"
_ROW_GPUS = {
    "A100-80GB SXM": "a100-80gb-sxm", "A40": "a40", "H800": "h800-sxm",
}  # fmt: skip
_WITHIN = 1.0101
_SHAPE = ("M", "E", "topk", "H", "N")
_SWEEP_CONFIG = re.compile(r"/(\d+)x(\d+)x(\d+)_g(\d+)_w(\d+)_s(\d+)$")
_TEMPERATURE, _PRIOR_WIDTH, _TIME_WEIGHT = 0.006, 0.35, 12.0
_MAX_ERROR = 0.3
# Where fits begin, and what they are held to: read off single rows, before any fit.
_STARTS = {
    "hbm_efficiency": 0.95,
    "gddr_efficiency": 0.885,
    "hbm_piece_64": 0.67,
    "hbm_piece_128": 0.98,
    "hbm_piece_256": 1.01,
    "gddr_piece_64": 0.93,
    "gddr_piece_128": 0.97,
    "gddr_piece_256": 0.98,
    "queue": 0.3,
    "held_share": 1.0,
    "group_cost": 0.006,
    "drain_cost": 0.03,
    "l2_efficiency": 0.95,
    "warp_mma_efficiency": 0.93,
    "warpgroup_mma_efficiency": 0.95,
    "exposed_cycles": 400.0,
    "load_cycles": 450.0,
    "cta_cycles": 2300.0,
    "spread": 0.04,
    "launch_us": 1.9,
    "norm": 4.0,
    "latency_norm": 2.7,
}
START = replace(load_moe_figures(), **_STARTS)
_TEACHING_STEP = 3  # every third shape of the teaching half is enough for so few constants


class Case(Struct, frozen=True, eq=False):
    """One shape on one GPU: candidates with the times that are known."""

    shape: MoeShape
    model: MoeTimeModel
    configs: Integers
    rows: Integers
    known_us: Floats  # NaN where not known
    is_good: NDArray[np.bool_]  # within 1 % of the best
    best_us: float
    is_whole_sweep: bool
    is_teaching: bool

    def predict(self, constants: MoeFigures) -> Floats:
        """Return the times of all candidates."""
        return self.model.set_figures(constants).predict(self.shape, self.configs, self.rows).time_us


def make_model(gpu: str) -> MoeTimeModel:
    """Return the model of a GPU with the shipped figures."""
    found = find_gpus(gpu)[0]
    return MoeTimeModel(found, load_shipped_facts(KERNEL, found.file.arch), load_moe_figures())


def make_case(
    shape: MoeShape, model: MoeTimeModel, known: dict[tuple[int, ...], float], is_teaching: bool, whole: bool
) -> Case:
    """Return a shape with its candidates: all that can run, of a whole sweep those that were timed."""
    candidates = find_candidates(shape, model)
    configs, rows = candidates.configs, candidates.rows
    known_us = np.array([known.get(tuple(each), np.nan) for each in configs.tolist()])
    if whole:
        timed = np.isfinite(known_us)
        configs, rows, known_us = configs[timed], rows[timed], known_us[timed]
    best = min(known.values())
    return Case(shape, model, configs, rows, known_us, known_us <= _WITHIN * best, best, whole, is_teaching)


def load_list_cases(gpu: str) -> list[Case]:
    """Return all shapes of the lists of a GPU."""
    model = make_model(gpu)
    known: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    for part in ("within_1_percent", "best_three"):
        for record in parquet.read_table(DATA / "moe_tuning" / f"{part}_{LISTS[gpu]}.parquet").to_pylist():
            key = tuple(record[name] for name in _SHAPE)
            known.setdefault(key, {})[tuple(record[name] for name in CONFIG_COLUMNS)] = record["time_us"]
    models, batches = sorted({key[1:] for key in known}), sorted({key[0] for key in known})
    return [
        make_case(
            MoeShape(*key), model, times, (models.index(key[1:]) + batches.index(key[0])) % 2 == 0, False
        )
        for key, times in sorted(known.items())
    ]


def load_sweep_cases() -> list[Case]:
    """Return the shapes of the H100's sweep."""
    model, known = make_model(SWEEP_GPU), dict[tuple[int, ...], dict[tuple[int, ...], float]]()
    with lzma.open(ROOT / "traces" / "h100" / "sweep.jsonl.xz", "rt") as stream:
        for line in stream:
            record = json.loads(line)
            match = _SWEEP_CONFIG.search(record["case_id"])
            if not record["case_id"].startswith("moe/") or record["status"] != "ok" or match is None:
                continue
            work = record["work"]
            key = (work["T"], work["E"], work["topk"], work["K"], work["N"] // 2)
            known.setdefault(key, {})[tuple(map(int, match.groups()))] = record["time_us_median"]
    return [
        make_case(MoeShape(*key), model, times, number % 2 == 0, True)
        for number, (key, times) in enumerate(sorted(known.items()))
    ]


class Score(Struct, frozen=True):
    """What a ranking reaches on some shapes."""

    n: int
    first: float
    five: float
    ten: float
    best_time_error: float  # mean, of the time of the best configuration
    losses: tuple[float, ...] = ()  # of the best among the first 1, 5 and 10, where all times are known


def score(cases: Sequence[Case], orders: Sequence[Integers], times: Sequence[Floats] | None = None) -> Score:
    """Return the shares of shapes with a good configuration among the first, and errors and losses."""
    places, errors, losses = [], [], []
    for number, (case, order) in enumerate(zip(cases, orders, strict=True)):
        good = np.flatnonzero(case.is_good[order])
        places.append(good[0] if len(good) else len(order))
        if times is not None and np.isfinite(case.known_us).any():
            best = int(np.nanargmin(case.known_us))
            errors.append(abs(times[number][best] / case.known_us[best] - 1.0))
        if case.is_whole_sweep:
            losses.append([case.known_us[order[:count]].min() / case.best_us - 1.0 for count in (1, 5, 10)])
    found = np.array(places)
    return Score(
        n=len(cases),
        first=float((found < 1).mean()),
        five=float((found < 5).mean()),
        ten=float((found < 10).mean()),
        best_time_error=float(np.mean(errors)) if errors else float("nan"),
        losses=tuple(np.mean(losses, axis=0).tolist()) if losses else (),
    )


def score_model(cases: Sequence[Case], constants: MoeFigures) -> Score:
    """Return what the model reaches."""
    times = [case.predict(constants) for case in cases]
    return score(cases, [np.argsort(each, kind="stable") for each in times], times)


def order_by_rule(case: Case) -> Integers:
    """Order by the rule of thumb: rows just enough for an expert, K 128, N 128, three stages, eight warps."""
    wanted = np.array([min(128, max(16, 1 << (case.shape.max_expert_rows - 1).bit_length())), 128, 128])
    off = np.abs(np.log2(case.configs[:, :3] / wanted)).sum(axis=1)
    off += np.abs(case.configs[:, 5] - 3) + np.abs(np.log2(case.configs[:, 4] / 8.0))
    return np.argsort(off + 0.01 * np.log2(case.configs[:, 3]), kind="stable")


def order_by_default(case: Case) -> Integers:
    """Put what SGLang runs without a tuning file first, others behind by distance from it."""
    few = case.shape.tokens <= case.shape.experts
    wanted = np.array([16, 32, 64, 1, 4, 3] if few else [64, 64, 32, 8, 4, 3])
    return np.argsort(np.abs(np.log2(case.configs / wanted)).sum(axis=1), kind="stable")


def order_by_chance(case: Case) -> Integers:
    """Order at random, alike in each run."""
    seed = (case.shape.tokens, case.shape.hidden, case.shape.intermediate, case.shape.topk)
    return np.random.default_rng(seed).permutation(len(case.configs))


def fit(cases: Sequence[Case], start: MoeFigures, n_evaluations: int) -> MoeFigures:
    """Return constants for a ranking that puts good configurations first and times that are right.

    The loss of a shape is minus the logarithm of the weight of its good configurations, of weights that fall
    by e for each 0.6 % of predicted time, plus the error of their times; constants that leave their
    starting values pay for it, as by a normal prior of 35 %. Each GPU counts alike.
    """
    from scipy.optimize import minimize

    names = list(_STARTS)
    first = np.array([getattr(start, name) for name in names])
    by_gpu: dict[str, list[Case]] = {}
    for case in cases:
        if case.is_good.any():
            by_gpu.setdefault(case.model.gpu.key, []).append(_narrow(case, start))

    def make(shift: Floats) -> MoeFigures:
        values = first * np.exp(shift)
        return replace(start, **dict(zip(names, values.tolist(), strict=True)))

    def compute_loss(shift: Floats) -> float:
        constants, total = make(np.clip(shift, -2.0, 2.0)), 0.0
        for each in by_gpu.values():
            total += float(np.mean([_compute_case_loss(case, constants) for case in each]))
        return total / len(by_gpu) + float((shift**2).sum()) / (2 * _PRIOR_WIDTH**2) * 0.05

    origin = np.zeros(len(names))
    found = minimize(
        compute_loss,
        origin,
        method="L-BFGS-B",
        bounds=[(-1.0, 1.0)] * len(names),
        options={"maxfun": n_evaluations, "eps": 2e-3},
    )
    print(f"  loss {compute_loss(origin):.3f} -> {found.fun:.3f}", flush=True)
    return make(found.x)


def _narrow(case: Case, constants: MoeFigures) -> Case:
    """Leave out candidates that are nowhere near the best."""
    times = case.predict(constants)
    kept = (times < 1.12 * times.min()) | np.isfinite(case.known_us) & ~(case.known_us > 1.3 * case.best_us)
    return replace(
        case, configs=case.configs[kept], rows=case.rows[kept], known_us=case.known_us[kept],
        is_good=case.is_good[kept],
    )  # fmt: skip


def _compute_case_loss(case: Case, constants: MoeFigures) -> float:
    logs = np.log(case.predict(constants))
    weights = np.exp((logs.min() - logs) / _TEMPERATURE)
    share = weights[case.is_good].sum() / weights.sum()
    known = np.isfinite(case.known_us) & (case.known_us < 1.3 * case.best_us)
    errors = np.abs(logs[known] - np.log(case.known_us[known]))
    return float(-np.log(share + 1e-4) + _TIME_WEIGHT * min(float(np.mean(errors)), _MAX_ERROR))


def check_rows(constants: MoeFigures) -> Iterator[tuple[str, ...]]:
    """Yield for each GPU of rows/moe.csv how its times stand to the predicted best ones."""
    ratios: dict[str, list[float]] = {}
    models = {name: make_model(key).set_figures(constants) for name, key in _ROW_GPUS.items()}
    with open(DATA / "rows" / "moe.csv", newline="") as stream:
        for record in csv.DictReader(stream):
            if record["gpu"] in models:
                model, shape = models[record["gpu"]], MoeShape(*(int(record[column]) for column in _SHAPE))
                candidates = find_candidates(shape, model)
                times = model.predict(shape, candidates.configs, candidates.rows).time_us
                ratios.setdefault(record["gpu"], []).append(float(record["time_us"]) / float(times.min()))
    for name, each in sorted(ratios.items()):
        low, median, high = np.quantile(each, (0.1, 0.5, 0.9))
        yield name, str(len(each)), f"{low:.2f}", f"{median:.2f}", f"{high:.2f}"


def check_intervals(cases: dict[str, list[Case]], fits: dict[str, MoeFigures]) -> Iterator[tuple[str, ...]]:
    """Yield for each GPU the shares of times in their 80 % intervals: of best ones, and of whole sweeps."""
    for gpu, each in cases.items():
        held = [case for case in each if not case.is_teaching]
        yield f"{gpu}: other half", *_count_held(held, load_moe_figures(), is_fitted=True)
        if gpu in fits:
            yield f"{gpu}: fitted without it", *_count_held(each, fits[gpu], is_fitted=False)


def _count_held(cases: Sequence[Case], constants: MoeFigures, *, is_fitted: bool) -> tuple[str, str, str]:
    best, swept = [], list[bool]()
    for case in cases:
        known = np.isfinite(case.known_us)
        if not known.any():
            continue
        low, high = compute_intervals(case.predict(constants), is_fitted=is_fitted)
        is_held = (low <= case.known_us) & (case.known_us <= high)
        best.append(is_held[int(np.nanargmin(case.known_us))])
        swept += is_held[known].tolist() if case.is_whole_sweep else []
    return f"{len(best)}", f"{np.mean(best):.0%}", f"{np.mean(swept):.0%}" if swept else ""


def describe(name: str, found: Score) -> tuple[str, ...]:
    """Return a row of the table."""
    error = "" if np.isnan(found.best_time_error) else f"{found.best_time_error:.1%}"
    losses = [f"{each:.1%}" for each in found.losses] or ["", "", ""]
    return name, f"{found.n}", f"{found.first:.0%}", f"{found.five:.0%}", f"{found.ten:.0%}", error, *losses


def main() -> None:
    """Fit where asked, score, write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--evaluations", type=int, default=700)
    given = parser.parse_args()
    cases = {gpu: load_list_cases(gpu) for gpu in LISTS} | {SWEEP_GPU: load_sweep_cases()}
    if given.fit:
        write_fits(cases, given.evaluations)
    fits = (
        {name: replace(load_moe_figures(), **each) for name, each in json.loads(FITS.read_text()).items()}
        if FITS.exists()
        else {}
    )
    text = render_page(cases, fits)
    PAGE.write_text(text)
    print(text)


def write_fits(cases: dict[str, list[Case]], n_evaluations: int) -> None:
    """Fit on the teaching half of all GPUs, and of all but each; keep the constants."""
    found = {}
    for left_out in ("", *LISTS):
        teaching = [
            case
            for gpu, each in cases.items()
            for case in each
            if case.is_teaching and gpu != left_out and not (left_out == "h800-sxm" and gpu == SWEEP_GPU)
        ]
        found[left_out] = asdict(fit(teaching[::_TEACHING_STEP], START, n_evaluations))
        print(
            left_out or "all", {name: round(value, 4) for name, value in found[left_out].items()}, flush=True
        )
        FITS.write_text(json.dumps(found, indent=1) + "\n")


_HEAD = ("ranking", "shapes", "first", "first 5", "first 10", "error of best", "loss of 1", "of 5", "of 10")


def render_page(cases: dict[str, list[Case]], fits: dict[str, MoeFigures]) -> str:
    """Return docs/moe-ranking.md."""
    rows = []
    for gpu, each in cases.items():
        held = [case for case in each if not case.is_teaching]
        taught = [case for case in each if case.is_teaching]
        rows.append(describe(f"{gpu}: model, other half", score_model(held, load_moe_figures())))
        rows.append(describe(f"{gpu}: model, fitted half", score_model(taught, load_moe_figures())))
        if gpu in fits:
            rows.append(describe(f"{gpu}: model fitted without it", score_model(each, fits[gpu])))
        for name, order in (
            ("random", order_by_chance),
            ("rule of thumb", order_by_rule),
            ("SGLang default", order_by_default),
        ):
            rows.append(describe(f"{gpu}: {name}", score(held, [order(case) for case in held])))
    absolute = render_table(
        ("GPU", "rows", "lowest tenth", "median", "highest tenth"), list(check_rows(load_moe_figures()))
    )
    intervals = render_table(
        ("GPU", "shapes", "best configuration", "all configurations"), list(check_intervals(cases, fits))
    )
    return _PAGE.format(table=render_table(_HEAD, rows), absolute=absolute, intervals=intervals)


_PAGE = """# Ranking fused-MoE configurations with no GPU

Written by `python bench/moe_ranking.py` from `data/pipeweave/moe_tuning` (lists of all configurations within
1 % of the best of a sweep: 288 shapes each on A100, A40, H800) and the sweep of traces/h100 (all times of 20
shapes). `warplens tune rank` ranks the whole space, some 350 to 1,700 configurations of a shape, from facts
of compiled code; nothing of the shape is measured.

*first*, *first 5*, *first 10*: shares of shapes with a configuration within 1 % of the best among so many of
the ranking. *error of best*: mean error of the predicted time of the best configuration. *loss*: time lost if
so many of the ranking's first are measured and the best of them taken, where all times are known.

{table}
The model's {n} constants are fitted on the *fitted half*: shapes where the numbers of model and batch size
add up to an even one (every third of them), and of the H100's sweep every other shape. *fitted without it*:
on no shape of that GPU (for the H800 not of the H100 either), judged on all shapes. The rule of thumb (rows
just enough for an expert, K 128, N 128, three stages, eight warps) was found by eye on these data.

The form of the model, and the values that fits begin from, were chosen while looking at rows of all these
GPUs: figures of GPUs never looked at may be lower.

## Intervals

Shares of measured times that lie in the 80 % intervals. Their widths were read off the halves that the fit
did not see; on GPUs that were not fitted they are half as wide again, which is assumed.

{intervals}
## Against times of other launches

`rows/moe.csv` has times of SGLang's configuration without tuning, which it does not name. Over the time that
the ranking predicts of its first (1 where that configuration was as good as the best; none was fitted):

{absolute}""".replace("{n}", str(len(_STARTS)))


if __name__ == "__main__":
    main()
