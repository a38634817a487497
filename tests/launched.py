"""Kernels of shipped dumps with a launch and a GPU, for tests of models."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import analyzer
from analyzer.execution.argument_text import parse_argument
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.load import load_gpu
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.base import Prediction, Situation
from analyzer.models.registry import find_model
from analyzer.pipeline import Options
from analyzer.pipeline.analyst import Analyst
from analyzer.pipeline.situations import Counted, Refused, put_on
from analyzer.report.report import Report


@dataclass(frozen=True)
class Launched:
    """A kernel as a user would launch it; grid and block None: not known."""

    path: Path
    kernel: str
    gpu_name: str
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    arguments: tuple[str, ...] = ()

    @property
    def gpu(self) -> Gpu:
        return load_gpu(self.gpu_name)

    @property
    def options(self) -> Options:
        launch = Launch(
            grid=Dim3(*self.grid) if self.grid else None,
            block=Dim3(*self.block) if self.block else None,
            arguments=tuple(map(parse_argument, self.arguments)),
        )
        return Options(launch=launch, kernels=(self.kernel,))

    def report(self, *models: str) -> Report:
        """What `analyze` says."""
        return analyzer.analyze(
            str(self.path),
            self.gpu_name,
            options=Options(launch=self.options.launch, kernels=(self.kernel,), models=models),
        )


@cache
def count(launched: Launched) -> Counted:
    """What it executes, found out once."""
    (counted,) = Analyst(launched.options).count(analyzer.load(str(launched.path))[launched.kernel])
    return counted


def put(launched: Launched, gpu: Gpu | None = None) -> Situation:
    """The kernel on its GPU or on another one, with the CTAs that it has on its own."""
    base = put_on(count(launched), launched.gpu)
    assert not isinstance(base, Refused)
    found = put_on(count(launched), gpu or launched.gpu, assumed_ctas=base.grid_ctas)
    assert not isinstance(found, Refused)
    return found


def predict(situation: Situation, model: str) -> Prediction:
    """What a model says."""
    return find_model(model)(situation).prediction
