"""The models that the options ask for, run on one input."""

from collections.abc import Callable, Iterator

from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.hardware.gpu import Gpu
from analyzer.ir.launch import Launch
from analyzer.models.calibration import apply_to_kernel
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.models.portability import is_native
from analyzer.models.registry import choose_comparison_model, choose_default_model, find_model
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.options import Options
from analyzer.report.kernel_analysis import GpuResult


def run_on_gpu(
    counted: CountedLaunch,
    gpu: Gpu,
    costs: OpcodeCosts | None,
    options: Options,
    widen: Callable[[ModelResult], ModelResult] | None,
) -> tuple[GpuResult, ...]:
    """Return one result for each model, or one refusal if the kernel does not run on the GPU.

    widen: as of `run_models`.
    """
    model_input = bind_to_gpu(counted, gpu, costs)
    found: list[ModelResult | None] = [None]
    if not isinstance(model_input, Refusal):
        found = list(run_models(model_input, counted.launch, options, widen))
    return tuple(
        GpuResult(
            gpu=gpu.key,
            gpu_name=gpu.name,
            transferred=not is_native(counted.loaded.kernel, gpu),
            refusal_reason=model_input.reason if isinstance(model_input, Refusal) else "",
            result=result,
        )
        for result in found
    )


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
