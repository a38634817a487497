"""Decomposition of shipped kernels against closed forms, and against the execution of their SASS."""

from collections.abc import Sequence
from math import ceil

import numpy as np
import pytest
from paths import TRACES

from analyzer.demand.launch_work import LaunchWork
from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.ir.launch import Argument, Buffer, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import load
from analyzer.pipeline.task_decomposition import count_work
from analyzer.text.errors import UsageError
from analyzer.tiles.decomposition import TaskDecomposition, decompose_launch
from analyzer.tiles.work import Quantity

LEVELS = TRACES / "levels"


def make_arguments(**values: object) -> tuple[Argument, ...]:
    def convert(value: object) -> object:
        return Buffer(value.view(np.uint8), "array") if isinstance(value, np.ndarray) else value

    return tuple(Argument(name, convert(value)) for name, value in values.items())  # type: ignore[arg-type]


def decompose(
    name: str, grid: Sequence[int], arguments: tuple[Argument, ...], suffix: str = "ttgir"
) -> TaskDecomposition:
    path = LEVELS / f"{name}.{suffix}"
    module, diagnostics = parse_triton_ir(path.read_text(), str(path))
    assert not diagnostics
    return decompose_launch(module, Dim3(*grid), arguments)


def execute(name: str, grid: Sequence[int], arguments: tuple[Argument, ...]) -> LaunchWork:
    kernel = load(str(LEVELS / f"{name}.cubin")).kernels[0]
    threads = kernel.kernel.resources.block_threads
    assert threads is not None
    launch = Launch(grid=Dim3(*grid), block=Dim3(threads), arguments=arguments)
    executed = execute_kernel(kernel, launch)
    assert executed is not None
    return count_work(kernel, executed)


def check_same_as_code(tasks: TaskDecomposition, work: LaunchWork) -> None:
    total = tasks.total
    assert total[Quantity.MMA_FMA] == work.mma_fma
    assert total[Quantity.BYTES_LOADED] == work.global_loaded_bytes
    assert total[Quantity.BYTES_STORED] == work.global_stored_bytes
    assert total[Quantity.XU_OPERATIONS] == work.xu_operations


def make_matmul(m: int, n: int, k: int, a_stride: int | None = None) -> tuple[Argument, ...]:
    strides = {"a_stride": a_stride or k, "b_stride": n, "c_stride": n}
    return make_arguments(a_ptr=Pointer(), b_ptr=Pointer(), c_ptr=Pointer(), m=m, n=n, k=k, **strides)


@pytest.mark.parametrize("name", ["sm_90/matmul", "sm_80/matmul", "sm_100/matmul"])
@pytest.mark.parametrize(("m", "n", "k"), [(256, 128, 64), (300, 144, 80), (129, 64, 32), (1, 16, 16)])
def test_matmul_is_its_closed_form(name: str, m: int, n: int, k: int) -> None:
    tile_m, tile_n, tile_k = 128, 64, 32
    rows, columns, steps = ceil(m / tile_m), ceil(n / tile_n), ceil(k / tile_k)
    tasks = decompose(name, (rows * columns,), make_matmul(m, n, k))
    assert tasks.assumptions == ()
    assert tasks.total[Quantity.MMA_FMA] == rows * columns * steps * tile_m * tile_n * tile_k
    # Rows and columns wrap around, so that only k is cut off in loads; stores are cut off at both.
    assert tasks.total[Quantity.BYTES_LOADED] == rows * columns * (tile_m + tile_n) * k * 2
    assert tasks.total[Quantity.BYTES_STORED] == m * n * 2
    assert {each.trips for each in tasks.classes} == {steps}
    classes = {(min(tile_m, m), min(tile_n, n)), (min(tile_m, m), n % tile_n), (m % tile_m, min(tile_n, n))}
    classes |= {(m % tile_m, n % tile_n)}
    assert len(tasks.classes) == len({a * b for a, b in classes if a and b})


def test_ttir_gives_the_same_tasks_without_repeated_loads() -> None:
    arguments = make_matmul(300, 144, 80)
    high, low = (decompose("sm_90/matmul", (9,), arguments, suffix) for suffix in ("ttir", "ttgir"))
    for quantity in (Quantity.MMA_FMA, Quantity.BYTES_LOADED, Quantity.BYTES_STORED):
        assert high.total[quantity] == low.total[quantity]
    assert [each.count for each in high.classes] == [each.count for each in low.classes]


