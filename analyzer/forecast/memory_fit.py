"""Memory of one GPU: weights, keys and values, activations, and which deployments hold a run.

Of the stage that has most: its layers' weights divided among the tensor-parallel GPUs, embedding and output
matrix in 16 bits, norms whole. Two conditions decide: weights and KV cache fill at most the share of memory
that the framework reserves (`memory_fraction`), and weights, KV cache and the activations of the largest step
fit into the GPU. Activations are an estimate: residual, normed input, gate, up and their product of all
tokens of the prefill, with the logits; buffers of communication and graphs are left to the rest of memory.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from analyzer.forecast.data_types import check_multiplies
from analyzer.forecast.deployment import Deployment
from analyzer.forecast.model_config import ModelConfig
from analyzer.forecast.operator_sequence import find_local_kv_heads
from analyzer.forecast.parallel_layout import check_layout, find_most_gpus, list_tensor_parallel_sizes
from analyzer.forecast.request_trace import Request
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_all_gpus
from analyzer.operators.names import DataType
from analyzer.text.errors import UsageError

_GIB = 1 << 30
# What CUDA reports as total memory, of the printed size in GiB: 0.989 on eight GPUs, and 0.924 on A40, L20
# and L40, whose GDDR6 keeps the bits of error correction in the memory itself (totalGlobalMem of PipeWeave's
# hardware.csv). Workstation and consumer cards have that off.
_REPORTED_SHARE = 0.989
_ECC_SHARE = 15 / 16
_INLINE_ECC_KINDS = ("GDDR5", "GDDR6")
_WIDE_BYTES = 2.0  # of embedding, output matrix, norms and activations
_LOGIT_BYTES = 4
_MAX_MIXTURE_TOKENS = 32768  # that fused experts take at a time; longer inputs go in pieces
_MAX_SUGGESTED_GPUS = 4


class MemoryFit(Struct, frozen=True):
    """Bytes of one GPU, of the stage that needs most."""

    gpu_bytes: int
    usable_bytes: int  # what the framework may fill with weights and KV cache
    weight_bytes: int
    activation_bytes: int
    kv_bytes_per_token: float
    kv_bytes: int  # of all tokens of the run at its largest
    kv_capacity_tokens: int
    kv_tokens: int  # of the run at its largest

    @property
    def fits(self) -> bool:
        """Return whether the whole run does."""
        return self.kv_capacity_tokens >= self.kv_tokens


def find_gpu_bytes(gpu: Gpu) -> int:
    """Return the memory of a GPU as CUDA reports it. Raises UsageError for one whose size is not known."""
    size = gpu.file.memory.size_gb
    if size is None:
        raise UsageError(
            f"the memory of {gpu.name} is not known",
            hint="give memory.size_gb in a hardware file, see `warplens gpus new`",
        )
    memory = gpu.file.memory
    has_ecc_inline = memory.kind.upper().startswith(_INLINE_ECC_KINDS) and memory.has_ecc
    share = _REPORTED_SHARE * (_ECC_SHARE if has_ecc_inline else 1.0)
    return int(size.value * _GIB * share)


def compute_weight_bytes(config: ModelConfig, deployment: Deployment) -> int:
    """Return the bytes of weights on the GPU that holds most."""
    layers = -(-config.layers // deployment.pipeline_parallel)
    # The leading layers are the dense ones, so a stage may be all experts.
    moe_layers = min(layers, config.moe_layers)
    dense_layers = layers - moe_layers
    narrow = _count_attention_weights(config, deployment.tensor_parallel) * layers
    narrow += 3 * config.hidden * config.intermediate / deployment.tensor_parallel * dense_layers
    narrow += 3 * config.hidden * config.shared_intermediate / deployment.tensor_parallel * moe_layers
    # A share of all experts, however they are divided.
    columns = config.experts * config.moe_intermediate / deployment.tensor_parallel
    routed = 3 * config.hidden * columns * moe_layers
    vocabulary = config.vocab * config.hidden / deployment.tensor_parallel
    is_one_matrix = config.tie_word_embeddings or deployment.pipeline_parallel > 1
    wide = vocabulary * (1 if is_one_matrix else 2)
    wide += config.norms_per_layer * config.hidden * layers + config.experts * config.hidden * moe_layers
    own, experts = deployment.dtype.stored_weight_bytes, deployment.routed_dtype.stored_weight_bytes
    return int(narrow * own + routed * experts + wide * _WIDE_BYTES)


def _count_attention_weights(config: ModelConfig, tensor: int) -> float:
    """Return the weights of one layer's attention on one GPU."""
    heads = config.heads // tensor
    if not config.kv_lora_rank:
        width = (2 * heads + 2 * find_local_kv_heads(config, tensor)) * config.head_dim
        return float(width * config.hidden)
    latent = config.kv_lora_rank + config.qk_rope_head_dim
    queries = heads * config.head_dim
    down = config.hidden * (latent + config.q_lora_rank)
    up = queries * (config.q_lora_rank or config.hidden)
    expansion = config.kv_lora_rank * heads * (config.qk_nope_head_dim + config.v_head_dim)
    return float(down + up + expansion + config.hidden * heads * config.v_head_dim)


