"""Time of the grouped products of experts from their tiles: one configuration of Triton's kernel per row.

Idea. The rows (pairs of a token and an expert) of one expert are cut into blocks of BLOCK_M rows; one CTA
multiplies a block by BLOCK_N columns of its expert's weights, in steps of BLOCK_K. So a launch is a list of
equal tasks:

    tasks = sum over experts of ceil(rows of the expert / BLOCK_M) · ceil(n / BLOCK_N)
    steps = ceil(k / BLOCK_K)                                       per task

Three times are computed, each as if the others took none, and joined by a p-norm, which is a maximum where
one dominates:

    sms    whole waves and the last one. A step of c CTAs on an SM takes c times the busiest pipe, at least
           the chain of one CTA, and at least the time in which its buffers come in once, (chain + load) /
           buffers. Power may slow the tensor cores.
    l2     operands of all tiles; rows of padding are not loaded. Two SMs of a TPC may ask once for both.
    dram   distinct bytes that the L2 has lost since the last launch (half of them where the database's curve
           of the chip says so, on chips with one L2 sharply at its size), and what each wave reads again. Its
           rate depends on the bytes of a row that a step reads, and a little on how many blocks run side by
           side.

To these come `tail`, in which the CTAs of the last wave end apart from each other, and `launch`. What the
code asks of an SM is measured on the compiled code (`tuning`), or follows from the tile (`estimate_code`:
mostly within 1 % of the compiled code's tensor cycles and 8 % of its wavefronts, sm_80 to sm_120).

Invariant: at a fixed configuration no term but `tail` shrinks where tokens are added.

Example: 512 tokens, 128 experts, topk 6, hidden 4096, intermediate 2048, first product. 3,072 rows are 24 per
expert; with tiles of 64 rows, 64 columns and 32 of the depth that is 128 blocks of 64 rows, of which 24 are
valid, times 64 blocks of columns: 8,192 tasks of 128 steps; 4.3 GB of weights bound it on every GPU.

Figures: hwdb/tuning/fused_moe.toml, fitted by bench/moe_ranking.py to sweeps of configurations and to the
times of the default one. Tried and left out, since the fit put them at nothing: latency of the DRAM over the
bytes in flight, loads that end before a CTA does, cycles between a barrier and the first products.
"""

from collections.abc import Mapping
from functools import cache

import msgspec
import numpy as np
import tomli
from msgspec import Struct

from analyzer.hardware.schema import HardwareParameter
from analyzer.operators.batches import Column
from analyzer.operators.family import FittedParameter, Parameters
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType
from analyzer.operators.overlap import add_by_norm
from analyzer.operators.retention import STORED_SPACE, compute_lost_share
from analyzer.resources import find_data_folder


class TileConfiguration(Struct, frozen=True):
    """Configurations of the Triton kernel in columns, one entry per row."""

    block_m: Column
    block_n: Column
    block_k: Column
    group_m: Column
    warps: Column
    stages: Column


class ProductShape(Struct, frozen=True):
    """Grouped products in columns: `pairs` rows spread evenly over `experts`, each times k x n weights."""

    pairs: Column  # tokens x topk; rows that are computed
    distinct_rows: Column  # of the left operand: tokens for w13, pairs for w2
    experts: Column
    n: Column  # columns of the output
    k: Column  # reduction
    other_weight_bytes: Column  # of one expert, that pass through the L2 before the same weights come again
    dtype: DataType


class TileCode(Struct, frozen=True):
    """What the code of each row asks of an SM, in cycles of one CTA and step at the boost clock."""

    resident: Column  # CTAs that fit an SM
    buffers: Column  # of both operands' tiles
    is_asynchronous: Column  # products of warpgroups, or tcgen05
    tensor_cycles: Column  # at the peak rate of the instruction
    shared_cycles: Column  # wavefronts of shared memory
    other_cycles: Column  # of the busiest other pipe, and of issue
    latency_cycles: Column  # of one warp alone, waits for global memory left out


