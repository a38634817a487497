"""Loops that come round late, or pass words from lane to lane, are taken at once all the same."""

from pathlib import Path

import pytest
from paths import format_dump

from analyzer import load
from analyzer.execution.acceleration.symbolic_iteration import SymbolicIteration
from analyzer.execution.machine.execution_counters import ExecutionCounters
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline.launch_execution import execute_kernel

_TRIPS = 4000

# R4 is a place modulo 5, of which an address is made.
_RING_OF_FIVE = (
    "MOV R2, RZ",
    "MOV R4, RZ",
    "IMAD R6, R4, 0x100, R2",
    "STS [R6], RZ",
    "IADD3 R4, R4, 0x1, RZ",
    "ISETP.NE.AND P1, PT, R4, 0x5, PT",
    "@!P1 MOV R4, RZ",
    "IADD3 R2, R2, 0x4, RZ",
    f"ISETP.NE.AND P0, PT, R2, {4 * _TRIPS:#x}, PT",
    "@P0 BRA 0x20",
    "EXIT",
)

# One lane goes on: what it counts is read from the first active lane.
_ONE_LANE = (
    "S2R R0, SR_LANEID",
    "ISETP.NE.AND P0, PT, R0, 0x4, PT",
    "@P0 EXIT",
    "MOV R2, R0",
    "R2UR UR4, R2",
    "STS [UR4], RZ",
    "IADD3 R2, R2, 0x4, RZ",
    f"ISETP.NE.AND P0, PT, R2, {4 * _TRIPS + 4:#x}, PT",
    "@P0 BRA 0x40",
    "EXIT",
)


def runs(folder: Path, lines: tuple[str, ...]) -> list[int]:
    """How often each loop of these instructions goes round, by one warp; the fewest first."""
    dump = folder / "kernel.sass"
    dump.write_text(format_dump("sm_90", *lines))
    (kernel,) = load(str(dump)).kernels
    launch = Launch(grid=Dim3(1), block=Dim3(32), dynamic_shared_bytes=0)
    found = execute_kernel(kernel, launch, step_limit=4000)
    assert found is not None
    assert found.profile.provenance is Provenance.EXACT
    return sorted(int(found.profile.block_executions[loop.header]) for loop in kernel.loops.loops)


def trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Periods of all trials from now on."""
    tried: list[int] = []
    run_period = SymbolicIteration.run_period

    def counted(trial: SymbolicIteration, iterations: int) -> ExecutionCounters:
        tried.append(iterations)
        return run_period(trial, iterations)

    monkeypatch.setattr(SymbolicIteration, "run_period", counted)
    return tried


@pytest.mark.parametrize("lines", [_RING_OF_FIVE, _ONE_LANE])
def test_most_trips_are_taken_at_once(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert runs(tmp_path, lines) == [_TRIPS]


# A counter is converted, which no rule follows, and a predicate depends on that.
_CONVERTED = (
    "MOV R2, RZ",
    "I2F R3, R2",
    "FSETP.GT.AND P1, PT, R3, 1e+09, PT",
    "@P1 EXIT",
    "IADD3 R2, R2, 0x1, RZ",
    "ISETP.NE.AND P0, PT, R2, 0x60, PT",
    "@P0 BRA 0x10",
    "EXIT",
)


def test_what_fails_over_one_period_is_not_tried_over_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = trials(monkeypatch)
    assert runs(tmp_path, _CONVERTED) == [96]
    assert len(tried) == 1


# A ring of six, gone through again for each of many tiles.
_TILES = (
    "MOV R8, RZ",
    "MOV R4, RZ",
    "MOV R2, RZ",
    "IMAD R6, R4, 0x100, R2",
    "STS [R6], RZ",
    "IADD3 R4, R4, 0x1, RZ",
    "ISETP.NE.AND P1, PT, R4, 0x6, PT",
    "@!P1 MOV R4, RZ",
    "IADD3 R2, R2, 0x4, RZ",
    f"ISETP.NE.AND P0, PT, R2, {4 * 100:#x}, PT",
    "@P0 BRA 0x30",
    "LOP3.LUT R9, R8, R8, RZ, 0x3c, !PT",
    "IADD3 R8, R8, 0x1, RZ",
    "ISETP.NE.AND P0, PT, R8, 0x20, PT",
    "@P0 BRA 0x20",
    "EXIT",
)


def test_the_period_that_a_loop_had_is_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 32 tiles begins at another place of the ring."""
    tried = trials(monkeypatch)
    assert runs(tmp_path, _TILES) == [32, 3200]
    assert len(tried) < 2 * 32
