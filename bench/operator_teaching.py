"""What teaches the operator models: data sets, their loaders, options and provenance."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from operator_data import (
    aiconfigurator_attention,
    aiconfigurator_gemm,
    aiconfigurator_moe,
    collectives,
    neusight_products,
    neusight_profiles,
    neusight_rows,
    pipeweave_attention,
    pipeweave_moe,
    pipeweave_rows,
    pipeweave_scaled_mm,
)

from analyzer.learning.learn import Provenance
from analyzer.learning.options import LearningOptions
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.names import DataType, Operator

DATA = Path(__file__).parents[1].parent / "shared" / "data"
PIPEWEAVE = Provenance("SynPerf's data, zksainx/pipeweave @55e03178", "Apache-2.0")
AICONFIGURATOR = Provenance("ai-dynamo/aiconfigurator @095f58a", "Apache-2.0")
NEUSIGHT = Provenance("sitar-lab/NeuSight @6945927d", "MIT")


class Teaching(Struct, frozen=True):
    """Rows of one source that teach one or more sets of weights."""

    name: str
    sets: str  # how the names of the sets of weights start
    load: Callable[[], list[MeasuredBatch]]
    options: LearningOptions
    provenance: Provenance

    def may_make(self, name: str) -> bool:
        """Return whether a name is this teaching's, or may be that of one of its sets."""
        return name == self.name or name.startswith(self.sets)

    def is_asked(self, set_name: str, names: Sequence[str]) -> bool:
        """Return whether a set of weights is among names of teachings and sets; no name means all."""
        return not names or set_name in names or self.name in names


_HUNDREDS = LearningOptions(
    n_trees=150, tree_depth=3, min_leaf_rows=8, n_perceptrons=4, hidden=(32,), n_steps=1500, n_folds=5
)
_PRODUCTS = LearningOptions(
    max_rows_per_gpu=12_000,
    n_trees=500,
    tree_depth=7,
    min_leaf_rows=10,
    hidden=(128, 128),
    n_steps=6000,
    leaves_out="architecture",
)
_SERVING = LearningOptions(max_rows_per_gpu=12_000, min_leaf_rows=10, leaves_out="architecture")
_FP32 = LearningOptions(max_rows_per_gpu=10_000, min_leaf_rows=10, hidden=(96, 96), n_steps=4000)
_FEW = LearningOptions(max_rows_per_gpu=4_000, tree_depth=5, n_trees=200)


def _load_generic_attention() -> list[MeasuredBatch]:
    folder = DATA / "aiconfigurator"
    return [
        batch
        for dtype in (DataType.BF16, DataType.FP8)
        for batch in aiconfigurator_attention.load_attention(folder, dtype, limit=30_000)
    ]


def _load_fp32_products() -> list[MeasuredBatch]:
    return [
        batch
        for operator in (Operator.GEMM, Operator.BMM)
        for batch in neusight_products.load_products(neusight_profiles.LEARNING, operator)
    ]


def _load_fp32_rows() -> list[MeasuredBatch]:
    return neusight_rows.load_rows("nv_train_collect")


def _load_collective(operator: Operator) -> list[MeasuredBatch]:
    return collectives.load_teaching(DATA, operator)


TEACHINGS: tuple[Teaching, ...] = (
    Teaching("rows", "rowwise", pipeweave_rows.load_rows, _HUNDREDS, PIPEWEAVE),
    Teaching(
        "scaled_mm",
        "scaled_mm",
        lambda: pipeweave_scaled_mm.load_scaled_products(DATA / "pipeweave"),
        LearningOptions(n_trees=500, tree_depth=7, min_leaf_rows=10, hidden=(128, 128), n_steps=6000),
        PIPEWEAVE,
    ),
    Teaching(
        "gemm",
        "gemm",
        lambda: aiconfigurator_gemm.load_products(DATA / "aiconfigurator"),
        _PRODUCTS,
        AICONFIGURATOR,
    ),
    Teaching("moe", "moe-product", lambda: pipeweave_moe.load_teaching(DATA), _HUNDREDS, PIPEWEAVE),
    Teaching(
        "moe-both", "moe-both", lambda: aiconfigurator_moe.load_teaching(DATA), _SERVING, AICONFIGURATOR
    ),
    Teaching(
        "attention",
        "attention-fa",
        lambda: pipeweave_attention.load(DATA / "pipeweave"),
        _HUNDREDS,
        PIPEWEAVE,
    ),
    Teaching("attention-generic", "attention-generic", _load_generic_attention, _SERVING, AICONFIGURATOR),
    Teaching(
        "mla",
        "mla",
        lambda: aiconfigurator_attention.load_mla(DATA / "aiconfigurator"),
        _SERVING,
        AICONFIGURATOR,
    ),
    Teaching("products-fp32", "fp32_product", _load_fp32_products, _FP32, NEUSIGHT),
    Teaching("rows-fp32", "rowwise-fp32", _load_fp32_rows, _FP32, NEUSIGHT),
    Teaching("elementwise", "elementwise", _load_fp32_rows, _FP32, NEUSIGHT),
    *(
        Teaching(
            operator.value, f"collective-{operator}", partial(_load_collective, operator), _FEW, PIPEWEAVE
        )
        for operator in (Operator.ALL_REDUCE, Operator.SEND_RECV)
    ),
)
