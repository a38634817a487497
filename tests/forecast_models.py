"""Small configurations of models, and deployments, for tests of forecasts."""

from analyzer.forecast.deployment import Deployment
from analyzer.hardware.gpu_database import load_gpu

DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 10,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
QWEN3_MOE = {
    **DENSE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "head_dim": 128,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [0, 3],
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}


def deploy(gpu: str = "a100", tp: int = 1, **changes: object) -> Deployment:
    return Deployment(load_gpu(gpu), tensor_parallel=tp, **changes)
