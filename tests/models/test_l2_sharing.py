"""Requests of several SMs for one line are joined before a Hopper's L2: closed forms of its slices' rate."""

from pathlib import Path

import pytest
from paths import format_dump

import analyzer
from analyzer.ir.launch import Dim3, Launch

SMS, CLOCK_MHZ = 132, 1980
BYTES_OF_A_COPY = 4 * 512  # by four warps

# All CTAs copy the same lines, or each its own.
SAME = ("S2R R0, SR_TID.X", "IMAD.SHL.U32 R0, R0, 0x10, RZ", "IMAD.MOV.U32 R2, RZ, RZ, R0")
OWN = (*SAME[:2], "S2R R4, SR_CTAID.X", "IMAD R2, R4, 0x40000, R0")


def measure_gbps(tmp_path: Path, gpu: str, addresses: tuple[str, ...], ctas: int, few: int) -> float:
    """Return what copies to shared memory get by `sm`, from the times of kernels with few and twice as many."""
    times_us = []
    for n_copies in (few, 2 * few):
        copies = [
            f"LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64+{BYTES_OF_A_COPY * copy:#x}]"
            for copy in range(n_copies)
        ]
        path = tmp_path / "kernel.sass"
        path.write_text(format_dump("sm_90", *addresses, "IMAD.MOV.U32 R3, RZ, RZ, 0x1", *copies, "EXIT"))
        launch = Launch(grid=Dim3(ctas), block=Dim3(128), dynamic_shared_bytes=220_000, clock_mhz=CLOCK_MHZ)
        report = analyzer.analyze(str(path), gpu, options=analyzer.Options(launch=launch, models=("sm",)))
        times_us.append(report.kernels[0].predictions[0].time_us)
    return ctas * few * BYTES_OF_A_COPY / (times_us[1] - times_us[0]) / 1e3


@pytest.mark.parametrize(("waves", "lookup_share"), [(1, 0.72), (8, 0.80)])
def test_copies_of_the_same_lines_are_joined_the_less_the_more_waves_have_run(
    tmp_path: Path, waves: int, lookup_share: float
) -> None:
    found = measure_gbps(tmp_path, "h100", SAME, waves * SMS, few=256)
    assert found == pytest.approx(8300 / lookup_share, rel=0.03)


def test_copies_of_lines_of_their_own_get_what_the_slices_hand_out(tmp_path: Path) -> None:
    """132 x 256 KB stay in the L2."""
    assert measure_gbps(tmp_path, "h200", OWN, SMS, few=64) == pytest.approx(9960, rel=0.08)


@pytest.mark.parametrize(("is_cold", "cycles"), [(False, 325), (True, 690 + 300)])
def test_ctas_that_share_lines_wait_for_the_same_fill(tmp_path: Path, is_cold: bool, cycles: float) -> None:
    """A line in 132 copies comes from the DRAM, and each CTA waits for it."""
    times_us = []
    for n_copies in (16, 48):
        rounds = [
            (f"LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64+{copy << 11:#x}]", "LDGDEPBAR", "DEPBAR.LE SB0, 0x0")
            for copy in range(n_copies)
        ]
        path = tmp_path / "kernel.sass"
        lines = (line for copied in rounds for line in copied)
        path.write_text(format_dump("sm_90", *SAME, "IMAD.MOV.U32 R3, RZ, RZ, 0x1", *lines, "EXIT"))
        launch = Launch(grid=Dim3(SMS), block=Dim3(128), clock_mhz=CLOCK_MHZ, l2_is_cold=is_cold)
        report = analyzer.analyze(str(path), "h100", options=analyzer.Options(launch=launch, models=("sm",)))
        times_us.append(report.kernels[0].predictions[0].time_us)
    assert (times_us[1] - times_us[0]) / 32 * CLOCK_MHZ == pytest.approx(cycles, rel=0.1)
