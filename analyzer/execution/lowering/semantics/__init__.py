"""Semantics of instructions: `compile_step` turns one into a numpy function over arrays of lanes.

One module for each group of instructions; `operand_parser` reads their operands, `dispatch` selects the
compiler.
"""

from analyzer.execution.lowering.semantics.dispatch import compile_step

__all__ = ["compile_step"]
