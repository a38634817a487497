"""Kernels of shipped dumps with a launch and a GPU, for tests of models."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.interface import ModelInput, Prediction
from analyzer.models.registry import find_model
from analyzer.pipeline import Options
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.report.analyze_schema import Report


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel with a launch and a GPU."""

    path: Path
    kernel: str
    gpu_name: str
    grid: tuple[int, ...] | None = None  # None: unknown
    block: tuple[int, ...] | None = None  # None: unknown
    arguments: tuple[str, ...] = ()
    dynamic_shared_bytes: int = 0

    @property
    def gpu(self) -> Gpu:
        return load_gpu(self.gpu_name)

    @property
    def options(self) -> Options:
        launch = Launch(
            grid=Dim3(*self.grid) if self.grid else None,
            block=Dim3(*self.block) if self.block else None,
            arguments=tuple(map(parse_argument, self.arguments)),
            dynamic_shared_bytes=self.dynamic_shared_bytes,
        )
        return Options(launch=launch, kernels=(self.kernel,))

    def report(self, *models: str) -> Report:
        """Return the report of `analyze`."""
        return analyzer.analyze(
            str(self.path),
            self.gpu_name,
            options=Options(launch=self.options.launch, kernels=(self.kernel,), models=models),
        )


@cache
def count_kernel(launched: KernelLaunch) -> CountedLaunch:
    """Return the counts of a launch, executed once."""
    (counted,) = KernelAnalyzer(launched.options).count_launches(
        analyzer.load(str(launched.path))[launched.kernel]
    )
    return counted


def make_model_input(launched: KernelLaunch, gpu: Gpu | None = None) -> ModelInput:
    """Build the input of models on the launch's GPU or another one, with the CTAs that its own GPU has."""
    base = bind_to_gpu(count_kernel(launched), launched.gpu)
    assert not isinstance(base, Refusal)
    found = bind_to_gpu(count_kernel(launched), gpu or launched.gpu, assumed_ctas=base.grid_ctas)
    assert not isinstance(found, Refusal)
    return found


def predict_with_model(model_input: ModelInput, model: str) -> Prediction:
    """Return the prediction of a model."""
    return find_model(model)(model_input).prediction
