"""Time of a Triton kernel's launch from its tasks: the longest of the roofs, with the tasks spread over SMs.

Tasks are decomposed from the kernel's Triton IR and given to SMs by the hardware's policy (SynPerf, section
IV-B). Roofs, in microseconds:

    tensor, fma, xu   operations of the SM that has most, over the pipe's rate
    l2                bytes loaded and stored, over the L2's bandwidth
    dram              distinct bytes loaded and stored, over the DRAM's bandwidth

The time is the longest of them. Nothing is learned: it is what the launch takes at least at boost clock where
data come from DRAM, and kernels take longer. Registers are not known at this level, so how many CTAs an SM
holds follows from threads and shared memory alone.
"""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.ir.tile_operations import MemoryType, Operation, TritonModule, walk_operations
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType
from analyzer.operators.pipe_figures import PipeFigures, read_pipe_figures
from analyzer.operators.programs import tabulate_programs
from analyzer.operators.scheduling import distribute_tasks
from analyzer.operators.task_demand import Pipe
from analyzer.tiles.decomposition import TaskDecomposition
from analyzer.tiles.footprint import DistinctBytes
from analyzer.tiles.work import Quantity, count_bits

NAME = "roofs"
TIMED_QUANTITIES = frozenset(  # of a launch, that decide its time
    {
        Quantity.MMA_FMA,
        Quantity.XU_OPERATIONS,
        Quantity.FMA_OPERATIONS,
        Quantity.BYTES_LOADED,
        Quantity.BYTES_STORED,
    }
)
# Of 151 Triton launches of traces/h100, every fourth, those over 50 us take 1.2 times their roofs (median),
# 80 in 100 of them 1.06 to 2.0 times; shorter ones a few microseconds more.
_HIGH_OVER_TIME = 2.0
_HIGH_ADDED_US = 5.0
_MAX_CTAS = 32
_DATA_TYPES = {
    "f16": DataType.FP16,
    "bf16": DataType.BF16,
    "tf32": DataType.TF32,
    "i8": DataType.INT8,
}


class RoofPrediction(Struct, frozen=True):
    """The time of a launch and the roofs that it follows from."""

    time_us: float
    high_us: float
    dtype: str  # that tensor cores multiply, "" if they do nothing
    terms_us: Mapping[str, float]
    slots_per_sm: int


def predict_program(
    module: TritonModule, tasks: TaskDecomposition, distinct: DistinctBytes, gpu: Gpu
) -> RoofPrediction:
    """Return the time of a launch on a GPU by its roofs."""
    hardware = read_operator_hardware(gpu)
    dtype = _find_data_type(tasks)
    figures = read_pipe_figures(hardware, dtype or DataType.FP32)
    slots = _count_slots(module, tasks, hardware.shared_bytes_per_sm, hardware.max_warps_per_sm)
    table = tabulate_programs(tasks, figures, slots)
    terms = _list_terms(
        tasks, distinct, figures, distribute_tasks(table, figures.sm_count).max_sm[0].tolist()
    )
    time_us = max(terms.values())
    return RoofPrediction(
        time_us=time_us,
        high_us=time_us * _HIGH_OVER_TIME + _HIGH_ADDED_US,
        dtype="" if dtype is None else dtype.value,
        terms_us=terms,
        slots_per_sm=slots,
    )


def _list_terms(
    tasks: TaskDecomposition, distinct: DistinctBytes, figures: PipeFigures, max_sm: list[float]
) -> Mapping[str, float]:
    terms = {
        pipe.name.lower(): max_sm[pipe] / figures.find_throughput(pipe) / figures.clock_mhz
        for pipe in (Pipe.TENSOR, Pipe.FMA, Pipe.XU)
    }
    moved = tasks.total[Quantity.BYTES_LOADED] + tasks.total[Quantity.BYTES_STORED]
    terms["l2"] = moved / (figures.l2_gbps * 1e3)
    terms["dram"] = (distinct.loaded + distinct.stored) / (figures.dram_gbps * 1e3)
    return terms


def _find_data_type(tasks: TaskDecomposition) -> DataType | None:
    """Return the type of most products, None without any."""
    totals: dict[str, int] = {}
    for each in tasks.operations:
        amount = each.amounts[Quantity.MMA_FMA]
        if amount:
            totals[each.work.type_name] = totals.get(each.work.type_name, 0) + amount
    if not totals:
        return None
    name = max(totals, key=lambda each: totals[each])
    return _DATA_TYPES.get(name, DataType.FP8 if name.startswith("f8") else DataType.FP16)


def _count_slots(
    module: TritonModule, tasks: TaskDecomposition, shared_bytes: float, max_warps: float
) -> int:
    """Return the CTAs that an SM holds, by threads and by the buffers of shared memory."""
    by_warps = int(max_warps // max(1, tasks.threads.n_warps))
    own = sum(_count_buffer_bytes(each) for each in walk_operations(each.body for each in module.functions))
    by_shared = int(shared_bytes // own) if own else _MAX_CTAS
    return max(1, min(by_warps, by_shared, _MAX_CTAS))


def _count_buffer_bytes(operation: Operation) -> int:
    if operation.name != "ttg.local_alloc" or not operation.results:
        return 0
    kind = operation.results[0].type
    if not isinstance(kind, MemoryType):
        return 0
    elements = 1
    for length in kind.shape:
        elements *= length
    return elements * count_bits(kind) // 8
