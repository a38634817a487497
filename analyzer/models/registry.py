"""Models by name: each is a file in `predictors/`, found by listing the folder, imported when asked for."""

import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.text.errors import UsageError

Predictor = Callable[[ModelInput], ModelResult]

_PREDICTORS_PACKAGE = "analyzer.models.predictors"
_DEFAULT_MODEL, _EDITED_GPU_MODEL, _FAST_MODEL, _COMPARISON_MODEL = "sm", "steady", "warp", "amali"


@cache
def list_model_names() -> tuple[str, ...]:
    """Names of all models, sorted."""
    folder = Path(__file__).parent / "predictors"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))


def list_models_default_first() -> tuple[str, ...]:
    """Every model, ours first."""
    return tuple(sorted(list_model_names(), key=lambda name: name != _DEFAULT_MODEL))


def find_model(name: str) -> Predictor:
    """The model's `predict`. Raises UsageError for a name that is none."""
    if name not in list_model_names():
        from difflib import get_close_matches

        near = get_close_matches(name, list_model_names(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(list_model_names())}"
        raise UsageError(f"--model {name}: no such model", hint=hint)
    predict: Predictor = import_module(f"{_PREDICTORS_PACKAGE}.{name}").predict
    return predict


def choose_default_model(*, is_launch_known: bool) -> str:
    """`sm` where grid and block are known, else `warp`, which is quick enough for whole dumps."""
    return _DEFAULT_MODEL if is_launch_known else _FAST_MODEL


def choose_edited_gpu_model(*, is_launch_known: bool) -> str:
    """For edited hardware: `steady`, whose time never grows with a rate, and which takes milliseconds."""
    return _EDITED_GPU_MODEL if is_launch_known else _FAST_MODEL


def choose_comparison_model(name: str) -> str:
    """The one to hold a model against where the user names none."""
    return _DEFAULT_MODEL if name == _COMPARISON_MODEL else _COMPARISON_MODEL
