"""Time of a fused mixture-of-experts product from the facts of its compiled code, for many configurations.

A launch has one CTA per tile of rows (of one expert) and columns; `occupancy` of them share an SM. Three
times are computed and joined by a p-norm, which is a maximum where one dominates:

    DRAM   distinct bytes, and those read again by waves that the L2 does not serve, over the bandwidth. Rows
           of K are read in pieces of BLOCK_SIZE_K elements, and narrow pieces reach less. The rate also falls
           with few bytes in flight, those of the buffers less those that the tile at work holds:
               rate = peak / (1 + queue * latency * share / in_flight),  share: an SM's part of the peak.
    L2     bytes of all tiles, over the L2's bandwidth.
    SMs    whole waves and the last one. An iteration of n CTAs takes n times the busiest pipe, at least the
           chain of one CTA (tensor cycles and what a barrier exposes), at least the time in which the buffers
           come in once, (chain + latency) / buffers.

To these come the spread in which the CTAs of the last wave end, a share of a CTA's duration, and the launch.
Rows of padding are not loaded. Routing is balanced: slot i goes to expert i modulo all. An operand set that
fits into the L2 stays there from launch to launch.

Figures are in hwdb/tuning/fused_moe.toml.

Example: 8 tokens with 8 of 128 experts each read 64 experts' weights once; the DRAM bounds the launch, and
tiles of 16 rows whose buffers keep 128 KB per SM in flight in pieces of 256 or 512 bytes come first.
"""

import math
from copy import copy

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.occupancy import compute_occupancy
from analyzer.ir.scheduling import SchedClass, TensorRate
from analyzer.operators.retention import STORED_SPACE, compute_lost_share
from analyzer.text.errors import HardwareError
from analyzer.tuning.fused_moe_space import Integers, MoeShape
from analyzer.tuning.kernel_facts import KernelFacts
from analyzer.tuning.moe_figures import MoeFigures

Floats = NDArray[np.float64]

BOUNDS = ("DRAM", "L2", "SMs")


_WARPGROUP_ROWS = 64  # tiles with as many use asynchronous products where there are any
_UNITS_PER_GB = 1e3  # bytes per microsecond


class MoeTimes(Struct, frozen=True, eq=False):
    """Times and what they follow from, of n configurations."""

    time_us: Floats
    bounds_us: Floats  # [n, 3] as `BOUNDS`
    ctas_per_sm: Integers
    waves: Floats


class MoeTimeModel:
    """The model for one GPU; `facts` have a row for each code."""

    def __init__(self, gpu: Gpu, facts: KernelFacts, figures: MoeFigures) -> None:
        """Compute what no shape changes. Raises HardwareError for a GPU without the figures."""
        if gpu.arch is None:
            raise HardwareError(f"{gpu.name}: no figures of the architecture")
        self.gpu, self.facts = gpu, facts
        self.is_gddr = gpu.file.memory.kind.upper().startswith("GDDR")
        self.clock_mhz = gpu.file.clock.boost_mhz.value
        self.is_l2_whole = gpu.operators.l2_layout == "whole"
        self.l2_bytes = gpu.file.l2.size_bytes.value
        self.ctas_per_sm = _count_ctas_per_sm(gpu, facts)
        self.tensor_ratio = _find_tensor_ratio(gpu, facts)
        self._take_figures(figures)

    def set_figures(self, figures: MoeFigures) -> "MoeTimeModel":
        """Return the model with other figures; occupancies are not computed again."""
        other = copy(self)
        other._take_figures(figures)
        return other

    def _take_figures(self, figures: MoeFigures) -> None:
        gpu, self.figures = self.gpu, figures
        assert gpu.arch is not None
        share = figures.gddr_efficiency if self.is_gddr else figures.hbm_efficiency
        self.dram_bytes_per_us = gpu.file.memory.bandwidth_gbps.value * share * _UNITS_PER_GB
        l2_gbps = gpu.compute_l2_gbps(self.clock_mhz)
        self.l2_bytes_per_us = l2_gbps * figures.l2_efficiency * _UNITS_PER_GB
        self._prepare_cycles()

    def _prepare_cycles(self) -> None:
        """Compute the busiest pipe and the chain of each code, in cycles of an iteration."""
        facts, figures = self.facts, self.figures
        has_warpgroups = self.gpu.has_unit(SchedClass.MMA_WARPGROUP, SchedClass.MMA_TENSOR_CORE)
        is_warpgroup = has_warpgroups & (facts.codes[:, 0] >= _WARPGROUP_ROWS)
        efficiency = np.where(is_warpgroup, figures.warpgroup_mma_efficiency, figures.warp_mma_efficiency)
        tensor = facts.get_column("tensor_cycles") * self.tensor_ratio / efficiency
        columns = ("shared_cycles", "issue_cycles", "alu_cycles", "load_store_cycles")
        self.pipe_cycles = np.maximum.reduce([tensor, *map(facts.get_column, columns)])
        self.chain_cycles = np.maximum(facts.get_column("latency_cycles"), tensor + figures.exposed_cycles)
        rows, columns_, depth = facts.codes[:, 0], facts.codes[:, 1], facts.codes[:, 2]
        self.buffers = np.maximum(
            1.0, np.round(facts.get_column("shared_bytes") / ((rows + columns_) * depth * 2))
        )

    def predict(self, shape: MoeShape, configs: Integers, rows: Integers) -> MoeTimes:
        """Return the times of configurations.

        configs: [n, 6] as `CONFIG_COLUMNS`. rows: [n], that of each one's code among the facts.
        """
        launch = _Launch(self, shape, configs, rows)
        bounds = np.stack([launch.time_dram(), launch.time_l2(), launch.time_sms()], axis=1)
        longest = bounds.max(axis=1)
        norm = self.figures.norm
        joined = longest * ((bounds / longest[:, None]) ** norm).sum(axis=1) ** (1.0 / norm)
        waves = launch.ctas / launch.slots
        spread = self.figures.spread * joined / np.maximum(waves, 1.0)
        return MoeTimes(joined + spread + self.figures.launch_us, bounds, self.ctas_per_sm[rows], waves)


