"""Predictions for rows that share a dump and a kernel: it is read once, and executed once for all GPUs."""

import traceback
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.evaluation.case_table import Case, load_case_gpu, make_launch
from analyzer.evaluation.result_keys import CaseResult, digest_inputs, make_cache_keys
from analyzer.hardware.gpu import Gpu
from analyzer.models.interface import ModelInput
from analyzer.models.portability import find_best_kernel_indices, is_native
from analyzer.models.registry import find_model
from analyzer.pipeline.content_digests import digest_code
from analyzer.pipeline.entry_store import EntryStore
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import LoadedKernel, Program, find_kernels, load
from analyzer.pipeline.options import Options
from analyzer.text.errors import InputError, UsageError, WarplensError
from analyzer.traffic.cache_experiment import CacheExperiment

_MAX_SHOWN_NAMES = 4
_MAX_CACHED_PROGRAMS = 2


class PendingCase(Struct, frozen=True):
    """A row that some models have yet to predict."""

    row_index: int  # position among the chosen rows, from 0
    case: Case
    models: tuple[str, ...]


class EvaluationTask(Struct, frozen=True):
    """Rows of one dump and kernel."""

    pending_cases: tuple[PendingCase, ...]
    cache_folder: Path | None  # where results are kept, if anywhere


CaseResults = dict[tuple[int, str], CaseResult]


def evaluate_task(task: EvaluationTask) -> CaseResults:
    """Return results by row index and model; an error of a row is its result, and is not kept."""
    path = task.pending_cases[0].case.dump
    try:
        inputs = digest_inputs(path)
        program = _load_program(path, inputs)
    except (WarplensError, OSError) as error:
        return {
            key: CaseResult(reason=str(error)) for row in task.pending_cases for key in _list_result_keys(row)
        }
    counted: dict[tuple[object, ...], CountedLaunch | str] = {}
    results: CaseResults = {}
    cacheable: dict[str, CaseResult] = {}
    for row in task.pending_cases:
        keys = _make_cache_keys(row, inputs)
        found = _evaluate_case(row, program, counted)
        results |= {(row.row_index, model): one.result for model, one in found.items()}
        if keys == _make_cache_keys(row, inputs):  # else data were written while they were read
            cacheable |= {
                keys[model]: one.result for model, one in found.items() if model in keys and one.is_cacheable
            }
    store = EntryStore(task.cache_folder, digest_code)
    for key, result in cacheable.items():
        store.keep(key, result)
    return results


def _make_cache_keys(row: PendingCase, inputs: str) -> dict[str, str]:
    """Return the cache keys of a row by model; none where a file cannot be read."""
    try:
        return make_cache_keys(row.case, row.models, inputs=inputs, gpu=load_case_gpu(row.case))
    except OSError:
        return {}


def _list_result_keys(row: PendingCase) -> list[tuple[int, str]]:
    return [(row.row_index, model) for model in row.models]


@lru_cache(maxsize=_MAX_CACHED_PROGRAMS)
def _load_program(path: Path, inputs: str) -> Program:
    program = load(str(path))
    if digest_inputs(path) != inputs:
        raise InputError(f"{path}: changed while it was read", hint="run again")
    return program


class _CacheableResult(Struct, frozen=True):
    """A result of a model."""

    result: CaseResult
    is_cacheable: bool  # the same inputs always lead to it


def _evaluate_case(
    row: PendingCase, program: Program, counted: dict[tuple[object, ...], CountedLaunch | str]
) -> dict[str, _CacheableResult]:
    """Return the result of each pending model; `counted` keeps the counts of launches seen so far."""
    case, gpu = row.case, load_case_gpu(row.case)
    try:
        loaded = _find_kernel(program, case, gpu)
        key = (loaded.ordinal, *case.execution_key)
        if key not in counted:
            counted[key] = _count_case(loaded, case)
        known = counted[key]
        if isinstance(known, str):
            return {model: _CacheableResult(CaseResult(reason=known), False) for model in row.models}
        placed = bind_to_gpu(_with_case_launch(known, case), gpu)
    except Exception as error:
        return {
            model: _CacheableResult(CaseResult(reason=_describe_error(error)), False) for model in row.models
        }
    if isinstance(placed, Refusal):
        return {model: _CacheableResult(CaseResult(reason=placed.reason), True) for model in row.models}
    return {model: _run_model(model, placed, known.loaded, gpu) for model in row.models}


