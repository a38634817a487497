"""What comparisons of layouts share: how many there may be, prices, reasons of those that cannot be."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec

from analyzer.forecast.data_types import SERVING_TYPES, parse_data_type
from analyzer.forecast.model_config import ModelConfig
from analyzer.hardware.gpu_database import load_gpu
from analyzer.pipeline.forecast import ForecastOptions
from analyzer.report.layout_entries import LayoutEntry
from analyzer.text.errors import UsageError
from analyzer.text.progress import ProgressCallback

MAX_LAYOUTS = 512
_MAX_LISTED_FAULTS = 3
_Entry = TypeVar("_Entry", bound=LayoutEntry)
_Report = TypeVar("_Report")


def answer_layouts(
    describe: Callable[[ForecastOptions], _Entry],
    answer: Callable[[ForecastOptions], _Report],
    fill: Callable[[_Entry, _Report], _Entry],
    layouts: Sequence[ForecastOptions],
    progress: ProgressCallback,
) -> tuple[list[_Entry], list[_Report]]:
    """Return the entries of all layouts, and the reports of those that are possible.

    describe: gives the entry of a layout before it is answered; fill: adds what its report says.
    Raises what `describe` does, and UsageError where no layout is possible.
    """
    entries: list[_Entry] = []
    reports: list[_Report] = []
    for done, layout in enumerate(layouts):
        progress(done, len(layouts), _name_layout(layout))
        base = describe(layout)
        try:
            report = answer(layout)
        except UsageError as error:
            entries.append(_refuse(base, error))
            continue
        reports.append(report)
        entries.append(fill(base, report))
    if not reports:
        raise _make_all_impossible_error(entries)
    return entries, reports


def check_count(layouts: Sequence[ForecastOptions]) -> None:
    """Raise UsageError where there is no layout, or too many."""
    if not layouts:
        raise UsageError("nothing to compare", hint="name one GPU and layout at least")
    if len(layouts) > MAX_LAYOUTS:
        raise UsageError(f"{len(layouts):,} layouts to compare", hint=f"give at most {MAX_LAYOUTS}")


def describe_layout(
    kind: type[_Entry], layout: ForecastOptions, model: ModelConfig, prices: Mapping[str, float]
) -> _Entry:
    """Return the entry of a layout before it is forecast.

    Raises HardwareError for an unknown GPU, UsageError for an unknown data type: these are the user's
    mistakes, not layouts that are not possible.
    """
    gpu = load_gpu(layout.gpu)
    if layout.dtype:
        parse_data_type("--dtype", layout.dtype, SERVING_TYPES)
    return kind(
        gpu=gpu.key,
        gpu_name=gpu.name,
        gpus=layout.tensor_parallel * layout.pipeline_parallel,
        tensor_parallel=layout.tensor_parallel,
        pipeline_parallel=layout.pipeline_parallel,
        expert_parallel=layout.expert_parallel,
        dtype=layout.dtype or model.dtype.value,
        price_per_gpu_hour=prices.get(gpu.key),
        is_possible=False,
    )


def _name_layout(layout: ForecastOptions) -> str:
    """Return a layout as progress shows it: `h100 tp 2 pp 1`."""
    return f"{layout.gpu} tp {layout.tensor_parallel} pp {layout.pipeline_parallel}"


def _refuse(entry: _Entry, error: UsageError) -> _Entry:
    """Return the entry of a layout that cannot be, with the reason."""
    reason: dict[str, Any] = {"reason": error.diagnostic.message, "hint": error.diagnostic.hint}
    return msgspec.structs.replace(entry, **reason)


def _make_all_impossible_error(entries: Sequence[LayoutEntry]) -> UsageError:
    """Return the error where no layout is possible: reasons of the first few, each once."""
    if len(entries) == 1:
        return UsageError(entries[0].reason, hint=entries[0].hint)
    reasons = list(dict.fromkeys(entry.reason for entry in entries))
    shown = "; ".join(reasons[:_MAX_LISTED_FAULTS])
    more = f"; and {len(reasons) - _MAX_LISTED_FAULTS} more" if len(reasons) > _MAX_LISTED_FAULTS else ""
    hint = next((entry.hint for entry in entries if entry.hint), "")
    return UsageError(f"none of {len(entries)} layouts is possible: {shown}{more}", hint=hint)


def list_once(texts: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the texts of all reports, each once, in their order."""
    return tuple(dict.fromkeys(chain.from_iterable(texts)))


def warn_of_prices(entries: Sequence[LayoutEntry], prices: Mapping[str, float]) -> tuple[str, ...]:
    """Return a warning where some GPUs have a price and others none."""
    unpriced = list(dict.fromkeys(e.gpu_name for e in entries if e.price_per_gpu_hour is None))
    if not prices or not unpriced:
        return ()
    return (f"no price of {', '.join(unpriced)}: not among the cheapest",)
