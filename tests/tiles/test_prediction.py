"""Tasks of a Triton kernel as SynPerf's tasks, their footprint, and times from roofs."""

from math import ceil

import numpy as np
import pytest
from click.testing import CliRunner
from paths import TRACES

from analyzer.cli.app import app
from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Argument, Dim3, Pointer
from analyzer.models.program_roofs import predict_program
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType
from analyzer.operators.pipe_figures import read_pipe_figures
from analyzer.operators.programs import tabulate_programs
from analyzer.operators.scheduling import distribute_tasks
from analyzer.operators.task_demand import Pipe
from analyzer.report.predict_schema import PredictReport
from analyzer.report.report_reader import read_report
from analyzer.report.tasks_schema import TasksReport
from analyzer.tiles.decomposition import decompose_launch
from analyzer.tiles.footprint import estimate_distinct_bytes
from analyzer.tiles.work import Quantity

LEVELS = TRACES / "levels" / "sm_90"
GPU = "h100"


def read(name: str):  # type: ignore[no-untyped-def]
    path = LEVELS / f"{name}.ttgir"
    return parse_triton_ir(path.read_text(), str(path))[0]


def make_matmul(m: int, n: int, k: int) -> tuple[Argument, ...]:
    sizes = {"m": m, "n": n, "k": k, "a_stride": k, "b_stride": n, "c_stride": n}
    pointers = tuple(Argument(f"{name}_ptr", Pointer()) for name in "abc")
    return (*pointers, *(Argument(name, value) for name, value in sizes.items()))


def test_distinct_bytes_of_a_product_are_its_matrices() -> None:
    m, n, k = 1024, 512, 256
    module, arguments = read("matmul"), make_matmul(m, n, k)
    tasks = decompose_launch(module, Dim3(m // 128 * n // 64), arguments)
    distinct = estimate_distinct_bytes(module, tasks, arguments)
    # The loop's last copies are cut off, but their addresses count: at most a tile of columns more.
    assert (m * k + k * n) * 2 <= distinct.loaded <= (m * k + k * n) * 2 + 4 * 32 * n * 2
    assert distinct.stored == m * n * 2
    assert distinct.n_unknown == 0


def test_causal_attention_gives_the_last_sms_most_work() -> None:
    length, heads = 1024, 5
    sizes = {"length": length, "stride": 64, "head_stride": length * 64}
    arguments = tuple(Argument(name, value) for name, value in sizes.items())
    tasks = decompose_launch(read("flash_attention"), Dim3(length // 128, heads), arguments)
    figures = read_pipe_figures(read_operator_hardware(load_gpu(GPU)), DataType.BF16)
    table = tabulate_programs(tasks, figures, 1)
    distribution = distribute_tasks(table, figures.sm_count)
    assert distribution.n_tasks.tolist() == [length // 128 * heads]
    assert distribution.total[0, Pipe.TENSOR] == 2 * tasks.total[Quantity.MMA_FMA]
    # With fewer tasks than SMs, the SM with most has the task with the longest row of keys.
    longest = max(each.amounts[Quantity.MMA_FMA] for each in tasks.classes)
    assert distribution.max_sm[0, Pipe.TENSOR] == 2 * longest


@pytest.mark.parametrize("k", [64, 8192])
def test_time_is_the_longest_roof(k: int) -> None:
    m = n = 4096
    module, arguments = read("matmul"), make_matmul(m, n, k)
    tasks = decompose_launch(module, Dim3(m // 128 * n // 64), arguments)
    gpu = load_gpu(GPU)
    found = predict_program(module, tasks, estimate_distinct_bytes(module, tasks, arguments), gpu)
    assert found.time_us == max(found.terms_us.values())
    figures = read_pipe_figures(read_operator_hardware(gpu), DataType.FP16)
    tiles = ceil(tasks.grid.count / figures.sm_count)
    expected = tiles * 2 * 128 * 64 * k / figures.tensor_ops_per_cycle / figures.clock_mhz
    assert found.terms_us["tensor"] == pytest.approx(expected)
    assert found.dtype == "fp16"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


SHAPE = [
    f"--arg={each}" for each in ("m=300", "n=144", "k=80", "a_stride=80", "b_stride=144", "c_stride=144")
]


def test_tasks_command_prints_json_and_text() -> None:
    file = str(LEVELS / "matmul.ttgir")
    report = read_report(run("tasks", file, "--grid", "9", *SHAPE, "--format", "json").encode())
    assert isinstance(report, TasksReport)
    assert report.total.count == 9
    assert sum(each.count * each.mma_fma for each in report.tasks) == report.total.mma_fma
    assert sum(each.count * each.bytes_loaded for each in report.tasks) == report.total.bytes_loaded
    assert {each.trips for each in report.tasks} == {3}
    assert sum(each.mma_fma for each in report.operations) == report.total.mma_fma
    assert "9 tasks (grid 9x1x1)" in run("tasks", file, "--grid", "9", *SHAPE)


def test_tasks_of_compiled_code_are_means() -> None:
    file = str(LEVELS / "matmul.cubin")
    report = read_report(run("tasks", file, "--grid", "9", *SHAPE, "--format", "json").encode())
    assert isinstance(report, TasksReport)
    (task,) = report.tasks
    assert task.count == 9
    assert task.mma_fma * 9 == report.total.mma_fma == 9 * 3 * 128 * 64 * 32
    assert any("means" in each for each in report.assumptions)


def test_predict_takes_a_kernel() -> None:
    file = str(LEVELS / "matmul.ttgir")
    text = run(
        "predict", "--kernel", file, "--grid", "9", *SHAPE, "--gpu", "h100,a100-40gb-pcie", "--format=json"
    )
    report = read_report(text.encode())
    assert isinstance(report, PredictReport)
    assert [each.operator for each in report.predictions] == ["matmul"] * 2
    times = np.array([each.time_us for each in report.predictions])
    assert (times > 0).all()
