"""What decides how a set of weights is learned."""

from typing import Literal

from msgspec import Struct


class LearningOptions(Struct, frozen=True):
    """Sizes, strengths and splits; the defaults suit tens of thousands of rows."""

    seed: int = 0
    max_rows_per_gpu: int = 40_000  # a random part of more rows teaches
    # "extra": the mean of randomized trees, for some hundred rows; `tree_rate` is then of no use
    tree_kind: Literal["boosted", "extra"] = "boosted"
    n_trees: int = 300
    tree_depth: int = 6
    tree_rate: float = 0.08
    min_leaf_rows: int = 20
    n_perceptrons: int = 4  # 0: none
    hidden: tuple[int, ...] = (64, 64)
    n_steps: int = 3000
    batch_rows: int = 1024
    weight_decay: float = 1e-2
    transfer_weight_decay: float = 1e-1  # of the correction for GPUs that taught nothing
    transfer_trees: int = 120
    transfer_depth: int = 4
    # known GPUs: whether all rows of a shape key on a GPU count as one, where some shapes have many more rows
    weighs_shapes_alike: bool = False
    weighs_batches_alike: bool = False  # in the fit of the reference, however many rows each has
    # of the reference's parameters towards where they begin, in log time per range: one of which no row
    # speaks stays there
    reference_pull: float = 0.01
    n_folds: int = 4  # of shape keys, for the interval of known GPUs
    # what is left out as a whole to choose and judge the correction for GPUs that taught nothing
    leaves_out: Literal["gpu", "architecture"] = "gpu"
