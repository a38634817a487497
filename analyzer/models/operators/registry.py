"""Operator models by name: the modules of this package that have `NAME` and `predict(batch, gpu)`."""

from collections.abc import Callable
from importlib import import_module

from analyzer.hardware.gpu import Gpu
from analyzer.models.model_names import list_operator_models, list_own_models
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import OperatorBatch
from analyzer.text.errors import UsageError

OperatorPredictor = Callable[[OperatorBatch, Gpu], OperatorPrediction]


def find_operator_model(name: str) -> OperatorPredictor:
    """Return a model's `predict`. Raises UsageError for an unknown name."""
    if name not in list_operator_models():
        known = f"one of: {', '.join(list_operator_models())}"
        if name in list_own_models():
            raise UsageError(f"--model {name} takes compiled code: `warplens analyze`", hint=known)
        raise UsageError(f"--model {name}: no such model of operators", hint=known)
    predict: OperatorPredictor = import_module(f"{__package__}.{name}").predict
    return predict
