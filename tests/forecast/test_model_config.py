"""Configurations of models: what is read of each architecture, and one error for each fault."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.forecast.model_config import KNOWN_ARCHITECTURES, ModelConfig, read_model_config
from analyzer.operators.names import DataType
from analyzer.text.errors import InputError, format_diagnostic

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def _group(weights, inputs):
    groups = {"group_0": {"weights": weights, "input_activations": inputs}}
    return {"quant_method": "compressed-tensors", "config_groups": groups}


def test_llama():
    config = read_model_config(_LLAMA)
    assert config == ModelConfig("LlamaForCausalLM", 4096, 32, 32, 8, 128, 14336, 128256)
    assert (config.dense_layers, config.moe_layers) == (32, 0)


def test_defaults_are_those_of_the_architecture():
    small = {key: value for key, value in _LLAMA.items() if key not in ("num_key_value_heads", "torch_dtype")}
    assert read_model_config(small).kv_heads == 32
    assert read_model_config({**_LLAMA, "head_dim": 64}).head_dim == 64
    assert read_model_config({**_LLAMA, "dtype": "float16", "torch_dtype": None}).dtype is DataType.FP16
    single = read_model_config({**_LLAMA, "torch_dtype": "float32"})
    assert single.dtype is DataType.FP16
    assert "float32" in single.notes[0]


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({"quant_method": "fp8"}, DataType.FP8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, DataType.FP8_BLOCK),
        ({"quant_method": "awq", "bits": 4}, DataType.INT4_WEIGHTS),
        ({"quant_method": "gptq", "bits": 8}, DataType.INT8_WEIGHTS),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, DataType.NVFP4),
        (_group({"num_bits": 8, "type": "float"}, {"num_bits": 8}), DataType.FP8),
        (_group({"num_bits": 8, "type": "int"}, {"num_bits": 8}), DataType.INT8),
        (_group({"num_bits": 4, "type": "int"}, None), DataType.INT4_WEIGHTS),
    ],
)
def test_quantized_weights(quantization, dtype):
    assert read_model_config({**_LLAMA, "quantization_config": quantization}).dtype is dtype


def test_qwen_has_no_window_unless_it_says_so():
    qwen = {**_LLAMA, "architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096, "max_window_layers": 20}
    assert read_model_config({**qwen, "use_sliding_window": False}).sliding_layers == 0
    assert read_model_config({**qwen, "use_sliding_window": True}).sliding_layers == 12
    mistral = {**_LLAMA, "architectures": ["MistralForCausalLM"]}
    assert read_model_config({**mistral, "sliding_window": 4096}).sliding_layers == 32
    assert read_model_config({**mistral, "sliding_window": None}).sliding_layers == 0


def test_mixtures():
    mixtral = read_model_config(
        {**_LLAMA, "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2}
    )
    assert (mixtral.experts, mixtral.topk, mixtral.moe_intermediate, mixtral.moe_layers) == (8, 2, 14336, 32)
    shared = read_model_config(
        {
            **_LLAMA,
            "architectures": ["Qwen2MoeForCausalLM"],
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "decoder_sparse_step": 2,
        }
    )
    assert (shared.shared_intermediate, shared.has_shared_gate, shared.moe_layers) == (5632, True, 16)


def test_a_language_model_inside_a_larger_one():
    inner = {key: value for key, value in _LLAMA.items() if key not in ("architectures", "torch_dtype")}
    outer = {
        "architectures": ["LlavaForConditionalGeneration"],
        "torch_dtype": "float16",
        "text_config": {**inner, "model_type": "llama"},
    }
    config = read_model_config(outer)
    assert (config.architecture, config.hidden, config.dtype) == ("LlamaForCausalLM", 4096, DataType.FP16)
    assert "text_config" in config.notes[0]


@pytest.mark.parametrize(
    ("changes", "message", "shown"),
    [
        ({"hidden_size": "x"}, "hidden_size is a string", '"x"'),
        ({"hidden_size": True}, "hidden_size is true", "true"),
        ({"hidden_size": 4096.5}, "hidden_size is a number", "4096.5"),
        ({"hidden_size": 0}, "hidden_size 0 is out of range", "0"),
        ({"hidden_size": 10**30}, "out of range", "1000000000000000000000000000000"),
        ({"hidden_size": 10**4000}, "of so many digits is out of range", "1000"),
        ({"quantization_config": {"quant_method": "awq", "bits": []}}, "unknown quantization 'awq'", "{"),
        ({"num_hidden_layers": [1]}, "num_hidden_layers is a list", "["),
        ({"num_key_value_heads": 5}, "32 query heads do not divide among 5", "5"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "does not divide among 33 heads", "33"),
        ({"architectures": ["GPT2LMHeadModel"]}, "unknown architecture 'GPT2LMHeadModel'", "["),
        ({"architectures": [7]}, "no list of names", "["),
        ({"architectures": None, "model_type": "gpt2"}, "unknown model_type 'gpt2'", '"gpt2"'),
        ({"torch_dtype": "int3"}, "unknown data type 'int3' in torch_dtype", '"int3"'),
        ({"torch_dtype": 5}, "torch_dtype is a number", "5"),
        ({"quantization_config": {"quant_method": "hqq"}}, "unknown quantization 'hqq'", "{"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is a string", '"yes"'),
        ({"layer_types": ["full_attention"], "sliding_window": 5}, "no list of 32 names", "["),
    ],
)
def test_a_wrong_value_is_shown_with_a_caret(tmp_path, changes, message, shown):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**_LLAMA, **changes}, indent=1))
    with pytest.raises(InputError, match=message) as raised:
        read_model_config(path)
    location = raised.value.diagnostic.location
    assert location.text[location.column - 1 :].startswith(shown)
    assert raised.value.diagnostic.hint
    with pytest.raises(InputError, match=message):  # without a file there is no place, and the same error
        read_model_config({**_LLAMA, **changes})


def test_an_unknown_architecture_lists_the_known_ones():
    with pytest.raises(InputError) as raised:
        read_model_config({**_LLAMA, "architectures": ["X"]})
    assert all(name in raised.value.diagnostic.hint for name in KNOWN_ARCHITECTURES)


@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "architectures",
    ],
)
def test_a_missing_key_is_named(key):
    with pytest.raises(InputError, match=f"no {key}"):
        read_model_config({name: value for name, value in _LLAMA.items() if name != key})


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("[1, 2]", "this is a list", (1, 1)),
        ('{"hidden_size": 12', "truncated", (1, 18)),
        ('{\n "a": 1,\n}', "not JSON", (3, 1)),
        ("", "not JSON", (1, 1)),
        ('{"a": 1, "a": 2}', "'a' is there twice", (1, 10)),
        ("[" * 100_000, "not JSON", None),
        ('{"a":' * 40 + "1" + "}" * 40, "nested more than", None),
        ('{"a":\n "x\xff"}', "not UTF-8 text", (2, 4)),
    ],
)
def test_files_of_another_kind(tmp_path, text, message, place):
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message) as raised:
        read_model_config(path)
    location = raised.value.diagnostic.location
    if place is not None:
        assert (location.line, location.column) == place
    assert len(format_diagnostic(raised.value.diagnostic)) < 1000


def test_a_missing_file():
    with pytest.raises(InputError, match="No such file"):
        read_model_config("/nowhere/config.json")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(
    architecture=st.sampled_from(KNOWN_ARCHITECTURES),
    changes=st.dictionaries(
        st.sampled_from(
            [
                *_LLAMA,
                "head_dim",
                "num_experts",
                "text_config",
                "quantization_config",
                "layer_types",
                "kv_lora_rank",
            ]
        ),
        _VALUES,
        max_size=3,
    ),
)
def test_any_contents_give_a_configuration_or_an_input_error(architecture, changes):
    content = {**_LLAMA, "architectures": [architecture], **changes}
    try:
        config = read_model_config(content)
    except InputError:
        return
    assert config.heads % config.kv_heads == 0
