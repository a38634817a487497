"""Composition of all packages: from the bytes of an input to a report.

Public names load on first use (PEP 562): what reads no kernels (`predict`, `forecast`) loads no analysis.

>>> import analyzer
>>> program = analyzer.load("kernel.sass")                       # doctest: +SKIP
>>> kernel = program["gemm"]; kernel.cfg.graph; kernel.mix["HMMA"]  # doctest: +SKIP
>>> analyzer.analyze(program, gpu="h100", grid=(132, 1, 1))      # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzer.pipeline.analysis import analyze, analyze_programs
    from analyzer.pipeline.input_index import load_all
    from analyzer.pipeline.loaded_program import LoadedKernel, Program, load
    from analyzer.pipeline.options import Options
    from analyzer.pipeline.python_launch import Launch
    from analyzer.pipeline.trace_matching import attach_traces

_MODULES_BY_NAME = {
    "Launch": "python_launch",
    "LoadedKernel": "loaded_program",
    "Options": "options",
    "Program": "loaded_program",
    "analyze": "analysis",
    "analyze_programs": "analysis",
    "attach_traces": "trace_matching",
    "load": "loaded_program",
    "load_all": "input_index",
}

__all__ = [
    "Launch",
    "LoadedKernel",
    "Options",
    "Program",
    "analyze",
    "analyze_programs",
    "attach_traces",
    "load",
    "load_all",
]


def __getattr__(name: str) -> object:
    module_name = _MODULES_BY_NAME.get(name)
    if module_name is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module_name}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
