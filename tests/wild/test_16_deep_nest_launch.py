"""A launch of hundreds of nested loops ends with a bounded number of loop arrivals, and says why."""

from pathlib import Path

import pytest

import analyzer
from analyzer.execution.acceleration.loop_acceleration import LoopAccelerator
from analyzer.execution.lowering.segments import Segment
from analyzer.execution.machine.register_state import LockstepGroup

N_LOOPS = 200
STEP_LIMIT = 20_000
MAX_ARRIVALS = 3_000  # more than twice as many where arrivals in deep nests cost nothing


def write_nest(folder: Path) -> Path:
    """Write a dump of N_LOOPS nested loops whose ends depend on a predicate that nothing sets."""
    lines = ["code for sm_80", "Function : deep"]
    texts = [*(f"MOV R{n}, RZ" for n in range(N_LOOPS))]
    texts += [f"@P0 BRA 0x{16 * (N_LOOPS - 1 - n):x}" for n in range(N_LOOPS)]
    lines += [
        f"        /*{16 * row:04x}*/                   {text} ;" for row, text in enumerate([*texts, "EXIT"])
    ]
    dump = folder / "nest.sass"
    dump.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return dump


def test_deep_nest_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = 0
    accelerate = LoopAccelerator.accelerate

    def count(self: LoopAccelerator, segment: Segment, group: LockstepGroup) -> None:
        nonlocal arrivals
        arrivals += 1
        accelerate(self, segment, group)

    monkeypatch.setattr(LoopAccelerator, "accelerate", count)
    options = analyzer.Options(step_limit=STEP_LIMIT)
    report = analyzer.analyze(
        str(write_nest(tmp_path)), "a100", grid=(4, 1, 1), block=(128, 1, 1), options=options
    )
    assert 0 < arrivals < MAX_ARRIVALS
    assumptions = report.kernels[0].predictions[0].assumptions
    assert any("steps were not enough" in text for text in assumptions)
