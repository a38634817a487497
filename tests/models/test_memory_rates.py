"""What reads, writes and pieces of lines take of the DRAM and the L2, against rates measured elsewhere."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from kernel_launches import KernelLaunch, make_model_input
from msgspec.structs import replace
from paths import TRACES, format_dump

from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.arrays import FloatArray
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import ALL_IN_DRAM, MissRates
from analyzer.models.sm.launch_simulation import simulate_launch
from analyzer.models.sm.resource_demand import OUTGOING_KINDS, ResourceDemand

N = 1 << 26  # far beyond every L2
MHZ = 1000.0


@cache
def situation(gpu: str, kernel: str = "vector_add") -> ModelInput:
    arch = {"a100": "sm_80", "h100": "sm_90", "rtx-2080-ti": "sm_75"}[gpu]
    path = TRACES / "cuda" / arch / "report16.sass"
    return make_model_input(KernelLaunch(path, kernel, gpu, (N // 256,), (256,), (f"3={N}",)))


def demand(model_input: ModelInput, miss_rates: MissRates = ALL_IN_DRAM) -> ResourceDemand:
    return simulate_launch(model_input, miss_rates, MHZ).resource_demand


def cycles_by_direction(found: ResourceDemand) -> tuple[FloatArray, FloatArray]:
    """Return DRAM cycles of loads and of stores."""
    stores = np.isin(found.step_kind, OUTGOING_KINDS)
    used = found.dram_cycles > 0
    return found.dram_cycles[used & ~stores], found.dram_cycles[used & stores]


@pytest.mark.parametrize("gpu", ["a100", "rtx-2080-ti"])
def test_a_byte_written_among_reads_takes_the_turnaround_more(gpu: str) -> None:
    model_input = situation(gpu)
    factor = model_input.arch.memory.dram_turnaround_factor.value
    loads, stores = cycles_by_direction(demand(model_input))
    assert len(loads) == 2
    assert factor > 1
    assert stores == pytest.approx(loads[:1] * factor)


def test_a_cold_l2_keeps_what_is_written() -> None:
    loads, stores = cycles_by_direction(demand(replace(situation("a100"), l2_is_cold=True)))
    assert stores == pytest.approx(loads[:1])


@pytest.mark.parametrize(
    ("gpu", "reads", "copies"),
    [
        # GB/s that gpu-stream and gpu-l2-cache of RRZE's gpu-benches reach
        ("a100-80gb-sxm", 1885, 1732),
        ("a100-40gb-sxm", 1490, 1381),
        ("v100-pcie", 888, 804),
        ("a40", None, None),
        ("l40", 844, 800),
        ("h100-pcie", 1942, 1704),
    ],
)
def test_rates_of_reads_and_of_copies(gpu: str, reads: float | None, copies: float | None) -> None:
    found = load_gpu(gpu)
    memory, arch = found.file.memory, found.arch
    assert arch is not None
    factor = (memory.turnaround_factor or arch.memory.dram_turnaround_factor).value
    rate = found.dram_read_gbps.value
    assert rate <= memory.bandwidth_gbps.value
    if reads is not None and copies is not None:
        assert rate == pytest.approx(reads, rel=0.04)
        assert rate * 2 / (1 + factor) == pytest.approx(copies, rel=0.04)


def test_words_at_random_places_come_at_the_measured_rate() -> None:
    """traces/h200/memory.csv: 4.9 TB/s of sectors within the L2, 1.33 to 1.45 beyond it, on an H200."""
    h200 = load_gpu("h200-sxm")
    model_input = replace(situation("h100", "random_access"), gpu=h200)
    assert model_input.profile is not None
    (gather,) = (one for one in model_input.profile.accesses if one.is_indirect)
    assert gather.sectors is not None
    sectors = gather.sectors / gather.requests
    assert sectors > 30
    found = demand(model_input)
    bytes_per_ns = 32 * sectors * h200.sm_count * MHZ / 1e3
    assert bytes_per_ns / found.l2_cycles[gather.row] == pytest.approx(4900, rel=0.05)
    share = (
        found.dram_cycles[gather.row] / demand(with_missed_lines(model_input, None)).dram_cycles[gather.row]
    )
    assert h200.dram_read_gbps.value / share == pytest.approx(1390, rel=0.1)


def with_missed_lines(model_input: ModelInput, rate: None) -> ModelInput:
    gpu = model_input.gpu
    l2 = replace(gpu.file.l2, missed_lines_per_us=rate)
    return replace(model_input, gpu=replace(gpu, file=replace(gpu.file, l2=l2)))


def test_whole_lines_are_not_limited_by_their_number() -> None:
    model_input = situation("h100")
    with_limit, without = demand(model_input), demand(with_missed_lines(model_input, None))
    assert with_limit.dram_cycles == pytest.approx(without.dram_cycles)


def stream_copies(tmp_path: Path, gpu: str, lanes: int) -> float:
    """Return the TB/s at which the DRAM serves LDGSTS of rows that so many lanes copy, far apart."""
    shift = lanes.bit_length() - 1
    path = tmp_path / f"rows{lanes}.sass"
    code = (
        "S2R R0, SR_TID.X",
        "S2R R7, SR_CTAID.X",
        f"SHF.R.U32.HI R6, RZ, {shift:#x}, R0",
        f"LOP3.LUT R5, R0, {lanes - 1:#x}, RZ, 0xc0, !PT",
        "IMAD.SHL.U32 R5, R5, 0x10, RZ",
        "IMAD R2, R6, 0x1000, R5",
        "IMAD.MOV.U32 R3, RZ, RZ, 0x1",
        "IMAD.WIDE.U32 R2, R7, 0x100000, R2",
        "IMAD.SHL.U32 R0, R0, 0x10, RZ",
        "LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64]",
        "EXIT",
    )
    path.write_text(format_dump("sm_90", *code))
    launch = KernelLaunch(path, "kernel", gpu, (load_gpu(gpu).sm_count,), (128,))
    cycles = demand(replace(make_model_input(launch), l2_is_cold=True)).dram_cycles.max()
    return float(512 * load_gpu(gpu).sm_count * MHZ / 1e6 / cycles)


@pytest.mark.parametrize(
    ("gpu", "lanes", "measured"),
    [
        ("h200-sxm", 2, 2.3),  # traces/h200/memory.csv, rows
        ("h200-sxm", 4, 2.5),
        ("h200-sxm", 16, 4.4),
        ("h100-sxm", 4, 2.1),  # traces/h100/ldgsts.jsonl.xz, pipe: 1.93 to 2.4
        ("h100-sxm", 32, 3.1),
    ],
)
def test_rows_of_copies_come_at_the_measured_rate(
    tmp_path: Path, gpu: str, lanes: int, measured: float
) -> None:
    """What a row leaves of 64 bytes is there when the next step asks for it."""
    assert stream_copies(tmp_path, gpu, lanes) == pytest.approx(measured, rel=0.16)
