"""Times of a kernel in Triton IR on any GPU, from its tasks (see `analyzer.models.program_roofs`)."""

from collections.abc import Sequence

from analyzer.execution.profile.provenance import Provenance
from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.program_roofs import NAME, TIMED_QUANTITIES, RoofPrediction, predict_program
from analyzer.pipeline.operator_prediction import OperatorOptions
from analyzer.pipeline.options import Options
from analyzer.pipeline.task_decomposition import decompose_triton_file
from analyzer.report.predict_schema import OperatorPredictionEntry, PredictReport
from analyzer.tiles.decomposition import TaskDecomposition
from analyzer.tiles.footprint import estimate_distinct_bytes
from analyzer.version import __version__

_BASIS = "tasks of Triton IR on the GPU's roofs: a bound from below, nothing learned; interval as on an H100"


def predict_triton_kernel(
    path: str, options: Options, gpus: Sequence[str], changes: OperatorOptions
) -> PredictReport:
    """Return the times of the launch that options give to the kernel of a TTIR or TTGIR file.

    changes: edits of the GPUs' figures, and whether the roofs are told. Raises InputError, HardwareError, or
    UsageError without a grid or with arguments that do not fit.
    """
    decomposed = decompose_triton_file(path, options)
    module, tasks = decomposed.module, decomposed.tasks
    distinct = estimate_distinct_bytes(module, tasks, decomposed.launch.arguments)
    entries = []
    for name in gpus:
        gpu = changes.edit_gpu(load_gpu(name))
        found = predict_program(module, tasks, distinct, gpu)
        entries.append(_make_entry(tasks, name, gpu.name, found, explain=changes.explain))
    return PredictReport(
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        predictions=tuple(entries),
        warnings=decomposed.warnings,
    )


def _make_entry(
    tasks: TaskDecomposition, gpu: str, gpu_name: str, found: RoofPrediction, *, explain: bool
) -> OperatorPredictionEntry:
    provenance = Provenance.EXACT
    if tasks.assumed & TIMED_QUANTITIES:
        provenance = Provenance.ASSUMED
    if tasks.uncounted & TIMED_QUANTITIES:
        provenance = Provenance.UNKNOWN
    assumed = f"; assumed: {'; '.join(tasks.assumptions)}" if tasks.assumptions else ""
    return OperatorPredictionEntry(
        operator=tasks.kernel,
        gpu=gpu,
        gpu_name=gpu_name,
        dtype=found.dtype,
        shape={"grid": str(tasks.grid), "tasks": str(len(tasks.classes))},
        model=NAME,
        timing="kernel",
        time_us=found.time_us,
        time_us_low=found.time_us,
        time_us_high=None if provenance is Provenance.UNKNOWN else found.high_us,
        counts=provenance.value,
        basis=_BASIS + assumed,
        in_range=True,
        terms_us=found.terms_us if explain else {},
    )