class TileTerms(Struct, frozen=True):
    """What the tiles of grouped products ask for; times in microseconds, alone and not overlapped."""

    sms_us: Column
    l2_us: Column
    dram_us: Column
    launch_us: Column
    tail_us: Column
    total_us: Column
    flops: Column  # of valid rows
    dram_bytes: Column  # each once


class TileLaunch(Struct, frozen=True):
    """Tasks of grouped products in columns, and how the GPU takes them: all that no figure decides."""

    shape: ProductShape
    configuration: TileConfiguration
    code: TileCode
    busy_experts: Column
    blocks: Column  # of rows, over all experts
    column_blocks: Column
    tasks: Column  # that work; CTAs without rows leave at once
    grid: Column  # CTAs launched, with those that find no rows
    steps: Column
    slots: Column  # CTAs that fit the GPU
    side_by_side: Column  # blocks of rows that run together
    used_rows: Column  # of a block, in the mean
    left_rows: Column  # of the left operand, each once
    weight_bytes: Column  # of busy experts
    row_bytes: Column  # of the left operand
    output_bytes: Column

    @property
    def fill(self) -> Column:
        """Share of the blocks' rows that are valid."""
        share: Column = self.shape.pairs / (self.blocks * self.configuration.block_m)
        return share


_ASYNCHRONOUS_ROWS = 64.0  # rows of a warpgroup's MMA and of tcgen05; smaller blocks fall back to mma.sync
_MMA_ROWS, _MMA_COLUMNS = 16.0, 8.0  # of the smallest MMA: a smaller block is padded by the hardware
_SHARED_BYTES_PER_CYCLE = 128.0  # of an SM
_RESERVED_SHARED_BYTES = 1024.0  # per CTA, taken by the system
_MAX_CTAS = 32.0
_BASE_REGISTERS, _MAX_REGISTERS = 56.0, 255.0  # per thread: for pointers and fragments beside the accumulator
_CTAS_PER_CYCLE = 1.0  # of the GPU, that start or find nothing to do and leave (facts/kll.md: B300, A100)
_SHORT_ROW_BYTES, _MIDDLE_ROW_BYTES = 128.0, 256.0

_RANGES = {
    "dram_share": (0.85, 1.3),
    "graphics_dram_share": (0.8, 1.0),
    "short_row_share": (0.8, 1.2),
    "middle_row_share": (0.8, 1.2),
    "graphics_short_row_share": (0.8, 1.2),
    "graphics_middle_row_share": (0.8, 1.2),
    "group_cost": (0.0, 0.03),
    "l2_share": (0.5, 1.6),
    "request_sharing": (1.0, 3.0),
    "warp_mma_efficiency": (0.5, 1.6),
    "asynchronous_mma_efficiency": (0.4, 1.4),
    "shared_share": (0.6, 1.3),
    "load_cycles": (100.0, 2000.0),
    "cta_cycles": (200.0, 6000.0),
    "tail_share": (0.0, 0.6),
    "launch_us": (0.3, 8.0),
    "sharpness": (1.5, 12.0),
    "latency_sharpness": (1.0, 6.0),
    "reused_share": (0.1, 1.0),
}


