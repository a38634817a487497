"""Whole launches: boxes of CTAs, samples, limits, and launches that hardware would refuse."""

from pathlib import Path

import pytest
from against_oracle import load_packed_dump
from msgspec.structs import replace

from analyzer import analyze, load
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.budget import Budget
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, Pointer
from analyzer.pipeline import Options
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.report.analyze_schema import KernelReport
from analyzer.text.errors import UsageError

TRACES = Path(__file__).resolve().parents[2] / "traces"


def executed(dump: str, kernel: str, grid: Dim3, block: Dim3, **arguments: ArgumentValue) -> KernelReport:
    """The report of one launch; arguments as `a3=100`."""
    given = tuple(Argument(int(which[1:]), value) for which, value in arguments.items())
    launch = Launch(grid=grid, block=block, arguments=given)
    options = Options(kernels=(kernel,), launch=launch)
    return analyze(load(str(TRACES / dump)), options=options).kernels[0]


@pytest.mark.parametrize("n", [1, 256_000_000, 255_999_999, 128_000_000, 31])
def test_a_million_ctas_are_exact(n: int) -> None:
    report = executed("cuda/sm_80/report16.sass", "vector_add", Dim3(1_000_000), Dim3(256), a3=n)
    assert report.counts.provenance == "exact"
    assert report.counts.looked_at_ctas is not None
    assert report.counts.looked_at_ctas < 100
    assert report.traffic is not None
    assert (report.traffic.read_bytes, report.traffic.written_unique_bytes) == (8 * n, 4 * n)
    stores = [access for access in report.memory if access.opcode.startswith("STG")]
    assert [access.requests for access in stores] == [-(-n // 32)]
    assert [access.sectors for access in stores] == [-(-n // 8)]


@pytest.mark.parametrize("n", [3000, 2000])
def test_corners_with_other_trip_counts_are_not_alike(n: int) -> None:
    """Trips taken at once are part of what makes CTAs alike."""
    report = executed("cuda/sm_80/exactness.sass", "triangular_row_sums", Dim3(2200), Dim3(256), a2=n)
    assert report.counts.provenance == "exact"
    warps = range(-(-n // 32))
    header = report.loops[0].header
    runs = [block.executed_warps for block in report.counts.blocks if block.start == header]
    assert runs == [sum(min(n, 32 * (warp + 1)) for warp in warps)]
    assert report.traffic is not None
    assert report.traffic.read_bytes == 2 * n * (n + 1)


def test_rows_that_start_within_sectors_are_counted_exactly() -> None:
    """1,000 halves a row: every other row starts in the middle of a sector."""
    report = executed(
        "triton/sm_80/softmax.sass", "softmax", Dim3(100_000), Dim3(128), a2=1000, a3=1000, a4=1000
    )
    for access in report.memory:
        if access.space == "global":
            assert (access.provenance, access.sectors) == ("exact", 50_000 * (63 + 66))


@pytest.mark.parametrize(
    ("dump", "kernel", "grid", "block", "arguments"),
    [
        ("triton/sm_80/matmul.sass", "matmul", Dim3(256), Dim3(128), (2048, 2048, 96, 2048, 2048, 2048)),
        ("triton/sm_80/matmul.sass", "matmul", Dim3(465), Dim3(128), (1969, 1848, 96, 1848, 1848, 1848)),
        ("triton/sm_90/matmul.sass", "matmul", Dim3(512), Dim3(128), (2048, 2048, 96, 2048, 2048, 2048)),
        ("triton/sm_100/matmul.sass", "matmul", Dim3(128), Dim3(128), (2048, 1024, 96, 1024, 1024, 1024)),
        ("cuda/sm_80/report16.sass", "naive_transpose", Dim3(9, 11), Dim3(32, 8), (300, 340)),
    ],
)
def test_rows_and_columns_of_ctas_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
    dump: str,
    kernel: str,
    grid: Dim3,
    block: Dim3,
    arguments: tuple[int, ...],
) -> None:
    """CTAs held as rows and columns, which the code or the grid makes, count as those held one by one."""
    first = 3 if kernel == "matmul" else 2
    given = {f"a{first + place}": value for place, value in enumerate(arguments)}
    arranged = executed(dump, kernel, grid, block, **given)
    monkeypatch.setattr("analyzer.execution.sampling.batch_runs.MIN_CTAS_TO_SPLIT", 1 << 40)
    monkeypatch.setattr(
        "analyzer.execution.sampling.cta_equivalence.find_grid_rows", lambda shape, numbers: None
    )
    plain = executed(dump, kernel, grid, block, **given)
    assert plain.counts.provenance == "exact"
    assert (plain.counts.blocks, plain.memory, plain.traffic) == (
        arranged.counts.blocks,
        arranged.memory,
        arranged.traffic,
    )


def boxes_and_whole(
    kernel: LoadedKernel, launch: Launch, *, max_warps: int | None
) -> tuple[ExecutionProfile, ExecutionProfile]:
    """A launch executed by boxes, and CTA by CTA, which must say the same of lanes and memory."""
    boxes, whole = (execute_kernel(kernel, launch, max_warps=most) for most in (max_warps, 1 << 20))
    assert boxes is not None
    assert whole is not None
    assert boxes.profile.block_active_lanes.tolist() == whole.profile.block_active_lanes.tolist()
    # Lines are those of the first place of a pattern, and boxes have other first places.
    assert [replace(access, lines=None) for access in boxes.profile.accesses] == [
        replace(access, lines=None) for access in whole.profile.accesses
    ]
    assert boxes.profile.traffic == whole.profile.traffic
    return boxes.profile, whole.profile


def test_addresses_whose_sign_is_extended_are_proven_alike() -> None:
    """64-bit addresses made of a signed index: SHF.R.S32.HI by 31 is the same wherever its input's sign is."""
    (kernel,) = load(str(TRACES / "measured" / "sm_86" / "cm15-a4000-5c6c88cb6734.sass")).kernels
    arguments = tuple(Argument(place, Pointer()) for place in range(3))
    launch = Launch(grid=Dim3(64, 160), block=Dim3(64), dynamic_shared_bytes=0, arguments=arguments)
    boxes, whole = boxes_and_whole(kernel, launch, max_warps=None)
    assert boxes.n_sampled_ctas < whole.n_sampled_ctas == 64 * 160
    assert boxes.provenance is whole.provenance is Provenance.EXACT


def test_addresses_that_hang_on_unknown_delays_are_proven_alike() -> None:
    """Zero stands for a delay, so a float made of the CTA's place, times the delay, moves nothing."""
    (kernel,) = load(str(TRACES / "measured" / "sm_80" / "dd-a100-8ec57070f381.sass")).kernels
    arguments = tuple(Argument(place, Pointer()) for place in range(3))
    launch = Launch(grid=Dim3(900, 20), block=Dim3(32, 2), dynamic_shared_bytes=0, arguments=arguments)
    boxes, whole = boxes_and_whole(kernel, launch, max_warps=1)
    assert boxes.n_sampled_ctas < 50 < whole.n_sampled_ctas == 900 * 20


def test_addresses_from_the_frame_of_spilled_registers_are_proven_alike() -> None:
    (kernel,) = load_packed_dump("spilled_86").kernels
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, 40 * 128))
    launch = Launch(grid=Dim3(40, 9), block=Dim3(128), dynamic_shared_bytes=0, arguments=arguments)
    boxes, whole = boxes_and_whole(kernel, launch, max_warps=1)
    assert boxes.n_sampled_ctas < 10 < whole.n_sampled_ctas == 40 * 9


def handed_on(name: str) -> tuple[ExecutionProfile, ExecutionProfile]:
    """Boxes and the whole grid of a kernel whose threads get pointers from each other."""
    (kernel,) = (found for found in load_packed_dump("handed_90").kernels if found.name == name)
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, 9), Argument(3, 4096))
    launch = Launch(grid=Dim3(6, 40), block=Dim3(128), dynamic_shared_bytes=0, arguments=arguments)
    return boxes_and_whole(kernel, launch, max_warps=1)


def test_pointers_that_threads_hand_each_other_leave_ctas_alike() -> None:
    """Words in shared memory move with the CTA's place as what is stored there does, a flag beside them does
    not, and a shift that gives all CTAs the same moves nothing."""
    boxes, whole = handed_on("handed")
    assert boxes.n_sampled_ctas < 20 < whole.n_sampled_ctas == 6 * 40
    assert boxes.provenance is whole.provenance is Provenance.EXACT
    assert {access.provenance for access in boxes.accesses} == {Provenance.EXACT}


def test_boxes_whose_shared_memories_take_too_much_room_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CTAs that stand for others are not taken apart: a neighbour elsewhere proves nothing."""
    monkeypatch.setattr("analyzer.execution.sampling.cta_equivalence.MAX_TRACKED_SHARED_BYTES", 8192)
    monkeypatch.setattr("analyzer.execution.machine.cta_batch.MAX_TRACKED_SHARED_BYTES", 8192)
    boxes, whole = handed_on("handed")
    assert boxes.n_sampled_ctas == whole.n_sampled_ctas == 6 * 40


def test_pointers_that_are_changed_byte_by_byte_are_not_taken_to_move_evenly() -> None:
    boxes, whole = handed_on("mixed")
    assert boxes.n_sampled_ctas == whole.n_sampled_ctas == 6 * 40


@pytest.mark.parametrize(
    ("name", "n_arguments", "size", "looked_at"),
    [("prices", 4, 900 * 128 - 50, 10), ("normalize", 2, 1000, 5), ("told", 2, 0, 901)],
)
def test_functions_for_odd_operands_leave_ctas_alike(
    name: str, n_arguments: int, size: int, looked_at: int
) -> None:
    """What they are called for depends on data that nobody knows, not on the CTA's place."""
    (kernel,) = (found for found in load_packed_dump("slow_paths_80").kernels if found.name == name)
    pointers = tuple(Argument(place, Pointer()) for place in range(n_arguments))
    arguments = (*pointers, Argument(n_arguments, size)) if size else pointers
    block = Dim3(256 if name == "normalize" else 128)
    launch = Launch(grid=Dim3(900), block=block, dynamic_shared_bytes=0, arguments=arguments)
    boxes, whole = boxes_and_whole(kernel, launch, max_warps=1)
    assert boxes.n_sampled_ctas < looked_at
    assert whole.n_sampled_ctas == 900


def test_what_cannot_be_proven_is_called_assumed() -> None:
    sizes: dict[str, ArgumentValue] = {f"a{place}": 32768 for place in range(3, 9)}
    report = executed("triton/sm_90/matmul_one_stage.sass", "matmul", Dim3(65536), Dim3(128), **sizes)
    assert report.counts.provenance == "assumed"
    assert any("CTAs executed" in note for note in report.counts.assumptions)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a0": 0x7F0000000001, "a3": 100}, "no multiple of 4"),
        ({"a3": 5_000_000_000}, "5000000000 needs 8"),
        ({"a9": 1}, "its place is not known"),
    ],
)
def test_launches_that_cannot_be(arguments: dict[str, ArgumentValue], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        executed("cuda/sm_80/report16.sass", "vector_add", Dim3(10), Dim3(256), **arguments)


def test_boxes_stand_for_a_grid_that_steps_do_not_suffice_for() -> None:
    """Causal attention: CTAs of one row of tiles run alike, whichever head they are of."""
    sizes = (Argument(4, 1024), Argument(5, 64), Argument(6, 65536))
    launch = Launch(grid=Dim3(16, 128), block=Dim3(128), arguments=sizes)
    dump = load(str(TRACES / "triton/sm_80/flash_attention.sass"))
    whole, few = (
        analyze(dump, options=Options(launch=launch, step_limit=limit)).kernels[0]
        for limit in (100_000, 2500)
    )
    assert few.counts.looked_at_ctas is not None
    assert few.counts.looked_at_ctas < 100 < 16 * 128 == whole.counts.looked_at_ctas
    assert few.counts.provenance == "exact"
    assert few.counts.executed_warp_instructions == whole.counts.executed_warp_instructions
    assert few.traffic is not None
    assert whole.traffic is not None
    assert few.traffic.read_bytes == whole.traffic.read_bytes


def test_boxes_of_every_eighth_cta_stand_for_a_grid_whose_trips_come_round_again() -> None:
    """Trips are alike at both ends of the grid, but not in between; so many CTAs apart they are."""
    (kernel,) = load_packed_dump("stripes_86").kernels
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, 3))
    launch = Launch(grid=Dim3(6401), block=Dim3(256), dynamic_shared_bytes=0, arguments=arguments)
    whole, few = (execute_kernel(kernel, launch, step_limit=limit) for limit in (100_000, 2000))
    assert whole is not None
    assert few is not None
    assert whole.profile.provenance is few.profile.provenance is Provenance.EXACT
    assert few.profile.block_executions.tolist() == whole.profile.block_executions.tolist()
    assert whole.profile.block_executions.max() == 8 * sum(3 + cta % 8 for cta in range(6401))
    assert few.profile.n_sampled_ctas < 100 < whole.profile.n_sampled_ctas


