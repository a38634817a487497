"""Operators of models, their sizes and parameters, against published counts and closed forms."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.forecast.training.forward_kernels import list_forward
from analyzer.forecast.training.kernels import ProductKernel
from analyzer.forecast.training.model_description import describe_model
from analyzer.forecast.training.model_graphs import build_graph
from analyzer.forecast.training.pass_kernels import list_forward_pass, list_training_pass
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.tensor_graph import NodeKind
from analyzer.text.errors import UsageError

BERT_LARGE = {
    "model_type": "bert",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 30522,
}
GPT2_LARGE = {"model_type": "gpt2", "n_embd": 1280, "n_head": 20, "n_layer": 36, "vocab_size": 50257}
OPT = {
    "model_type": "opt",
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "ffn_dim": 8192,
    "vocab_size": 50272,
}
SWITCH = {
    "model_type": "switch_transformers",
    "d_model": 1024,
    "d_ff": 16384,
    "d_kv": 128,
    "num_layers": 24,
    "num_decoder_layers": 24,
    "num_heads": 32,
    "num_experts": 4,
    "expert_capacity": 64,
    "vocab_size": 32128,
}
LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (BERT_LARGE, 336_226_108),  # BertForPreTraining, as transformers counts it
        (GPT2_LARGE, 774_030_080),
        (OPT, 1_315_758_080),
        (LLAMA_8B, 8_030_261_248),
    ],
)
def test_parameters_are_those_of_the_published_models(config, parameters):
    graph = build_graph(describe_model(config), PassShape(1, 512, is_training=True))
    assert graph.parameters == pytest.approx(parameters, rel=1e-4)


def test_switch_has_all_experts_weights():
    graph = build_graph(describe_model(SWITCH), PassShape(1, 512))
    experts = 24 * 4 * 2 * 1024 * 16384  # sparse layers x experts x two matrices
    assert graph.parameters > experts
    assert graph.parameters == pytest.approx(5.3e9, rel=0.01)


def test_a_layer_of_gpt2_in_training_is_as_neusight_traced_it():
    """Operators and output shapes of one layer, from the labels of GPT2-large in training, batch 1."""
    graph = build_graph(describe_model(GPT2_LARGE), PassShape(1, 1024, is_training=True))
    layer = [node for node in graph.nodes if node.layer == 7 and node.kind is not NodeKind.VIEW]
    scores, hidden, inner = (1, 20, 1024, 1024), (1, 1024, 1280), (1, 1024, 5120)
    assert Counter((node.kind.value, node.shape) for node in layer) == Counter(
        {
            ("layernorm", hidden): 2,
            ("linear", (1, 1024, 3840)): 1,
            ("linear", hidden): 2,
            ("linear", inner): 1,
            ("batched_product", scores): 1,
            ("batched_product", (1, 20, 1024, 64)): 1,
            ("softmax", scores): 1,
            ("pointwise", scores): 3,  # truediv, where, dropout
            ("pointwise", inner): 8,  # gelu_new
            ("pointwise", hidden): 4,  # two dropouts, two residuals
            ("copy", hidden): 1,
        }
    )


def _products(groups):
    return [kernel for group in groups for kernel in group if isinstance(kernel, ProductKernel)]


@pytest.mark.parametrize("config", [BERT_LARGE, GPT2_LARGE, OPT, LLAMA_8B])
def test_forward_is_two_operations_per_weight_and_token_and_training_six(config):
    """6 N D of training: weights that multiply each token, and attention's pairs apart."""
    model, batch, sequence = describe_model(config), 2, 256
    graph = build_graph(model, PassShape(batch, sequence, is_training=True, has_loss=True))
    per_token = model.layers * (
        model.hidden * model.head_dim * (2 * model.heads + 2 * model.kv_heads)
        + (3 if model.activation == "silu" else 2) * model.hidden * model.intermediate
    )
    head = model.hidden * model.vocab
    if config is BERT_LARGE:
        head += model.hidden**2
    weights = 2.0 * batch * sequence * (per_token + head)
    pooled = 2.0 * batch * (model.hidden**2 + 2 * model.hidden) if config is BERT_LARGE else 0.0
    linear = [k for k in _products(list_forward_pass(graph).forward) if not k.is_batched]
    assert sum(k.flops for k in linear) == pytest.approx(weights + pooled, rel=1e-12)
    found = list_training_pass(graph)
    backward = [k for k in _products(found.backward) if not k.is_batched]
    assert sum(k.flops for k in backward) == pytest.approx(2.0 * weights, rel=1e-12)


