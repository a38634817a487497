"""Shapes of a fused mixture-of-experts product, and the configurations that are tuned for it.

The first product of the layer (w13: gate and up projection): tokens [M, hidden] by the weights of the experts
[experts, 2 * intermediate, hidden], each token with `topk` experts. The space is the grid that SGLang's and
vLLM's tuners search, with the small and narrow tiles that their sweeps add, derived from the sweeps of
zksainx/pipeweave (moe_tuning; of 24,630 measured rows 5 lie outside). Example: (16, 64, 128, 1, 4, 3) is a
tile of 16 rows, 64 columns and 128 of the depth, row blocks one at a time, four warps, three stages.
"""

from functools import cache
from itertools import product

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.text.errors import UsageError

Integers = NDArray[np.int64]

KERNEL = "fused_moe"
CONFIG_COLUMNS = (
    "BLOCK_SIZE_M",
    "BLOCK_SIZE_N",
    "BLOCK_SIZE_K",
    "GROUP_SIZE_M",
    "num_warps",
    "num_stages",
)
# What of a configuration changes the compiled code; the group only changes the order of the tiles.
CODE_COLUMNS = (0, 1, 2, 4, 5)

MAX_TOKENS, MAX_EXPERTS, MAX_WIDTH = 1 << 24, 1 << 16, 1 << 20
_MAX_WEIGHT_BYTES = 1 << 44

_ROWS, _COLUMNS, _DEPTHS = (16, 32, 64, 128, 256), (32, 64, 128, 256), (64, 128, 256)
_GROUPS, _WARPS, _STAGES = (1, 16, 32, 64), (4, 8), (2, 3, 4, 5)
# Tiles that the sweeps measured with other groups than the grid's.
_EXTRA_TILES: dict[int, tuple[tuple[int, int, int], ...]] = {
    4: (
        (16, 16, 64), (16, 16, 128), (16, 16, 256), (16, 32, 128), (32, 16, 128), (32, 32, 128),
        (32, 32, 256), (32, 64, 128), (32, 128, 128), (64, 64, 64), (64, 64, 128), (64, 128, 64),
        (64, 128, 128), (128, 128, 64),
    ),
    8: (
        (32, 64, 256), (32, 128, 128), (64, 64, 32), (64, 64, 128), (64, 128, 32), (64, 256, 32),
        (64, 256, 64), (128, 128, 64),
    ),
}  # fmt: skip
MAX_THREAD_SUMS = 255  # registers of a thread, that hold what it sums up
_FEW_SHARED_BYTES = 100 << 10  # of an SM; there the sweeps stop at four stages
_FEW_STAGES = 4


class MoeShape(Struct, frozen=True):
    """Sizes of one launch."""

    tokens: int
    experts: int
    topk: int
    hidden: int
    intermediate: int

    @property
    def output_width(self) -> int:
        """Columns of the product: gate and up projection side by side."""
        return 2 * self.intermediate

    @property
    def n_slots(self) -> int:
        """Pairs of a token and one of its experts: rows of the output."""
        return self.tokens * self.topk

    @property
    def max_expert_rows(self) -> int:
        """Rows of the expert with most."""
        return -(-self.n_slots // self.experts)


def check_shape(shape: MoeShape) -> MoeShape:
    """Return the shape. Raises UsageError for one that cannot be, or that no GPU holds."""
    limits = {
        "m": (shape.tokens, MAX_TOKENS),
        "experts": (shape.experts, MAX_EXPERTS),
        "topk": (shape.topk, MAX_EXPERTS),
        "hidden": (shape.hidden, MAX_WIDTH),
        "intermediate": (shape.intermediate, MAX_WIDTH),
    }
    for name, (value, most) in limits.items():
        if not 1 <= value <= most:
            raise UsageError(f"--{name} {value}: not between 1 and {most:,}")
    if shape.topk > shape.experts:
        raise UsageError(
            f"--topk {shape.topk}: a token cannot go to more experts than the {shape.experts} that there are",
            hint=f"--topk of at most {shape.experts}, or more --experts",
        )
    if shape.experts * shape.output_width * shape.hidden * 2 > _MAX_WEIGHT_BYTES:
        raise UsageError(
            f"the weights of {shape.experts} experts of {shape.output_width} x {shape.hidden} take more than "
            f"{_MAX_WEIGHT_BYTES >> 40} TiB",
            hint="give the sizes of one GPU's part of the layer",
        )
    return shape


@cache
def list_configs(shared_bytes_per_sm: int) -> Integers:
    """Return all configurations of GPUs with so much shared memory, [n, 6] as `CONFIG_COLUMNS`, sorted."""
    n_stages = _FEW_STAGES if shared_bytes_per_sm <= _FEW_SHARED_BYTES else max(_STAGES)
    stages = tuple(each for each in _STAGES if each <= n_stages)
    found = set(product(_ROWS, _COLUMNS, _DEPTHS, _GROUPS, _WARPS, stages))
    for group, tiles in _EXTRA_TILES.items():
        for (rows, columns, depth), order, warps, n in product(tiles, (1, group), _WARPS, stages):
            found.add((rows, columns, depth, order, warps, n))
    table = np.array(sorted(found), dtype=np.int64)
    table.flags.writeable = False
    return table


def list_codes(shared_bytes_per_sm: int) -> Integers:
    """Return what has to be compiled for these configurations: [n, 5], without the group."""
    return np.unique(list_configs(shared_bytes_per_sm)[:, CODE_COLUMNS], axis=0)


def count_stage_bytes(codes: Integers, element_bytes: int = 2) -> Integers:
    """Return the fewest bytes of shared memory that the stages of each code need, [n].

    Triton keeps at least one buffer of both tiles less than the stages.
    """
    rows, columns, depth, stages = codes[:, 0], codes[:, 1], codes[:, 2], codes[:, 4]
    return (rows + columns) * depth * element_bytes * (stages - 1)


def find_most_rows(shape: MoeShape) -> int:
    """Return the tallest tile that is not mostly padding: the smallest that holds all rows of an expert."""
    return next((rows for rows in _ROWS if rows >= shape.max_expert_rows), _ROWS[-1])


def list_fitting_codes(
    shared_bytes_per_sm: int, shared_bytes_per_cta: int
) -> list[tuple[int, int, int, int, int]]:
    """Return the codes whose stages fit into the shared memory of a CTA, and sums into its registers."""
    codes = list_codes(shared_bytes_per_sm)
    fits = count_stage_bytes(codes) <= shared_bytes_per_cta
    fits &= codes[:, 0] * codes[:, 1] <= MAX_THREAD_SUMS * 32 * codes[:, 3]
    return [(a, b, c, d, e) for a, b, c, d, e in codes[fits].tolist()]
