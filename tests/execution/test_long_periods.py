"""Loops that come round late, or pass words from lane to lane, are taken at once all the same."""

from pathlib import Path

import pytest
from paths import dump_of

from analyzer import load
from analyzer.execution.provenance import Provenance
from analyzer.execution.tally import Tally
from analyzer.execution.trial import Trial
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline.executing import execute_kernel

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


def trips(folder: Path, lines: tuple[str, ...]) -> int:
    """How often the only loop of these instructions runs, by one warp."""
    dump = folder / "kernel.sass"
    dump.write_text(dump_of("sm_90", *lines))
    (kernel,) = load(str(dump)).kernels
    launch = Launch(grid=Dim3(1), block=Dim3(32), dynamic_shared_bytes=0)
    found = execute_kernel(kernel, launch, step_limit=1000)
    assert found is not None
    assert found.profile.provenance is Provenance.EXACT
    (loop,) = kernel.loops.loops
    return int(found.profile.block_warps[loop.header])


@pytest.mark.parametrize("lines", [_RING_OF_FIVE, _ONE_LANE])
def test_most_trips_are_taken_at_once(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert trips(tmp_path, lines) == _TRIPS


# A counter is converted, which no rule follows, and a predicate hangs on that.
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
    tried: list[int] = []
    run_period = Trial.run_period

    def counted(trial: Trial, iterations: int) -> Tally:
        tried.append(iterations)
        return run_period(trial, iterations)

    monkeypatch.setattr(Trial, "run_period", counted)
    assert trips(tmp_path, _CONVERTED) == 96
    assert len(tried) == 1