def test_attention_of_a_batch_takes_four_operations_per_pair_and_column():
    graph = build_graph(describe_model(GPT2_LARGE), PassShape(3, 128))
    batched = [k for k in _products(list_forward_pass(graph).forward) if k.is_batched]
    assert sum(k.flops for k in batched) == 36 * 4 * 3 * 128 * 128 * 1280


@settings(max_examples=30, deadline=None)
@given(
    config=st.sampled_from([BERT_LARGE, GPT2_LARGE, OPT, SWITCH, LLAMA_8B]),
    batch=st.integers(1, 4),
    sequence=st.integers(1, 512),
    is_training=st.booleans(),
)
def test_inputs_stand_before_their_nodes_and_kernels_have_sizes(config, batch, sequence, is_training):
    small = {**config, **{key: 2 for key in config if "layer" in key}}
    graph = build_graph(describe_model(small), PassShape(batch, sequence, is_training=is_training))
    for place, node in enumerate(graph.nodes):
        assert all(0 <= source < place for source in node.inputs)
        for kernel in list_forward(graph, place):
            sizes = [getattr(kernel, name) for name in kernel.__struct_fields__]
            assert all(size >= 0 for size in sizes if isinstance(size, int | float))


@pytest.mark.parametrize("ways", [2, 4])
@pytest.mark.parametrize("config", [BERT_LARGE, OPT, LLAMA_8B])
def test_tensor_parallel_gpus_divide_the_layers_products(config, ways):
    model = describe_model(config)

    def sum_layers(tensor_parallel):
        graph = build_graph(model, PassShape(1, 128, tensor_parallel=tensor_parallel))
        places = [i for i, node in enumerate(graph.nodes) if node.layer >= 0]
        return sum(k.flops for i in places for k in list_forward(graph, i))

    assert ways * sum_layers(ways) == pytest.approx(sum_layers(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"n_head": 7}, "no multiple of 7 heads"),
        ({"n_layer": 0}, "n_layer"),
        ({"n_layer": 1 << 30}, "n_layer"),
        ({"n_embd": "wide"}, "n_embd"),
        ({"resid_pdrop": 3}, "resid_pdrop"),
    ],
)
def test_impossible_configurations_are_named(change, message):
    with pytest.raises(UsageError, match=message):
        describe_model({**GPT2_LARGE, **change})


def test_a_sequence_beyond_the_positions_says_what_works():
    with pytest.raises(UsageError, match="1,024 positions"):
        build_graph(describe_model(GPT2_LARGE), PassShape(1, 2048))


def test_a_division_that_does_not_come_out_even_says_what_works():
    with pytest.raises(UsageError) as caught:
        build_graph(describe_model(GPT2_LARGE), PassShape(1, 128, tensor_parallel=3))
    assert "2, 4" in str(caught.value.diagnostic.hint)


@pytest.mark.parametrize(
    "config", [BERT_LARGE, GPT2_LARGE, OPT, SWITCH, LLAMA_8B], ids=lambda one: one["model_type"]
)
@pytest.mark.parametrize("value", [[], {}, None, True, "", "\u202e", -1, 0, 0.5, 1e300, 10**30])
def test_any_value_of_any_key_is_read_or_refused(config, value) -> None:
    for key in config:
        refused = None
        try:
            describe_model({**config, key: value})
        except UsageError as error:
            refused = error
        assert refused is None or key in refused.diagnostic.message, (key, value)