def test_boxes_whose_ctas_turn_out_unlike_stand_for_none() -> None:
    """Trips come round again after 128 CTAs: too many to look at each."""
    kernel = odd_rows("wide_stripes", 75)
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, 3))
    launch = Launch(grid=Dim3(12801), block=Dim3(256), dynamic_shared_bytes=0, arguments=arguments)
    whole, few = (execute_kernel(kernel, launch, step_limit=limit) for limit in (100_000, 2000))
    assert whole is not None
    assert few is not None
    assert whole.profile.provenance is Provenance.EXACT
    assert few.profile.provenance is Provenance.ASSUMED


def test_boxes_of_a_product_have_half_of_the_steps() -> None:
    """bench/gemm/gemm.cu, MWG=128 NWG=64 KWG=32 MDIMC=NDIMC=16 SA=SB=0: 32,000 steps for three CTAs."""
    (kernel,) = load_packed_dump("gemm_75").kernels
    sizes = (*(Argument(place, 4096) for place in range(3)), Argument(3, 1.0), Argument(4, 0.5))
    found = execute_kernel(kernel, Launch(grid=Dim3(32, 64), block=Dim3(16, 16), arguments=sizes))
    assert found is not None
    assert (found.profile.provenance, found.profile.n_sampled_ctas) == (Provenance.EXACT, 3)


