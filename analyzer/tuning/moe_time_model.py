"""Time of a fused mixture-of-experts product from the facts of its compiled code, for many configurations.

The reference is the operator model's (`operators.expert_tiles`), with what the compiled code asks of an SM in
place of what its tile lets expect. Routing is balanced, and an operand set that fits into the L2 stays there
from launch to launch.

Example: 8 tokens with 8 of 128 experts each read 64 experts' weights once; the DRAM bounds the launch, and
tiles of 16 rows that read 256 bytes of a row at a step come first.
"""

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_selection import find_gpus
from analyzer.hardware.occupancy import compute_occupancy
from analyzer.ir.scheduling import TensorRate
from analyzer.operators.batches import MoeBatch
from analyzer.operators.expert_tiles import (
    TileCode,
    TileConfiguration,
    TileLaunch,
    compute_tile_terms,
    cut_tiles,
    is_asynchronous,
    load_tile_figures,
)
from analyzer.operators.families.moe import describe_product
from analyzer.operators.family import Parameters
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.names import DataType, MoeProduct, Operator
from analyzer.text.errors import HardwareError
from analyzer.tuning.fused_moe_space import Integers, MoeShape
from analyzer.tuning.kernel_facts import KernelFacts

Floats = NDArray[np.float64]

BOUNDS = ("DRAM", "L2", "SMs")

_OTHER_PIPES = ("issue_cycles", "alu_cycles", "load_store_cycles")


class MoeTimes(Struct, frozen=True, eq=False):
    """Times and what they follow from, of n configurations."""

    time_us: Floats
    bounds_us: Floats  # [n, 3] as `BOUNDS`
    ctas_per_sm: Integers


class MoeTimeModel(Struct, frozen=True, eq=False):
    """The model for one GPU; `facts`, `ctas_per_sm` and `code` have a row for each compiled code."""

    gpu: Gpu
    hardware: OperatorHardware
    facts: KernelFacts
    ctas_per_sm: Integers  # 0: it cannot run
    code: TileCode

    def predict(
        self, shape: MoeShape, configs: Integers, rows: Integers, parameters: Parameters | None = None
    ) -> MoeTimes:
        """Return the times of configurations.

        configs: [n, 6] as `CONFIG_COLUMNS`. rows: [n], that of each one's code among the facts. parameters:
        the shipped ones where None.
        """
        sizes = np.tile(np.array(astuple(shape), dtype=np.float64), (len(configs), 1))
        launch = self.cut_tiles(sizes, configs, rows)
        terms = compute_tile_terms(launch, self.hardware, parameters or load_tile_figures().parameters)
        bounds = np.stack([terms.dram_us, terms.l2_us, terms.sms_us], axis=1)
        return MoeTimes(terms.total_us, bounds, self.ctas_per_sm[rows])

    def cut_tiles(self, sizes: Floats, configs: Integers, rows: Integers) -> TileLaunch:
        """Return the tasks of first products under configurations, as `predict` takes them.

        sizes: [n, 5], of `MoeShape`.
        """
        batch = MoeBatch(Operator.MOE, DataType.BF16, MoeProduct.W13, *sizes.T)
        code = TileCode(*(getattr(self.code, name)[rows] for name in TileCode.__struct_fields__))
        configuration = TileConfiguration(*configs.astype(np.float64).T)
        return cut_tiles(describe_product(batch, MoeProduct.W13), configuration, self.hardware, code)


def make_time_model(gpu: Gpu, facts: KernelFacts) -> MoeTimeModel:
    """Return the model of a GPU. Raises HardwareError for one without the figures."""
    if gpu.arch is None:
        raise HardwareError(f"{gpu.name}: no figures of the architecture")
    hardware = read_operator_hardware(gpu)
    ctas_per_sm = _count_ctas_per_sm(gpu, facts)
    rows, columns, depth = facts.codes[:, :3].T
    # bf16: two bytes for each element of both tiles
    buffers = np.round(facts.get_column("shared_bytes") / ((rows + columns) * depth * 2))
    code = TileCode(
        resident=np.maximum(1.0, ctas_per_sm),
        buffers=np.maximum(1.0, buffers),
        is_asynchronous=is_asynchronous(rows.astype(np.float64), hardware),
        tensor_cycles=facts.get_column("tensor_cycles") * _find_tensor_ratio(gpu, facts),
        shared_cycles=facts.get_column("shared_cycles"),
        other_cycles=np.maximum.reduce([facts.get_column(name) for name in _OTHER_PIPES]),
        latency_cycles=facts.get_column("latency_cycles"),
    )
    return MoeTimeModel(gpu, hardware, facts, ctas_per_sm, code)


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
    reference = find_gpus(facts.reference_gpu)[0].find_tensor_fma_per_cycle(TensorRate.BF16)
    own = gpu.find_tensor_fma_per_cycle(TensorRate.BF16)
    if reference is None or own is None:
        raise HardwareError(f"{gpu.name}: no rate of BF16 products is known")
    return reference.value / own.value
