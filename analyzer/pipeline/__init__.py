"""Composition of all packages: from the bytes of an input to a report.

>>> import analyzer
>>> program = analyzer.load("kernel.sass")                       # doctest: +SKIP
>>> kernel = program["gemm"]; kernel.cfg.graph; kernel.mix["HMMA"]  # doctest: +SKIP
>>> analyzer.analyze(program, gpu="h100", grid=(132, 1, 1))      # doctest: +SKIP
"""

from analyzer.pipeline.analysis import analyze, analyze_programs
from analyzer.pipeline.loaded_program import LoadedKernel, Program, load, load_all
from analyzer.pipeline.options import Options
from analyzer.pipeline.python_launch import Launch
from analyzer.pipeline.trace_matching import attach_traces

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
