"""warplens: static performance analysis of GPU kernels from what a compiler dumps.

Public names load on first use (PEP 562), so `import analyzer` stays cheap:

>>> import analyzer
>>> module = analyzer.load("kernel.sass")          # doctest: +SKIP
>>> module.kernels[0].mix["FFMA"]                   # doctest: +SKIP
>>> report = analyzer.analyze("kernel.sass", gpu="h100")  # doctest: +SKIP
"""

from importlib import import_module
from time import time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzer.hardware.load import load_gpu
    from analyzer.ir.program import Kernel, Module
    from analyzer.pipeline import Options, Program, analyze, load
    from analyzer.pipeline.validate import validate
    from analyzer.pipeline.whatif import whatif
    from analyzer.report.report import Report
    from analyzer.text.errors import WarplensError

_HOMES = {
    "analyze": "analyzer.pipeline",
    "load": "analyzer.pipeline",
    "validate": "analyzer.pipeline.validate",
    "whatif": "analyzer.pipeline.whatif",
    "load_gpu": "analyzer.hardware.load",
    "Options": "analyzer.pipeline",
    "Program": "analyzer.pipeline",
    "Kernel": "analyzer.ir.program",
    "Module": "analyzer.ir.program",
    "Report": "analyzer.report.report",
    "WarplensError": "analyzer.text.errors",
}

__version__ = "0.1.0"
LOADED_NS = time_ns()  # sources edited later may not be what runs (pipeline/validation_cache.py)

__all__ = [
    "Kernel",
    "Module",
    "Options",
    "Program",
    "Report",
    "WarplensError",
    "__version__",
    "analyze",
    "load",
    "load_gpu",
    "validate",
    "whatif",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'analyzer' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
