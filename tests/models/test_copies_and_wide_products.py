"""LDGSTS on the load/store path, IMAD.WIDE beside warpgroup products, stack frames beside shared memory."""

from pathlib import Path

import pytest
from kernel_launches import KernelLaunch, make_model_input
from paths import format_dump

import analyzer
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.sm.spill_reuse import measure_spill_reuse

N = 64


def measure_cycles(tmp_path: Path, arch: str, gpu: str, lines: list[str], warps: int = 16) -> float:
    """Return the cycles of one CTA by `sm`."""
    path = tmp_path / "kernel.sass"
    path.write_text(format_dump(arch, *lines, "EXIT"))
    options = analyzer.Options(
        launch=Launch(grid=Dim3(1), block=Dim3(32 * warps), dynamic_shared_bytes=65536), models=("sm",)
    )
    return analyzer.analyze(str(path), gpu, options=options).kernels[0].predictions[0].cycles


COPY = "LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64]"
LOAD = "LDSM.16.M88.4 R4, [R0]"


def address(row_bytes: int) -> list[str]:
    """Form addresses of lanes in rows of so many bytes, 16 bytes a lane, rows 8,192 bytes apart."""
    lanes = row_bytes // 16
    return [
        "S2R R0, SR_TID.X",
        f"LOP3.LUT R6, R0, {lanes - 1:#x}, RZ, 0xc0, !PT",
        f"SHF.R.U32.HI R7, RZ, {lanes.bit_length() - 1:#x}, R0",
        "IMAD.SHL.U32 R6, R6, 0x10, RZ",
        "IMAD R2, R7, 0x2000, R6",
        "IMAD.MOV.U32 R3, RZ, RZ, 0x1",
        "IMAD.SHL.U32 R0, R0, 0x10, RZ",
    ]


def measure_round(tmp_path: Path, row_bytes: int, *lines: str) -> float:
    """Return what 16 warps take for each of the lines once, after the first 64 times."""
    few, many = (
        measure_cycles(tmp_path, "sm_90", "h100", [*address(row_bytes), *lines * times])
        for times in (N, 5 * N)
    )
    return (many - few) / (4 * N * 16)


def test_copies_take_turns_with_what_reads_shared_memory(tmp_path: Path) -> None:
    """What LDGSTS bring is written through the banks that LDSM read: four cycles for either."""
    loads = measure_round(tmp_path, 128, LOAD)
    both = measure_round(tmp_path, 128, COPY, *[LOAD] * 4)
    assert loads == pytest.approx(4, rel=0.05)
    assert 3.8 <= both - 4 * loads <= 8


def test_short_rows_hold_the_path_longer(tmp_path: Path) -> None:
    """A row of 64 bytes is a line as one of 128 is: twice as many lines for the same bytes."""
    long, short = (measure_round(tmp_path, row, COPY, *[LOAD] * 4) for row in (128, 64))
    assert short >= long + 2


PRODUCTS = ["HGMMA.64x128x16.F32.BF16 R88, gdesc[UR8], R88"] * 4
ADDRESSES = ["IMAD.WIDE.U32 R2, R4, 0x10, R6", "IMAD.IADD R10, R4, 0x1, R6"]
STORE = "STG.E desc[UR4][R2.64], R9"


def measure_dispatch_stall(tmp_path: Path, *lines: str) -> float:
    path = tmp_path / "kernel.sass"
    path.write_text(format_dump("sm_90", *lines, "EXIT"))
    options = analyzer.Options(launch=Launch(grid=Dim3(132), block=Dim3(128)), models=("sm",))
    report = analyzer.analyze(str(path), "h100", options=options)
    return report.kernels[0].predictions[0].cpi_stack.get("dispatch_stall", 0.0)


def test_what_uses_a_wide_product_waits_beside_warpgroup_products(tmp_path: Path) -> None:
    """Without products of a warpgroup, or on a result that is not wide, nothing waits."""
    wide, narrow = ADDRESSES
    assert measure_dispatch_stall(tmp_path, *PRODUCTS, wide, STORE) > 0
    assert measure_dispatch_stall(tmp_path, *PRODUCTS, narrow, STORE) == 0
    assert measure_dispatch_stall(tmp_path, wide, STORE) == 0


def measure_spills(tmp_path: Path, dynamic_shared_bytes: int) -> tuple[float, float]:
    """Return the shares of stores and of loads of a frame of 8 words that go beyond the L1."""
    path = tmp_path / "spilled.sass"
    stores = [f"STL [R1+{4 * place:#x}], R2" for place in range(8)]
    loads = [f"LDL R2, [R1+{4 * place:#x}]" for place in range(8)]
    path.write_text(format_dump("sm_90", *stores, *loads, "EXIT"))
    launch = KernelLaunch(path, "kernel", "h100", (132,), (1024,), dynamic_shared_bytes=dynamic_shared_bytes)
    found = measure_spill_reuse(make_model_input(launch))
    return float(found.l1_miss_rate[:8].mean()), float(found.l1_miss_rate[8:16].mean())


def test_local_stores_go_on_to_the_l2_on_hopper(tmp_path: Path) -> None:
    """And loads find 32 KB in the 124 KB that 120 KB of dynamic shared memory leave, not in 28 KB."""
    stores, loads = measure_spills(tmp_path, 120 << 10)
    assert stores == 1.0
    assert loads < 0.2
    assert measure_spills(tmp_path, 220 << 10) == (1.0, 1.0)
