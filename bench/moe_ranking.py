"""Judge the ranking of `tune rank` against published lists and sweeps, and write docs/moe-ranking.md.

    python bench/moe_ranking.py [--fit]

The lists (288 shapes each on A100, A40 and H800) name the configurations within 1 % of the best of a sweep;
the sweep of traces/h100 has all times of 20 shapes. Figures of the tiles' times are fitted on half of the
shapes: those where the number of the model (sorted by experts, topk, hidden, intermediate) and that of the
batch add up to an even one, of the H100 every other shape; and on the times of the default configuration that
teach the operator model. `--fit` fits them again, and once without each GPU, in about two minutes of one
core, and prints what hwdb/tuning/fused_moe.toml holds; the codes of hwdb/tuning/fused_moe-chosen.csv come
from the same half.
"""

import argparse
import csv
import json
import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
from markdown import render_table
from msgspec import Struct
from msgspec.structs import astuple, replace
from numpy.typing import NDArray
from operator_data import pipeweave_moe

from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.gpu_selection import find_gpus
from analyzer.operators.expert_tiles import (
    TileLaunch,
    compute_tile_terms,
    list_tile_parameters,
    load_tile_figures,
)
from analyzer.operators.families.moe import FAMILY
from analyzer.operators.family import Parameters
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.tuning.chosen_codes import CHOSEN_COLUMNS, ChosenCodes, load_chosen_codes
from analyzer.tuning.fused_moe_space import (
    CODE_COLUMNS,
    CONFIG_COLUMNS,
    KERNEL,
    Integers,
    MoeShape,
    find_most_rows,
)
from analyzer.tuning.kernel_facts import load_shipped_facts
from analyzer.tuning.moe_ranking import compute_intervals, find_candidates
from analyzer.tuning.moe_time_model import Floats, MoeTimeModel, make_time_model

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "moe-ranking.md"
FITS = ROOT / "bench" / "splits" / "moe-ranking-fits.json"
DATA = ROOT.parent / "shared" / "data" / "pipeweave"
LISTS = {"a100-80gb-sxm": "A100-80GB_SXM", "a40": "A40", "h800-sxm": "H800"}
SWEEP_GPU = "h100-sxm"
_WITHIN = 1.0101
_SHAPE = ("M", "E", "topk", "H", "N")
_SWEEP_CONFIG = re.compile(r"/(\d+)x(\d+)x(\d+)_g(\d+)_w(\d+)_s(\d+)$")
CHOSEN = ROOT / "hwdb" / "tuning" / f"{KERNEL}-chosen.csv"
# Where fits begin.
_STARTS = {
    "dram_share": 1.05,
    "graphics_dram_share": 0.93,
    "short_row_share": 0.985,
    "middle_row_share": 1.02,
    "graphics_short_row_share": 0.94,
    "graphics_middle_row_share": 0.985,
    "group_cost": 0.006,
    "l2_share": 0.82,
    "request_sharing": 1.7,
    "warp_mma_efficiency": 1.1,
    "asynchronous_mma_efficiency": 0.9,
    "shared_share": 1.0,
    "load_cycles": 470.0,
    "cta_cycles": 2170.0,
    "tail_share": 0.036,
    "launch_us": 1.8,
    "sharpness": 5.8,
    "latency_sharpness": 1.8,
    "reused_share": 0.4,
}
# Of the fit: predicted time in which a weight falls by e, first to find the way, then as it counts; weights
# of the errors of best configurations' times and of the default one's; pull towards where the fit begins.
_TEMPERATURES, _TIME_WEIGHT, _DEFAULT_WEIGHT, _PULL = (0.012, 0.006), 12.0, 15.0, 0.08
_MAX_ERROR = 0.3
_SLOW, _NEAR = 1.3, 1.15  # over the best: known times that do not count, candidates that do
_TEACHING_STEP = 2  # every other shape of the teaching half is enough for so few figures


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

    def predict(self, parameters: Parameters) -> Floats:
        """Return the times of all candidates."""
        return self.model.predict(self.shape, self.configs, self.rows, parameters).time_us

    def narrow(self, chosen: ChosenCodes) -> "Case":
        """Return the case with the candidates that a ranking lists."""
        found = find_candidates(self.shape, self.model, chosen)
        listed = {tuple(each) for each in found.configs.tolist()}
        return self.select(np.array([tuple(each) in listed for each in self.configs.tolist()]))

    def select(self, kept: NDArray[np.bool_]) -> "Case":
        """Return the case with some of the candidates."""
        columns = {name: getattr(self, name)[kept] for name in ("configs", "rows", "known_us", "is_good")}
        return replace(self, **columns)


