"""What tests of the pipeline count."""

from collections.abc import Callable
from functools import partial

import pytest

from analyzer.models import registry
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult


@pytest.fixture
def asking_modules(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each run of a model adds the module of the pipeline that asked for it."""
    asked: list[str] = []

    def count(module: str, name: str) -> Callable[[ModelInput], ModelResult]:
        def predict(model_input: ModelInput) -> ModelResult:
            asked.append(module)
            return registry.find_model(name)(model_input)

        return predict

    for module in ("model_runs", "edited_launch", "unknown_ranges"):
        monkeypatch.setattr(f"analyzer.pipeline.{module}.find_model", partial(count, module))
    return asked