class TileFigures(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of a kernel: hwdb/tuning/fused_moe.toml says what each is."""

    gpus: tuple[str, ...]  # keys of those that the figures were fitted on
    sources: Mapping[str, str]
    model: Mapping[str, HardwareParameter]

    @property
    def parameters(self) -> dict[str, float]:
        """The figures by name, as `compute_tile_terms` takes them."""
        return {name: figure.value for name, figure in self.model.items()}


@cache
def load_tile_figures() -> TileFigures:
    """Return the shipped figures."""
    text = (find_data_folder("hwdb") / "tuning" / "fused_moe.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomli.loads(text), TileFigures)


def list_tile_parameters() -> tuple[FittedParameter, ...]:
    """Return the figures as the parameters of a family, each with the range in which it may be fitted."""
    shipped = load_tile_figures().parameters
    return tuple(FittedParameter(name, shipped[name], low, high) for name, (low, high) in _RANGES.items())


def estimate_code(
    shape: ProductShape, configuration: TileConfiguration, hardware: OperatorHardware
) -> TileCode:
    """Return what the code of these tiles asks of an SM, without compiling it.

    Triton keeps num_stages - 1 buffers of both operands' tiles. The sweeps of PipeWeave confirm the minus
    one: on an A40 (99 KiB per CTA) they list 128 x 256 x 64 in three stages, which is 96 KiB of two buffers.
    """
    rows_bytes, columns_bytes = shape.dtype.activation_bytes, shape.dtype.weight_bytes
    warps, depth = configuration.warps, configuration.block_k
    rows = np.maximum(configuration.block_m, _MMA_ROWS)
    columns = np.maximum(configuration.block_n, _MMA_COLUMNS)
    takes_groups = is_asynchronous(configuration.block_m, hardware)
    peak = hardware.find_peak_tflops(shape.dtype) * 1e6 / hardware.sm_count / hardware.boost_mhz
    tensor = 2.0 * rows * columns * depth / (peak * np.where(takes_groups, 1.0, hardware.warp_mma_share))
    # warps divide the tile as near to squares as powers of two allow; each loads its rows and its columns
    side = np.exp2(np.round(0.5 * np.log2(warps * rows / columns)))
    along = np.clip(side, 1.0, np.minimum(warps, rows / _MMA_ROWS))
    stored = (rows * rows_bytes + columns * columns_bytes) * depth
    loaded = (rows * rows_bytes * warps / along + columns * columns_bytes * along) * depth
    shared = stored + np.where(takes_groups, 0.0, loaded)
    buffers = np.maximum(configuration.stages - 1.0, 1.0)
    return TileCode(
        resident=_count_resident_ctas(shape, configuration, buffers, hardware),
        buffers=buffers,
        is_asynchronous=takes_groups,
        tensor_cycles=tensor,
        shared_cycles=shared / _SHARED_BYTES_PER_CYCLE,
        other_cycles=np.zeros(len(tensor)),
        latency_cycles=np.zeros(len(tensor)),
    )


def is_asynchronous(block_m: Column, hardware: OperatorHardware) -> Column:
    """Return which products warpgroups or tcgen05 compute; the others take MMA of single warps."""
    return np.asarray(hardware.has_asynchronous_mma & (block_m >= _ASYNCHRONOUS_ROWS))


def _count_resident_ctas(
    shape: ProductShape, configuration: TileConfiguration, buffers: Column, hardware: OperatorHardware
) -> Column:
    """Return CTAs per SM."""
    tile = configuration.block_k * (
        configuration.block_m * shape.dtype.activation_bytes
        + configuration.block_n * shape.dtype.weight_bytes
    )
    threads = 32.0 * configuration.warps
    registers = configuration.block_m * configuration.block_n / threads + _BASE_REGISTERS
    by_shared = np.floor(hardware.shared_bytes_per_sm / (buffers * tile + _RESERVED_SHARED_BYTES))
    by_registers = np.floor(hardware.registers_per_sm / (np.minimum(registers, _MAX_REGISTERS) * threads))
    by_warps = np.floor(hardware.max_warps_per_sm / configuration.warps)
    return np.clip(np.minimum(np.minimum(by_shared, by_registers), by_warps), 1.0, _MAX_CTAS)


def compute_tile_terms(launch: TileLaunch, hardware: OperatorHardware, parameters: Parameters) -> TileTerms:
    """Return what grouped products ask for, and the combined time.

    parameters: by name, as `list_tile_parameters`.
    """
    shape = launch.shape
    sms_us = _time_sms(launch, hardware, parameters)
    l2_us = _time_l2(launch, hardware, parameters)
    dram_us = _time_dram(launch, hardware, parameters)
    launch_us = parameters["launch_us"] + launch.grid / (_CTAS_PER_CYCLE * hardware.boost_mhz)
    power = parameters["sharpness"]
    busy_us = add_by_norm(add_by_norm(sms_us, l2_us, power), dram_us, power)
    tail_us = parameters["tail_share"] * busy_us / np.maximum(launch.tasks / launch.slots, 1.0)
    return TileTerms(
        sms_us=sms_us,
        l2_us=l2_us,
        dram_us=dram_us,
        launch_us=launch_us,
        tail_us=tail_us,
        total_us=busy_us + tail_us + launch_us,
        flops=2.0 * shape.pairs * shape.n * shape.k,
        dram_bytes=launch.weight_bytes + launch.row_bytes + launch.output_bytes,
    )


def count_row_blocks(pairs: Column, experts: Column, block_m: Column) -> Column:
    """Return the blocks of rows of all experts under balanced routing: pair f goes to expert f mod all."""
    busy = np.minimum(experts, np.maximum(pairs, 1.0))
    fewer = np.floor(pairs / busy)
    with_more = pairs - busy * fewer  # experts that have one pair more than the others
    blocks: Column = with_more * np.ceil((fewer + 1.0) / block_m) + (busy - with_more) * np.ceil(
        fewer / block_m
    )
    return blocks


def cut_tiles(
    shape: ProductShape,
    configuration: TileConfiguration,
    hardware: OperatorHardware,
    code: TileCode | None = None,
) -> TileLaunch:
    """Return the tasks into which products are cut; pairs are spread evenly over the experts.

    shape, configuration: one entry per row each; code: what the compiled code asks of an SM, estimated where
    None.
    """
    code = code or estimate_code(shape, configuration, hardware)
    block_m = configuration.block_m
    busy = np.minimum(shape.experts, np.maximum(shape.pairs, 1.0))
    blocks = count_row_blocks(shape.pairs, shape.experts, block_m)
    column_blocks = np.ceil(shape.n / configuration.block_n)
    tasks = blocks * column_blocks
    # the grid is sized for the worst routing: each expert's last block may be nearly empty
    padded = shape.pairs + (shape.experts + 1.0) * (block_m - 1.0)
    padded = np.minimum(padded, np.maximum(shape.pairs, 1.0) * block_m)
    left_rows = np.minimum(shape.distinct_rows, shape.pairs)
    return TileLaunch(
        shape=shape,
        configuration=configuration,
        code=code,
        busy_experts=busy,
        blocks=blocks,
        column_blocks=column_blocks,
        tasks=tasks,
        grid=np.maximum(np.ceil(padded / block_m) * column_blocks, tasks),
        steps=np.ceil(shape.k / configuration.block_k),
        slots=hardware.sm_count * code.resident,
        side_by_side=np.minimum(configuration.group_m, blocks),
        used_rows=shape.pairs / blocks,
        left_rows=left_rows,
        weight_bytes=busy * shape.n * shape.k * shape.dtype.weight_bytes,
        row_bytes=left_rows * shape.k * shape.dtype.activation_bytes,
        output_bytes=shape.pairs * shape.n * shape.dtype.output_bytes,
    )


def _time_dram(launch: TileLaunch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the time of what comes from the DRAM, at the rate that the order of the tiles allows."""
    kind_share = 1.0 if hardware.has_stacked_dram else parameters["graphics_dram_share"]
    dram_rate = parameters["dram_share"] * kind_share * hardware.sustained_dram_gbps * 1e3
    slowdown = _slow_rows(launch, hardware, parameters)
    time_us: Column = _count_dram_bytes(launch, hardware, parameters) * slowdown / dram_rate
    return time_us


def _slow_rows(launch: TileLaunch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the DRAM's time over that of reading 512 bytes of each row at a step, one block at a time."""
    piece = launch.configuration.block_k * launch.shape.dtype.weight_bytes
    kind = "" if hardware.has_stacked_dram else "graphics_"
    shares = [parameters[f"{kind}short_row_share"], parameters[f"{kind}middle_row_share"]]
    share = np.select([piece <= _SHORT_ROW_BYTES, piece <= _MIDDLE_ROW_BYTES], shares, 1.0)
    slowdown: Column = (1.0 + parameters["group_cost"] * np.log2(launch.side_by_side)) / share
    return slowdown


def _count_dram_bytes(launch: TileLaunch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the bytes read and written, of which each wave reads what the last one left in no cache."""
    shape, left_rows = launch.shape, launch.left_rows
    operands = launch.weight_bytes + launch.row_bytes
    lost = compute_lost_share(
        operands + launch.busy_experts * shape.other_weight_bytes + STORED_SPACE * launch.output_bytes,
        hardware.l2_bytes,
        hardware.l2_half_lost_share,
        is_whole=hardware.is_l2_whole,
    )
    running = np.minimum(launch.slots, launch.tasks)
    waves = launch.tasks / running
    columns = np.minimum(launch.column_blocks, np.maximum(1.0, running / launch.side_by_side))
    blocks = np.minimum(running / columns, launch.blocks)
    per_expert = launch.blocks / launch.busy_experts
    experts = np.minimum((blocks + per_expert - 1.0) / per_expert, launch.busy_experts)
    wave_weights = (
        columns
        * launch.configuration.block_n
        * experts
        * launch.weight_bytes
        / (launch.busy_experts * shape.n)
    )
    # Neighbouring experts have the same tokens: pairs of one token lie side by side.
    repeats = np.minimum(shape.pairs / left_rows, experts)
    distinct = np.minimum(blocks * launch.used_rows / repeats, left_rows)
    reused = parameters["reused_share"] * hardware.l2_bytes
    weights = np.where(
        operands < reused, launch.weight_bytes, np.maximum(launch.weight_bytes, waves * wave_weights)
    )
    rows = np.where(
        launch.row_bytes < reused,
        launch.row_bytes,
        np.maximum(launch.row_bytes, waves * distinct * launch.row_bytes / left_rows),
    )
    moved: Column = lost * (weights + rows + launch.output_bytes)
    return moved


def _time_l2(launch: TileLaunch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the time of all tiles' operands on their way from the L2 to the SMs."""
    configuration, dtype = launch.configuration, launch.shape.dtype
    rows = launch.used_rows * dtype.activation_bytes
    tile = configuration.block_k * (rows + configuration.block_n * dtype.weight_bytes)
    sharing = parameters["request_sharing"] if hardware.shares_requests else 1.0
    moved = launch.tasks * launch.steps * tile / sharing + launch.output_bytes
    time_us: Column = moved / (parameters["l2_share"] * hardware.l2_gbps * 1e3)
    return time_us


def _time_sms(launch: TileLaunch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the time of whole waves and of the last one, with fewer CTAs."""
    code, dtype = launch.code, launch.shape.dtype
    efficiencies = parameters["asynchronous_mma_efficiency"], parameters["warp_mma_efficiency"]
    throttling = hardware.find_peak_tflops(dtype) / hardware.find_burst_tflops(dtype)
    tensor = code.tensor_cycles * throttling / np.where(code.is_asynchronous, *efficiencies)
    pipe = np.maximum(np.maximum(tensor, code.shared_cycles / parameters["shared_share"]), code.other_cycles)
    chain = np.maximum(code.latency_cycles, tensor)
    arrival = (chain + parameters["load_cycles"]) / code.buffers

    def time_wave(n_ctas: Column) -> Column:
        """Return the cycles in which so many CTAs of an SM do all of their steps."""
        step = add_by_norm(arrival, np.maximum(chain, n_ctas * pipe), parameters["latency_sharpness"])
        return launch.steps * step + parameters["cta_cycles"]

    whole = np.floor(launch.tasks / launch.slots)
    left = launch.tasks - whole * launch.slots
    last = np.where(left > 0.0, time_wave(np.ceil(left / hardware.sm_count)), 0.0)
    time_us: Column = (whole * time_wave(code.resident) + last) / hardware.boost_mhz
    return time_us
