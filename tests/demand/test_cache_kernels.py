"""Hit rates of real kernels, which follow by hand from how they read memory."""

from pathlib import Path

import pytest
from paths import TRACES, format_dump

import analyzer
from analyzer.demand.cache_simulation import (
    build_cache_hierarchy,
    compute_grid_reuse,
    simulate_caches,
)
from analyzer.demand.hit_rates import KernelHitRates
from analyzer.demand.l1_policies import find_l1_policies
from analyzer.execution.sampling.launch_preparation import prepare_launch
from analyzer.execution.traces.address_streams import find_co_resident_ctas, record_address_stream
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.traffic.dram_windows import CtaWindows

SM_80 = TRACES / "cuda" / "sm_80"
GPU = load_gpu("a100-80gb-sxm")


def rates_of(
    path: str, kernel: str, launch: Launch, ctas_per_sm: int, shared_bytes: int = 0
) -> KernelHitRates:
    """As the pipeline would ask for them."""
    loaded = analyzer.load(path)[kernel]
    executed = execute_kernel(loaded, launch)
    assert executed is not None
    assert launch.grid is not None
    assert GPU.arch is not None
    n_ctas, profile = launch.grid.count, executed.profile
    per_cta = sum(access.sectors or 0 for access in profile.accesses) / n_ctas
    resident = len(find_co_resident_ctas(n_ctas, n_sms=GPU.sm_count, ctas_per_sm=ctas_per_sm))
    ctas = find_co_resident_ctas(n_ctas, n_sms=GPU.sm_count, ctas_per_sm=ctas_per_sm, sectors_per_cta=per_cta)
    ready = prepare_launch(loaded.cfg, loaded.loops, launch)
    stream = record_address_stream(ready.compiled, ready.image, ready.shape, ctas)
    figures = build_cache_hierarchy(
        GPU.arch,
        l2_bytes=GPU.file.l2.size_bytes.value,
        shared_bytes_in_use=resident * shared_bytes,
        ctas_per_sm=resident,
        n_recorded=len(stream.ctas),
    )
    from_dram = CtaWindows(ready, profile).count_dram_traffic(
        GPU.sm_count * ctas_per_sm, GPU.file.l2.size_bytes.value
    )
    reuse = compute_grid_reuse(profile, figures.l2, from_dram.read_sectors)
    return simulate_caches(stream, find_l1_policies(loaded.kernel), figures, reuse)


def arguments(**values: int) -> tuple[Argument, ...]:
    return tuple(Argument(int(place[1:]), value) for place, value in values.items())


@pytest.mark.parametrize("load", ["LDG.E.U8", "LDG.E.U16", "LDG.E"])
def test_a_narrow_load_that_leaves_out_words_reads_everything_from_dram(tmp_path: Path, load: str) -> None:
    """A lane reads one, two or four bytes of each 16: all sectors come from the DRAM, whatever part is used."""
    path = tmp_path / "apart.sass"
    address = ("S2R R0, SR_CTAID.X", "S2R R3, SR_TID.X", "IMAD R0, R0, 0x80, R3", "MOV R5, 0x10")
    path.write_text(
        format_dump("sm_80", *address, "IMAD.WIDE R2, R0, R5, c[0x0][0x160]", f"{load} R4, [R2.64]", "EXIT")
    )
    rates = rates_of(str(path), "kernel", Launch(grid=Dim3(1 << 14), block=Dim3(128)), 16)
    assert rates.loads is not None
    assert (rates.loads.l1_hit_rate, rates.loads.l2_hit_rate) == (0.0, 0.0)
    assert rates.loads.dram_request_share == 1.0


def test_vector_add_reads_everything_from_dram() -> None:
    launch = Launch(grid=Dim3(10_000), block=Dim3(256), arguments=arguments(_3=2_560_000))
    rates = rates_of(str(SM_80 / "report16.sass"), "vector_add", launch, 8)
    assert rates.loads is not None
    assert rates.loads.dram_share == 1.0
    assert rates.is_complete


