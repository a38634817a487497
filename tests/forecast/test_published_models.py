"""Configurations as they are published: each has the parameters that its makers state, in all and for a token."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from analyzer.cli.app import run
from analyzer.forecast.deployment import Deployment
from analyzer.forecast.memory_fit import compute_weight_bytes
from analyzer.forecast.model_config import KNOWN_ARCHITECTURES, ModelConfig, read_model_config
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.names import DataType
from analyzer.text.errors import InputError


def fill(architecture: str, sizes: str, **more: Any) -> dict[str, Any]:
    """Return a configuration by the sizes that all have: hidden, intermediate, layers, heads, KV heads, words."""
    names = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "vocab_size",
    )  # fmt: skip
    own = {"architectures": [architecture], **dict(zip(names, map(int, sizes.split()), strict=True))}
    return {**own, **more}


def make_gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    kinds = ["sliding_attention", "full_attention"] * (layers // 2)
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    return fill(
        "GptOssForCausalLM", f"2880 2880 {layers} 64 8 201088", model_type="gpt_oss", head_dim=64,
        num_local_experts=experts, num_experts_per_tok=4, experts_per_token=4, sliding_window=128,
        layer_types=kinds, tie_word_embeddings=False, max_position_embeddings=131072,
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": skipped},
    )  # fmt: skip


def make_llama4(experts: int, step: int, *, qk_norm: bool) -> dict[str, Any]:
    text = fill("", "5120 8192 48 40 8 202048", model_type="llama4_text", head_dim=128)
    text |= {
        "intermediate_size_mlp": 16384, "num_local_experts": experts, "num_experts_per_tok": 1,
        "interleave_moe_layer_step": step, "attention_chunk_size": 8192, "use_qk_norm": qk_norm,
        "no_rope_layers": [], "torch_dtype": "bfloat16",
    }  # fmt: skip
    del text["architectures"]
    return {
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        "text_config": text,
        "vision_config": {"hidden_size": 1408},
    }


def make_gemma3(**sizes: int) -> dict[str, Any]:
    text = {"model_type": "gemma3_text", "sliding_window": 1024, **sizes}
    return {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text}


_QWEN3_MOE = {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
_DEEPSEEK_V3 = {
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}  # fmt: skip
_GLM = {"n_shared_experts": 1, "num_experts_per_tok": 8, "head_dim": 128, "partial_rotary_factor": 0.5}
# Name: configuration, parameters in billions, those that a token meets (0: all).
PUBLISHED = {
    "gpt-oss-120b": (make_gpt_oss(36, 128), 116.8, 5.1),
    "gpt-oss-20b": (make_gpt_oss(24, 32), 20.9, 3.6),
    "Mixtral-8x7B": (
        fill("MixtralForCausalLM", "4096 14336 32 32 8 32000", num_local_experts=8, num_experts_per_tok=2),
        46.7,
        12.9,
    ),
    "Qwen3-8B": (fill("Qwen3ForCausalLM", "4096 12288 36 32 8 151936", head_dim=128), 8.2, 0),
    "Qwen3-32B": (fill("Qwen3ForCausalLM", "5120 25600 64 64 8 151936", head_dim=128), 32.8, 0),
    "Qwen3-30B-A3B": (
        fill(
            "Qwen3MoeForCausalLM", "2048 6144 48 32 4 151936", head_dim=128, num_experts=128,
            num_experts_per_tok=8, moe_intermediate_size=768, **_QWEN3_MOE,
        ),
        30.5,
        3.3,
    ),
    "Qwen3-235B-A22B": (
        fill(
            "Qwen3MoeForCausalLM", "4096 12288 94 64 4 151936", head_dim=128, num_experts=128,
            num_experts_per_tok=8, moe_intermediate_size=1536, **_QWEN3_MOE,
        ),
        235,
        22,
    ),
    "DeepSeek-V3": (fill("DeepseekV3ForCausalLM", "7168 18432 61 128 128 129280", **_DEEPSEEK_V3), 671, 37),
    "Llama-3.1-8B": (fill("LlamaForCausalLM", "4096 14336 32 32 8 128256"), 8.03, 0),
    "Llama-3.1-405B": (fill("LlamaForCausalLM", "16384 53248 126 128 8 128256"), 405.9, 0),
    "Llama-4-Scout": (make_llama4(16, 1, qk_norm=True), 108, 17),
    "Llama-4-Maverick": (make_llama4(128, 2, qk_norm=False), 400, 17),
    "Gemma-3-4b": (make_gemma3(hidden_size=2560, intermediate_size=10240, num_hidden_layers=34), 3.88, 0),
    "Gemma-3-27b": (
        make_gemma3(
            hidden_size=5376, intermediate_size=21504, num_hidden_layers=62, num_attention_heads=32,
            num_key_value_heads=16, head_dim=128,
        ),
        27.0,
        0,
    ),
    "GLM-4.5": (
        fill(
            "Glm4MoeForCausalLM", "5120 12288 92 96 8 151552", n_routed_experts=160,
            moe_intermediate_size=1536, first_k_dense_replace=3, use_qk_norm=True, **_GLM,
        ),
        353,
        32,
    ),
    "GLM-4.5-Air": (
        fill(
            "Glm4MoeForCausalLM", "4096 10944 46 96 8 151552", n_routed_experts=128,
            moe_intermediate_size=1408, first_k_dense_replace=1, use_qk_norm=False, **_GLM,
        ),
        106,
        12,
    ),
    "Phi-4": (fill("Phi3ForCausalLM", "5120 17920 40 40 10 100352", sliding_window=None), 14.7, 0),
    "Mistral-Small-24B": (fill("MistralForCausalLM", "5120 32768 40 32 8 131072", head_dim=128), 23.6, 0),
}  # fmt: skip


def count_billions(config: ModelConfig, experts: int) -> float:
    deployment = Deployment(load_gpu("h100"))
    changed = {name: getattr(config, name) for name in config.__struct_fields__} | {"experts": experts}
    return compute_weight_bytes(ModelConfig(**changed), deployment) / 2e9


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    source, total, active = PUBLISHED[name]
    config = read_model_config(source)
    assert count_billions(config, config.experts) == pytest.approx(total, rel=0.02)
    if active:
        # Makers round, and some leave out the vocabulary on either side.
        vocabulary = 2 * config.vocab * config.hidden / 1e9
        found = count_billions(config, config.topk)
        assert found - vocabulary <= 1.03 * active
        assert found >= 0.95 * active


def test_what_sizes_do_not_say() -> None:
    oss, scout, gemma = (
        read_model_config(PUBLISHED[name][0]) for name in ("gpt-oss-120b", "Llama-4-Scout", "Gemma-3-4b")
    )
    assert (oss.dtype, oss.expert_dtype) == (DataType.BF16, DataType.INT4_WEIGHTS)
    assert (oss.sliding_window, oss.sliding_layers) == (128, 18)
    assert "MXFP4" in oss.notes[0]
    assert (scout.sliding_window, scout.sliding_layers, scout.has_qk_norm) == (8192, 36, True)
    assert any("chunks of 8,192 keys" in note for note in scout.notes)
    assert (gemma.sliding_window, gemma.sliding_layers, gemma.norms_per_layer) == (1024, 29, 4)
    assert read_model_config(PUBLISHED["DeepSeek-V3"][0]).dtype is DataType.FP8_BLOCK


def test_weights_of_experts_have_their_own_type() -> None:
    config = read_model_config(PUBLISHED["gpt-oss-120b"][0])
    deployment = Deployment(load_gpu("h100"), dtype=config.dtype, expert_dtype=config.expert_dtype)
    assert compute_weight_bytes(config, deployment) == pytest.approx(65.2e9, rel=0.06)  # of its files


def test_a_narrower_cache_is_advised_beside_narrow_experts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "gpt-oss-120b.json"
    config.write_text(json.dumps(PUBLISHED["gpt-oss-120b"][0]))
    words = [
        "forecast",
        str(config),
        "--batch",
        "3",
        "--input-tokens",
        "60000",
        "--output-tokens",
        "8",
        "-g",
        "h100",
    ]
    assert run(words) == 2
    assert "with --kv-dtype fp8," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "nearest"),
    [
        (fill("DeepseekV32ForCausalLM", "1 1 1 1 1 1"), "DeepseekV3ForCausalLM"),
        (fill("Qwen3NextForCausalLM", "1 1 1 1 1 1"), "Qwen3"),
        ({"model_type": "gpt_oss2"}, "gpt_oss"),
    ],
)
def test_what_is_not_known_is_refused_with_the_nearest(source: dict[str, Any], nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        read_model_config(source)
    assert caught.value.diagnostic.hint is not None
    assert caught.value.diagnostic.hint.startswith(f"the nearest is {nearest}")


def test_the_page_lists_all_that_is_read() -> None:
    page = (ROOT / "docs" / "forecast.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+ForCausalLM)`", page, re.M) == list(KNOWN_ARCHITECTURES)
