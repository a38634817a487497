"""Ways to choose a configuration for a shape, fitted to the same measured times and asked in the same way.

A policy ranks configurations for shapes: its first is its choice, the next are what it would take where the
first cannot run. `choose_one` is the decision as a runtime makes it, for timing.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np
from msgspec import Struct

from analyzer.learning.tuning_baselines import fit_cost_model, fit_dispatch_tree
from analyzer.text.errors import UsageError
from analyzer.text.optional_packages import LEARNED_TREES, check_packages
from analyzer.tuning.artifact import pack_artifact
from analyzer.tuning.chooser import Chooser
from analyzer.tuning.default_configs import choose_default
from analyzer.tuning.kernel_space import Integers, KernelSpace
from analyzer.tuning.measured_table import MeasuredTable
from analyzer.tuning.smoothed_waves import SmoothedTables, SmoothingOptions, fit_smoothed
from analyzer.tuning.wave_model import FitOptions, FitVariant, WaveTables, fit

_LIST_MARGIN = 0.02
_ORDER = "GROUP_SIZE_M"
_STAND_INS = (
    None,
    16,
    4,
    1,
)  # orders of the blocks that may stand for the default's 8: by their effect near it


class PolicyName(StrEnum):
    """A policy; the value is its name on the command line and in tables."""

    DEFAULT = "default"
    WAVETUNE = "wavetune"
    SMOOTHED = "wavetune-smoothed"
    STEP = "step"
    LINEAR = "linear"
    BOOSTED = "boosted"
    TREE = "tree"


class Policy(Protocol):
    """Chooses configurations of one kernel on one GPU."""

    @property
    def name(self) -> str:
        """Name in tables."""

    @property
    def size_bytes(self) -> int:
        """Bytes that a runtime would have to load; 0 for a rule."""

    def rank(self, shapes: Integers, count: int) -> Integers:
        """Return configurations [n, count, parameters] of shapes [n, inputs], best first; -1: no more."""

    def choose_one(self, shape: Sequence[int]) -> object:
        """Return the first choice for one shape, in whatever form is quickest."""


class DefaultPolicy(Struct, frozen=True):
    """What the framework does untuned."""

    space: KernelSpace
    name: str = PolicyName.DEFAULT
    size_bytes: int = 0

    def rank(self, shapes: Integers, count: int) -> Integers:
        """Return the choice of each shape, and what stands for it where a sweep did not have its order."""
        parameters = (*self.space.macro_parameters, *self.space.micro_parameters)
        ranked = np.full((len(shapes), count, len(parameters)), -1, dtype=np.int64)
        for row, shape in enumerate(shapes.tolist()):
            config = choose_default(self.space, shape)
            orders = _STAND_INS if _ORDER in config else (None,)
            for place, order in zip(range(count), orders, strict=False):
                varied = config if order is None else {**config, _ORDER: order}
                ranked[row, place] = [varied[name] for name in parameters]
        return ranked

    def choose_one(self, shape: Sequence[int]) -> object:
        """Return the choice for one shape."""
        return choose_default(self.space, shape)


class WaveTunePolicy(Struct, frozen=True):
    """The paper's model, or what is left of it in an ablation."""

    name: str
    tables: WaveTables
    chooser: Chooser
    size_bytes: int

    def rank(self, shapes: Integers, count: int) -> Integers:
        """Return one configuration for each macro configuration, by predicted time."""
        tables = self.tables
        n, n_macros = len(shapes), len(tables.macros)
        ids = np.tile(np.arange(n_macros), n)
        grid, loops = tables.space.map_inputs(np.repeat(shapes, n_macros, axis=0), tables.macros[ids])
        order = (
            tables.predict(ids, grid, loops).reshape(n, n_macros).argsort(axis=1, kind="stable")[:, :count]
        )
        rows = tables.find_rows(grid)
        nearest = np.abs(tables.anchors[ids, rows] - loops[:, None]).argmin(axis=1)
        micro = tables.micro_ids[ids, rows, nearest].reshape(n, n_macros)
        chosen = np.take_along_axis(micro, order, axis=1)
        ranked = np.concatenate([tables.macros[order], tables.micros[chosen]], axis=2)
        return _pad_ranking(ranked, count)

    def choose_one(self, shape: Sequence[int]) -> object:
        """Return the choice for one shape."""
        return self.chooser.choose(*shape)


class SmoothedPolicy(Struct, frozen=True):
    """WaveTune with neighbouring waves borrowed, for few shapes and for lists of the best."""

    tables: SmoothedTables
    choose: Callable[[Sequence[int]], object]
    size_bytes: int
    name: str = PolicyName.SMOOTHED

    def rank(self, shapes: Integers, count: int) -> Integers:
        """Return one configuration for each macro configuration, by predicted time."""
        return self.tables.rank(shapes, count)

    def choose_one(self, shape: Sequence[int]) -> object:
        """Return the choice for one shape."""
        return self.choose(shape)