def test_what_is_read_and_written_in_place_is_held_once() -> None:
    n = 1 << 20
    in_place = arguments(_1=1 << 40, _2=1 << 41, _3=1 << 41, _4=n)
    launch = Launch(grid=Dim3(n // 256), block=Dim3(256), arguments=in_place)
    executed = execute_kernel(analyzer.load(str(SM_80 / "report16.sass"))["saxpy"], launch)
    assert executed is not None
    traffic = executed.profile.traffic
    assert traffic is not None
    found = (traffic.read_unique_sectors, traffic.written_unique_sectors, traffic.unique_sectors)
    assert found == (n // 4, n // 8, n // 4)


def test_a_grid_that_reads_nothing_is_not_looked_at_for_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = "S2R R0, SR_CTAID.X", "IMAD.WIDE R2, R0, 0x4000, RZ", "STG.E desc[UR4][R2.64], RZ", "EXIT"
    dump = tmp_path / "fill.sass"
    dump.write_text(format_dump("sm_90", *stores))
    (kernel,) = analyzer.load(str(dump)).kernels
    launch = Launch(grid=Dim3(20_000), block=Dim3(32), dynamic_shared_bytes=0)
    executed = execute_kernel(kernel, launch)
    assert executed is not None
    monkeypatch.delattr("analyzer.traffic.dram_windows.execute_touched_sectors")
    assert (
        CtaWindows(prepare_launch(kernel.cfg, kernel.loops, launch), executed.profile)
        .count_dram_traffic(100, 0.0)
        .read_sectors
        == 0.0
    )


def test_every_eighth_word_takes_a_sector_of_its_own() -> None:
    launch = Launch(grid=Dim3(4096), block=Dim3(256), arguments=arguments(_2=1 << 20))
    rates = rates_of(str(SM_80 / "report16.sass"), "strided_copy_8", launch, 8)
    assert rates.loads is not None
    assert rates.loads.n_sectors == 32 * rates.loads.n_requests
    assert rates.loads.dram_share == 1.0


def test_a_transpose_fills_the_sectors_of_its_columns_in_the_l2() -> None:
    launch = Launch(grid=Dim3(32, 32), block=Dim3(32, 8), arguments=arguments(_2=256, _3=1024))
    rates = rates_of(str(SM_80 / "report16.sass"), "naive_transpose", launch, 8)
    (load,) = [found for found in rates.by_row.values() if found.dram_share == 1.0]
    (store,) = [found for found in rates.by_row.values() if found is not load]
    assert load.n_sectors == load.n_requests * 4
    assert store.n_sectors == store.n_requests * 32
    assert store.l1_hit_rate == 0.0
    assert store.l2_hit_rate == 7 / 8  # eight rows of a CTA share each sector


def test_a_naive_product_finds_its_rows_and_columns_in_the_l1() -> None:
    launch = Launch(grid=Dim3(64, 64), block=Dim3(16, 16), arguments=arguments(_3=1024))
    rates = rates_of(str(SM_80 / "report16.sass"), "matmul_naive", launch, 8)
    assert rates.loads is not None
    # A: eight steps of k lie in one sector of a row; B: each of a CTA's eight warps reads the same two sectors
    assert rates.loads.l1_hit_rate == pytest.approx(7 / 8, abs=0.01)
    assert rates.loads.dram_share < 0.01


def test_asynchronous_copies_pass_the_l1_by_and_find_other_ctas_tiles_in_the_l2() -> None:
    launch = Launch(
        grid=Dim3(2048),
        block=Dim3(128),
        dynamic_shared_bytes=0,
        arguments=arguments(_3=4096, _4=4096, _5=4096, _6=4096, _7=4096, _8=4096),
    )
    rates = rates_of(str(TRACES / "triton" / "sm_80" / "matmul.sass"), "matmul", launch, 3, 24576)
    assert rates.is_complete
    assert rates.loads is not None
    assert rates.loads.l1_hit_rate == 0.0
    assert 0.8 < rates.loads.l2_hit_rate < 0.95


def test_the_l1_is_looked_at_where_ctas_work(tmp_path: Path) -> None:
    """Only the first 16 of 132 CTAs load, a word twice: CTAs in the middle of the grid show nothing."""
    code = (
        "S2R R0, SR_CTAID.X",
        "ISETP.GT.AND P0, PT, R0, 0xf, PT",
        "@P0 EXIT",
        "IMAD.WIDE R2, R0, 0x4000, RZ",
        "LDG.E R4, desc[UR4][R2.64]",
        "LDG.E R5, desc[UR4][R2.64]",
        "IADD3 R6, R4, R5, RZ",
        "STG.E desc[UR4][R2.64+0x100], R6",
        "EXIT",
    )
    dump = tmp_path / "few.sass"
    dump.write_text(format_dump("sm_90", *code))
    launch = analyzer.Launch(grid=132, block=32, dynamic_shared_bytes=0)
    (kernel,) = analyzer.analyze(str(dump), "h100-sxm", launch=launch).kernels
    assert any("50% of loaded sectors hit L1" in note for note in kernel.predictions[0].assumptions)
