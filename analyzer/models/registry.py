"""Models by name: each is a file in `predictors/`, found by listing the folder, imported when asked for."""

import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from analyzer.models.base import Situation
from analyzer.models.verdict import Verdict
from analyzer.text.errors import UsageError

Predictor = Callable[[Situation], Verdict]

_PACKAGE = "analyzer.models.predictors"
_OURS, _SMOOTH, _QUICK, _PAPERS = "sm", "steady", "warp", "amali"


@cache
def model_names() -> tuple[str, ...]:
    """Names of all models, sorted."""
    folder = Path(__file__).parent / "predictors"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))


def all_models() -> tuple[str, ...]:
    """Every model, ours first."""
    return tuple(sorted(model_names(), key=lambda name: name != _OURS))


def find_model(name: str) -> Predictor:
    """The model's `predict`. Raises UsageError for a name that is none."""
    if name not in model_names():
        from difflib import get_close_matches

        near = get_close_matches(name, model_names(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(model_names())}"
        raise UsageError(f"--model {name}: no such model", hint=hint)
    predict: Predictor = import_module(f"{_PACKAGE}.{name}").predict
    return predict


def default_model(*, launch_known: bool) -> str:
    """`sm` where grid and block are known, else `warp`, which is quick enough for whole dumps."""
    return _OURS if launch_known else _QUICK


def edit_model(*, launch_known: bool) -> str:
    """For edited hardware: `steady`, whose time never grows with a rate, and which takes milliseconds."""
    return _SMOOTH if launch_known else _QUICK


def second_model(name: str) -> str:
    """The one to hold a model against where the user names none."""
    return _OURS if name == _PAPERS else _PAPERS
