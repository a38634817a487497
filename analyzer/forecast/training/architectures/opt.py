"""OPT, as transformers' OPTForCausalLM runs it in eager mode (attention of version 4.3x: bmm, add, max)."""

from analyzer.forecast.training.architectures.parts import (
    add_dropout,
    add_output_head,
    enter_parallel,
    leave_parallel,
)
from analyzer.forecast.training.graph_builder import GraphBuilder
from analyzer.forecast.training.model_description import ModelDescription
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.tensor_graph import NO_NODE

_POSITION_OFFSET = 2


def build_opt(build: GraphBuilder, model: ModelDescription, shape: PassShape) -> None:
    """Add OPT's operators."""
    ids = build.input("input_ids", (shape.batch, shape.sequence))
    positions = build.input("positions", (shape.batch, shape.sequence))
    mask = _add_mask(build, shape)
    tokens = build.embedding("embed_tokens", ids, -(-model.vocab // shape.tensor_parallel), model.hidden)
    tokens = leave_parallel(build, "embed_tokens", tokens, shape)
    rows = model.positions + _POSITION_OFFSET
    hidden = build.pointwise(
        "add", "add", tokens, build.embedding("embed_positions", positions, rows, model.hidden)
    )
    hidden = add_dropout(build, "dropout", hidden, model.dropout, shape)
    for layer in range(model.layers):
        build.layer = layer
        hidden = _add_attention(build, model, shape, hidden, mask)
        hidden = _add_mlp(build, model, shape, hidden)
    build.layer = NO_NODE
    hidden = build.layernorm("final_layer_norm", hidden)
    add_output_head(build, "lm_head", hidden, model, shape)


def _add_mask(build: GraphBuilder, shape: PassShape) -> int:
    """Add the mask of causality and padding, which six kernels make from the tokens' mask."""
    size = (shape.batch, 1, shape.sequence, shape.sequence)
    mask = build.input("attention_mask", size, element_bytes=4.0)
    for name in ("sub", "to", "masked_fill", "bool", "masked_fill_1"):
        mask = build.pointwise(f"mask.{name}", "where", mask)
    return mask


def _add_attention(
    build: GraphBuilder, model: ModelDescription, shape: PassShape, residual: int, mask: int
) -> int:
    batch, sequence = shape.batch, shape.sequence
    heads = model.heads // shape.tensor_parallel
    width = heads * model.head_dim
    split = (batch * heads, sequence, model.head_dim)
    x = enter_parallel(build, "self_attn", build.layernorm("self_attn_layer_norm", residual), shape)
    query = build.linear("self_attn.q_proj", x, width)
    query = build.copy("self_attn.query", build.pointwise("self_attn.mul", "scale", query), split)
    key = build.copy("self_attn.key", build.linear("self_attn.k_proj", x, width), split)
    key = build.view("self_attn.key_transposed", key, (split[0], model.head_dim, sequence))
    value = build.copy("self_attn.value", build.linear("self_attn.v_proj", x, width), split)
    scores = build.matmul("self_attn.scores", query, key)
    scores = build.pointwise("self_attn.add", "add", scores, mask)
    scores = build.pointwise("self_attn.max", "maximum", scores)
    weights = build.softmax("self_attn.softmax", scores)
    weights = add_dropout(build, "self_attn.dropout", weights, model.attention_dropout, shape)
    merged = build.matmul("self_attn.values", weights, value)
    merged = build.copy("self_attn.reshape", merged, (batch, sequence, width))
    out = build.linear("self_attn.out_proj", merged, model.hidden)
    out = leave_parallel(build, "self_attn.out_proj", out, shape)
    out = add_dropout(build, "self_attn.resid_dropout", out, model.dropout, shape)
    return build.pointwise("self_attn.residual", "add", out, residual)


def _add_mlp(build: GraphBuilder, model: ModelDescription, shape: PassShape, residual: int) -> int:
    x = enter_parallel(build, "fc1", build.layernorm("final_layer_norm", residual), shape)
    inner = build.linear("fc1", x, model.intermediate // shape.tensor_parallel)
    inner = build.pointwise("activation_fn", model.activation, inner)
    out = leave_parallel(build, "fc2", build.linear("fc2", inner, model.hidden), shape)
    out = add_dropout(build, "fc2.dropout", out, model.dropout, shape)
    return build.pointwise("fc2.residual", "add", out, residual)
