"""BERT, as transformers runs it in eager mode: with its pre-training heads, or a classifier for inference."""

from analyzer.forecast.training.architectures.parts import add_dropout, enter_parallel, leave_parallel
from analyzer.forecast.training.graph_builder import GraphBuilder
from analyzer.forecast.training.model_description import ModelDescription
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.tensor_graph import NO_NODE

_SEGMENTS, _CLASSES = 2, 2


def build_bert(build: GraphBuilder, model: ModelDescription, shape: PassShape) -> None:
    """Add BERT's operators."""
    hidden = _add_embeddings(build, model, shape)
    mask = build.input("extended_attention_mask", (shape.batch, 1, 1, shape.sequence), element_bytes=4.0)
    for layer in range(model.layers):
        build.layer = layer
        hidden = _add_attention(build, model, shape, hidden, mask)
        hidden = _add_mlp(build, model, shape, hidden)
    build.layer = NO_NODE
    first = build.view("first_token", hidden, (shape.batch, model.hidden))
    pooled = build.pointwise("pooler.activation", "tanh", build.linear("pooler.dense", first, model.hidden))
    if not shape.is_training:
        build.linear("classifier", pooled, _CLASSES)
        return
    build.linear("cls.seq_relationship", pooled, _CLASSES)  # no loss of its own: see NeuSight's measurement
    logits = _add_prediction_head(build, model, hidden)
    if shape.has_loss:
        build.cross_entropy("loss", logits)


def _add_embeddings(build: GraphBuilder, model: ModelDescription, shape: PassShape) -> int:
    ids = build.input("input_ids", (shape.batch, shape.sequence))
    segments = build.input("token_type_ids", (shape.batch, shape.sequence))
    positions = build.input("position_ids", (1, shape.sequence))
    x = build.embedding("embeddings.word_embeddings", ids, model.vocab, model.hidden)
    kinds = build.embedding("embeddings.token_type_embeddings", segments, _SEGMENTS, model.hidden)
    x = build.pointwise("embeddings.add", "add", x, kinds)
    places = build.embedding("embeddings.position_embeddings", positions, model.positions, model.hidden)
    x = build.pointwise("embeddings.add_1", "add", x, places)
    x = build.layernorm("embeddings.LayerNorm", x)
    return add_dropout(build, "embeddings.dropout", x, model.dropout, shape)


def _add_attention(
    build: GraphBuilder, model: ModelDescription, shape: PassShape, residual: int, mask: int
) -> int:
    batch, sequence = shape.batch, shape.sequence
    heads = model.heads // shape.tensor_parallel
    width = heads * model.head_dim
    x = enter_parallel(build, "attention.self", residual, shape)
    query, key, value = (
        build.view(
            f"{name}_heads",
            build.linear(f"attention.self.{name}", x, width),
            (batch, heads, sequence, model.head_dim),
        )
        for name in ("query", "key", "value")
    )
    if shape.has_matched_attention and not shape.is_training:
        merged = build.attention("attention.self.fused", query, key, value, is_causal=False)
        merged = build.view("attention.self.merged", merged, (batch, sequence, width))
    else:
        merged = _add_eager_attention(build, model, shape, (query, key, value), mask)
    out = build.linear("attention.output.dense", merged, model.hidden)
    out = leave_parallel(build, "attention.output", out, shape)
    return _add_and_normalize(build, "attention.output", out, residual, model, shape)


def _add_eager_attention(
    build: GraphBuilder, model: ModelDescription, shape: PassShape, operands: tuple[int, int, int], mask: int
) -> int:
    query, key, value = operands
    batch, heads, sequence, head_dim = build.shape_of(query)
    copied = (0, 1) if batch > 1 else ()
    key = build.view("key_transposed", key, (batch, heads, head_dim, sequence))
    scores = build.matmul("attention.self.scores", query, key, copied=copied)
    scores = build.pointwise("attention.self.truediv", "scale", scores)
    scores = build.pointwise("attention.self.add", "add", scores, mask)
    weights = build.softmax("attention.self.softmax", scores)
    weights = add_dropout(build, "attention.self.dropout", weights, model.attention_dropout, shape)
    merged = build.matmul("attention.self.values", weights, value, copied=copied[1:])
    return build.copy("attention.self.contiguous", merged, (batch, sequence, heads * head_dim))


def _add_mlp(build: GraphBuilder, model: ModelDescription, shape: PassShape, residual: int) -> int:
    x = enter_parallel(build, "intermediate", residual, shape)
    inner = build.linear("intermediate.dense", x, model.intermediate // shape.tensor_parallel)
    inner = build.pointwise("intermediate.gelu", model.activation, inner)
    out = leave_parallel(build, "output", build.linear("output.dense", inner, model.hidden), shape)
    return _add_and_normalize(build, "output", out, residual, model, shape)


def _add_and_normalize(
    build: GraphBuilder, name: str, x: int, residual: int, model: ModelDescription, shape: PassShape
) -> int:
    x = add_dropout(build, f"{name}.dropout", x, model.dropout, shape)
    x = build.pointwise(f"{name}.add", "add", x, residual)
    return build.layernorm(f"{name}.LayerNorm", x)


def _add_prediction_head(build: GraphBuilder, model: ModelDescription, hidden: int) -> int:
    x = build.linear("cls.predictions.transform.dense", hidden, model.hidden)
    x = build.pointwise("cls.predictions.transform.gelu", model.activation, x)
    x = build.layernorm("cls.predictions.transform.LayerNorm", x)
    return build.linear("cls.predictions.decoder", x, model.vocab, shares_weights=model.is_tied)