class _Launch:
    """Quantities of all configurations of one shape; arrays are [n]."""

    def __init__(self, model: MoeTimeModel, shape: MoeShape, configs: Integers, rows: Integers) -> None:
        self.model, self.shape = model, shape
        table = configs.astype(np.float64)
        self.tile_rows, self.tile_columns, self.depth, self.group = table[:, :4].T
        self.stages = table[:, 5]
        self.iterations = np.ceil(shape.hidden / self.depth)
        self.occupancy = np.maximum(1, model.ctas_per_sm[rows])
        self.pipe, self.chain = model.pipe_cycles[rows], model.chain_cycles[rows]
        self.buffers = model.buffers[rows]
        self.row_blocks = count_row_blocks(shape, self.tile_rows)
        self.column_blocks = np.ceil(shape.output_width / self.tile_columns)
        self.ctas = self.row_blocks * self.column_blocks
        self.slots = self.occupancy * model.gpu.sm_count
        self.resident = np.minimum(self.occupancy, np.ceil(self.ctas / model.gpu.sm_count))
        self.used_rows = shape.n_slots / self.row_blocks  # of a tile, in the mean
        self.side_by_side = np.minimum(self.group, self.row_blocks)
        self.tile_bytes = (self.used_rows + self.tile_columns) * self.depth * 2.0

    def time_dram(self) -> Floats:
        """Return the microseconds that the DRAM needs."""
        model, figures = self.model, self.model.figures
        share = model.dram_bytes_per_us / model.clock_mhz / model.gpu.sm_count  # bytes per cycle of an SM
        filled = self.resident * self.tile_bytes
        in_flight = np.maximum(
            filled * self.buffers - figures.held_share * share * np.maximum(self.chain, self.pipe),
            figures.min_buffer_share * filled,
        )
        slowdown = (
            (1.0 + figures.queue * share * figures.dram_latency_cycles / in_flight)
            * (1.0 + figures.group_cost * np.log2(self.side_by_side))
            * (1.0 + figures.drain_cost * (self.stages - 1.0) / self.iterations)
        )
        peak_us = self._count_dram_bytes() / model.dram_bytes_per_us
        return np.asarray(peak_us / self._find_piece_efficiency() * slowdown)

    def _find_piece_efficiency(self) -> Floats:
        figures, kind = self.model.figures, "gddr" if self.model.is_gddr else "hbm"
        pieces = [getattr(figures, f"{kind}_piece_{size}") for size in (64, 128, 256)]
        return np.select([self.depth <= 32, self.depth <= 64, self.depth <= 128], pieces, 1.0)

    def _count_dram_bytes(self) -> Floats:
        """Return the bytes read and written, of which each wave reads what the last one left in no cache."""
        shape, l2_bytes = self.shape, self.model.l2_bytes
        depth_bytes = shape.hidden * 2.0
        weights = shape.n_active_experts * shape.output_width * depth_bytes
        tokens = min(shape.tokens, shape.n_slots) * depth_bytes
        written = shape.n_slots * shape.output_width * 2.0
        lost = compute_lost_share(
            np.array(weights + tokens + STORED_SPACE * written),
            l2_bytes,
            self.model.figures.half_lost_at,
            is_whole=self.model.is_l2_whole,
        )
        running = np.minimum(self.slots, self.ctas)
        waves = self.ctas / running
        columns = np.minimum(self.column_blocks, np.maximum(1.0, running / self.side_by_side))
        blocks = np.minimum(running / columns, self.row_blocks)
        blocks_per_expert = self.row_blocks / shape.n_active_experts
        experts = np.minimum((blocks + blocks_per_expert - 1.0) / blocks_per_expert, shape.n_active_experts)
        wave_weights = columns * self.tile_columns * experts * depth_bytes
        # Neighbouring experts have the same tokens: slots of one token lie side by side.
        distinct = np.minimum(blocks * self.used_rows / np.minimum(shape.topk, experts), shape.tokens)
        read_weights = (
            np.full(len(waves), weights)
            if weights + tokens < 0.5 * l2_bytes
            else np.maximum(weights, waves * wave_weights)
        )
        read_tokens = (
            np.full(len(waves), tokens)
            if tokens < self.model.figures.reused_l2_share * l2_bytes
            else np.maximum(tokens, waves * distinct * depth_bytes)
        )
        return np.asarray(lost * (read_weights + read_tokens + written))

    def time_l2(self) -> Floats:
        """Return the microseconds that the L2 needs for all tiles."""
        return np.asarray(self.ctas * self.iterations * self.tile_bytes / self.model.l2_bytes_per_us)

    def time_sms(self) -> Floats:
        """Return the microseconds of the SMs: whole waves, and the last one with fewer CTAs."""
        figures = self.model.figures
        full = np.floor(self.ctas / self.slots)
        left = self.ctas - full * self.slots
        per_wave = self.iterations * self._time_iteration(self.occupancy) + figures.cta_cycles
        residents = np.maximum(1.0, np.ceil(left / self.model.gpu.sm_count))
        last = self.iterations * self._time_iteration(residents) + figures.cta_cycles
        return np.asarray((full * per_wave + np.where(left > 0, last, 0.0)) / self.model.clock_mhz)

    def _time_iteration(self, n_ctas: Floats) -> Floats:
        """Return the cycles in which so many CTAs of an SM each do one iteration."""
        norm = self.model.figures.latency_norm
        arrival = (self.chain + self.model.figures.load_cycles) / self.buffers
        work = np.maximum(self.chain, n_ctas * self.pipe)
        return np.asarray((arrival**norm + work**norm) ** (1.0 / norm))


