"""Tensor graphs of models from their descriptions."""

from collections.abc import Callable

from analyzer.forecast.training.architectures.bert import build_bert
from analyzer.forecast.training.architectures.gpt2 import build_gpt2
from analyzer.forecast.training.architectures.llama import build_llama
from analyzer.forecast.training.architectures.opt import build_opt
from analyzer.forecast.training.architectures.switch import build_switch
from analyzer.forecast.training.graph_builder import GraphBuilder
from analyzer.forecast.training.model_description import Architecture, ModelDescription
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.tensor_graph import TensorGraph
from analyzer.text.errors import UsageError

_BUILDERS: dict[Architecture, Callable[[GraphBuilder, ModelDescription, PassShape], None]] = {
    Architecture.BERT: build_bert,
    Architecture.GPT2: build_gpt2,
    Architecture.OPT: build_opt,
    Architecture.SWITCH: build_switch,
    Architecture.LLAMA: build_llama,
}


def build_graph(model: ModelDescription, shape: PassShape) -> TensorGraph:
    """Return the graph of one pass on one GPU.

    Raises UsageError for a sequence longer than the model's positions, and for a division that does not come
    out even.
    """
    _check(model, shape)
    build = GraphBuilder(shape.dtype)
    _BUILDERS[model.architecture](build, model, shape)
    layers = model.layers + model.decoder_layers
    return build.build(model.architecture.value, layers=layers, tokens=shape.tokens, batch=shape.batch)


def _check(model: ModelDescription, shape: PassShape) -> None:
    if shape.sequence > model.positions:
        raise UsageError(
            f"sequence of {shape.sequence:,} tokens: the model has {model.positions:,} positions",
            hint=f"give --seq {model.positions} or less",
        )
    ways = shape.tensor_parallel
    if ways == 1:
        return
    if model.architecture is Architecture.SWITCH:
        raise UsageError("tensor parallelism of switch_transformers is not known", hint="use --dp or --pp")
    if model.heads % ways or model.kv_heads % ways or model.intermediate % ways:
        sizes = f"{model.heads} heads, {model.kv_heads} of keys, {model.intermediate} inner columns"
        possible = [
            w for w in (2, 4, 8, 16) if not (model.heads % w or model.kv_heads % w or model.intermediate % w)
        ]
        raise UsageError(
            f"--tp {ways} does not divide the model evenly ({sizes})",
            hint=f"possible: {', '.join(map(str, possible)) or 'none'}",
        )
