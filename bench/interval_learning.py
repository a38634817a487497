"""Learn the widths of intervals from errors on suites that taught nothing, and judge them likewise.

    learn_residuals(rows)     the table of hwdb/residuals.toml
    judge_intervals(rows)     each row's interval by a table in which neither its suite nor its GPU has a part

Each row's time was predicted without what its suite taught (bench/left_suite.py). A suite on a GPU has the
weight of one, however many rows it has: the next suite is one more of them. Quantiles of few rows reach too
short, since the largest error of n is beaten by the next one with probability 1 / (n + 1); so the levels .1
and .9 are moved outward, as in split conformal prediction. What n counts is kernels: errors of one go
together on all GPUs, and the next kernel is one more of them. (Counting GPUs intervals hold 87 % of the
rows, counting kernels 81 %, suites on a GPU 80 %, unmoved 76 %: judged on all suites that there are, so this
is no check.)

    39 kernels, level .1: .1 - .4 / 40 = .09
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from kernels.recipes import ROOT
from variant_predictions import Answer

from analyzer.ir.arrays import FloatArray
from analyzer.models.interface import Stall
from analyzer.models.residuals import (
    CalibrationStacks,
    ClassResiduals,
    ErrorClass,
    LaunchTraits,
    Residuals,
    find_error_class,
)

RESIDUALS = ROOT / "hwdb" / "residuals.toml"
_SCHEMA = "warplens/residuals/2"
_LEVEL = 0.1
_MIN_SUITES = 4  # of a class of its own; else all suites speak for it
# Unexecuted: assumed; guessed trip counts may be further off. Untaught: of transfers, see models/transfer.
_UNTAUGHT_FACTOR, _UNEXECUTED_FACTOR = 1.1, 2.5
# Distances between stall stacks. Kernels that are no nearer to one of another suite than the second one are
# off by twice as much in the mean (.18 against .09); below it, errors hardly follow the distance.
_SAME_KIND_DISTANCE, _UNLIKE_KIND_DISTANCE = 0.1, 0.25


class SuiteRow(msgspec.Struct, frozen=True, kw_only=True):
    """A measured launch and what was predicted of it."""

    suite: str
    gpu: str
    measured_us: float
    answer: Answer

    @property
    def kernels(self) -> str:
        """Name of its kernels, which ran on several GPUs: `gemm` of `h200/guest gemm` and `gemm/gemm`."""
        source, _, name = self.suite.partition("/")
        return source if source == "volta" else name.removeprefix("guest ")

    @property
    def ratio(self) -> float:
        """Measured over predicted time."""
        return self.measured_us / self.answer.predicted_us

    @property
    def traits(self) -> LaunchTraits:
        """What decides the width of its interval."""
        return make_traits(self.answer)


class JudgedInterval(msgspec.Struct, frozen=True):
    """Factors on a predicted time, and whether the measured time lies between them."""

    low: float
    high: float
    is_inside: bool


def make_traits(answer: Answer) -> LaunchTraits:
    """Return what of a prediction decides how far it may be off."""
    return LaunchTraits(
        time_us=answer.predicted_us,
        bound=answer.bound,
        busy=answer.busy,
        stalls={Stall(name): share for name, share in answer.stalls.items()},
        guessed_share=answer.guessed,
    )


def list_classes(answer: Answer) -> str:
    """Return the name of the class of a prediction."""
    return find_error_class(make_traits(answer)).value


def judge_intervals(rows: Sequence[SuiteRow]) -> list[JudgedInterval]:
    """Return each row's interval by the errors of other suites on other GPUs, in the order of the rows."""
    tables: dict[tuple[str, str], Residuals] = {}
    found = []
    for row in rows:
        place = (row.suite, row.gpu)
        if place not in tables:
            others = [one for one in rows if one.kernels != row.kernels and one.gpu != row.gpu]
            tables[place] = learn_residuals(others)
        low, high = tables[place].find_factors(row.traits)
        found.append(JudgedInterval(low, high, low <= row.ratio <= high))
    return found


def learn_residuals(rows: Sequence[SuiteRow]) -> Residuals:
    """Return the table of residuals that rows give."""
    kinds = _find_kinds(rows)
    classes = {}
    for name in ErrorClass:
        of_class = [row for row in rows if find_error_class(row.traits) is name]
        is_alone = len(_list_places(of_class)) >= _MIN_SUITES
        classes[name] = _measure(of_class if is_alone and name is not ErrorClass.OTHER else rows)
    unlike = [row for row in rows if _is_unlike_other_suites(row, rows)]
    return Residuals(
        schema=_SCHEMA,
        evidence=f"{len(rows)} rows of {len(_list_places(rows))} suites by GPU, each without what it taught",
        gpus=tuple(sorted({row.gpu for row in rows})),
        untaught_factor=_UNTAUGHT_FACTOR,
        unexecuted_factor=_UNEXECUTED_FACTOR,
        classes=classes,
        unlike=_measure(unlike if len(_list_places(unlike)) >= _MIN_SUITES else rows),
        kinds=kinds,
    )


