"""Learn weights from measured rows and write them: one file for each set of weights, a card beside it."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from analyzer.files import write_file
from analyzer.fingerprint import compute_teaching_fingerprint
from analyzer.learning.corrections import Call, Learned, learn_weights
from analyzer.learning.judging import LeftOutFigures, judge_errors
from analyzer.learning.options import LearningOptions
from analyzer.models.learned.weights import save_weights
from analyzer.models.operators import ours
from analyzer.operators.family import OperatorFamily, find_family
from analyzer.operators.measured import MeasuredBatch
from analyzer.text.errors import UsageError
from analyzer.text.optional_packages import LEARNED_NETWORKS, LEARNED_TREES, check_packages
from analyzer.version import __version__

FEWEST_ROWS = 30


class Provenance(msgspec.Struct, frozen=True):
    """Where rows come from, for the card."""

    data: str  # what and at which commit
    licence: str


def group_by_weights(
    measured: Sequence[MeasuredBatch],
) -> Mapping[str, tuple[OperatorFamily, list[MeasuredBatch]]]:
    """Return the batches of each set of weights, by its name, with its family."""
    groups: dict[str, tuple[OperatorFamily, list[MeasuredBatch]]] = {}
    for batch in measured:
        family = find_family(batch.batch)
        groups.setdefault(family.choose_weights(batch.batch), (family, []))[1].append(batch)
    return groups


def learn_and_write(
    measured: Sequence[MeasuredBatch],
    folder: Path,
    options: LearningOptions,
    provenance: Provenance,
    *,
    cache: Path | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> list[Learned]:
    """Learn each set of weights that has rows, and write it into a folder.

    cache: a folder in which finished fits are kept: a run that was interrupted goes on from there.
    Raises, before any work, UsageError where a set has fewer than 30 rows, and what `check_learning` does.
    """
    check_learning(options)
    groups = sorted(group_by_weights(measured).items())
    for name, (_, batches) in groups:
        _check_rows(name, batches)
    result = []
    for name, (family, batches) in groups:
        learned = learn_set(name, family, batches, options, cache=cache, report=report)
        write_learned(learned, folder, options, provenance)
        result.append(learned)
    return result


def check_learning(options: LearningOptions) -> None:
    """Raise ToolError where a package is missing that learns what the options want."""
    check_packages("`warplens learn`", LEARNED_NETWORKS if options.n_perceptrons else LEARNED_TREES)


def _check_rows(name: str, batches: Sequence[MeasuredBatch]) -> None:
    n_rows = sum(len(batch) for batch in batches)
    if n_rows < FEWEST_ROWS:
        raise UsageError(f"{name}: {n_rows} rows, and {FEWEST_ROWS} are the fewest to learn from")


def learn_set(
    name: str,
    family: OperatorFamily,
    batches: Sequence[MeasuredBatch],
    options: LearningOptions,
    *,
    cache: Path | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Learned:
    """Return one set of weights learned from its rows. Raises UsageError for fewer than 30 rows."""
    _check_rows(name, batches)
    return learn_weights(
        family,
        batches,
        options,
        name=name,
        call=_make_call(cache),
        report=lambda text: report(f"{name}: {text}"),
    )


def write_learned(learned: Learned, folder: Path, options: LearningOptions, provenance: Provenance) -> None:
    """Write a set of weights and its card into a folder."""
    path = folder / f"{ours.NAME}-{learned.weights.name}.safetensors"
    save_weights(learned.weights, path)
    write_file(path.with_suffix(".toml"), [format_card(learned, options, provenance).encode()])


def _make_call(cache: Path | None) -> Call:
    """Return what runs a fit: as it is, or from the cache of an earlier run with the same arguments."""
    if cache is None:
        return lambda function, *arguments, **keywords: function(*arguments, **keywords)
    from joblib import Memory

    # joblib looks at the function's own source alone, not at what it calls
    memory = Memory(cache / compute_teaching_fingerprint(), verbose=0)

    def call(function: Callable[..., Any], *arguments: object, **keywords: object) -> object:
        with warnings.catch_warnings():  # joblib warns where a busy machine takes long to write
            warnings.filterwarnings("ignore", "Persisting input arguments took")
            return memory.cache(function)(*arguments, **keywords)

    return call


def format_card(learned: Learned, options: LearningOptions, provenance: Provenance) -> str:
    """Return the card of a set of weights as TOML: data, licence, split, errors on what was left out."""
    weights = learned.weights
    lines = [
        f"# Card of {ours.NAME}-{weights.name}.safetensors, written by `warplens learn`.",
        f'name = "{weights.name}"',
        f'data = "{provenance.data}"',
        f'licence = "{provenance.licence}"',
        f'datasets = "{weights.dataset}"',
        f'timing = "{weights.timing}"',
        f'tool_version = "{__version__}"',
        f"seed = {options.seed}",
        f'split = "shapes: {options.n_folds} folds by hash of the shape key; also each {options.leaves_out} '
        'left out in turn"',
        f"takes_siblings_correction = {'true' if weights.takes_siblings_correction else 'false'}",
        f"unseen_share = {weights.unseen.share}  # of the correction, on GPUs that taught nothing",
        "",
        "[rows]",
        *(f"{taught.gpu} = {taught.n_rows}" for taught in weights.taught),
        "",
        "[parameters]",
        *(f"{name} = {value:.6g}" for name, value in sorted(weights.parameters.items())),
    ]
    for figures in judge_errors(learned.errors):
        lines += ["", "[[left_out]]", *_format_figures(figures)]
    return "\n".join(lines) + "\n"


def _format_figures(figures: LeftOutFigures) -> Iterator[str]:
    for name in figures.__struct_fields__:
        value = getattr(figures, name)
        match value:
            case float():
                yield f"{name} = {value:.2f}"
            case str():
                yield f'{name} = "{value}"'
            case int():
                yield f"{name} = {value}"