@pytest.mark.parametrize(
    ("name", "m", "n", "k"),
    [
        ("sm_90/matmul", 300, 144, 80),
        ("sm_80/matmul", 300, 144, 80),
        ("sm_100/matmul", 300, 144, 80),
        ("sm_90/matmul_unaligned", 33, 47, 21),
    ],
)
def test_matmul_is_what_its_code_executes(name: str, m: int, n: int, k: int) -> None:
    tile_m, tile_n = (32, 32) if "unaligned" in name else (128, 64)
    grid, arguments = (ceil(m / tile_m) * ceil(n / tile_n),), make_matmul(m, n, k)
    check_same_as_code(decompose(name, grid, arguments), execute(name, grid, arguments))


def make_attention(length: int, dim: int = 64) -> tuple[Argument, ...]:
    pointers = {f"{name}_ptr": Pointer() for name in ("q", "k", "v", "out")}
    sizes = {"length": length, "stride": dim, "head_stride": length * dim}
    return make_arguments(**pointers, **sizes, log2_scale=0.125)


@pytest.mark.parametrize("length", [256, 200])
def test_causal_attention_has_a_class_per_kv_length(length: int) -> None:
    rows, keys, dim, heads = 128, 32, 64, 3
    blocks = ceil(length / rows)
    grid, arguments = (blocks, heads), make_attention(length)
    tasks = decompose("sm_90/flash_attention", grid, arguments)
    assert sorted(each.trips for each in tasks.classes) == [rows // keys * (i + 1) for i in range(blocks)]
    assert [each.count for each in tasks.classes] == [heads] * blocks
    for each in tasks.classes:
        assert each.amounts[Quantity.MMA_FMA] == each.trips * 2 * rows * keys * dim
    kv_rows = sum(min(length, rows * (i + 1)) for i in range(blocks))
    assert tasks.total[Quantity.BYTES_LOADED] == heads * (length + 2 * kv_rows) * dim * 2
    assert tasks.total[Quantity.BYTES_STORED] == heads * length * dim * 2
    check_same_as_code(tasks, execute("sm_90/flash_attention", grid, arguments))


def test_softmax_is_its_closed_form_and_its_code() -> None:
    rows, columns = 5, 992
    arguments = make_arguments(
        x_ptr=Pointer(), out_ptr=Pointer(), columns=columns, x_stride=columns, out_stride=columns
    )
    tasks = decompose("sm_90/softmax", (rows,), arguments)
    assert tasks.total[Quantity.BYTES_LOADED] == tasks.total[Quantity.BYTES_STORED] == rows * columns * 2
    # An exponential per element of the padded row, and the reciprocal of the sum in each thread.
    assert tasks.total[Quantity.XU_OPERATIONS] == rows * (1024 + 128)
    assert len(tasks.classes) == 1
    check_same_as_code(tasks, execute("sm_90/softmax", (rows,), arguments))


def make_moe(experts: list[int], block: int = 32) -> tuple[dict[str, np.ndarray], int]:
    """Return routing arrays for experts with so many slots each, and how many slots there are."""
    slots, blocks, first, total = [], [], 0, sum(experts)
    for expert, count in enumerate(experts):
        padded = ceil(count / block) * block
        slots += [*range(first, first + count), *[total] * (padded - count)]
        blocks += [expert] * (padded // block)
        first += count
    slots += [total] * block  # a block that no expert has: its programs return at once
    blocks.append(-1)
    arrays = {
        "sorted_slot_ptr": np.array(slots, dtype=np.int32),
        "block_expert_ptr": np.array(blocks, dtype=np.int32),
        "used_slots_ptr": np.array([len(slots)], dtype=np.int32),
    }
    return arrays, total


def test_moe_reads_its_routing_and_leaves_out_padding() -> None:
    experts, n, k, block_m, block_n, block_k = [40, 3, 32], 128, 96, 32, 64, 64
    arrays, slots = make_moe(experts)
    pointers = {f"{name}_ptr": Pointer() for name in ("x", "weight", "out", "gate")}
    sizes = {"n": n, "k": k, "slots": slots, "x_stride": k, "expert_stride": n * k}
    sizes |= {"weight_stride": k, "out_stride": n}
    arguments = make_arguments(**pointers, **arrays, **sizes)
    blocks = arrays["block_expert_ptr"]
    n_blocks = int((blocks >= 0).sum())
    grid = (len(blocks) * n // block_n,)
    tasks = decompose("sm_90/fused_moe", grid, arguments)
    working = n_blocks * n // block_n
    steps = ceil(k / block_k)
    assert tasks.total[Quantity.MMA_FMA] == working * steps * block_m * block_n * block_k
    assert tasks.total[Quantity.BYTES_STORED] == slots * n * 2
    idle = [each for each in tasks.classes if not each.amounts[Quantity.MMA_FMA]]
    assert sum(each.count for each in idle) == grid[0] - working
    # Activations of real slots, and weights, per column block; indices and gates come on top.
    tiles = (slots * k + n_blocks * block_n * k) * (n // block_n) * 2
    others = sum(
        each.amounts[Quantity.BYTES_LOADED] for each in tasks.operations if each.operation.name == "tt.load"
    )
    assert tasks.total[Quantity.BYTES_LOADED] == tiles + others
    check_same_as_code(tasks, execute("sm_90/fused_moe", grid, arguments))


def test_moe_without_its_routing_says_what_it_assumes() -> None:
    pointers = ("x", "weight", "out", "gate", "sorted_slot", "block_expert", "used_slots")
    sizes = {"n": 128, "k": 96, "slots": 75, "x_stride": 96, "expert_stride": 1, "weight_stride": 1}
    arguments = make_arguments(**{f"{name}_ptr": Pointer() for name in pointers}, **sizes, out_stride=128)
    tasks = decompose("sm_90/fused_moe", (8,), arguments)
    assert any("--arg used_slots_ptr=@FILE.npy" in each for each in tasks.assumptions)
    assert tasks.total[Quantity.MMA_FMA] > 0


def test_grouped_gemm_shares_tiles_of_all_groups() -> None:
    groups = [(40, 64, 48), (7, 24, 200), (96, 32, 32)]
    sizes = np.array([number for m, n, k in groups for number in (m, n // 8, k // 8)], dtype=np.int32)
    programs = 24
    addresses = {
        f"{name}_ptrs": np.arange(len(groups), dtype=np.int64) * (1 << 24) + (place << 34)
        for place, name in enumerate("abc", start=16)
    }
    arguments = make_arguments(**addresses, sizes_ptr=sizes, groups=len(groups))
    tasks = decompose("sm_90/grouped_gemm", (programs,), arguments)
    work = execute("sm_90/grouped_gemm", (programs,), arguments)
    assert tasks.total[Quantity.MMA_FMA] == work.mma_fma
    assert tasks.total[Quantity.BYTES_STORED] == work.global_stored_bytes
    # The compiler moves the loads of addresses into the loop over tiles, which some programs never enter.
    assert tasks.total[Quantity.BYTES_LOADED] > work.global_loaded_bytes
    tiles = [ceil(m / 32) * ceil(n / 32) for m, n, _ in groups]
    steps = [ceil(k / 32) for _, _, k in groups]
    assert tasks.total[Quantity.MMA_FMA] == 32**3 * sum(a * b for a, b in zip(tiles, steps, strict=True))
    assert tasks.total[Quantity.BYTES_STORED] == sum(m * n * 2 for m, n, _ in groups)
    loaded = sum(ceil(n / 32) * m * k * 2 + ceil(m / 32) * n * k * 2 for m, n, k in groups)
    scalars = sum(
        each.amounts[Quantity.BYTES_LOADED]
        for each in tasks.operations
        if each.operation.name == "tt.load" and each.work.elements == 1
    )
    assert tasks.total[Quantity.BYTES_LOADED] == loaded + scalars
    assert tasks.class_of_program.shape == (programs,)


def test_classes_are_listed_in_launch_order() -> None:
    tasks = decompose("sm_90/matmul", (9,), make_matmul(300, 144, 80))
    counts = np.bincount(tasks.class_of_program, minlength=len(tasks.classes))
    assert counts.tolist() == [each.count for each in tasks.classes]
    firsts = [int(np.argmax(tasks.class_of_program == index)) for index in range(len(tasks.classes))]
    assert firsts == [each.first_program for each in tasks.classes]


def test_a_hundred_thousand_programs_take_no_second() -> None:
    tasks = decompose("sm_90/matmul", (400 * 256,), make_matmul(400 * 128 - 1, 256 * 64, 64))
    assert sum(each.count for each in tasks.classes) == 400 * 256
    assert len(tasks.classes) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (make_arguments(rows=3), "no argument 'rows'"),
        (make_arguments(m=1.5), "an integer"),
        (make_arguments(a_ptr=3), "a pointer"),
        (make_arguments(m=Pointer()), "a number"),
        ((Argument(3, 4), Argument("m", 4)), "twice"),
        ((Argument(99, 4),), "no argument '99'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: tuple[Argument, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        decompose("sm_90/matmul", (1,), arguments)


def test_missing_scalar_is_an_assumption_with_its_option() -> None:
    tasks = decompose("sm_90/matmul", (1,), make_arguments(a_ptr=Pointer()))
    assert any("--arg k=NUMBER" in each for each in tasks.assumptions)
