"""Parts that several architectures have: dropout, activations, the output head, tensor parallelism."""

from analyzer.forecast.training.forward_kernels import BACKWARD, FORWARD
from analyzer.forecast.training.graph_builder import GraphBuilder
from analyzer.forecast.training.model_description import ModelDescription
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.operators.names import DataType


def add_dropout(build: GraphBuilder, name: str, x: int, probability: float, shape: PassShape) -> int:
    """Add dropout where a model in training has it."""
    return build.pointwise(name, "dropout", x) if shape.is_training and probability > 0.0 else x


def add_mlp_activation(build: GraphBuilder, name: str, x: int, function: str, shape: PassShape) -> int:
    """Add the activation between the two products: one kernel, but for "gelu_new", which is spelt out."""
    if function != "gelu_new" or shape.has_fused_modules:
        return build.pointwise(name, function, x)
    half = build.pointwise(f"{name}.mul", "scale", x)
    cube = build.pointwise(f"{name}.pow", "pow", x)
    inner = build.pointwise(f"{name}.mul_1", "scale", cube)
    inner = build.pointwise(f"{name}.add", "add", x, inner)
    inner = build.pointwise(f"{name}.mul_2", "scale", inner)
    inner = build.pointwise(f"{name}.tanh", "tanh", inner)
    inner = build.pointwise(f"{name}.add_1", "add", inner)
    return build.pointwise(f"{name}.mul_3", "mul", half, inner)


def enter_parallel(build: GraphBuilder, name: str, x: int, shape: PassShape) -> int:
    """Add what stands before a column-parallel product: its input's gradients are summed over the GPUs."""
    if shape.tensor_parallel == 1:
        return x
    return build.all_reduce(f"{name}.all_reduce_backward", x, shape.tensor_parallel, BACKWARD)


def leave_parallel(build: GraphBuilder, name: str, x: int, shape: PassShape) -> int:
    """Add what stands after a row-parallel product: its partial outputs are summed over the GPUs."""
    if shape.tensor_parallel == 1:
        return x
    return build.all_reduce(f"{name}.all_reduce", x, shape.tensor_parallel, FORWARD)


def add_output_head(
    build: GraphBuilder, name: str, hidden: int, model: ModelDescription, shape: PassShape
) -> None:
    """Add the projection of all positions to the vocabulary, and the loss where one is asked for."""
    hidden = enter_parallel(build, name, hidden, shape)
    columns = -(-model.vocab // shape.tensor_parallel)
    logits = build.linear(name, hidden, columns, has_bias=False, shares_weights=model.is_tied)
    if shape.has_loss:
        build.cross_entropy("loss", logits)


def add_rms_norm(build: GraphBuilder, name: str, x: int) -> int:
    """Add an RMS norm as transformers' modules spell it out: power, mean, two multiplications.

    In 16 bits the norm is computed in FP32: a cast before it, and one before the last multiplication.
    """
    shape = build.shape_of(x)
    is_narrow = build.dtype is not DataType.FP32
    wide = build.cast(f"{name}.float", x, 4.0) if is_narrow else x
    square = build.pointwise(f"{name}.pow", "pow", wide)
    mean = build.reduction(f"{name}.mean", square, (*shape[:-1], 1))
    scaled = build.pointwise(f"{name}.mul", "mul", wide, mean)
    if is_narrow:
        scaled = build.cast(f"{name}.to", scaled, 0.0)
    return build.pointwise(f"{name}.weight", "scale", scaled, parameters=shape[-1])