def kv_bytes_per_token(config: ModelConfig, deployment: Deployment) -> float:
    """Return the bytes of keys and values that a token keeps on one GPU, in the layers of one stage.

    MLA keeps one latent vector for all heads, whole on each tensor-parallel GPU.
    """
    layers = -(-config.layers // deployment.pipeline_parallel)
    if config.kv_lora_rank:
        width = config.kv_lora_rank + config.qk_rope_head_dim
    else:
        width = 2 * find_local_kv_heads(config, deployment.tensor_parallel) * config.head_dim
    return width * layers * deployment.kv_dtype.activation_bytes


def compute_activation_bytes(config: ModelConfig, deployment: Deployment, tokens: int, batch: int) -> int:
    """Return an estimate of the activations that are alive at once, for a step of so many tokens."""
    tensor = deployment.tensor_parallel
    widest = 0.0
    if config.dense_layers:
        widest = tokens * 3 * config.intermediate / tensor
    if config.moe_layers:
        routed = min(tokens, _MAX_MIXTURE_TOKENS) * config.topk
        columns = config.moe_intermediate / (tensor // deployment.expert_parallel)
        mixture = routed * (3 * columns + config.hidden) / deployment.expert_parallel
        widest = max(widest, mixture + tokens * 3 * config.shared_intermediate / tensor)
    attention = tokens * 3 * config.heads // tensor * config.head_dim
    hidden = 2 * tokens * config.hidden
    logits = batch * config.vocab * _LOGIT_BYTES
    return int((hidden + max(widest, attention)) * _WIDE_BYTES + logits)


def compute_memory(
    config: ModelConfig, deployment: Deployment, *, kv_tokens: int, step_tokens: int, batch: int
) -> MemoryFit:
    """Return the memory of one GPU for a run.

    kv_tokens: tokens whose keys and values are kept at once, at most.
    step_tokens, batch: of the largest step.
    Raises UsageError for a GPU whose memory is not known.
    """
    gpu_bytes = find_gpu_bytes(deployment.gpu)
    usable = int(gpu_bytes * deployment.memory_fraction)
    weights = compute_weight_bytes(config, deployment)
    activations = compute_activation_bytes(config, deployment, step_tokens, batch)
    per_token = kv_bytes_per_token(config, deployment)
    room = min(usable - weights, gpu_bytes - weights - activations)
    return MemoryFit(
        gpu_bytes=gpu_bytes,
        usable_bytes=usable,
        weight_bytes=weights,
        activation_bytes=activations,
        kv_bytes_per_token=per_token,
        kv_bytes=int(kv_tokens * per_token),
        kv_capacity_tokens=max(0, int(room / per_token)),
        kv_tokens=kv_tokens,
    )


def compute_batch_memory(
    config: ModelConfig, deployment: Deployment, requests: Sequence[Request]
) -> MemoryFit:
    """Return the memory of one GPU for requests that all run at once, prefilled in one step."""
    return compute_memory(
        config,
        deployment,
        kv_tokens=_find_most_kv_tokens(requests),
        step_tokens=sum(request.prefill_tokens for request in requests),
        batch=len(requests),
    )


def _find_most_kv_tokens(requests: Sequence[Request]) -> int:
    """Return the tokens kept at once, at most; a finished request gives its tokens back.

    The last token of a request is made and not kept. Between two ends the sum grows, so its largest values
    are those at the last steps before an end.
    """
    by_length = sorted(requests, key=lambda request: request.output_tokens)
    prompts = sum(request.prefill_tokens for request in by_length)
    most, left = 0, len(by_length)
    for request in by_length:
        most = max(most, prompts + left * (request.output_tokens - 1))
        prompts -= request.prefill_tokens
        left -= 1
    return most


def check_memory(
    config: ModelConfig, deployment: Deployment, requests: Sequence[Request], model_name: str
) -> MemoryFit:
    """Return the memory of a run. Raises UsageError, which says what would work, where it does not fit."""
    fit = compute_batch_memory(config, deployment, requests)
    if fit.fits:
        return fit
    where = f"{deployment.tensor_parallel * deployment.pipeline_parallel} {deployment.gpu.name}"
    shortest = min(requests, key=lambda request: request.prefill_tokens + request.output_tokens)
    if _fits(config, deployment, (shortest,)):
        message = (
            f"the batch does not fit on {where}: per GPU {_format_gib(fit.weight_bytes)} of weights, "
            f"{_format_gib(fit.kv_bytes)} of KV cache for {fit.kv_tokens:,} tokens and about "
            f"{_format_gib(fit.activation_bytes)} of activations, of {_format_gib(fit.gpu_bytes)}"
        )
    else:
        message = (
            f"{model_name} does not fit on {where}: {_format_gib(fit.weight_bytes)} of weights per GPU, "
            f"of {_format_gib(fit.gpu_bytes)}"
        )
    raise UsageError(message, hint=_describe_remedies(config, deployment, requests))


def _format_gib(n_bytes: float) -> str:
    return f"{n_bytes / _GIB:,.1f} GiB"


def _describe_remedies(config: ModelConfig, deployment: Deployment, requests: Sequence[Request]) -> str:
    """Return what would make a run fit."""
    remedies = []
    layout = _find_smallest_layout(config, deployment, requests)
    if layout is not None:
        remedies.append(f"with {layout}")
    narrower = _find_narrower_types(config, deployment, requests)
    if narrower is not None:
        remedies.append(f"with {narrower}")
    larger = _find_larger_gpus(config, deployment, requests)
    if larger:
        remedies.append(f"on as many {' or '.join(larger)}")
    text = f"it fits {', '.join(remedies)}" if remedies else ""
    n_fitting = _count_fitting(config, deployment, requests)
    if n_fitting:
        text += f"{'; ' if text else ''}the first {n_fitting:,} of {len(requests):,} requests fit"
    return text or "shorten the requests, or choose a smaller model"


def _count_fitting(config: ModelConfig, deployment: Deployment, requests: Sequence[Request]) -> int:
    """Return how many of the first requests fit, by bisection."""
    low, high = 0, len(requests)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(config, deployment, requests[:middle]) else (low, middle)
    return low


def _find_smallest_layout(
    config: ModelConfig, deployment: Deployment, requests: Sequence[Request]
) -> str | None:
    """Return options of the fewest GPUs of this kind that hold a run, None if none do."""
    most = find_most_gpus(deployment.gpu)
    layouts = [
        (tensor * stages, stages, tensor)
        for tensor in list_tensor_parallel_sizes(config, most)
        for stages in (1, 2, 4, 8)
        if tensor * stages <= most and stages <= config.layers
    ]
    for _, stages, tensor in sorted(layouts):
        candidate = replace(
            deployment,
            tensor_parallel=tensor,
            pipeline_parallel=stages,
            expert_parallel=tensor if deployment.expert_parallel > 1 else 1,
        )
        if _fits(config, candidate, requests):
            return f"--tp {tensor}" + (f" --pp {stages}" if stages > 1 else "")
    return None


def _fits(config: ModelConfig, deployment: Deployment, requests: Sequence[Request]) -> bool:
    """Return whether a deployment can be made and holds a run."""
    try:
        check_layout(config, deployment)
        check_multiplies(deployment.gpu, deployment.dtype)
        return compute_batch_memory(config, deployment, requests).fits
    except UsageError:
        return False


def _find_narrower_types(
    config: ModelConfig, deployment: Deployment, requests: Sequence[Request]
) -> str | None:
    """Return the options of narrower types that make a run fit, the mildest of them; None if none do."""
    own = deployment.dtype
    options = [("--kv-dtype fp8", replace(deployment, kv_dtype=DataType.FP8))]
    for dtype in (DataType.FP8, DataType.INT8_WEIGHTS, DataType.INT4_WEIGHTS):
        if dtype.weight_bytes < own.weight_bytes:
            narrower = replace(deployment, dtype=dtype, expert_dtype=None)  # --dtype is of the experts, too
            options += [
                (f"--dtype {dtype}", narrower),
                (f"--dtype {dtype} --kv-dtype fp8", replace(narrower, kv_dtype=DataType.FP8)),
            ]
    return next((text for text, other in options if _fits(config, other, requests)), None)


def _find_larger_gpus(config: ModelConfig, deployment: Deployment, requests: Sequence[Request]) -> list[str]:
    """Return the names of GPUs of the least larger memories that hold a run, one for each size."""
    own_bytes = find_gpu_bytes(deployment.gpu)
    names: dict[float, str] = {}
    for gpu in load_all_gpus():
        size = gpu.file.memory.size_gb
        is_comparable = size is not None and gpu.file.vendor == deployment.gpu.file.vendor
        if size is None or not is_comparable or find_gpu_bytes(gpu) <= own_bytes:
            continue
        if size.value not in names and _fits(config, replace(deployment, gpu=gpu), requests):
            names[size.value] = gpu.key
    return [names[size] for size in sorted(names)[:_MAX_SUGGESTED_GPUS]]