def make_model(gpu: str) -> MoeTimeModel:
    """Return the model of a GPU with the shipped figures."""
    found = find_gpus(gpu)[0]
    return make_time_model(found, load_shipped_facts(KERNEL, found.file.arch))


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


def score_model(cases: Sequence[Case], parameters: Parameters, chosen: ChosenCodes | None = None) -> Score:
    """Return what the model reaches, with candidates narrowed to what sweeps chose where given."""
    listed = cases if chosen is None else [case.narrow(chosen) for case in cases]
    times = [case.predict(parameters) for case in listed]
    return score(listed, [np.argsort(each, kind="stable") for each in times], times)


def collect_chosen(cases: Mapping[str, Sequence[Case]], *, without: str = "") -> ChosenCodes:
    """Return the codes among the best of the lists' teaching shapes, by the tallest tile of the shape."""
    found: dict[int, set[tuple[int, ...]]] = {}
    for gpu in LISTS:
        for case in cases[gpu] if gpu != without else ():
            if case.is_teaching or without:
                codes = case.configs[case.is_good][:, CODE_COLUMNS]
                found.setdefault(find_most_rows(case.shape), set()).update(map(tuple, codes.tolist()))
    return {rows: frozenset(codes) for rows, codes in found.items()}


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


class Pool(Struct, frozen=True, eq=False):
    """Candidates of many shapes on one GPU, one after the other, so that all take one evaluation."""

    hardware: OperatorHardware
    launch: TileLaunch
    case: Integers  # number of the case of each candidate
    is_good: NDArray[np.bool_]
    known_us: Floats  # NaN where not known, or too slow to count

    def compute_loss(self, parameters: Parameters, temperature: float) -> float:
        """Return the mean loss of the shapes: of the ranking, and of the times of the best."""
        terms = compute_tile_terms(self.launch, self.hardware, parameters)
        logs, n = np.log(terms.total_us), int(self.case[-1]) + 1
        least = np.full(n, np.inf)
        np.minimum.at(least, self.case, logs)
        weights = np.exp((least[self.case] - logs) / temperature)
        shares = np.bincount(self.case, weights * self.is_good, n) / np.bincount(self.case, weights, n)
        known = np.isfinite(self.known_us)
        errors = np.abs(logs[known] - np.log(self.known_us[known]))
        counts = np.bincount(self.case[known], minlength=n)
        sums = np.bincount(self.case[known], errors, n)
        means = np.minimum(sums[counts > 0] / counts[counts > 0], _MAX_ERROR)
        return float(-np.log(shares + 1e-4).mean() + _TIME_WEIGHT * means.mean())


def pool_cases(cases: Sequence[Case], start: Parameters) -> Pool:
    """Return the candidates of cases of one GPU, but for those that are nowhere near the best."""
    model, kept = cases[0].model, [_leave_out_slow(case, start) for case in cases]
    configs, rows, known_us = (
        np.concatenate([getattr(case, name) for case in kept]) for name in ("configs", "rows", "known_us")
    )
    counts = [len(case.configs) for case in kept]
    sizes = np.repeat(np.array([astuple(case.shape) for case in kept], dtype=np.float64), counts, axis=0)
    return Pool(
        hardware=model.hardware,
        launch=model.cut_tiles(sizes, configs, rows),
        case=np.repeat(np.arange(len(kept)), counts),
        is_good=np.concatenate([case.is_good for case in kept]),
        known_us=known_us,
    )


def _leave_out_slow(case: Case, parameters: Parameters) -> Case:
    times = case.predict(parameters)
    is_slow = case.known_us > _SLOW * case.best_us
    near = (times < _NEAR * times.min()) & ~is_slow
    return case.select(near | case.is_good | (np.isfinite(case.known_us) & ~is_slow))


