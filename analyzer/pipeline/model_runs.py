"""The models that the options ask for, run on one input."""

from collections.abc import Callable, Iterator

from analyzer.ir.launch import Launch
from analyzer.models.calibration import apply_to_kernel
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import choose_comparison_model, choose_default_model, find_model
from analyzer.pipeline.options import Options


def run_models(
    model_input: ModelInput,
    launch: Launch,
    options: Options,
    widen: Callable[[ModelResult], ModelResult] | None,
) -> Iterator[ModelResult]:
    """Yield the result of each model, the first one's first, with the levels of the options' calibration.

    widen: makes the interval cover what is not known of the launch; None where all is known.
    """
    for name in choose_models(options, launch):
        result = find_model(name)(model_input)
        yield apply_to_kernel(options.calibration, result if widen is None else widen(result))


def choose_models(options: Options, launch: Launch) -> tuple[str, ...]:
    """Return the names of the models to run."""
    names = options.models or (choose_default_model(is_launch_known=launch.has_dimensions),)
    return names if len(names) > 1 or not options.explain else (*names, choose_comparison_model(names[0]))