def _list_places(rows: Sequence[SuiteRow]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.suite, row.gpu) for row in rows))


def _measure(rows: Sequence[SuiteRow]) -> ClassResiduals:
    """Return the weighted percentiles of the rows' ratios, a suite on a GPU with the weight of one."""
    places = Counter((row.suite, row.gpu) for row in rows)
    weights = np.array([1.0 / places[row.suite, row.gpu] for row in rows])
    ratios = np.array([row.ratio for row in rows])
    outward = (0.5 - _LEVEL) / (1 + len({row.kernels for row in rows}))
    low, high = (_find_quantile(ratios, weights, level) for level in (_LEVEL - outward, 1 - _LEVEL + outward))
    return ClassResiduals(low=low, high=high, rows=len(rows), suites=len(places))


def _find_quantile(values: FloatArray, weights: FloatArray, level: float) -> float:
    """Return the value below which so much of the weight lies; weights sit at the middle of their share."""
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) - weights[order] / 2.0
    return float(np.interp(level, shares / weights.sum(), values[order]))


def _is_unlike_other_suites(row: SuiteRow, rows: Sequence[SuiteRow]) -> bool:
    """Return whether the stall stack of a row resembles none of another suite."""
    others = [one for one in rows if one.kernels != row.kernels]
    return (
        bool(others)
        and min(_measure_distance(row.answer.stalls, one.answer.stalls) for one in others)
        > _UNLIKE_KIND_DISTANCE
    )


def _measure_distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in {*one, *other}) / 2.0


def _find_kinds(rows: Sequence[SuiteRow]) -> CalibrationStacks:
    """Return representative stall stacks: each stack is within `_SAME_KIND_DISTANCE` of one of them.

    Greedy cover: the next one is the stack that most of the uncovered stacks are close to.
    """
    stalls = sorted({stall for row in rows for stall in row.answer.stalls})
    shares = np.array([[row.answer.stalls.get(stall, 0.0) for stall in stalls] for row in rows])
    is_close = np.abs(shares[:, None] - shares).sum(axis=2) / 2.0 <= _SAME_KIND_DISTANCE
    is_uncovered = np.ones(len(shares), dtype=bool)
    groups = []
    while is_uncovered.any():
        kind = int(is_close[:, is_uncovered].sum(axis=1).argmax())
        is_uncovered &= ~is_close[kind]
        groups.append(tuple(round(100.0 * share) for share in shares[kind].tolist()))
    return CalibrationStacks(
        stalls=tuple(map(Stall, stalls)),
        hundredths=tuple(groups),
        unlike_distance=_UNLIKE_KIND_DISTANCE,
    )


# ---- the file ----------------------------------------------------------------------------------------


def write_residuals(rows: Sequence[SuiteRow]) -> None:
    """Write hwdb/residuals.toml."""
    RESIDUALS.write_text("\n".join(_format_table(learn_residuals(rows))), encoding="utf-8")


def _format_table(table: Residuals) -> Iterator[str]:
    yield "# Measured over predicted time by class: what intervals of `sm` are made from. Written by"
    yield "# `python bench/left_suite.py --residuals`; classes: see analyzer/models/residuals.py."
    yield f"schema = {json.dumps(table.schema)}"
    yield f"evidence = {json.dumps(table.evidence)}"
    yield f"gpus = {json.dumps(list(table.gpus))}"
    yield f"untaught_factor = {table.untaught_factor}"
    yield f"unexecuted_factor = {table.unexecuted_factor}\n"
    for name, found in table.classes.items():
        yield from _format_class(f"[classes.{json.dumps(name.value)}]", found)
    yield from _format_class("[unlike]", table.unlike)
    yield "[kinds]"
    yield f"unlike_distance = {table.kinds.unlike_distance}"
    yield f"stalls = {json.dumps([stall.value for stall in table.kinds.stalls])}"
    yield "hundredths = ["
    yield from (f"  {list(group)}," for group in table.kinds.hundredths)
    yield "]\n"


def _format_class(head: str, found: ClassResiduals) -> Iterator[str]:
    yield head
    yield f"low = {found.low:.3f}"
    yield f"high = {found.high:.3f}"
    yield f"rows = {found.rows}"
    yield f"suites = {found.suites}\n"
