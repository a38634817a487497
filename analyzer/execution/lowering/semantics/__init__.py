"""What instructions compute: `compile_step` turns one into a function over arrays of lanes."""

from analyzer.execution.lowering.semantics.dispatch import compile_step

__all__ = ["compile_step"]
