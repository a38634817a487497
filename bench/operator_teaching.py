"""What teaches the operator models: data sets, their loaders, options and provenance."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from operator_data.collectives import load_pipeweave
from operator_data.neusight_products import load_teaching as load_fp32_products
from operator_data.pipeweave_moe import load_teaching
from operator_data.pipeweave_rows import load_rows

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
_FP32_PRODUCTS = LearningOptions(
    n_trees=300,
    min_leaf_rows=10,
    n_perceptrons=0,
    transfer_trees=80,
    n_folds=3,
)
TEACHINGS: tuple[Teaching, ...] = (
    Teaching("rows", ("rowwise",), load_rows, _FEW, PIPEWEAVE),
    Teaching("moe", ("moe",), lambda: load_teaching(DATA), _FEW, PIPEWEAVE),
    Teaching(
        "all_reduce", ("collective",), lambda: load_pipeweave(DATA, Operator.ALL_REDUCE), _FEW, PIPEWEAVE
    ),
    Teaching("send_recv", ("collective",), lambda: load_pipeweave(DATA, Operator.SEND_RECV), _FEW, PIPEWEAVE),
    Teaching("fp32_product", ("fp32_product",), load_fp32_products, _FP32_PRODUCTS, NEUSIGHT),
)
