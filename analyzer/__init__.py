"""warplens: static performance analysis of GPU kernels from the output of a compiler.

Public names load on first use (PEP 562), so `import analyzer` stays cheap:

>>> import analyzer
>>> module = analyzer.load("kernel.sass")          # doctest: +SKIP
>>> module.kernels[0].mix["FFMA"]                   # doctest: +SKIP
>>> report = analyzer.analyze("kernel.sass", gpu="h100")  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

from analyzer.version import __version__

if TYPE_CHECKING:
    from analyzer.checking.checking import check
    from analyzer.evaluation.calibrating import calibrate
    from analyzer.evaluation.transfer import transfer
    from analyzer.evaluation.validation import validate
    from analyzer.hardware.gpu_database import load_gpu
    from analyzer.ir.module import Kernel, Module
    from analyzer.live.torch_module import from_torch
    from analyzer.live.triton_kernel import from_triton
    from analyzer.live.triton_watch import watch_triton
    from analyzer.pipeline import Launch, Options, Program, analyze, load
    from analyzer.pipeline.diff import diff
    from analyzer.pipeline.forecast import forecast_model
    from analyzer.pipeline.operator_prediction import predict
    from analyzer.pipeline.whatif import whatif
    from analyzer.report import read_report
    from analyzer.report.analyze_schema import Report
    from analyzer.report.diff_schema import DiffReport
    from analyzer.text.errors import WarplensError

_MODULES_BY_NAME = {
    "analyze": "analyzer.pipeline",
    "check": "analyzer.checking.checking",
    "load": "analyzer.pipeline",
    "validate": "analyzer.evaluation.validation",
    "transfer": "analyzer.evaluation.transfer",
    "calibrate": "analyzer.evaluation.calibrating",
    "whatif": "analyzer.pipeline.whatif",
    "diff": "analyzer.pipeline.diff",
    "predict": "analyzer.pipeline.operator_prediction",
    "from_torch": "analyzer.live.torch_module",
    "forecast_model": "analyzer.pipeline.forecast",
    "from_triton": "analyzer.live.triton_kernel",
    "watch_triton": "analyzer.live.triton_watch",
    "load_gpu": "analyzer.hardware.gpu_database",
    "read_report": "analyzer.report",
    "Launch": "analyzer.pipeline",
    "Options": "analyzer.pipeline",
    "Program": "analyzer.pipeline",
    "Kernel": "analyzer.ir.module",
    "Module": "analyzer.ir.module",
    "Report": "analyzer.report.analyze_schema",
    "DiffReport": "analyzer.report.diff_schema",
    "WarplensError": "analyzer.text.errors",
}

__all__ = [
    "DiffReport",
    "Kernel",
    "Launch",
    "Module",
    "Options",
    "Program",
    "Report",
    "WarplensError",
    "__version__",
    "analyze",
    "calibrate",
    "check",
    "diff",
    "forecast_model",
    "from_torch",
    "from_triton",
    "load",
    "load_gpu",
    "predict",
    "read_report",
    "transfer",
    "validate",
    "watch_triton",
    "whatif",
]


def __getattr__(name: str) -> object:
    module_name = _MODULES_BY_NAME.get(name)
    if module_name is None:
        raise AttributeError(f"module 'analyzer' has no attribute {name!r}")
    return getattr(import_module(module_name), name)


def __dir__() -> list[str]:
    return sorted(__all__)
