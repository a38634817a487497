"""Time of one configuration by the whole analysis of its cubin: what the quick model is held to.

The launch is executed abstractly with the slots of balanced routing and simulated by the `sm` model, which
takes about a second of a core; the grid is cut to the tiles that have work.
"""

from pathlib import Path

import numpy as np

from analyzer.hardware.gpu import Gpu
from analyzer.ir.launch import Timing
from analyzer.pipeline.analysis import analyze
from analyzer.pipeline.options import Options
from analyzer.pipeline.python_launch import Launch
from analyzer.text.errors import ToolError
from analyzer.tuning.fused_moe_space import Integers, MoeShape

_MODEL = "sm"


def time_by_analysis(
    cubin: Path, shared_bytes: int, shape: MoeShape, config: tuple[int, ...], gpu: Gpu
) -> float:
    """Return the predicted microseconds of a launch of the fused-MoE kernel.

    config: as `CONFIG_COLUMNS`. Raises ToolError where the model refuses the kernel.
    """
    rows, columns, _, _, n_warps, _ = config
    slots, experts = list_balanced_slots(shape, rows)
    width, depth = shape.output_width, shape.hidden
    values = [
        "ptr", "ptr", "ptr", slots, experts, np.array([len(slots)], dtype=np.int32),
        width, depth, shape.n_slots, depth, width * depth, depth, width,
    ]  # fmt: skip
    launch = Launch(
        grid=len(experts) * -(-width // columns),
        block=32 * n_warps,
        arguments=dict(enumerate(values)),
        dynamic_shared_bytes=shared_bytes,
        timing=Timing.KERNEL.value,
    )
    report = analyze(str(cubin), gpu.key, launch=launch, options=Options(models=(_MODEL,), is_brief=True))
    kernel = report.kernels[0]
    if not kernel.predictions:
        raise ToolError(f"{cubin}: the {_MODEL} model gives no time")
    return float(kernel.predictions[0].time_us)


def list_balanced_slots(shape: MoeShape, tile_rows: int) -> tuple[Integers, Integers]:
    """Return slots sorted by expert and padded to whole tiles, int32, and the expert of each tile, int32."""
    slots, experts = [], []
    numbers = np.arange(shape.n_slots)
    for expert in range(min(shape.experts, shape.n_slots)):
        own = numbers[expert :: shape.experts]
        n_tiles = -(-len(own) // tile_rows)
        slots.append(np.pad(own, (0, n_tiles * tile_rows - len(own)), constant_values=shape.n_slots))
        experts += [expert] * n_tiles
    return np.concatenate(slots).astype(np.int32), np.array(experts, dtype=np.int32)
