"""Ranks the configurations of a fused mixture-of-experts product with no profile and no GPU.

All configurations of the space are enumerated, those that cannot run or are mostly padding are left out and
counted by reason, and the others get the time of `moe_time_model`. Measured times stand as they are, and the
predictions of the same tile are scaled by what its measured ones are off, those of other tiles by what all
are.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu import Gpu
from analyzer.operators.expert_tiles import load_tile_figures
from analyzer.report.tune_schema import RankedConfigEntry, TuneRankReport
from analyzer.text.csv_table import read_csv_table
from analyzer.text.errors import HardwareError, InputError
from analyzer.tuning.chosen_codes import ChosenCodes, find_chosen, load_chosen_codes
from analyzer.tuning.fused_moe_space import (
    CODE_COLUMNS,
    CONFIG_COLUMNS,
    KERNEL,
    MAX_THREAD_SUMS,
    Integers,
    MoeShape,
    check_shape,
    count_stage_bytes,
    find_most_rows,
    list_configs,
)
from analyzer.tuning.kernel_facts import KernelFacts, load_shipped_facts
from analyzer.tuning.moe_time_model import BOUNDS, Floats, MoeTimeModel, MoeTimes, make_time_model
from analyzer.version import __version__

_PADDING = "taller than the padded rows of an expert"
_NO_FACTS = "not compiled"
_NEVER_CHOSEN = "within 1 % of the best in no measured sweep"

_PREDICTED, _MEASURED = "predicted", "measured"
_MEASURED_HINT = f"columns: {', '.join(CONFIG_COLUMNS)}, time_us, and the shape's where there are several"
_SHAPE_COLUMNS = ("M", "E", "topk", "H", "N")
_ASSUMPTIONS = (
    "balanced routing: slot i of M * topk goes to expert i modulo all",
    "the launch is repeated with the same data, which stay in the L2 where they fit",
    "first product of the layer (w13), output 2 * intermediate wide, kernel time without launch gap",
)


_KNOWN_ERROR = "times of best configurations: off by 2 to 8 % in the mean on GPUs of the fit, as this is"
_UNKNOWN_ERROR = (
    "the model was fitted on {}, not on this GPU: with each left out in turn, times of "
    "best configurations were off by 4 to 9 % in the mean, and one of the first ten was within 1 % of the "
    "best for 64 to 81 % of the shapes"
)

# 80 % intervals, as logarithms of measured over predicted time: of predictions within a tenth of the fastest,
# and of the others, which the tail of slow configurations widens. From the sweep and the lists that the fit
# did not see (`bench/moe_ranking.py` prints what they hold). On other GPUs they are half as wide again, which
# holds the best of 84 to 93 % of shapes on each GPU left out.
_NEAR_SHARE = 1.1
_NEAR_LOGS, _FAR_LOGS = (-0.07, 0.15), (-0.05, 0.55)
_UNFITTED_WIDENING = 1.5


class Candidates(Struct, frozen=True, eq=False):
    """Configurations that can run, and how many were left out by reason."""

    configs: Integers  # [n, 6]
    rows: Integers  # [n], of each one's code among the facts
    enumerated: int
    pruned: Mapping[str, int]


class Measurements(Struct, frozen=True, eq=False):
    """Measured times of one shape by configuration."""

    time_us_by_config: Mapping[tuple[int, ...], float]


def rank_configs(
    shape: MoeShape,
    gpu: Gpu,
    *,
    facts: KernelFacts | None = None,
    measurements: Measurements | None = None,
    top: int | None = None,
    dtype: str = "bf16",
    lists_all: bool = False,
) -> TuneRankReport:
    """Return the configurations of a shape on a GPU with their times, best first.

    facts: of the compiled codes; the shipped ones where None. lists_all: also those that no measured sweep of
    such shapes found near the best.
    Raises UsageError for an impossible shape, HardwareError for a GPU without facts or figures.
    """
    check_shape(shape)
    facts = facts or load_shipped_facts(KERNEL, gpu.code[0])
    is_fitted = gpu.measured_key in load_tile_figures().gpus
    model = make_time_model(gpu, facts)
    chosen = None if lists_all else load_chosen_codes()
    measured = {} if measurements is None else measurements.time_us_by_config
    candidates = find_candidates(shape, model, chosen, measured)
    times = model.predict(shape, candidates.configs, candidates.rows)
    time_us, is_measured = _apply(measurements, candidates.configs, times.time_us)
    return TuneRankReport(
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        kernel=KERNEL,
        gpu=gpu.key,
        gpu_name=gpu.name,
        shape={
            "m": shape.tokens,
            "experts": shape.experts,
            "topk": shape.topk,
            "hidden": shape.hidden,
            "intermediate": shape.intermediate,
        },
        configurations=tuple(_rank_entries(model, candidates, times, time_us, is_measured, top)),
        enumerated=candidates.enumerated,
        pruned=candidates.pruned,
        compiled_facts=f"{facts.made_by} for {facts.arch}, {len(facts.codes)} codes at the rates of "
        f"{facts.reference_gpu}",
        assumptions=(
            *_ASSUMPTIONS,
            *((_KNOWN_ERROR,) if is_fitted else ()),
            *_describe_inputs(dtype, int(is_measured.sum())),
        ),
        warnings=() if is_fitted else (_UNKNOWN_ERROR.format(", ".join(load_tile_figures().gpus)),),
    )


def _rank_entries(
    model: MoeTimeModel,
    candidates: Candidates,
    times: MoeTimes,
    time_us: Floats,
    is_measured: NDArray[np.bool_],
    top: int | None,
) -> Iterator[RankedConfigEntry]:
    """Yield the entries of the fastest candidates, the best first; of equal ones the first.

    time_us, is_measured: [candidate].
    """
    low_us, high_us = compute_intervals(time_us, is_fitted=model.gpu.measured_key in load_tile_figures().gpus)
    order = np.lexsort((np.arange(len(time_us)), time_us))[:top]
    bound = times.bounds_us.argmax(axis=1)
    registers, shared, spills = map(model.facts.get_column, ("registers", "shared_bytes", "spill_bytes"))
    for place, each in enumerate(order.tolist()):
        code = candidates.rows[each]
        yield RankedConfigEntry(
            rank=place + 1,
            config=dict(zip(CONFIG_COLUMNS, candidates.configs[each].tolist(), strict=True)),
            time_us=float(time_us[each]),
            time_us_low=None if is_measured[each] else float(low_us[each]),
            time_us_high=None if is_measured[each] else float(high_us[each]),
            basis=_MEASURED if is_measured[each] else _PREDICTED,
            bound=BOUNDS[bound[each]],
            ctas_per_sm=int(times.ctas_per_sm[each]),
            registers=int(registers[code]),
            shared_bytes=int(shared[code]),
            spill_bytes=int(spills[code]),
        )


def compute_intervals(time_us: Floats, *, is_fitted: bool) -> tuple[Floats, Floats]:
    """Return the ends of the 80 % intervals of predicted times of one shape.

    is_fitted: the GPU is one of those of the fit.
    """
    near = time_us <= _NEAR_SHARE * time_us.min()
    widening = 1.0 if is_fitted else _UNFITTED_WIDENING
    low, high = (
        time_us * np.exp(widening * np.where(near, near_log, far_log))
        for near_log, far_log in zip(_NEAR_LOGS, _FAR_LOGS, strict=True)
    )
    return low, high


def _describe_inputs(dtype: str, n_measured: int) -> tuple[str, ...]:
    found = () if dtype == "bf16" else ("the code of bf16, whose products take as long",)
    if n_measured:
        return (
            *found,
            f"{n_measured} measured configurations have their own times; predictions of the same tile are "
            "scaled by what those are off, others by what all are",
        )
    return found


def find_candidates(
    shape: MoeShape,
    model: MoeTimeModel,
    chosen: ChosenCodes | None = None,
    measured: Collection[tuple[int, ...]] = (),
) -> Candidates:
    """Return what can run of a shape, and count what is left out. Raises HardwareError where nothing can.

    chosen: codes to which the others are narrowed, where any of them can run. measured: configurations that
    stay.
    """
    assert model.gpu.arch is not None
    limits, facts = model.gpu.arch.limits, model.facts
    configs = list_configs(int(limits.shared_bytes_per_sm.value))
    codes = configs[:, CODE_COLUMNS]
    rows = facts.find_rows(codes)
    ctas = np.where(rows >= 0, model.ctas_per_sm[rows], 0)
    shared = np.where(rows >= 0, facts.get_column("shared_bytes")[rows], count_stage_bytes(codes))
    accumulators = codes[:, 0] * codes[:, 1] // (32 * codes[:, 3])
    most_rows = find_most_rows(shape)
    reasons = {
        _PADDING: configs[:, 0] > most_rows,
        "registers": accumulators > MAX_THREAD_SUMS,
        "shared memory": shared > limits.shared_bytes_per_cta.value,
        _NO_FACTS: rows < 0,
        "resources of an SM": ctas == 0,
    }
    if chosen is not None:
        can_run = ~np.logical_or.reduce(list(reasons.values()))
        kept = find_chosen(codes, most_rows, chosen)
        kept |= np.array([tuple(config) in measured for config in configs.tolist()])
        reasons[_NEVER_CHOSEN] = ~kept & (can_run & kept).any()
    left, pruned = np.ones(len(configs), dtype=bool), {}
    for reason, applies in reasons.items():
        count = int((left & applies).sum())
        if count:
            pruned[reason] = count
        left &= ~applies
    if not left.any():
        raise HardwareError(f"{model.gpu.name}: no configuration can run")
    return Candidates(configs[left], rows[left], len(configs), pruned)


def read_measurements(path: Path, shape: MoeShape) -> Measurements:
    """Return the measured times of a shape in a CSV file; of several rows of a configuration the median.

    Columns M, E, topk, H and N, where there are any, choose the rows of the shape.
    Raises InputError for a file that cannot be read, or has no row of the shape.
    """
    table = read_csv_table(path, _MEASURED_HINT)
    table.check_columns((*CONFIG_COLUMNS, "time_us"), _MEASURED_HINT)
    sizes = (shape.tokens, shape.experts, shape.topk, shape.hidden, shape.intermediate)
    wanted = {name: size for name, size in zip(_SHAPE_COLUMNS, sizes, strict=True) if name in table.columns}
    found: dict[tuple[int, ...], list[float]] = {}
    for row in range(len(table.rows)):
        if any(table.read_positive(row, name, "") != size for name, size in wanted.items()):
            continue
        config = tuple(int(table.read_positive(row, name, "")) for name in CONFIG_COLUMNS)
        found.setdefault(config, []).append(table.read_positive(row, "time_us", "microseconds"))
    if not found:
        raise InputError(f"{path}: no row of this shape", hint=_MEASURED_HINT)
    return Measurements({config: float(np.median(times)) for config, times in found.items()})


def _apply(
    measurements: Measurements | None, configs: Integers, predicted_us: Floats
) -> tuple[Floats, "np.ndarray[tuple[int], np.dtype[np.bool_]]"]:
    """Return the times with what was measured, and which ones were."""
    known = {} if measurements is None else measurements.time_us_by_config
    measured = np.array([known.get(tuple(config), math.nan) for config in configs.tolist()])
    is_measured = np.isfinite(measured)
    if not is_measured.any():
        return predicted_us, is_measured
    ratios = np.log(measured / predicted_us)
    overall = float(np.mean(ratios[is_measured]))
    scaled = predicted_us * math.exp(overall)
    for tile in np.unique(configs[is_measured, :3], axis=0):
        same = (configs[:, :3] == tile).all(axis=1)
        scaled[same] = predicted_us[same] * math.exp(float(np.mean(ratios[same & is_measured])))
    return np.where(is_measured, measured, scaled), is_measured