def fit(cases: Mapping[str, Sequence[Case]]) -> dict[str, float]:
    """Return figures for a ranking that puts good configurations first and times that are right.

    The loss of a shape is minus the logarithm of the weight of its good configurations, of weights that fall
    by e for each 0.6 % of predicted time, plus the error of their times; to the loss of a GPU comes the error
    of the default configuration's times. Figures that leave their starting values pay for it. Each GPU counts
    alike.
    """
    from scipy.optimize import minimize

    ranges = list_tile_parameters()
    names = [each.name for each in ranges]
    low, high = (np.array([getattr(each, end) for each in ranges]) for end in ("low", "high"))
    first = (np.array([_STARTS[name] for name in names]) - low) / (high - low)
    pools = [pool_cases(each, _STARTS) for each in cases.values()]
    defaults = [part for part in pipeweave_moe.load_teaching(DATA.parent) if part.gpu in cases]

    def make(place: Floats) -> dict[str, float]:
        return dict(zip(names, (low + (high - low) * place).tolist(), strict=True))

    def compute_loss(place: Floats, temperature: float) -> float:
        figures = make(place)
        loss = np.mean([pool.compute_loss(figures, temperature) for pool in pools])
        error = np.mean([_find_default_error(part, figures) for part in defaults])
        return float(loss + _DEFAULT_WEIGHT * error + _PULL * ((place - first) ** 2).sum())

    place = first
    for temperature in _TEMPERATURES:
        found = minimize(
            compute_loss,
            place,
            args=(temperature,),
            method="Powell",
            bounds=[(0.0, 1.0)] * len(names),
            options={"xtol": 1e-2, "ftol": 1e-3},
        )
        place = found.x
        print(f"  loss {found.fun:.3f} after {found.nfev} evaluations", flush=True)
    return make(place)


def _find_default_error(measured: MeasuredBatch, figures: Parameters) -> float:
    """Return the mean error of log time of the default configuration."""
    hardware = read_operator_hardware(load_gpu(measured.gpu))
    terms = FAMILY.compute_terms(measured.batch, hardware, {**FAMILY.initial_parameters, **figures})
    return float(np.minimum(np.abs(np.log(terms.total_us / measured.time_us)), 0.5).mean())


def check_defaults(parameters: Parameters) -> Iterator[tuple[str, ...]]:
    """Yield for each GPU how predicted times of the default configuration stand to measured ones."""
    parts = pipeweave_moe.load_sample(DATA.parent)
    for part in parts:
        hardware = read_operator_hardware(load_gpu(part.gpu))
        terms = FAMILY.compute_terms(part.batch, hardware, {**FAMILY.initial_parameters, **parameters})
        ratio = terms.total_us / part.time_us
        low, median, high = np.quantile(ratio, (0.1, 0.5, 0.9))
        yield part.gpu, str(len(ratio)), f"{low:.2f}", f"{median:.2f}", f"{high:.2f}"


def check_intervals(
    cases: Mapping[str, list[Case]], fits: Mapping[str, Parameters]
) -> Iterator[tuple[str, ...]]:
    """Yield for each GPU the shares of times in their 80 % intervals: of best ones, and of whole sweeps."""
    for gpu, each in cases.items():
        held = [case for case in each if not case.is_teaching]
        yield f"{gpu}: other half", *_count_held(held, load_tile_figures().parameters, is_fitted=True)
        if gpu in fits:
            yield f"{gpu}: fitted without it", *_count_held(each, fits[gpu], is_fitted=False)


def _count_held(cases: Sequence[Case], parameters: Parameters, *, is_fitted: bool) -> tuple[str, str, str]:
    best, swept = [], list[bool]()
    for case in cases:
        known = np.isfinite(case.known_us)
        if not known.any():
            continue
        low, high = compute_intervals(case.predict(parameters), is_fitted=is_fitted)
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
    cases = {gpu: load_list_cases(gpu) for gpu in LISTS} | {SWEEP_GPU: load_sweep_cases()}
    if parser.parse_args().fit:
        write_fits(cases)
        write_chosen(collect_chosen(cases))
    text = render_page(cases, json.loads(FITS.read_text()))
    PAGE.write_text(text)
    print(text)


