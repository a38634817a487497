"""Models by name: files of this package, and entry points of others.

Our own models are the modules of `predictors/`, listed by their file names. Other distributions add models by
entry points of the group `warplens.models`, each named after its model:

    [project.entry-points."warplens.models"]
    simple = "my_models.simple"

A model is a module with `NAME`, its name, and `predict(model_input) -> ModelResult`. No model is imported
until one is asked for; entry points are read only for a name that is none of ours, and to list all names.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from analyzer.models.interface import ModelInput
from analyzer.models.model_names import list_operator_models, list_own_models
from analyzer.models.model_result import ModelResult
from analyzer.text.errors import UsageError

if TYPE_CHECKING:  # takes longer to import than most runs need it
    from importlib.metadata import EntryPoint

Predictor = Callable[[ModelInput], ModelResult]

ENTRY_POINT_GROUP = "warplens.models"
_PREDICTORS_PACKAGE = "analyzer.models.predictors"
_DEFAULT_MODEL, _FAST_MODEL, _COMPARISON_MODEL = "sm", "warp", "amali"


def list_model_names() -> tuple[str, ...]:
    """Return the names of all models, sorted. Raises UsageError where two models have one name."""
    return tuple(sorted((*list_own_models(), *read_entry_points())))


def list_models_default_first() -> tuple[str, ...]:
    """Return the names of all models, the default one first. Raises UsageError."""
    return tuple(sorted(list_model_names(), key=lambda name: name != _DEFAULT_MODEL))


def find_model(name: str) -> Predictor:
    """Return a model's `predict`. Raises UsageError for an unknown name or a model that cannot be loaded."""
    if name in list_own_models():
        path = f"{_PREDICTORS_PACKAGE}.{name}"
        return _get_predict(name, path, import_module(path))
    entry_point = read_entry_points().get(name)
    if entry_point is None:
        raise _make_unknown_model_error(name)
    return _load_entry_point(entry_point)


@cache
def read_entry_points() -> Mapping[str, "EntryPoint"]:
    """Return the models of other distributions by name. Raises UsageError where two models have one name."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        name = entry_point.name
        if name in found or name in list_own_models():
            other = found[name].value if name in found else f"{_PREDICTORS_PACKAGE}.{name}"
            raise UsageError(
                f"two models are called {name}: {other} and {entry_point.value}",
                hint="uninstall the distribution of one of them",
            )
        found[name] = entry_point
    return found


def _load_entry_point(entry_point: "EntryPoint") -> Predictor:
    try:
        module = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"--model {entry_point.name}: {entry_point.value} cannot be loaded: {error}"
        ) from None
    return _get_predict(entry_point.name, entry_point.value, module)


def _get_predict(name: str, path: str, module: object) -> Predictor:
    """Return the `predict` of a model's module. Raises UsageError if it has none, or another NAME."""
    predict: Predictor | None = getattr(module, "predict", None)
    if predict is None or getattr(module, "NAME", None) != name:
        raise UsageError(
            f"--model {name}: {path} is no model of that name",
            hint=f"a model is a module with NAME = {name!r} and predict(model_input)",
        )
    return predict


def _make_unknown_model_error(name: str) -> UsageError:
    from difflib import get_close_matches

    names = list_model_names()
    if name in list_operator_models():
        message = f"--model {name} takes operators by their shapes: `warplens predict`"
        return UsageError(message, hint=f"one of: {', '.join(names)}")
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(names)}"
    return UsageError(f"--model {name}: no such model", hint=hint)


def choose_default_model(*, is_launch_known: bool) -> str:
    """Return `sm` where grid and block are known, else `warp`, which is fast enough for whole dumps."""
    return _DEFAULT_MODEL if is_launch_known else _FAST_MODEL


def choose_comparison_model(name: str) -> str:
    """Return the model to compare a model with where the user names none."""
    return _DEFAULT_MODEL if name == _COMPARISON_MODEL else _COMPARISON_MODEL