class LearnedPolicy(Struct, frozen=True):
    """A model of scikit-learn that scores all candidates, the highest first."""

    name: str
    candidates: Integers
    score: Callable[[Integers], Integers]  # shapes [n, inputs] to candidates [n, c], best first
    choose: Callable[[Integers], Integers]  # shapes to the first candidate [n]
    size_bytes: int

    def rank(self, shapes: Integers, count: int) -> Integers:
        """Return the candidates by score."""
        return _pad_ranking(self.candidates[self.score(shapes)[:, :count]], count)

    def choose_one(self, shape: Sequence[int]) -> object:
        """Return the choice for one shape."""
        return self.choose(np.array([shape], dtype=np.int64))


def _pad_ranking(ranked: Integers, count: int) -> Integers:
    return np.pad(ranked, ((0, 0), (0, count - ranked.shape[1]), (0, 0)), constant_values=-1)


def find_list_cap(percent: float) -> float:
    """Return what unlisted times count as, over the best, in a list of what is within `percent`."""
    return 1.0 + percent / 100 + _LIST_MARGIN


class PolicyOptions(Struct, frozen=True):
    """How policies are fitted."""

    n_sms: int
    seed: int = 0
    list_cap: float | None = (
        None  # of a table of the configurations near the best: time of the others over it
    )
    n_trees: int = 600
    offers_unknown: bool = False  # the cost model may choose configurations that were never measured


def fit_policy(name: PolicyName, table: MeasuredTable, options: PolicyOptions) -> Policy:
    """Return a policy that has learned from a table.

    Raises ToolError where scikit-learn is needed and missing, InputError where no entry has a time.
    """
    known = table.keep_known_configs()
    filled = known if options.list_cap is None else known.fill_unlisted(options.list_cap)
    match name:
        case PolicyName.DEFAULT:
            return DefaultPolicy(table.space)
        case PolicyName.SMOOTHED:
            smoothing = (
                SmoothingOptions() if options.list_cap is None else SmoothingOptions(cap=options.list_cap)
            )
            tables = fit_smoothed(filled, options.n_sms, smoothing)
            return SmoothedPolicy(tables, tables.make_chooser(), tables.size_bytes)
        case PolicyName.BOOSTED | PolicyName.TREE:
            return _fit_learned(
                name, filled, table.configs if options.offers_unknown else filled.configs, options
            )
        case _:
            return _fit_wavetune(name, filled, options)


_VARIANTS = {
    PolicyName.WAVETUNE: FitVariant.WAVETUNE,
    PolicyName.STEP: FitVariant.STEP,
    PolicyName.LINEAR: FitVariant.LINEAR,
}


def _fit_wavetune(name: PolicyName, table: MeasuredTable, options: PolicyOptions) -> WaveTunePolicy:
    tables = fit(table.list_samples(), options.n_sms, FitOptions(variant=_VARIANTS[name]))
    artifact = tables.pack()
    return WaveTunePolicy(name, tables, Chooser(artifact), len(pack_artifact(artifact)))


def _fit_learned(
    name: PolicyName, table: MeasuredTable, candidates: Integers, options: PolicyOptions
) -> LearnedPolicy:
    """Return a policy of scikit-learn's models; features are the inputs and parameters as they are."""
    usable = table.select_shapes(np.isfinite(table.find_best_us()))
    configs, offered = usable.configs.astype(np.float64), candidates.astype(np.float64)
    if name is PolicyName.BOOSTED:
        row, column = np.nonzero(np.isfinite(usable.time_us))
        shapes = usable.shapes[row].astype(np.float64)
        times = usable.time_us[row, column]
        cost = fit_cost_model(shapes, configs[column], times, options.seed, options.n_trees)
        return LearnedPolicy(
            name,
            candidates,
            lambda given: cost.rank(given.astype(np.float64), offered),
            lambda given: cost.choose(given.astype(np.float64), offered),
            cost.size_bytes,
        )
    best = np.where(np.isfinite(usable.time_us), usable.time_us, np.inf).argmin(axis=1)
    tree = fit_dispatch_tree(usable.shapes.astype(np.float64), best, options.seed)
    return LearnedPolicy(
        name,
        usable.configs,
        lambda given: tree.rank(given.astype(np.float64)),
        lambda given: tree.choose(given.astype(np.float64)),
        tree.size_bytes,
    )


_LEARNED = (PolicyName.BOOSTED, PolicyName.TREE)


def parse_policies(names: Sequence[str]) -> tuple[PolicyName, ...]:
    """Return policies by name, the default first; all for no name.

    Raises UsageError for an unknown one, ToolError where scikit-learn is missing that learns one.
    """
    known = {each.value: each for each in PolicyName}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"--policy {unknown[0]}", hint=f"one of: {', '.join(known)}")
    chosen = [known[name] for name in names] or list(PolicyName)
    for learned in (each for each in chosen if each in _LEARNED):
        check_packages(f"--policy {learned}", LEARNED_TREES)
    return tuple(dict.fromkeys([PolicyName.DEFAULT, *chosen]))