def count_row_blocks(shape: MoeShape, tile_rows: Floats) -> Floats:
    """Return the blocks of rows of all experts under balanced routing, [n]."""
    if shape.n_slots <= shape.experts:
        return np.full(len(tile_rows), float(shape.n_slots))
    least, n_larger = divmod(shape.n_slots, shape.experts)
    return np.asarray(
        n_larger * np.ceil((least + 1) / tile_rows) + (shape.experts - n_larger) * np.ceil(least / tile_rows)
    )


def _count_ctas_per_sm(gpu: Gpu, facts: KernelFacts) -> Integers:
    assert gpu.arch is not None
    limits = gpu.arch.limits
    most = limits.shared_bytes_per_cta.value
    found = []
    registers, shared = facts.get_column("registers"), facts.get_column("shared_bytes")
    for code, n_registers, n_bytes in zip(facts.codes.tolist(), registers, shared, strict=True):
        occupancy = compute_occupancy(
            limits, block_threads=code[3] * 32, registers=math.ceil(n_registers), shared_bytes=int(n_bytes)
        )
        found.append(occupancy.ctas_per_sm if n_bytes <= most else 0)
    return np.array(found, dtype=np.int64)


def _find_tensor_ratio(gpu: Gpu, facts: KernelFacts) -> float:
    """Return the reference GPU's tensor rate over this one's."""
    from analyzer.hardware.gpu_selection import find_gpus

    reference = find_gpus(facts.reference_gpu)[0].find_tensor_fma_per_cycle(TensorRate.BF16)
    own = gpu.find_tensor_fma_per_cycle(TensorRate.BF16)
    if reference is None or own is None:
        raise HardwareError(f"{gpu.name}: no rate of BF16 products is known")
    return reference.value / own.value
