"""What a baseline keeps of a kernel: figures rounded to six digits, less than any change that counts."""

from msgspec import UNSET

from analyzer.comparison.kernel_metrics import METRICS, Preference, list_first_predictions, list_metrics
from analyzer.report.analyze_schema import KernelReport, LaunchEntry, PredictionEntry
from analyzer.report.baseline_schema import Amount, BaselineKernel, BaselinePrediction
from analyzer.text.escaping import escape_controls

_CODE_DIGITS = 32
_FIGURE_DIGITS = 6
_STACK_DIGITS = 3
_MAX_EXACT_INTEGER = 1 << 53


def make_kernel_facts(report: KernelReport, input_name: str) -> BaselineKernel:
    """Return the facts of one kernel and launch; the analysis must have been asked for identities."""
    assert report.identity is not UNSET
    metrics: dict[str, Amount] = {}
    by_gpu: dict[str, dict[str, Amount]] = {entry.gpu: {} for entry in report.predictions}
    for each in list_metrics(report):
        if METRICS[each.metric].preference is Preference.NONE:
            continue
        figures = by_gpu[each.gpu] if each.gpu else metrics
        figures[each.metric] = round_figure(each.value, _FIGURE_DIGITS)
    return BaselineKernel(
        name=_make_encodable(report.name),
        input=_make_encodable(input_name),
        architecture=report.architecture,
        launch=format_launch(report.launch),
        launch_digest=report.identity.launch,
        assumed_launch=report.identity.assumed_launch,
        code=report.identity.code[:_CODE_DIGITS],
        metrics=metrics,
        gpus={
            entry.gpu: BaselinePrediction(metrics=by_gpu[entry.gpu], cpi_stack=_make_cpi_stack(report, entry))
            for entry in list_first_predictions(report)
        },
    )


def round_figure(value: float, digits: int) -> Amount:
    """Return a figure with so many significant digits; an integer stays as it is."""
    rounded = value if value == int(value) else float(f"{value:.{digits}g}")
    is_integer = rounded == int(rounded) and abs(rounded) < _MAX_EXACT_INTEGER
    return int(rounded) if is_integer else rounded


def _make_cpi_stack(report: KernelReport, entry: PredictionEntry) -> dict[str, Amount]:
    """Return cycles per instruction by stall, as texts of reports have the CPI."""
    instructions = report.counts.instructions_per_warp
    if not instructions:
        return {}
    issued = instructions * max(1.0, entry.waves)
    stack = {
        stall: float(f"{cycles / issued:.{_STACK_DIGITS}f}") for stall, cycles in entry.cpi_stack.items()
    }
    return {stall: cpi for stall, cpi in stack.items() if cpi}


def format_launch(launch: LaunchEntry) -> str:
    """Return grid and block, with cluster and dynamic shared memory if there are any: `132x4/256`."""
    cluster = f" cluster {_format_sizes(launch.cluster)}" if launch.cluster else ""
    dynamic = f" +{launch.dynamic_shared_bytes} B" if launch.dynamic_shared_bytes else ""
    return f"{_format_sizes(launch.grid)}/{_format_sizes(launch.block)}{cluster}{dynamic}"


def _format_sizes(sizes: tuple[int, int, int] | None) -> str:
    if sizes is None:
        return "?"
    shown = list(sizes)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return "x".join(map(str, shown))


def _make_encodable(name: str) -> str:
    """Return a name that JSON can hold: bytes that are no UTF-8 are shown as their codes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return escape_controls(name)
    return name
