"""What one pass of a model computes: batch, sequence, training or not, and how it is divided."""

from msgspec import Struct

from analyzer.operators.names import DataType


class PassShape(Struct, frozen=True):
    """Sizes of one pass on one GPU of a tensor-parallel group."""

    batch: int
    sequence: int
    is_training: bool = False  # dropout, and the heads that are trained
    has_loss: bool = False
    dtype: DataType = DataType.FP32
    tensor_parallel: int = 1
    # Megatron's kernels: bias, dropout and residual in one, bias and GELU in one, the scale of the scores
    # within their product. Hugging Face's modules launch each on its own.
    has_fused_modules: bool = False
    # torch.compile: scores, mask, softmax and values match a pattern and become one kernel
    has_matched_attention: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of the pass."""
        return self.batch * self.sequence
