"""GPT-2 (and GPT-3 of its form), as transformers' GPT2LMHeadModel runs it in eager mode.

With `has_fused_modules`, as Megatron-LM's GPTModel does. Of t tensor-parallel GPUs each has 1 / t of the
heads, of the inner columns and of the vocabulary (Megatron-LM, arXiv 1909.08053).
"""

from analyzer.forecast.training.architectures.parts import (
    add_dropout,
    add_mlp_activation,
    add_output_head,
    enter_parallel,
    leave_parallel,
)
from analyzer.forecast.training.graph_builder import GraphBuilder
from analyzer.forecast.training.model_description import ModelDescription
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.tensor_graph import NO_NODE


def build_gpt2(build: GraphBuilder, model: ModelDescription, shape: PassShape) -> None:
    """Add GPT-2's operators."""
    ids = build.input("input_ids", (shape.batch, shape.sequence))
    positions = build.input("position_ids", (1, shape.sequence))
    mask = build.input("attn.bias", (1, 1, shape.sequence, shape.sequence), element_bytes=1.0)
    tokens = build.embedding("wte", ids, -(-model.vocab // shape.tensor_parallel), model.hidden)
    tokens = leave_parallel(build, "wte", tokens, shape)
    hidden = build.pointwise(
        "add", "add", tokens, build.embedding("wpe", positions, model.positions, model.hidden)
    )
    hidden = add_dropout(build, "drop", hidden, model.dropout, shape)
    for layer in range(model.layers):
        build.layer = layer
        hidden = _add_attention(build, model, shape, hidden, mask)
        hidden = _add_mlp(build, model, shape, hidden)
    build.layer = NO_NODE
    hidden = build.layernorm("ln_f", hidden)
    add_output_head(build, "lm_head", hidden, model, shape)


def _add_attention(
    build: GraphBuilder, model: ModelDescription, shape: PassShape, residual: int, mask: int
) -> int:
    batch, sequence, ways = shape.batch, shape.sequence, shape.tensor_parallel
    heads, width = model.heads // ways, model.heads // ways * model.head_dim
    x = enter_parallel(build, "ln_1", build.layernorm("ln_1", residual), shape)
    qkv = build.linear("attn.c_attn", x, 3 * width)
    query, key, value = (
        build.view(name, qkv, (batch, heads, sequence, model.head_dim)) for name in ("query", "key", "value")
    )
    copied = (0, 1) if batch > 1 else ()
    key = build.view("key_transposed", key, (batch, heads, model.head_dim, sequence))
    scores = build.matmul("attn.scores", query, key, copied=copied)
    if not shape.has_fused_modules:
        scores = build.pointwise("attn.truediv", "scale", scores)
    scores = build.pointwise("attn.where", "where", scores, mask)
    weights = build.softmax("attn.softmax", scores)
    weights = add_dropout(build, "attn.attn_dropout", weights, model.attention_dropout, shape)
    merged = build.matmul("attn.values", weights, value, copied=copied[1:])
    merged = build.copy("attn.contiguous", merged, (batch, sequence, width))
    out = leave_parallel(build, "attn.c_proj", build.linear("attn.c_proj", merged, model.hidden), shape)
    return _add_residual(build, "attn", out, residual, model, shape)


def _add_mlp(build: GraphBuilder, model: ModelDescription, shape: PassShape, residual: int) -> int:
    x = enter_parallel(build, "ln_2", build.layernorm("ln_2", residual), shape)
    inner = build.linear("mlp.c_fc", x, model.intermediate // shape.tensor_parallel)
    inner = add_mlp_activation(build, "mlp.act", inner, model.activation, shape)
    out = leave_parallel(build, "mlp.c_proj", build.linear("mlp.c_proj", inner, model.hidden), shape)
    return _add_residual(build, "mlp", out, residual, model, shape)


def _add_residual(
    build: GraphBuilder, name: str, x: int, residual: int, model: ModelDescription, shape: PassShape
) -> int:
    if shape.has_fused_modules and shape.is_training:
        return build.pointwise(f"{name}.bias_dropout_add", "dropout", x, residual)
    x = add_dropout(build, f"{name}.resid_dropout", x, model.dropout, shape)
    return build.pointwise(f"{name}.add", "add", x, residual)
