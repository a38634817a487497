"""The copy engine: bytes, sectors and places of what it writes, and of boxes whose tensor is described."""

import pytest
from tma_kernels import GPUS, load_program, make_launch

from analyzer.execution.binding.argument_parser import parse_value
from analyzer.execution.profile.execution_profile import ExecutionProfile, GlobalTraffic, MemoryAccess
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.opcode import BULK_WRITE_SEMANTICS
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import Program
from analyzer.text.errors import UsageError

TILE_BYTES = 16_384  # of kernels whose threads fill a tile
BOX = ("0=tensormap", "1=tensormap", "2=64", "3=64", "4=16384")
SHAPE = ":f32:8192x8192:64x64"
MAPPED = (f"0=tensormap{SHAPE}", f"1=tensormap{SHAPE}", *BOX[2:])


@pytest.fixture(name="arch", params=GPUS)
def arch_fixture(request: pytest.FixtureRequest) -> int:
    arch: int = request.param
    return arch


def run(
    loaded: Program, name: str, grid: tuple[int, ...], *arguments: str, threads: int = 128, shared: int = 0
) -> ExecutionProfile:
    found = execute_kernel(loaded[name], make_launch(grid, threads, arguments, shared))
    assert found is not None
    return found.profile


def traffic(profile: ExecutionProfile) -> GlobalTraffic:
    assert profile.traffic is not None
    return profile.traffic


def written_by_engine(loaded: Program, name: str, profile: ExecutionProfile) -> list[MemoryAccess]:
    kernel = loaded[name].kernel
    return [
        access
        for access in profile.accesses
        if kernel.find_opcode(access.row).semantics in BULK_WRITE_SEMANTICS
    ]


@pytest.mark.parametrize("n_ctas", [32, 40_000], ids=["whole", "stood_for"])
def test_a_tile_that_threads_fill_is_written_once(arch: int, n_ctas: int) -> None:
    profile = run(load_program(arch), "filled", (n_ctas,))
    (access,) = written_by_engine(load_program(arch), "filled", profile)
    assert traffic(profile).written_bytes == traffic(profile).written_unique_bytes == n_ctas * TILE_BYTES
    assert (access.requests, access.sectors) == (n_ctas, n_ctas * TILE_BYTES // 32)
    assert access.is_store
    assert access.provenance is Provenance.EXACT


@pytest.mark.parametrize("tile_bytes", [4096, 8192])
def test_arguments_say_how_large_the_tiles_of_a_ring_are(arch: int, tile_bytes: int) -> None:
    tiles = 1000
    profile = run(
        load_program(arch), "ring", (66,), f"2={tiles}", f"3={tile_bytes}", threads=32, shared=32_768
    )
    assert traffic(profile).written_bytes == traffic(profile).written_unique_bytes == tiles * tile_bytes


def test_the_last_tile_may_be_shorter(arch: int) -> None:
    n_bytes = 99 * 8192 + 1024
    profile = run(load_program(arch), "tail", (100,), f"1={n_bytes}")
    assert traffic(profile).written_bytes == traffic(profile).written_unique_bytes == n_bytes


def test_what_is_added_to_the_same_tiles_is_one_place(arch: int) -> None:
    profile = run(load_program(arch), "reduced", (64,), "2=8")
    assert traffic(profile).written_bytes == 64 * TILE_BYTES
    assert traffic(profile).written_unique_bytes == 8 * TILE_BYTES


@pytest.mark.parametrize("name", ["staged", "reduced_box"])
def test_a_box_without_a_description_is_what_was_staged_for_it(arch: int, name: str) -> None:
    profile = run(load_program(arch), name, (300,), "1=tensormap", "2=64")
    (access,) = written_by_engine(load_program(arch), name, profile)
    assert (access.bytes, access.provenance) == (300 * TILE_BYTES, Provenance.ASSUMED)
    assert traffic(profile).written_unique_sectors == 300 * TILE_BYTES // 32
    assert traffic(profile).unique_sectors == 2 * 300 * TILE_BYTES // 32  # it reads as many
    assert any("tensormap:TYPE" in note for note in profile.assumptions)


def test_a_box_without_a_description_is_what_was_copied_for_it(arch: int) -> None:
    profile = run(load_program(arch), "box", (8, 8), *BOX, threads=32, shared=16_384)
    assert traffic(profile).written_bytes == 64 * 16_384
    assert traffic(profile).read_bytes == 0


def test_a_described_tensor_tells_all_of_its_boxes(arch: int) -> None:
    profile = run(load_program(arch), "box", (8, 8), *MAPPED, threads=32, shared=16_384)
    whole = 64 * 16_384
    assert traffic(profile) == GlobalTraffic(
        read_bytes=whole,
        read_unique_bytes=whole,
        written_bytes=whole,
        written_unique_bytes=whole,
        read_unique_sectors=whole // 32,
        written_unique_sectors=whole // 32,
        unique_sectors=2 * whole // 32,
    )
    assert all(access.provenance is Provenance.EXACT for access in profile.accesses if access.bytes)


@pytest.mark.parametrize(
    ("step", "distinct_share"), [(4, 0.5), (8, 1.0)], ids=["side_by_side", "every_other_row_part"]
)
def test_short_rows_touch_whole_sectors(step: int, distinct_share: float) -> None:
    """Rows of 16 bytes, two of which share a sector where boxes lie side by side."""
    tensor = "tensormap:f32:65536x8192:4x256"
    arguments = (f"0={tensor}", f"1={tensor}", f"2={step}", "3=256", "4=4096")
    profile = run(load_program(90), "box", (64, 4), *arguments, threads=32, shared=4096)
    for access in profile.accesses:
        if access.bytes:
            assert access.sectors == access.bytes // 16
            assert access.unique_sectors == access.sectors * distinct_share


@pytest.mark.parametrize(
    "text", ["f16:8192x8192:64x64", "u8:64:64", "bf16:256x64x8:64x8x1:1024x131072", "f32:4x5:4x5"]
)
def test_a_description_is_read_and_written_alike(text: str) -> None:
    assert str(parse_value(f"tensormap:{text}")) == f"tensormap:{text}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("f16:64x64", "no tensor"),
        ("f17:64x64:8x8", "no tensor"),
        ("f16:64x64:8", "unlike many axes"),
        ("f16:64x64:8x8:128x128", "unlike many axes"),
        ("f16:64x0:8x8", "no list"),
        ("f16:1x1x1x1x1x1:8x1x1x1x1x1", "no list"),
        ("f16:1024x64:512x8", "at most 256"),
        ("f16:64x64:4x8", "multiples of 16"),
        ("f16:63x64:8x8", "multiples of 16"),
    ],
)
def test_a_description_that_no_driver_takes_is_refused(text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        parse_value(f"tensormap:{text}")
