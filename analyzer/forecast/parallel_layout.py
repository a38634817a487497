"""Which divisions of a model among GPUs its frameworks can make.

Heads, feed-forward columns and vocabulary rows are divided among the tensor-parallel GPUs, layers among the
pipeline's stages. KV heads are divided too, or each is kept by tp / kv_heads GPUs where there are fewer of
them than GPUs (SGLang and vLLM both do that). Experts are divided by columns, by expert, or both.
"""

from analyzer.forecast.deployment import Deployment
from analyzer.forecast.model_config import ModelConfig
from analyzer.hardware.gpu import Gpu
from analyzer.text.errors import UsageError

_GPUS_PER_NODE = 8


def find_most_gpus(gpu: Gpu) -> int:
    """Return how many GPUs of a kind one replica may span: a server's, or those of one NVLink rack."""
    domain = gpu.file.link.domain_gpus
    return int(domain.value) if domain else _GPUS_PER_NODE


def list_tensor_parallel_sizes(config: ModelConfig, most: int) -> list[int]:
    """Return the tensor-parallel sizes that divide a model, ascending."""
    return [size for size in range(1, most + 1) if _find_tensor_fault(config, size) is None]


def check_layout(config: ModelConfig, deployment: Deployment) -> None:
    """Raise UsageError, which says what would work, for a division that cannot be made."""
    most = find_most_gpus(deployment.gpu)
    tensor, stages = deployment.tensor_parallel, deployment.pipeline_parallel
    for option, value in (("--tp", tensor), ("--pp", stages), ("--ep", deployment.expert_parallel)):
        if value < 1:
            raise UsageError(f"{option} {value} is no number of GPUs", hint="give 1 or more")
    if tensor * stages > most:
        raise UsageError(
            f"--tp {tensor} times --pp {stages} is {tensor * stages} GPUs",
            hint=f"a replica spans one node of at most {most} {deployment.gpu.name}",
        )
    fault = _find_tensor_fault(config, tensor)
    if fault is not None:
        sizes = ", ".join(map(str, list_tensor_parallel_sizes(config, most)))
        raise UsageError(f"--tp {tensor} does not divide {fault}", hint=f"--tp can be {sizes}")
    if stages > config.layers:
        raise UsageError(
            f"--pp {stages} is more than the {config.layers} layers", hint="each stage has a layer at least"
        )
    _check_expert_layout(config, deployment)


def _find_tensor_fault(config: ModelConfig, size: int) -> str | None:
    """Return what a number of GPUs does not divide, None if it divides all."""
    if config.heads % size:
        return f"{config.heads} attention heads"
    if not config.kv_lora_rank and config.kv_heads % size and size % config.kv_heads:
        return f"{config.kv_heads} KV heads, nor is it a multiple of them"
    if config.dense_layers and config.intermediate % size:
        return f"the intermediate size {config.intermediate}"
    if config.shared_intermediate % size:
        return f"the shared experts' size {config.shared_intermediate}"
    return None


def _check_expert_layout(config: ModelConfig, deployment: Deployment) -> None:
    tensor, ways = deployment.tensor_parallel, deployment.expert_parallel
    if ways > 1 and not config.experts:
        raise UsageError(f"--ep {ways}, but {config.architecture} has no experts", hint="leave --ep out")
    if tensor % ways:
        sizes = ", ".join(str(size) for size in range(1, tensor + 1) if tensor % size == 0)
        raise UsageError(
            f"--ep {ways} does not divide the {tensor} tensor-parallel GPUs", hint=f"--ep can be {sizes}"
        )
    if config.experts % ways:
        raise UsageError(
            f"--ep {ways} does not divide {config.experts} experts", hint="choose a divisor of them"
        )
    columns = tensor // ways
    if config.moe_intermediate % columns:
        raise UsageError(
            f"--tp {tensor} with --ep {ways} leaves {columns} GPUs to divide an expert of "
            f"{config.moe_intermediate} columns",
            hint=f"--ep {tensor} divides by whole experts"
            if config.experts % tensor == 0
            else "choose fewer",
        )