def write_fits(cases: Mapping[str, Sequence[Case]]) -> None:
    """Fit on the teaching half of all GPUs, and of all but each; keep the figures."""
    found = {}
    for left_out in ("", *LISTS):
        teaching = {
            gpu: [case for case in each if case.is_teaching and case.is_good.any()][::_TEACHING_STEP]
            for gpu, each in cases.items()
            if gpu != left_out and not (left_out == "h800-sxm" and gpu == SWEEP_GPU)
        }
        found[left_out] = fit(teaching)
        print(left_out or "all", {name: float(f"{value:.4g}") for name, value in found[left_out].items()})
        FITS.write_text(json.dumps(found, indent=1) + "\n")


def write_chosen(chosen: ChosenCodes) -> None:
    """Write the codes that sweeps chose."""
    with CHOSEN.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(CHOSEN_COLUMNS)
        writer.writerows((rows, *code) for rows, codes in sorted(chosen.items()) for code in sorted(codes))


_HEAD = ("ranking", "shapes", "first", "first 5", "first 10", "error of best", "loss of 1", "of 5", "of 10")


def render_page(cases: Mapping[str, list[Case]], fits: Mapping[str, Parameters]) -> str:
    """Return docs/moe-ranking.md."""
    rows, shipped = [], load_tile_figures().parameters
    for gpu, each in cases.items():
        held = [case for case in each if not case.is_teaching]
        taught = [case for case in each if case.is_teaching]
        rows.append(describe(f"{gpu}: model, other half", score_model(held, shipped, load_chosen_codes())))
        rows.append(describe(f"{gpu}: model, fitted half", score_model(taught, shipped, load_chosen_codes())))
        rows.append(describe(f"{gpu}: every code, other half", score_model(held, shipped)))
        if gpu in fits:
            chosen = collect_chosen(cases, without=gpu)
            rows.append(describe(f"{gpu}: model fitted without it", score_model(each, fits[gpu], chosen)))
        for name, order in (
            ("random", order_by_chance),
            ("rule of thumb", order_by_rule),
            ("SGLang default", order_by_default),
        ):
            rows.append(describe(f"{gpu}: {name}", score(held, [order(case) for case in held])))
    absolute = render_table(
        ("GPU", "rows", "lowest tenth", "median", "highest tenth"), list(check_defaults(shipped))
    )
    intervals = render_table(
        ("GPU", "shapes", "best configuration", "all configurations"), list(check_intervals(cases, fits))
    )
    return _PAGE.format(table=render_table(_HEAD, rows), absolute=absolute, intervals=intervals)


_PAGE = """# Ranking fused-MoE configurations with no GPU

Written by `python bench/moe_ranking.py` from `data/pipeweave/moe_tuning` (lists of all configurations within
1 % of the best of a sweep: 288 shapes each on A100, A40, H800) and the sweep of traces/h100 (all times of 20
shapes). `warplens tune rank` ranks 50 to 300 configurations of a shape from facts of compiled code: those
whose code was among the best of some shape with as many rows of an expert
(hwdb/tuning/fused_moe-chosen.csv); the whole space, `--every`, has some 350 to 1,700. Nothing of the shape is
measured.

*first*, *first 5*, *first 10*: shares of shapes with a configuration within 1 % of the best among so many of
the ranking. *error of best*: mean error of the predicted time of the best configuration. *loss*: time lost if
so many of the ranking's first are measured and the best of them taken, where all times are known.

{table}
The {n} figures of the tiles' times, which `warplens predict moe` begins with, are fitted on the *fitted
half*: shapes where the numbers of model and batch size add up to an even one (every other of them), of the
H100's sweep every other shape, and times of the default configuration. *every code*: the whole space. *fitted
without it*: on no shape of that GPU (for the H800 not of the H100 either), with the codes that the other
lists chose, judged on all shapes. The rule of thumb (rows just enough for an expert, K 128, N 128, three
stages, eight warps) was found by eye on these data.

The form of the model, and the values that fits begin from, were chosen while looking at rows of all these
GPUs: figures of GPUs never looked at may be lower.

## Intervals

Shares of measured times that lie in the 80 % intervals. Their widths were read off the halves that the fit
did not see; on GPUs that were not fitted they are half as wide again.

{intervals}
## The default configuration

Predicted over measured times of SGLang's configuration without tuning (`rows/moe.csv`), by the figures above,
before what the operator model learned of it (docs/operators.md). A third of the A40's rows are of a board
that throttled:

{absolute}""".replace("{n}", str(len(_STARTS)))


if __name__ == "__main__":
    main()
