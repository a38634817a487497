"""What teaches the operator models: data sets, their loaders, options and provenance."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from operator_data.aiconfigurator_gemm import load_products
from operator_data.collectives import load_pipeweave
from operator_data.pipeweave_moe import load_teaching
from operator_data.pipeweave_rows import load_rows
from operator_data.pipeweave_scaled_mm import load_scaled_products

from analyzer.learning.learn import Provenance
from analyzer.learning.options import LearningOptions
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.names import Operator

DATA = Path(__file__).parents[1].parent / "shared" / "data"
PIPEWEAVE = Provenance("SynPerf's data, zksainx/pipeweave @55e03178", "Apache-2.0")
AICONFIGURATOR = Provenance("ai-dynamo/aiconfigurator @095f58a", "Apache-2.0")
NEUSIGHT = Provenance("sitar-lab/NeuSight @6945927d", "MIT")


class Teaching(Struct, frozen=True):
    """Rows of one source that teach one or more sets of weights."""

    name: str
    sets: tuple[str, ...]  # names of the sets of weights, or how they start
    load: Callable[[], list[MeasuredBatch]]
    options: LearningOptions
    provenance: Provenance

    def may_make(self, name: str) -> bool:
        """Return whether a name is this teaching's, or may be that of one of its sets."""
        return name == self.name or any(name.startswith(each) for each in self.sets)


_FEW = LearningOptions(
    n_trees=150, tree_depth=3, min_leaf_rows=8, n_perceptrons=4, hidden=(32,), n_steps=1500, n_folds=5
)
# Known GPUs, new (n, k), BF16: these trees 5.0 %, perceptrons 5.2 %, both 4.8 %; 300 trees of depth 6 5.6 %.
_MANY = LearningOptions(
    max_rows_per_gpu=20_000,
    n_trees=450,
    tree_depth=7,
    min_leaf_rows=10,
    n_perceptrons=2,
    hidden=(128, 128),
    n_steps=6000,
    batch_rows=512,
    weight_decay=1e-3,
    transfer_trees=200,
    transfer_depth=5,
    n_folds=4,
    leaves_out="architecture",
)
_SCALED = LearningOptions(
    n_trees=300,
    tree_depth=6,
    min_leaf_rows=10,
    n_perceptrons=2,
    hidden=(64, 64),
    n_steps=4000,
    batch_rows=256,
)
TEACHINGS: tuple[Teaching, ...] = (
    Teaching("rows", ("rowwise",), load_rows, _FEW, PIPEWEAVE),
    Teaching("moe", ("moe",), lambda: load_teaching(DATA), _FEW, PIPEWEAVE),
    Teaching(
        "all_reduce", ("collective",), lambda: load_pipeweave(DATA, Operator.ALL_REDUCE), _FEW, PIPEWEAVE
    ),
    Teaching("send_recv", ("collective",), lambda: load_pipeweave(DATA, Operator.SEND_RECV), _FEW, PIPEWEAVE),
    Teaching("gemm", ("gemm-",), lambda: load_products(DATA / "aiconfigurator"), _MANY, AICONFIGURATOR),
    Teaching(
        "scaled_mm", ("scaled_mm",), lambda: load_scaled_products(DATA / "pipeweave"), _SCALED, PIPEWEAVE
    ),
)
