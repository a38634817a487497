"""What serving frameworks take where the user says nothing: chunk, batch, and block of the KV cache.

| | chunk | batch | block |
|---|---|---|---|
| vLLM 0.10 to 0.13 (`EngineArgs`), GPUs of 70 GiB or more that are no A100 | 8,192 | 1,024 | 16 |
| vLLM, others | 2,048 | 256 | 16 |
| SGLang 0.5 (`ServerArgs`), below 35, 60, 160 GiB, or more | 2,048, 4,096, 8,192, 16,384 | 2,048 | 1 |

SGLang bounds the batch by memory and context length, mostly at 2,048; its page is 1 token unless the
attention backend wants more.
"""

from analyzer.forecast.deployment import Framework
from analyzer.forecast.engine_state import EngineLimits

_VLLM_LARGE_GIB = 70
_SGLANG_CHUNKS = ((35, 2_048), (60, 4_096), (160, 8_192))  # below so many GiB
_SGLANG_LARGEST_CHUNK = 16_384
_GIB = 1 << 30


def choose_limits(
    framework: Framework,
    gpu_key: str,
    gpu_bytes: int,
    kv_capacity_tokens: int,
    *,
    chunk_tokens: int | None = None,
    max_running: int | None = None,
    block_tokens: int | None = None,
) -> EngineLimits:
    """Return the limits that a user gives, the others as the framework has them for a GPU."""
    if framework is Framework.VLLM:
        is_large = gpu_bytes >= _VLLM_LARGE_GIB * _GIB and not gpu_key.startswith("a100")
        chunk, running, block = (8_192, 1_024, 16) if is_large else (2_048, 256, 16)
    else:
        chunks = (size for gib, size in _SGLANG_CHUNKS if gpu_bytes < gib * _GIB)
        chunk, running, block = next(chunks, _SGLANG_LARGEST_CHUNK), 2_048, 1
    return EngineLimits(
        chunk_tokens=chunk if chunk_tokens is None else chunk_tokens,
        max_running=running if max_running is None else max_running,
        kv_capacity_tokens=kv_capacity_tokens,
        block_tokens=block if block_tokens is None else block_tokens,
    )
