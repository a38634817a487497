"""Times of kernels whose bytes the copy engine moves: no faster than the memory, and hardly slower."""

import pytest
from msgspec.structs import replace
from tma_kernels import GPUS, load_program, make_launch

import analyzer
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import KernelReport

BOX = ("0=tensormap", "1=tensormap", "2=64", "3=64", "4=16384")


@pytest.fixture(name="arch", params=GPUS)
def arch_fixture(request: pytest.FixtureRequest) -> int:
    arch: int = request.param
    return arch


def report(arch: int, name: str, made: Launch) -> KernelReport:
    options = Options(kernels=(name,), launch=made)
    found = analyzer.analyze(load_program(arch), GPUS[arch], options=options)
    return next(kernel for kernel in found.kernels if kernel.name == name)


COPIES = {
    "ring": ((792,), 32, ("2=32768", "3=8192"), 32_768),
    "unrolled": ((792,), 32, ("2=32768",), 32_768),
    "box": ((128, 128), 32, BOX, 16_384),
    "filled": ((16_384,), 128, (), 0),
    "staged": ((16_384,), 128, ("1=tensormap", "2=64"), 0),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_come_close_to_the_bandwidth_but_not_beyond(arch: int, name: str) -> None:
    kernel = report(arch, name, make_launch(*COPIES[name]))
    moved_gb = 2 * 256 * 2**20 / 1e9
    share = (
        moved_gb
        / (kernel.predictions[0].time_us * 1e-6)
        / load_gpu(GPUS[arch]).file.memory.bandwidth_gbps.value
    )
    assert 0.8 < share < 0.95


def test_boxes_of_which_sectors_are_half_used_take_twice_as_long() -> None:
    def time_us(tensor: str, step: int, grid: tuple[int, int], box_bytes: int) -> float:
        arguments = (f"0={tensor}", f"1={tensor}", f"2={step}", "3=256", f"4={box_bytes}")
        made = make_launch(grid, 32, arguments, 16_384)
        return report(90, "box", made).predictions[0].time_us

    whole = time_us("tensormap:f32:16384x8192:8x256", 8, (2048, 32), 8192)
    half = time_us("tensormap:f32:16384x8192:4x256", 8, (2048, 32), 4096)
    assert half == pytest.approx(whole, rel=0.02)


def test_what_is_added_in_memory_is_read_there_as_well() -> None:
    def time_us(name: str) -> float:
        made = make_launch((16_384,), 128, ("1=tensormap", "2=64"), 0)
        return report(90, name, made).predictions[0].time_us

    assert time_us("reduced_box") == pytest.approx(1.5 * time_us("staged"), rel=0.05)


def test_copies_are_heard_whose_addresses_pass_through_uniform_registers(arch: int) -> None:
    """Half of what a warp asks for is loaded: ptxas broadcasts addresses to uniform registers on sm_120."""
    kernel = report(arch, "unrolled", make_launch(*COPIES["unrolled"]))
    assert kernel.bytes["global"] == pytest.approx(2 * 32_768 * 8192 / 792, rel=1e-3)


N, TILE_A, TILE_B, STORED = 4096, 128 * 64 * 2, 64 * 64 * 2, 128 * 64 * 4


def multicast(n_ctas: int) -> KernelReport:
    """N x N x N by clusters of so many CTAs, a part of whose common tile of B each copies to all of them."""
    made = make_launch((64, 32), 384, ("0=tensormap", "1=tensormap", "2=ptr", f"3={N}", f"4={N}"), 98_304)
    name = f"multicast_{n_ctas}"
    options = Options(kernels=(name,), launch=replace(made, cluster=Dim3(n_ctas)))
    found = analyzer.analyze(load_program(90, "multicast"), GPUS[90], options=options)
    return next(kernel for kernel in found.kernels if kernel.name == name)


@pytest.mark.parametrize("n_ctas", [1, 2, 4])
def test_what_a_cluster_copies_to_all_of_its_ctas_is_read_once(n_ctas: int) -> None:
    kernel = multicast(n_ctas)
    moved = N // 64 * (TILE_A + TILE_B / n_ctas) + STORED
    assert kernel.bytes["global"] * 384 / 32 == pytest.approx(moved)


def test_reading_less_from_the_l2_is_faster_where_that_is_the_bound() -> None:
    """In cycles: the clock follows power, and so falls where a product works faster."""
    alone, pair, four = (multicast(n_ctas).predictions[0].cycles for n_ctas in (1, 2, 4))
    assert pair < 0.9 * alone
    assert four <= pair
