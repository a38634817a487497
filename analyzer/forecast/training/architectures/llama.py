"""Llama and its relatives (Mistral, Qwen 2), as transformers runs them: fused attention, all else eager.

RMS norms are computed in FP32 and cast back, rotary embeddings are five kernels per tensor. Of t
tensor-parallel GPUs each has 1 / t of the heads and of the inner columns.
"""

from analyzer.forecast.training.architectures.parts import (
    add_output_head,
    add_rms_norm,
    enter_parallel,
    leave_parallel,
)
from analyzer.forecast.training.graph_builder import GraphBuilder
from analyzer.forecast.training.model_description import ModelDescription
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.tensor_graph import NO_NODE


def build_llama(build: GraphBuilder, model: ModelDescription, shape: PassShape) -> None:
    """Add a Llama's operators."""
    ids = build.input("input_ids", (shape.batch, shape.sequence))
    hidden = build.embedding("embed_tokens", ids, model.vocab, model.hidden)
    angles = build.input("rotary_emb", (1, 1, shape.sequence, model.head_dim), element_bytes=4.0)
    for layer in range(model.layers):
        build.layer = layer
        hidden = _add_attention(build, model, shape, hidden, angles)
        hidden = _add_mlp(build, model, shape, hidden)
    build.layer = NO_NODE
    add_output_head(build, "lm_head", add_rms_norm(build, "norm", hidden), model, shape)


def _add_attention(
    build: GraphBuilder, model: ModelDescription, shape: PassShape, residual: int, angles: int
) -> int:
    ways = shape.tensor_parallel
    heads, kv_heads = model.heads // ways, model.kv_heads // ways
    x = enter_parallel(build, "self_attn", add_rms_norm(build, "input_layernorm", residual), shape)
    query, key, value = (
        build.view(
            f"self_attn.{name}_heads",
            build.linear(f"self_attn.{name}_proj", x, count * model.head_dim, has_bias=model.has_qkv_bias),
            (shape.batch, count, shape.sequence, model.head_dim),
        )
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
    )
    query = _add_rotation(build, "self_attn.q_rotary", query, angles)
    key = _add_rotation(build, "self_attn.k_rotary", key, angles)
    merged = build.attention("self_attn.sdpa", query, key, value, is_causal=True)
    merged = build.copy("self_attn.reshape", merged, (shape.batch, shape.sequence, heads * model.head_dim))
    out = build.linear("self_attn.o_proj", merged, model.hidden, has_bias=False)
    return build.pointwise("self_attn.add", "add", leave_parallel(build, "o_proj", out, shape), residual)


def _add_rotation(build: GraphBuilder, name: str, x: int, angles: int) -> int:
    """Add x · cos + rotate_half(x) · sin."""
    straight = build.pointwise(f"{name}.mul", "mul", x, angles)
    turned = build.copy(f"{name}.rotate_half", x)
    turned = build.pointwise(f"{name}.mul_1", "mul", turned, angles)
    return build.pointwise(f"{name}.add", "add", straight, turned)


def _add_mlp(build: GraphBuilder, model: ModelDescription, shape: PassShape, residual: int) -> int:
    x = enter_parallel(build, "mlp", add_rms_norm(build, "post_attention_layernorm", residual), shape)
    columns = model.intermediate // shape.tensor_parallel
    gate = build.linear("mlp.gate_proj", x, columns, has_bias=False)
    up = build.linear("mlp.up_proj", x, columns, has_bias=False)
    inner = build.pointwise("mlp.mul", "mul", build.pointwise("mlp.act_fn", model.activation, gate), up)
    out = build.linear("mlp.down_proj", inner, model.hidden, has_bias=False)
    return build.pointwise("mlp.add", "add", leave_parallel(build, "mlp", out, shape), residual)
