"""Limits of a serving engine: what its framework takes where the user says nothing, and what a GPU holds.

| | chunk | batch | block |
|---|---|---|---|
| vLLM 0.10 to 0.13 (`EngineArgs`), GPUs of 70 GiB or more that are no A100 | 8,192 | 1,024 | 16 |
| vLLM, others | 2,048 | 256 | 16 |
| SGLang 0.5 (`ServerArgs`), below 35, 60, 160 GiB, or more | 2,048, 4,096, 8,192, 16,384 | 2,048 | 1 |

SGLang bounds the batch by memory and context length, mostly at 2,048; its page is 1 token unless the
attention backend wants more.
"""

from msgspec import Struct
from msgspec.structs import replace

from analyzer.forecast.batch_schedulers import make_scheduler
from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.engine_state import EngineLimits
from analyzer.forecast.memory_fit import check_memory, compute_memory, find_gpu_bytes
from analyzer.forecast.model_config import ModelConfig
from analyzer.forecast.parallel_layout import check_layout, find_most_gpus, list_tensor_parallel_sizes
from analyzer.forecast.pipelined_serving import share_limits
from analyzer.forecast.request_trace import Request
from analyzer.forecast.serving_load import ServingLoad
from analyzer.operators.names import DataType
from analyzer.text.errors import UsageError

_VLLM_LARGE_GIB = 70
_SGLANG_CHUNKS = ((35, 2_048), (60, 4_096), (160, 8_192))  # below so many GiB
_SGLANG_LARGEST_CHUNK = 16_384
_SMALLER_CHUNKS = (8_192, 2_048, 512)  # that an error suggests, whose activations leave more for the KV cache
_GIB = 1 << 30


class GivenLimits(Struct, frozen=True, kw_only=True):
    """Limits that a user gives; None: the framework's own, of the KV cache what fits."""

    chunk_tokens: int | None = None
    max_running: int | None = None
    block_tokens: int | None = None
    kv_capacity_tokens: int | None = None


def choose_limits(deployment: Deployment, given: GivenLimits, kv_capacity_tokens: int) -> EngineLimits:
    """Return the limits that a user gives, the others as the framework has them for a GPU."""
    gpu_gib = find_gpu_bytes(deployment.gpu) / _GIB
    if deployment.framework is Framework.VLLM:
        is_large = gpu_gib >= _VLLM_LARGE_GIB and not deployment.gpu.file.has_small_vllm_steps
        chunk, running, block = (8_192, 1_024, 16) if is_large else (2_048, 256, 16)
    else:
        chunks = (size for gib, size in _SGLANG_CHUNKS if gpu_gib < gib)
        chunk, running, block = next(chunks, _SGLANG_LARGEST_CHUNK), 2_048, 1
    return EngineLimits(
        chunk_tokens=given.chunk_tokens or chunk,
        max_running=given.max_running or running,
        block_tokens=given.block_tokens or block,
        kv_capacity_tokens=given.kv_capacity_tokens or kv_capacity_tokens,
    )


def find_limits(
    config: ModelConfig, deployment: Deployment, load: ServingLoad, given: GivenLimits, model_name: str
) -> EngineLimits:
    """Return the limits of an engine that can serve a load.

    Raises UsageError, which says what would work, for weights that do not fit, limits that the framework
    refuses, and a request longer than the KV cache.
    """
    check_layout(config, deployment)
    check_memory(config, deployment, [Request(1, 1)], model_name)
    batch = min(choose_limits(deployment, given, 1).max_running, load.n_requests)
    limits = choose_limits(deployment, given, _compute_capacity(config, deployment, given, batch))
    _check_step(limits, deployment.framework)
    longest = int((load.prompt_tokens + load.output_tokens).argmax())
    prompt, output = int(load.prompt_tokens[longest]), int(load.output_tokens[longest])
    needed = make_scheduler(deployment.framework).count_needed_tokens(limits, prompt, output)
    own = share_limits(limits, deployment.pipeline_parallel)
    capacity = own.n_blocks * own.block_tokens
    if needed > capacity:
        raise UsageError(
            f"a request of {prompt:,} prompt and {output:,} output tokens can never run: it needs {needed:,} "
            f"tokens of KV cache, and {capacity:,} fit{_name_share(deployment)}",
            hint=_describe_remedies(config, deployment, given, needed),
        )
    return limits


def _name_share(deployment: Deployment) -> str:
    stages = deployment.pipeline_parallel
    return f" for each of the {stages} batches that --pp keeps in flight" if stages > 1 else ""


def _compute_capacity(config: ModelConfig, deployment: Deployment, given: GivenLimits, batch: int) -> int:
    """Return the tokens of KV cache that fit beside weights and the activations of the largest step.

    vLLM's share of memory holds the activations too, which it measures at the start; SGLang's does not.
    """
    rows = max(choose_limits(deployment, given, 1).chunk_tokens, batch)
    fit = compute_memory(config, deployment, kv_tokens=1, step_tokens=rows, batch=batch)
    if deployment.framework is not Framework.VLLM:
        return fit.kv_capacity_tokens
    room = fit.usable_bytes - fit.weight_bytes - fit.activation_bytes
    return max(0, int(room / fit.kv_bytes_per_token))


def _check_step(limits: EngineLimits, framework: Framework) -> None:
    """Raise UsageError for limits that the framework itself refuses."""
    if framework is Framework.VLLM and limits.chunk_tokens < limits.max_running:
        raise UsageError(
            f"--chunk {limits.chunk_tokens:,} is less than the {limits.max_running:,} requests of the "
            "batch, which vLLM refuses",
            hint="give a larger --chunk or a smaller --max-batch",
        )
    if limits.chunk_tokens < limits.block_tokens:
        raise UsageError(
            f"--chunk {limits.chunk_tokens:,} is less than a block of {limits.block_tokens:,} tokens",
            hint="give a larger --chunk or a smaller --block",
        )


def _describe_remedies(config: ModelConfig, deployment: Deployment, given: GivenLimits, needed: int) -> str:
    """Return what would hold so many tokens, as clauses."""
    if given.kv_capacity_tokens is not None:
        return f"give --kv-tokens {needed * deployment.pipeline_parallel:,} or more"
    remedies = []
    chunk = choose_limits(deployment, given, 1).chunk_tokens
    for size in _SMALLER_CHUNKS:
        smaller = GivenLimits(chunk_tokens=size, max_running=size)
        if size < chunk and _holds(config, deployment, smaller, needed):
            remedies.append(f"it fits with --chunk {size}")
            break
    sizes = list_tensor_parallel_sizes(config, find_most_gpus(deployment.gpu) // deployment.pipeline_parallel)
    larger = (size for size in sizes if size > deployment.tensor_parallel)
    fitting = next(
        (size for size in larger if _holds(config, replace(deployment, tensor_parallel=size), given, needed)),
        None,
    )
    if fitting is not None:
        remedies.append(f"it fits with --tp {fitting}")
    if _holds(config, replace(deployment, kv_dtype=DataType.FP8), given, needed):
        remedies.append("it fits with --kv-dtype fp8")
    return "; ".join(remedies) or "shorten or leave out the request, or choose GPUs with more memory"


def _holds(config: ModelConfig, deployment: Deployment, given: GivenLimits, needed: int) -> bool:
    try:
        check_layout(config, deployment)
    except UsageError:
        return False
    return _compute_capacity(config, deployment, given, 1) >= needed * deployment.pipeline_parallel
