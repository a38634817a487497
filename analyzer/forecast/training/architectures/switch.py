"""Switch Transformer, as transformers' SwitchTransformersForConditionalGeneration runs it in eager mode.

T5's encoder and decoder; every `sparse_step`-th layer routes each token to one of its experts, one after the
other, each with at most `expert_capacity` tokens of a sequence. Tokens beyond it pass unchanged. Routing is
taken as balanced: each expert gets its share of the tokens, or its capacity.
"""

from analyzer.forecast.training.architectures.parts import add_dropout, add_output_head, add_rms_norm
from analyzer.forecast.training.graph_builder import GraphBuilder
from analyzer.forecast.training.model_description import ModelDescription
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.tensor_graph import NO_NODE


def build_switch(build: GraphBuilder, model: ModelDescription, shape: PassShape) -> None:
    """Add the encoder's and the decoder's operators; both get sequences of the same length."""
    encoded = _add_stack(build, model, shape, "encoder", model.layers, None)
    decoded = _add_stack(build, model, shape, "decoder", model.decoder_layers, encoded)
    build.layer = NO_NODE
    if model.is_tied:
        decoded = build.pointwise("lm_head.scale", "scale", decoded)
    add_output_head(build, "lm_head", decoded, model, shape)


def _add_stack(
    build: GraphBuilder,
    model: ModelDescription,
    shape: PassShape,
    name: str,
    layers: int,
    encoded: int | None,
) -> int:
    build.layer = NO_NODE
    ids = build.input(f"{name}.input_ids", (shape.batch, shape.sequence))
    hidden = build.embedding(f"{name}.embed_tokens", ids, model.vocab, model.hidden)
    hidden = add_dropout(build, f"{name}.dropout", hidden, model.dropout, shape)
    bias = _add_position_bias(build, model, shape, name)
    cross_bias = build.copy(f"{name}.cross_mask", bias)  # zeros and the mask, of the same size
    first_layer = 0 if encoded is None else model.layers
    for layer in range(layers):
        build.layer = first_layer + layer
        hidden = _add_attention(build, model, shape, f"{name}.self", hidden, None, bias)
        if encoded is not None:
            hidden = _add_attention(build, model, shape, f"{name}.cross", hidden, encoded, cross_bias)
        is_sparse = layer % model.sparse_step == 1 or model.sparse_step == 1
        hidden = _add_mlp(build, model, shape, name, hidden, is_sparse=is_sparse)
    build.layer = NO_NODE
    hidden = add_rms_norm(build, f"{name}.final_layer_norm", hidden)
    return add_dropout(build, f"{name}.final_dropout", hidden, model.dropout, shape)


def _add_position_bias(build: GraphBuilder, model: ModelDescription, shape: PassShape, name: str) -> int:
    """Add the bias of relative positions, made once per stack and masked for each sequence.

    It is looked up per pair of positions, so that heads lie beside each other; permuting and adding the mask
    keep this layout, while scores have pairs beside each other: each attention reads the bias strided.
    """
    buckets = build.input(f"{name}.buckets", (shape.sequence, shape.sequence))
    bias = build.embedding(f"{name}.relative_attention_bias", buckets, model.position_buckets, model.heads)
    size = (shape.batch, model.heads, shape.sequence, shape.sequence)
    return build.copy(f"{name}.mask", bias, size, is_strided=True)


def _add_attention(
    build: GraphBuilder,
    model: ModelDescription,
    shape: PassShape,
    name: str,
    residual: int,
    encoded: int | None,
    bias: int,
) -> int:
    """Add attention to the sequence itself, or to what the encoder gave."""
    width = model.heads * model.head_dim
    heads = (shape.batch, model.heads, shape.sequence, model.head_dim)
    x = add_rms_norm(build, f"{name}.layer_norm", residual)
    source = x if encoded is None else encoded
    query = build.view(f"{name}.query", build.linear(f"{name}.q", x, width, has_bias=False), heads)
    key = build.view(
        f"{name}.key", build.linear(f"{name}.k", source, width, has_bias=False), (*heads[:2], *heads[:1:-1])
    )
    value = build.view(f"{name}.value", build.linear(f"{name}.v", source, width, has_bias=False), heads)
    copied = (0, 1) if shape.batch > 1 else ()
    scores = build.matmul(f"{name}.scores", query, key, copied=copied)
    scores = build.pointwise(f"{name}.add", "add", scores, bias)
    weights = build.softmax(f"{name}.softmax", scores)
    weights = add_dropout(build, f"{name}.attention_dropout", weights, model.attention_dropout, shape)
    merged = build.matmul(f"{name}.values", weights, value, copied=copied[1:])
    merged = build.copy(f"{name}.contiguous", merged, (shape.batch, shape.sequence, width))
    out = build.linear(f"{name}.o", merged, model.hidden, has_bias=False)
    out = add_dropout(build, f"{name}.dropout", out, model.dropout, shape)
    return build.pointwise(f"{name}.residual", "add", residual, out)


def _add_mlp(
    build: GraphBuilder,
    model: ModelDescription,
    shape: PassShape,
    name: str,
    residual: int,
    *,
    is_sparse: bool,
) -> int:
    x = add_rms_norm(build, f"{name}.mlp.layer_norm", residual)
    if is_sparse:
        out = _add_experts(build, model, shape, f"{name}.experts", x)
    else:
        out = _add_dense(build, model, shape, f"{name}.mlp", x)
    out = add_dropout(build, f"{name}.mlp.dropout", out, model.dropout, shape)
    return build.pointwise(f"{name}.mlp.residual", "add", residual, out)


def _add_dense(build: GraphBuilder, model: ModelDescription, shape: PassShape, name: str, x: int) -> int:
    inner = build.linear(f"{name}.wi", x, model.intermediate, has_bias=False)
    inner = build.pointwise(f"{name}.act", model.activation, inner)
    inner = add_dropout(build, f"{name}.inner_dropout", inner, model.dropout, shape)
    return build.linear(f"{name}.wo", inner, model.hidden, has_bias=False)


def _add_experts(build: GraphBuilder, model: ModelDescription, shape: PassShape, name: str, x: int) -> int:
    """Add the router, a copy of the tokens, and each expert's rows gathered, computed, scattered."""
    router = build.linear(f"{name}.router", x, model.experts, has_bias=False)
    probabilities = build.softmax(f"{name}.router.softmax", router)
    chosen = build.reduction(f"{name}.router.argmax", probabilities, (shape.batch, shape.sequence, 1))
    merged = build.copy(f"{name}.clone", x)
    rows = shape.batch * min(model.expert_capacity, -(-shape.sequence // model.experts))
    for expert in range(model.experts):
        own = build.copy(f"{name}.{expert}.gather", x, (rows, model.hidden))
        out = _add_dense(build, model, shape, f"{name}.{expert}", own)
        build.copy(f"{name}.{expert}.scatter", out)
    return build.pointwise(f"{name}.mul", "mul", merged, chosen)
