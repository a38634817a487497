"""Options that say how a model is served: GPU, parallelism, framework, data types."""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import islice, product
from pathlib import Path
from typing import Any

import click

from analyzer.cli.path_types import GPU_TEXT
from analyzer.forecast.data_types import KV_TYPES, SERVING_TYPES
from analyzer.forecast.deployment import Framework
from analyzer.text.errors import UsageError

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
    "nvlink_bridge": "has_bridge",
}
_INTEGER = re.compile(r"-?[0-9]{1,9}")
_MAX_LAYOUTS = 512  # more are refused, see `pipeline.compared_layouts`


class IntegerList(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """Whole numbers, set apart by commas: `1,2,4`."""

    name = "N,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers. Raises UsageError for a text that is none."""
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if len(parts) > _MAX_LAYOUTS or not all(_INTEGER.fullmatch(part.strip()) for part in parts):
            option = param.opts[0] if param else "option"
            raise UsageError(
                f"{option} {str(value)[:40]}: no number", hint=f"give one or some: {option} 1,2,4"
            )
        return tuple(int(part) for part in parts)


_LAYOUTS: tuple[Decorator, ...] = (
    click.option(
        "--gpu",
        "-g",
        multiple=True,
        required=True,
        type=GPU_TEXT,
        help="GPU, by name or TOML file; several are compared.",
    ),
    click.option(
        "--tp",
        default="1",
        type=IntegerList(),
        show_default=True,
        help="GPUs that divide each layer; a list as 1,2,4 is compared.",
    ),
    click.option(
        "--pp",
        default="1",
        type=IntegerList(),
        show_default=True,
        help="Stages of layers, one after the other; or a list.",
    ),
)
_OPTIONS: tuple[Decorator, ...] = (
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
        metavar="TYPE,...",
        help=f"Weights and products: {', '.join(SERVING_TYPES)}; or a list. As the configuration has it if "
        "not given.",
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
    click.option(
        "--nvlink-bridge", is_flag=True, help="NVLink bridges join pairs of cards, as on some A40 and A6000."
    ),
)


def layout_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets a tuple of `ForecastOptions`: each GPU, layout and type."""

    @wraps(function)
    def wrapper(**values: Any) -> Any:
        from analyzer.pipeline.forecast import ForecastOptions

        given = {field: values.pop(name) for name, field in _NAMES.items()}
        given["gpu"] = [name for text in given["gpu"] for name in _split_names(text)]
        given["dtype"] = [name.strip() for name in given["dtype"].split(",")]
        names = ("gpu", "tensor_parallel", "pipeline_parallel", "dtype")
        axes = [dict.fromkeys(given.pop(name)) for name in names]
        layouts = tuple(
            ForecastOptions(**dict(zip(names, each, strict=True)), **given)
            for each in islice(product(*axes), _MAX_LAYOUTS + 1)
        )
        return function(layouts, **values)

    return _add_options(wrapper, (*_LAYOUTS, *_OPTIONS))


def _split_names(text: str) -> list[str]:
    """Return `h100` and `l40s` of `h100,l40s`, which is taken apart unless a file has that name."""
    names = [text] if Path(text).is_file() else text.split(",")
    return [name.strip() for name in names]


def _add_options(command: Callable[..., Any], options: Sequence[Decorator]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command
