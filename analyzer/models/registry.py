"""Models by name, of compiled code and of operators: files of this package, and what entry points name.

Our own models are the modules of `predictors/` and of `operators/`, listed by their file names. All others,
those of papers in `analyzer.baselines` and those of other distributions, are entry points named after them:

    [project.entry-points."warplens.models"]
    simple = "my_models.simple"
    [project.entry-points."warplens.operator_models"]
    flat = "my_models.flat"

A model is a module with `NAME`, its name, and `predict`: a `Predictor`, or an `OperatorPredictor`. None is
imported until it is asked for; entry points are read only for a name that is none of ours, and to list all.
"""

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from analyzer.text.errors import UsageError

if TYPE_CHECKING:  # takes longer to import than most runs need it
    from importlib.metadata import EntryPoint

    from analyzer.hardware.gpu import Gpu
    from analyzer.models.interface import ModelInput
    from analyzer.models.model_result import ModelResult
    from analyzer.models.operators.interface import OperatorPrediction
    from analyzer.operators.batches import OperatorBatch

Predictor = Callable[["ModelInput"], "ModelResult"]
OperatorPredictor = Callable[["OperatorBatch", "Gpu"], "OperatorPrediction"]


class ModelGroup(Struct, frozen=True, kw_only=True):
    """Models that take the same input."""

    entry_points: str  # the group of the others
    folder: str  # of our own, in this package
    helpers: frozenset[str] = frozenset()  # modules of the folder that are no models
    default: str
    kind: str
    takes: str  # what, and by which command


KERNEL_MODELS = ModelGroup(
    entry_points="warplens.models",
    folder="predictors",
    default="sm",
    kind="model",
    takes="compiled code: `warplens analyze`",
)
OPERATOR_MODELS = ModelGroup(
    entry_points="warplens.operator_models",
    folder="operators",
    helpers=frozenset({"interface", "served"}),
    default="ours",
    kind="model of operators",
    takes="operators by their shapes: `warplens predict`",
)
_FAST_MODEL, _COMPARISON_MODEL = "warp", "amali"


def list_models(group: ModelGroup = KERNEL_MODELS) -> tuple[str, ...]:
    """Return the names of all models, the default one first. Raises UsageError where two have one name."""
    names = sorted((*list_own_models(group), *read_entry_points(group)))
    return tuple(sorted(names, key=lambda name: name != group.default))


@cache
def list_own_models(group: ModelGroup = KERNEL_MODELS) -> tuple[str, ...]:
    """Return the names of our own models, sorted."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent / group.folder)])
    return tuple(sorted({module.name for module in modules} - group.helpers))


def is_shipped(name: str) -> bool:
    """Return whether a model of compiled code is a part of warplens, whose code the keys of caches hold."""
    if name in list_own_models():
        return True
    found = read_entry_points(KERNEL_MODELS).get(name)
    return found is not None and found.value.startswith("analyzer.")


def find_model(name: str) -> Predictor:
    """Return a model's `predict`. Raises UsageError for an unknown name or a model that cannot be loaded."""
    predict: Predictor = _find_predict(KERNEL_MODELS, name)
    return predict


def find_operator_model(name: str) -> OperatorPredictor:
    """Return the same of a model of operators. Raises UsageError."""
    predict: OperatorPredictor = _find_predict(OPERATOR_MODELS, name)
    return predict


@cache
def read_entry_points(group: ModelGroup) -> Mapping[str, "EntryPoint"]:
    """Return the models that are none of ours by name. Raises UsageError where two models have one name."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry_point in entry_points(group=group.entry_points):
        name = entry_point.name
        if name in found or name in list_own_models(group):
            other = found[name].value if name in found else _locate_own_model(group, name)
            raise UsageError(
                f"two models are called {name}: {other} and {entry_point.value}",
                hint="uninstall the distribution of one of them",
            )
        found[name] = entry_point
    return found


def _find_predict(group: ModelGroup, name: str) -> Any:
    if name in list_own_models(group):
        path = _locate_own_model(group, name)
        return _get_predict(name, path, import_module(path))
    entry_point = read_entry_points(group).get(name)
    if entry_point is None:
        raise _make_unknown_model_error(group, name)
    try:
        module = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--model {name}: {entry_point.value} cannot be loaded: {error}") from None
    return _get_predict(name, entry_point.value, module)


def _locate_own_model(group: ModelGroup, name: str) -> str:
    return f"{__package__}.{group.folder}.{name}"


def _get_predict(name: str, path: str, module: object) -> Any:
    """Return the `predict` of a model's module. Raises UsageError if it has none, or another NAME."""
    predict = getattr(module, "predict", None)
    if predict is None or getattr(module, "NAME", None) != name:
        raise UsageError(
            f"--model {name}: {path} is no model of that name",
            hint=f"a model is a module with NAME = {name!r} and predict",
        )
    return predict


def _make_unknown_model_error(group: ModelGroup, name: str) -> UsageError:
    from difflib import get_close_matches

    names = list_models(group)
    known = f"one of: {', '.join(names)}"
    for other in (KERNEL_MODELS, OPERATOR_MODELS):
        if name in list_models(other):
            return UsageError(f"--model {name} takes {other.takes}", hint=known)
    if not read_entry_points(group):  # an installation from before a model was declared
        known = f"install warplens again (`pip install`), which declares those of papers; {known}"
    near = get_close_matches(name, names, n=1)
    return UsageError(
        f"--model {name}: no such {group.kind}", hint=f"did you mean {near[0]}?" if near else known
    )


def choose_default_model(*, is_launch_known: bool) -> str:
    """Return `sm` where grid and block are known, else `warp`, which is fast enough for whole dumps."""
    return KERNEL_MODELS.default if is_launch_known else _FAST_MODEL


def choose_comparison_model(name: str) -> str:
    """Return the model to compare a model with where the user names none."""
    return KERNEL_MODELS.default if name == _COMPARISON_MODEL else _COMPARISON_MODEL