def _find_kernel(program: Program, case: Case, gpu: Gpu) -> LoadedKernel:
    """Return the kernel that a row names, of its versions the one that the GPU runs. Raises UsageError."""
    found = find_kernels(program.kernels, case.kernel) if case.kernel else list(program.kernels)
    if len(found) > 1:
        found = [found[index] for index in find_best_kernel_indices([loaded.kernel for loaded in found], gpu)]
    if len(found) == 1:
        return found[0]
    names = _format_names(found or program.kernels)
    if found:
        what = f"{case.kernel!r} fits" if case.kernel else "the dump holds"
        raise UsageError(f"{what} {len(found)} kernels: {names}", hint="name one in column kernel")
    raise UsageError(f"no kernel fits {case.kernel!r}; the dump has: {names}")


def _format_names(kernels: Sequence[LoadedKernel]) -> str:
    names = list(dict.fromkeys(loaded.name for loaded in kernels))
    return ", ".join(names[:_MAX_SHOWN_NAMES]) + (", ..." if len(names) > _MAX_SHOWN_NAMES else "")


def _count_case(loaded: LoadedKernel, case: Case) -> CountedLaunch | str:
    """Return the counts of the row's launch, or the reason why there are none."""
    try:
        found = list(KernelAnalyzer(Options(launch=make_launch(case))).count_launches(loaded))
    except Exception as error:
        return _describe_error(error)
    if len(found) != 1:
        return f"{case.dump_text} records {len(found)} launches of {loaded.name}: give its dump instead"
    return found[0]


def _with_case_launch(counted: CountedLaunch, case: Case) -> CountedLaunch:
    """Return the counts with the row's own launch; what was taken from metadata stays.

    Caches are simulated anew: an experiment keeps the addresses of the CTAs that are resident on its first
    GPU, and a result must not depend on the other rows of the table.
    """
    dynamic = counted.launch.dynamic_shared_bytes
    return replace(
        counted,
        launch=replace(make_launch(case), dynamic_shared_bytes=dynamic),
        cache_experiment=counted.cache_experiment and _make_fresh_experiment(counted.cache_experiment),
    )


def _make_fresh_experiment(experiment: CacheExperiment) -> CacheExperiment:
    """Return an experiment on the same launch that keeps no earlier results."""
    given = (name for name in experiment.__struct_fields__ if not name.startswith("_"))
    return CacheExperiment(**{name: getattr(experiment, name) for name in given})


def _run_model(model: str, model_input: ModelInput, loaded: LoadedKernel, gpu: Gpu) -> _CacheableResult:
    try:
        found = find_model(model)(model_input).prediction
    except Exception as error:
        return _CacheableResult(CaseResult(reason=_describe_error(error)), False)
    if not (found.time_us > 0 and found.cycles > 0):
        return _CacheableResult(CaseResult(reason=f"the model says {found.time_us:g} us"), True)
    shares = {stall.value: cycles / found.cycles for stall, cycles in found.cpi_stack.items()}
    return _CacheableResult(
        CaseResult(
            provenance=model_input.block_counts.provenance.value,
            transferred=not is_native(loaded.kernel, gpu),
            kernel=loaded.name,
            cycles=found.cycles,
            time_us=found.time_us,
            time_us_low=found.time_us_low,
            time_us_high=found.time_us_high,
            bound=found.bound,
            clock_mhz=found.clock_mhz,
            cpi_shares=shares,
        ),
        True,
    )


def _describe_error(error: Exception) -> str:
    """Return the message of a user's error; of an internal one also the place, for a bug report."""
    if isinstance(error, WarplensError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    origin = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"internal error at {origin}: {type(error).__name__}: {error}"
