"""Operator models by name: the modules of this package that have `NAME` and `predict(batch, gpu)`."""

import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from analyzer.hardware.gpu import Gpu
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.models.registry import is_own_model
from analyzer.operators.batches import OperatorBatch
from analyzer.text.errors import UsageError

OperatorPredictor = Callable[[OperatorBatch, Gpu], OperatorPrediction]
DEFAULT_OPERATOR_MODEL = "ours"
_HELPERS = frozenset({"interface", "registry"})


@cache
def list_operator_models() -> tuple[str, ...]:
    """Return the names of all operator models, the default one first."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    names = sorted(module.name for module in modules if module.name not in _HELPERS)
    return tuple(sorted(names, key=lambda name: name != DEFAULT_OPERATOR_MODEL))


def find_operator_model(name: str) -> OperatorPredictor:
    """Return a model's `predict`. Raises UsageError for an unknown name."""
    if name not in list_operator_models():
        known = f"one of: {', '.join(list_operator_models())}"
        if is_own_model(name):
            raise UsageError(f"--model {name} takes compiled code: `warplens analyze`", hint=known)
        raise UsageError(f"--model {name}: no such model of operators", hint=known)
    predict: OperatorPredictor = import_module(f"{__package__}.{name}").predict
    return predict