def test_an_access_costs_more_steps_than_another_action() -> None:
    """A loop of 41 loads by 1,024 threads took 25 s until its steps were spent."""
    plain, loads = Budget(1000), Budget(1000)
    plain.spend(40, 0, 0)
    loads.spend(40, 40, 0)
    assert loads.spent_steps > 1.5 * plain.spent_steps


def test_ctas_by_which_a_grid_was_judged_are_executed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[tuple[int, ...]] = []
    start = AbstractMachine.start

    def noted(self: AbstractMachine) -> None:
        batches.append(tuple(self.batch.cta_numbers.tolist()))
        start(self)

    monkeypatch.setattr(AbstractMachine, "start", noted)
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, 3))
    launch = Launch(grid=Dim3(1601), block=Dim3(256), dynamic_shared_bytes=0, arguments=arguments)
    found = execute_kernel(odd_rows("wide_stripes", 75), launch, step_limit=600)
    assert found is not None
    assert found.profile.n_sampled_ctas == len(batches[0]) < 100
    assert len(set(batches)) == len(batches)


def odd_rows(name: str, arch: int) -> LoadedKernel:
    (kernel,) = (own for own in load_packed_dump(f"odd_rows_{arch}").kernels if own.cfg.kernel.name == name)
    return kernel


@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize(("name", "grid"), [("odd_rows", Dim3(1000)), ("odd_images", Dim3(6, 150))])
@pytest.mark.parametrize("length", [1101, 515, 30])
def test_rows_of_odd_length_are_alike_where_they_are_aligned_alike(
    arch: int, name: str, grid: Dim3, length: int
) -> None:
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, length))
    launch = Launch(grid=grid, block=Dim3(128), dynamic_shared_bytes=0, arguments=arguments)
    boxes, whole = boxes_and_whole(odd_rows(name, arch), launch, max_warps=1)
    assert boxes.provenance is Provenance.EXACT
    assert boxes.n_sampled_ctas < 100 < whole.n_sampled_ctas


