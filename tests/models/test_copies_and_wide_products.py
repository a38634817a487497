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


ADDRESSES_OF_COPIES = (
    "S2R R0, SR_TID.X",
    "IMAD.SHL.U32 R0, R0, 0x10, RZ",
    "IMAD.MOV.U32 R2, RZ, RZ, R0",
    "IMAD.MOV.U32 R3, RZ, RZ, 0x1",
)


# 16 bytes more after each 128 bytes of shared memory
PADDING = ("SHF.R.U32.HI R5, RZ, 0x7, R0", "IMAD R0, R5, 0x10, R0")
# rows of 64 bytes, 256 bytes apart
NARROW_ROWS = (
    "S2R R5, SR_TID.X",
    "SHF.R.U32.HI R6, RZ, 0x2, R5",
    "LOP3.LUT R5, R5, 0x3, RZ, 0xc0, !PT",
    "IMAD.SHL.U32 R5, R5, 0x10, RZ",
    "IMAD R2, R6, 0x100, R5",
)


def measure_round(tmp_path: Path, *lines: str, addresses: tuple[str, ...] = ()) -> float:
    """Return what 16 warps take for each of the lines once, after the first 64 times."""
    few, many = (
        measure_cycles(tmp_path, "sm_90", "h100", [*ADDRESSES_OF_COPIES, *addresses, *lines * times])
        for times in (N, 5 * N)
    )
    return (many - few) / (4 * N * 16)


def test_copies_of_whole_rows_are_written_beside_reads(tmp_path: Path) -> None:
    """An LDGSTS takes one cycle of the path among LDSM of four, and three of the tags beside it."""
    loads = measure_round(tmp_path, LOAD)
    both = measure_round(tmp_path, COPY, *[LOAD] * 4)
    assert loads == pytest.approx(4, rel=0.05)
    assert 0.5 <= both - 4 * loads <= 3.2


def test_copies_to_padded_rows_take_turns_with_reads(tmp_path: Path) -> None:
    """What they bring is written through the banks that LDSM read: four cycles for either."""
    loads = measure_round(tmp_path, LOAD, addresses=PADDING)
    both = measure_round(tmp_path, COPY, *[LOAD] * 4, addresses=PADDING)
    assert 3.8 <= both - 4 * loads <= 14


def test_predicated_accesses_have_turns_on_the_path(tmp_path: Path) -> None:
    """`@!PT LDS` accesses nothing, and yet takes a cycle of an SM."""
    loads = measure_round(tmp_path, LOAD)
    both = measure_round(tmp_path, "@!PT LDS RZ, [RZ]", "@!PT LDS RZ, [RZ]", LOAD)
    assert both - loads == pytest.approx(2, rel=0.1)


def test_copies_by_the_l1_have_a_turn_for_each_line(tmp_path: Path) -> None:
    """Four for 512 bytes, where those that bypass the L1 have one."""
    copies = (COPY.replace(".BYPASS", ""), COPY)
    rounds = [measure_round(tmp_path, copy, *[LOAD] * 8) for copy in copies]
    assert 2.5 <= rounds[0] - rounds[1] <= 5.5


def count_lines(tmp_path: Path, addresses: tuple[str, ...]) -> tuple[float, float]:
    """Return the 128-byte lines of a request of an LDGSTS, of global and of shared memory."""
    path = tmp_path / f"copy{len(addresses)}.sass"
    path.write_text(format_dump("sm_90", *ADDRESSES_OF_COPIES, *addresses, COPY, "EXIT"))
    profile = make_model_input(KernelLaunch(path, "kernel", "h100", (1,), (128,))).profile
    assert profile is not None
    found = {access.space.value: (access.lines or 0.0) / access.requests for access in profile.accesses}
    return found["global"], found["shared"]


def test_lines_of_copies_follow_from_their_addresses(tmp_path: Path) -> None:
    """512 bytes are four lines, in rows of 64 bytes eight; padding makes them lie in five rows of banks."""
    assert count_lines(tmp_path, ()) == (4, 4)
    assert count_lines(tmp_path, NARROW_ROWS) == (8, 4)
    assert count_lines(tmp_path, PADDING)[1] > 4


PRODUCTS = ["HGMMA.64x128x16.F32.BF16 R88, gdesc[UR8], R88"] * 4
ADDRESSES = ["IMAD.WIDE.U32 R2, R4, 0x10, R6", "IMAD.IADD R10, R4, 0x1, R6"]
STORE = "STG.E desc[UR4][R2.64], R9"


def measure_stall(tmp_path: Path, stall: str, *lines: str, ctas: int = 132, threads: int = 128) -> float:
    """Return the cycles of a stall on an H100 by `sm`."""
    path = tmp_path / "kernel.sass"
    path.write_text(format_dump("sm_90", *lines, "EXIT"))
    launch = Launch(grid=Dim3(ctas), block=Dim3(threads), dynamic_shared_bytes=65536)
    report = analyzer.analyze(str(path), "h100", options=analyzer.Options(launch=launch, models=("sm",)))
    return report.kernels[0].predictions[0].cpi_stack.get(stall, 0.0)


def test_what_uses_a_wide_product_waits_beside_warpgroup_products(tmp_path: Path) -> None:
    """Without products of a warpgroup, or on a result that is not wide, nothing waits."""
    wide, narrow = ADDRESSES
    assert measure_stall(tmp_path, "dispatch_stall", *PRODUCTS, wide, STORE) > 0
    assert measure_stall(tmp_path, "dispatch_stall", *PRODUCTS, narrow, STORE) == 0
    assert measure_stall(tmp_path, "dispatch_stall", wide, STORE) == 0


def test_an_address_of_a_copy_is_overwritten_once_it_has_been_read(tmp_path: Path) -> None:
    """Once the lines before it are taken in; what overwrites another register waits for nothing."""
    for register, waits in (("R2", True), ("R8", False)):
        lines = [COPY, f"IMAD.MOV.U32 {register}, RZ, RZ, R0"] * N
        stall = measure_stall(tmp_path, "long_scoreboard", *ADDRESSES_OF_COPIES, *lines, ctas=1, threads=32)
        assert (stall >= N) == waits
        assert waits or stall == 0


def test_few_products_of_a_warpgroup_wait_in_the_queue(tmp_path: Path) -> None:
    """The last of 16 products is issued when all but five before it are done, 64 cycles each."""
    others = ["FADD R9, R9, R9"] * 2 * N  # longer than the last five
    waits = [measure_stall(tmp_path, "math_pipe_throttle", *PRODUCTS * times, *others) for times in (1, 4)]
    assert waits == pytest.approx([0, 64 * 10], abs=64)


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
    """And loads find 32 KB in the 136 KB that 120 KB of dynamic shared memory leave, not in 36 KB."""
    stores, loads = measure_spills(tmp_path, 120 << 10)
    assert stores == 1.0
    assert loads < 0.2
    stores, loads = measure_spills(tmp_path, 220 << 10)
    assert stores == 1.0
    assert loads > 0.7
