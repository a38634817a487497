"""Run one instruction on random words and compare it with a function of plain integers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from analyzer.execution.lowering.semantics import compile_step
from analyzer.execution.lowering.step import ConstantRead, SpecialRead, Step, StepInput
from analyzer.frontend.instruction_decoder import FormDecoder
from analyzer.ir.module import InstructionForm
from analyzer.isa.register_operands import (
    PREDICATE_BASE,
    UNIFORM_PREDICATE_BASE,
    UNIFORM_REGISTER_BASE,
    format_register_unit,
)

_EDGES = (0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x3F800000, 0xFF800000)
_N_SAMPLES = 6
_DECODER = FormDecoder()

Reference = Callable[..., dict[str, int]]


def decode(text: str) -> InstructionForm:
    _DECODER.check_syntax(text)
    return _DECODER.decode(text)


def name_of(read: StepInput) -> str:
    """Return `R5`, `P0`, `c0_0x160`, `c3_R9_0x8` or the special register's name."""
    match read:
        case ConstantRead(bank=bank, offset=offset, base=None):
            return f"c{bank}_{offset:#x}"
        case ConstantRead(bank=bank, offset=offset, base=base):
            assert base is not None
            return f"c{bank}_{format_register_unit(base)}_{offset:#x}"
        case SpecialRead(name=name):
            return name
        case _:
            return format_register_unit(read)


def is_predicate(read: StepInput) -> bool:
    if not isinstance(read, int):
        return False
    return PREDICATE_BASE <= read < UNIFORM_PREDICATE_BASE + 8 and read >= UNIFORM_REGISTER_BASE


def words() -> st.SearchStrategy[int]:
    """Draw any word; edge cases and small words are frequent."""
    return st.sampled_from(_EDGES) | st.integers(0, 0xFFFFFFFF) | st.integers(0, 64)


@dataclass(frozen=True)
class Harness:
    """Compile and run instructions from their texts."""

    def step(self, text: str) -> Step:
        step = compile_step(decode(text))
        assert step is not None, text
        return step

    def refuses(self, text: str) -> bool:
        return compile_step(decode(text)) is None

    def names(self, text: str) -> list[str]:
        return [name_of(read) for read in self.step(text).reads]

    def run(self, text: str, values: dict[str, Any], mask: Any = None) -> dict[str, np.ndarray]:
        """Return results by register name; values: arrays by input name."""
        step = self.step(text)
        inputs = [values[name_of(read)] for read in step.reads]
        results = step.apply(*([mask] if step.uses_active_mask else []), *inputs)
        assert len(results) == len(step.writes)
        named = {}
        for number, result in zip(step.writes, results, strict=True):
            assert result.ndim == 2
            if number < 0:
                continue
            name = format_register_unit(number)
            assert result.dtype == (np.bool_ if "P" in name else np.uint32), (text, name, result.dtype)
            named[name] = result
        return named

    def check(self, text: str, reference: Reference, data: st.DataObject) -> None:
        """Assert that results equal the reference for random inputs."""
        step = self.step(text)
        reads = {name_of(read): is_predicate(read) for read in step.reads}
        drawn = {
            name: data.draw(
                st.lists(st.booleans() if bit else words(), min_size=_N_SAMPLES, max_size=_N_SAMPLES),
                label=name,
            )
            for name, bit in reads.items()
        }
        inputs = {
            name: np.array(values, dtype=np.bool_ if reads[name] else np.uint32)[:, None]
            for name, values in drawn.items()
        }
        results = self.run(text, inputs)
        for row in range(_N_SAMPLES):
            sample = {name: values[row] for name, values in drawn.items()}
            wanted = {name: int(value) & 0xFFFFFFFF for name, value in reference(**sample).items()}
            found = {n: int(np.broadcast_to(r, (_N_SAMPLES, 1))[row, 0]) for n, r in results.items()}
            assert found == wanted, (text, sample)


@pytest.fixture(scope="session")
def harness() -> Harness:
    return Harness()
