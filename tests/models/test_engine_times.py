"""Times of kernels whose bytes the copy engine moves: no faster than the memory, and hardly slower."""

import pytest
from engine import GPUS, launch, program

import analyzer
from analyzer.hardware.load import load_gpu
from analyzer.ir.launch import Launch
from analyzer.pipeline import Options
from analyzer.report.report import KernelReport

BOX = ("0=tensormap", "1=tensormap", "2=64", "3=64", "4=16384")


@pytest.fixture(name="arch", params=GPUS)
def arch_fixture(request: pytest.FixtureRequest) -> int:
    arch: int = request.param
    return arch


def report(arch: int, name: str, made: Launch) -> KernelReport:
    options = Options(kernels=(name,), launch=made)
    found = analyzer.analyze(program(arch), GPUS[arch], options=options)
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
    kernel = report(arch, name, launch(*COPIES[name]))
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
        made = launch(grid, 32, arguments, 16_384)
        return report(90, "box", made).predictions[0].time_us

    whole = time_us("tensormap:f32:16384x8192:8x256", 8, (2048, 32), 8192)
    half = time_us("tensormap:f32:16384x8192:4x256", 8, (2048, 32), 4096)
    assert half == pytest.approx(whole, rel=0.02)


def test_what_is_added_in_memory_is_read_there_as_well() -> None:
    def time_us(name: str) -> float:
        made = launch((16_384,), 128, ("1=tensormap", "2=64"), 0)
        return report(90, name, made).predictions[0].time_us

    assert time_us("reduced_box") == pytest.approx(1.5 * time_us("staged"), rel=0.05)


def test_copies_are_heard_whose_addresses_pass_through_uniform_registers(arch: int) -> None:
    """Half of what a warp asks for is loaded: ptxas broadcasts addresses to uniform registers on sm_120."""
    kernel = report(arch, "unrolled", launch(*COPIES["unrolled"]))
    assert kernel.bytes["global"] == pytest.approx(2 * 32_768 * 8192 / 792, rel=1e-3)
