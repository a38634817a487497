"""What teaches the operator models: data sets, their loaders, options and provenance."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from operator_data import aiconfigurator_moe, collectives, pipeweave_moe
from operator_data.pipeweave_rows import load_rows

from analyzer.learning.learn import Provenance
from analyzer.learning.options import LearningOptions
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.names import Operator

DATA = Path(__file__).parents[1].parent / "shared" / "data"
PIPEWEAVE = Provenance("SynPerf's data, zksainx/pipeweave @55e03178", "Apache-2.0")
AICONFIGURATOR = Provenance("ai-dynamo/aiconfigurator @095f58a", "Apache-2.0")
PIPEWEAVE_AND_NCCL = Provenance(
    "SynPerf's data, zksainx/pipeweave @55e03178; NCCL of ai-dynamo/aiconfigurator @095f58a", "Apache-2.0"
)
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
# perceptrons did not help on a hundred rows (5.4 % on models left out, against 5.1), nor on collectives
_FEW_TREES = LearningOptions(
    n_trees=80, tree_depth=4, min_leaf_rows=8, transfer_trees=60, transfer_depth=3, n_perceptrons=0
)
_COLLECTIVES = replace(_FEW_TREES, n_trees=150, max_rows_per_gpu=1500)
_MOE = LearningOptions(
    n_trees=250,
    tree_depth=6,
    min_leaf_rows=8,
    transfer_trees=100,
    transfer_depth=4,
    n_perceptrons=0,
)
TEACHINGS: tuple[Teaching, ...] = (
    Teaching("rows", ("rowwise",), load_rows, _FEW, PIPEWEAVE),
    Teaching(
        "moe-product", ("moe-product",), lambda: pipeweave_moe.load_teaching(DATA), _FEW_TREES, PIPEWEAVE
    ),
    Teaching("moe-both", ("moe-both",), lambda: aiconfigurator_moe.load_teaching(DATA), _MOE, AICONFIGURATOR),
    Teaching(
        "all_reduce",
        ("collective-all_reduce",),
        lambda: collectives.load_teaching(DATA, Operator.ALL_REDUCE),
        _COLLECTIVES,
        PIPEWEAVE_AND_NCCL,
    ),
    Teaching(
        "send_recv",
        ("collective-send_recv",),
        lambda: collectives.load_teaching(DATA, Operator.SEND_RECV),
        _COLLECTIVES,
        PIPEWEAVE,
    ),
)