@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize(("name", "length"), [("thirds", 1000), ("thirds", 769), ("twelfths", 1001)])
def test_rows_that_are_read_by_threes_are_alike_where_a_division_leaves_alike(
    arch: int, name: str, length: int
) -> None:
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, length))
    launch = Launch(grid=Dim3(1000), block=Dim3(128), dynamic_shared_bytes=0, arguments=arguments)
    boxes, whole = boxes_and_whole(thirds(name, arch), launch, max_warps=1)
    assert boxes.provenance is Provenance.EXACT
    assert boxes.n_sampled_ctas < 100 < whole.n_sampled_ctas


@pytest.mark.parametrize("arch", [75, 90])
def test_what_a_division_leaves_after_too_many_ctas_is_no_proof(arch: int) -> None:
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, 4096))
    launch = Launch(grid=Dim3(2500), block=Dim3(128), dynamic_shared_bytes=0, arguments=arguments)
    kernel = thirds("parts_of_1000", arch)
    boxes, whole = boxes_and_whole(kernel, launch, max_warps=1)
    assert boxes.provenance is Provenance.EXACT
    (trips,) = {count for count in boxes.block_executions if count > 4 * 2500}
    assert trips == 4 * sum(cta % 1000 // 100 + 1 for cta in range(2500))
    assert boxes.n_sampled_ctas == whole.n_sampled_ctas


def thirds(name: str, arch: int) -> LoadedKernel:
    (kernel,) = (own for own in load_packed_dump(f"thirds_{arch}").kernels if own.cfg.kernel.name == name)
    return kernel


def test_the_memory_of_boxes_has_steps_of_its_own() -> None:
    sizes = (*(Argument(place, 4096) for place in range(3)), Argument(3, 1.0), Argument(4, 0.5))
    launch = Launch(grid=Dim3(32, 16), block=Dim3(32, 32), arguments=sizes)
    options = Options(launch=launch, step_limit=3000)
    (kernel,) = analyze(load(str(TRACES / "gemm/sm_75/l1-4.sass")), options=options).kernels
    assert (kernel.counts.looked_at_ctas, kernel.counts.provenance) == (3, "exact")
    assert kernel.traffic is not None
    assert kernel.traffic.read_bytes == 42_958_061_568  # as of all 512 CTAs


def test_what_a_call_of_the_system_returns_is_unknown() -> None:
    (kernel,) = load_packed_dump("system_90").kernels
    launch = Launch(
        grid=Dim3(4),
        block=Dim3(64),
        arguments=(Argument(0, Pointer()), Argument(1, 250)),
        dynamic_shared_bytes=0,
    )
    found = execute_kernel(kernel, launch)
    assert found is not None
    assert len(found.profile.unknown_branches) == 1
    assert any("malloc" in note for note in found.profile.assumptions)
    (last,) = [access for access in found.profile.accesses if access.unique_bytes == 250 * 8]
    assert last.lanes == 250
