"""Rows that share a dump and a kernel, answered by models: read once, executed once for all GPUs."""

import traceback
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.hardware.gpu import Gpu
from analyzer.models.base import Situation
from analyzer.models.portability import best_for, is_native
from analyzer.models.registry import find_model
from analyzer.pipeline.analyst import Analyst, Options
from analyzer.pipeline.caching import CacheLab
from analyzer.pipeline.program import LoadedKernel, Program, load, named_kernels
from analyzer.pipeline.situations import Counted, Refused, put_on
from analyzer.pipeline.validation_cache import Answer, AnswerCache, answer_keys, inputs_digest
from analyzer.pipeline.validation_cases import Case, gpu_of, launch_of
from analyzer.text.errors import InputError, UsageError, WarplensError

_SHOWN_NAMES = 4
_KEPT_PROGRAMS = 2


class Wanted(Struct, frozen=True):
    """A row by its place in the table, and the models that have yet to answer it."""

    place: int
    case: Case
    models: tuple[str, ...]


class Task(Struct, frozen=True):
    """Rows of one dump and kernel; cache: the folder to keep answers in, if any."""

    rows: tuple[Wanted, ...]
    cache: Path | None


Answers = dict[tuple[int, str], Answer]


def answer_task(task: Task) -> Answers:
    """Answers by place and model; what goes wrong with a row is its answer, and not kept."""
    path = task.rows[0].case.dump
    try:
        inputs = inputs_digest(path)
        program = _program(path, inputs)
    except (WarplensError, OSError) as error:
        return {key: Answer(reason=str(error)) for row in task.rows for key in _keys(row)}
    counted: dict[tuple[object, ...], Counted | str] = {}
    answers: Answers = {}
    kept: dict[str, Answer] = {}
    for row in task.rows:
        keys = _cache_keys(row, inputs)
        found = _answer_row(row, program, counted)
        answers |= {(row.place, model): one.answer for model, one in found.items()}
        if keys == _cache_keys(row, inputs):  # else data were written while they were read
            kept |= {
                keys[model]: one.answer for model, one in found.items() if model in keys and one.is_final
            }
    AnswerCache(task.cache).keep(kept)
    return answers


def _cache_keys(row: Wanted, inputs: str) -> dict[str, str]:
    """By model; none where a file cannot be read."""
    try:
        return answer_keys(row.case, row.models, inputs=inputs, gpu=gpu_of(row.case))
    except OSError:
        return {}


def _keys(row: Wanted) -> list[tuple[int, str]]:
    return [(row.place, model) for model in row.models]


@lru_cache(maxsize=_KEPT_PROGRAMS)
def _program(path: Path, inputs: str) -> Program:
    program = load(str(path))
    if inputs_digest(path) != inputs:
        raise InputError(f"{path}: changed while it was read", hint="run again")
    return program


class _Found(Struct, frozen=True):
    """An answer; is_final: the same facts always lead to it."""

    answer: Answer
    is_final: bool


def _answer_row(
    row: Wanted, program: Program, counted: dict[tuple[object, ...], Counted | str]
) -> dict[str, _Found]:
    """Every wanted model's answer; counts of launches met before are taken from `counted`."""
    case, gpu = row.case, gpu_of(row.case)
    try:
        loaded = _kernel(program, case, gpu)
        key = (loaded.ordinal, *case.executes)
        if key not in counted:
            counted[key] = _count(loaded, case)
        known = counted[key]
        if isinstance(known, str):
            return {model: _Found(Answer(reason=known), False) for model in row.models}
        placed = put_on(_of_case(known, case), gpu)
    except Exception as error:
        return {model: _Found(Answer(reason=_reason(error)), False) for model in row.models}
    if isinstance(placed, Refused):
        return {model: _Found(Answer(reason=placed.reason), True) for model in row.models}
    return {model: _ask(model, placed, known.loaded, gpu) for model in row.models}


def _kernel(program: Program, case: Case, gpu: Gpu) -> LoadedKernel:
    """The kernel that a row names; of several architectures' the one that the GPU runs. Raises UsageError."""
    found = named_kernels(program.kernels, case.kernel) if case.kernel else list(program.kernels)
    if len(found) > 1:
        found = [found[place] for place in best_for([loaded.kernel for loaded in found], gpu)]
    if len(found) == 1:
        return found[0]
    names = _names(found or program.kernels)
    if found:
        what = f"{case.kernel!r} fits" if case.kernel else "the dump holds"
        raise UsageError(f"{what} {len(found)} kernels: {names}", hint="name one in column kernel")
    raise UsageError(f"no kernel fits {case.kernel!r}; the dump has: {names}")


def _names(kernels: Sequence[LoadedKernel]) -> str:
    names = list(dict.fromkeys(loaded.name for loaded in kernels))
    return ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")


def _count(loaded: LoadedKernel, case: Case) -> Counted | str:
    """What the launch executes, or why that cannot be said."""
    try:
        found = list(Analyst(Options(launch=launch_of(case))).count(loaded))
    except Exception as error:
        return _reason(error)
    if len(found) != 1:
        return f"{case.dump_text} records {len(found)} launches of {loaded.name}: give its dump instead"
    return found[0]


def _of_case(counted: Counted, case: Case) -> Counted:
    """The counts with the row's own launch; what metadata said of the launch stays.

    Caches are simulated anew: a lab keeps the addresses of the CTAs that its first GPU holds, and an answer
    must not depend on which other rows there are.
    """
    dynamic = counted.launch.dynamic_shared_bytes
    return replace(
        counted,
        launch=replace(launch_of(case), dynamic_shared_bytes=dynamic),
        caches=counted.caches and _fresh(counted.caches),
    )


def _fresh(lab: CacheLab) -> CacheLab:
    """A lab of the same launch that remembers nothing."""
    given = (name for name in lab.__struct_fields__ if not name.startswith("_"))
    return CacheLab(**{name: getattr(lab, name) for name in given})


def _ask(model: str, situation: Situation, loaded: LoadedKernel, gpu: Gpu) -> _Found:
    try:
        found = find_model(model)(situation).prediction
    except Exception as error:
        return _Found(Answer(reason=_reason(error)), False)
    if not (found.time_us > 0 and found.cycles > 0):
        return _Found(Answer(reason=f"the model says {found.time_us:g} us"), True)
    shares = {stall.value: cycles / found.cycles for stall, cycles in found.cpi_stack.items()}
    return _Found(
        Answer(
            provenance=situation.counts.provenance.value,
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


def _reason(error: Exception) -> str:
    """What the user can mend, as it is said elsewhere; a fault of ours with its place, for a bug report."""
    if isinstance(error, WarplensError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"internal error at {place}: {type(error).__name__}: {error}"
