"""Options that say how a model is served: GPU, parallelism, framework, data types."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from analyzer.cli.completion import complete_gpus
from analyzer.forecast.data_types import KV_TYPES, SERVING_TYPES
from analyzer.forecast.deployment import Framework

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_NAMES = {
    "gpu": "gpu",
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "ep": "expert_parallel",
    "framework": "framework",
    "dtype": "dtype",
    "kv_dtype": "kv_dtype",
    "gemm_tflops": "gemm_tflops",
    "memory_fraction": "memory_fraction",
}
_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--gpu", "-g", required=True, shell_complete=complete_gpus, help="GPU, by name or TOML file."
    ),
    click.option("--tp", default=1, show_default=True, help="GPUs that divide each layer."),
    click.option("--pp", default=1, show_default=True, help="Stages of layers, one after the other."),
    click.option(
        "--ep", default=1, show_default=True, help="Of --tp, GPUs that divide experts by whole ones."
    ),
    click.option(
        "--framework",
        type=click.Choice([framework.value for framework in Framework]),
        default=Framework.SGLANG.value,
        show_default=True,
        help="Serving framework.",
    ),
    click.option(
        "--dtype",
        default="",
        metavar="TYPE",
        help=f"Weights and products: {', '.join(SERVING_TYPES)}; as the configuration has it if not given.",
    ),
    click.option(
        "--kv-dtype", default="", metavar="TYPE", help=f"KV cache: {', '.join(KV_TYPES)}; bf16 if not given."
    ),
    click.option(
        "--gemm-tflops", type=float, metavar="X", help="Rate of large 16-bit products, where you measured it."
    ),
    click.option(
        "--memory-fraction",
        type=float,
        default=0.9,
        show_default=True,
        help="Of the GPU's memory, what weights and KV cache may fill.",
    ),
)


def deployment_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one `ForecastOptions` before its other arguments."""

    @wraps(function)
    def wrapper(**values: Any) -> Any:
        from analyzer.pipeline.forecast import ForecastOptions

        given = {field: values.pop(name) for name, field in _NAMES.items()}
        return function(ForecastOptions(**given), **values)

    decorated: Callable[..., Any] = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
