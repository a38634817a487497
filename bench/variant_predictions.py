"""Predict measured launches with `sm` on edited GPUs; a launch is executed once for all of them.

    rows     as bench/suites.py lists them
    variants of a row's GPU, such as the GPU as it is, and without what the row's suite taught

Answers are kept under bench/kernels/built, by the contents of the dump, the launch, the edited GPU and the
code. Residuals are no part of a key: times do not follow from them.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec
from kernels.compiling import BUILT
from kernels.recipes import ROOT
from predictions import write_launch_rows

from analyzer.evaluation.case_table import Case, make_launch, read_cases
from analyzer.evaluation.result_keys import digest_inputs
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.portability import find_best_kernel_indices
from analyzer.models.registry import find_model
from analyzer.models.residuals import measure_guessed_share
from analyzer.pipeline.content_digests import digest_file, digest_json
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import LoadedKernel, Program, find_kernels, load
from analyzer.pipeline.options import Options
from analyzer.text.errors import UsageError, WarplensError

ANSWERS = BUILT / "left_suite"
_FORMAT = 1  # of the kept answers


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What `sm` says of a launch on a GPU."""

    predicted_us: float = 0.0
    clock_mhz: float = 0.0
    bound: str = ""
    stalls: Mapping[str, float] = {}  # share of the cycles by stall
    busy: Mapping[str, float] = {}  # share of the cycles that each resource is busy
    guessed: float = 0.0  # share of counts or addresses that are guesses
    refusal: str = ""  # why there is no answer


class Variant(msgspec.Struct, frozen=True):
    """A GPU for a row, and the row's clock: its own, or the one of the GPU where None."""

    gpu: Gpu
    clock_mhz: float | None


FindVariants = Callable[[Case], Sequence[Variant]]


def predict_variants(
    table: Path, rows: Sequence[Mapping[str, object]], find_variants: FindVariants
) -> list[tuple[Case, tuple[Answer, ...]]]:
    """Write the rows to `table` and return each with the answers on its variants, in their order."""
    write_launch_rows(table, rows)
    by_dump: dict[Path, list[Case]] = defaultdict(list)
    for case in read_cases(table):
        by_dump[case.dump].append(case)
    found: dict[int, tuple[Answer, ...]] = {}
    for dump, cases in by_dump.items():
        launches = _DumpLaunches(dump)
        for case in cases:
            found[case.line] = tuple(launches.answer(case, variant) for variant in find_variants(case))
    return [(case, found[case.line]) for cases in by_dump.values() for case in cases]


class _DumpLaunches:
    """Launches of one dump, read when the first answer is not kept yet."""

    def __init__(self, dump: Path) -> None:
        self._dump = dump
        self._digest = digest_inputs(dump) if dump.is_file() else ""
        self._program: Program | None = None
        self._counted: dict[object, CountedLaunch] = {}

    def answer(self, case: Case, variant: Variant) -> Answer:
        """Return what `sm` says of a row on a GPU; kept where it was asked before."""
        if case.problem:
            return Answer(refusal=case.problem)
        path = ANSWERS / f"{self._make_key(case, variant)}.json"
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=Answer)
        try:
            answer = self._compute(case, variant)
        except WarplensError as error:
            return Answer(refusal=str(error))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(answer))
        partial.rename(path)
        return answer

    def _make_key(self, case: Case, variant: Variant) -> str:
        facts = [
            *(_FORMAT, digest_simulation_code(), self._digest, case.kernel),
            [variant.gpu.key, variant.gpu.file, variant.gpu.arch],
            [repr(part) for part in case.execution_key],
            [digest_file(path) for path in case.data_files],
            [case.l2, variant.clock_mhz, case.timing],
        ]
        return digest_json(facts)

    def _compute(self, case: Case, variant: Variant) -> Answer:
        counted = self._count(case)
        experiment = counted.cache_experiment
        if experiment is not None:  # a fresh one: it keeps the CTAs that are resident on its first GPU
            given = (name for name in experiment.__struct_fields__ if not name.startswith("_"))
            experiment = type(experiment)(**{name: getattr(experiment, name) for name in given})
        return predict_counted(msgspec.structs.replace(counted, cache_experiment=experiment), case, variant)

    def _count(self, case: Case) -> CountedLaunch:
        key = (case.kernel, case.execution_key)
        if key not in self._counted:
            self._program = self._program or load(str(self._dump))
            self._counted[key] = count_case(self._program, case)
        return self._counted[key]


def count_case(program: Program, case: Case) -> CountedLaunch:
    """Execute the launch of a row; the same for all GPUs and clocks."""
    launch = msgspec.structs.replace(make_launch(case), clock_mhz=None)
    loaded = _find_kernel(program, case)
    return next(iter(KernelAnalyzer(Options(launch=launch)).count_launches(loaded)))


def predict_counted(counted: CountedLaunch, case: Case, variant: Variant, model: str = "sm") -> Answer:
    """Return what a model says of a counted row on a GPU."""
    given = make_launch(msgspec.structs.replace(case, arguments=(), clock_mhz=variant.clock_mhz))
    launch = msgspec.structs.replace(
        counted.launch, clock_mhz=given.clock_mhz, l2_is_cold=given.l2_is_cold, timing=given.timing
    )
    placed = bind_to_gpu(msgspec.structs.replace(counted, launch=launch), variant.gpu)
    if isinstance(placed, Refusal):
        return Answer(refusal=placed.reason)
    found = find_model(model)(placed).prediction
    return Answer(
        predicted_us=found.time_us,
        clock_mhz=found.clock_mhz,
        bound=found.bound,
        stalls={stall.value: cycles / found.cycles for stall, cycles in found.cpi_stack.items()},
        busy={name: cycles / found.cycles for name, cycles in found.bounds_cycles.items()},
        guessed=measure_guessed_share(placed),
    )


def _find_kernel(program: Program, case: Case) -> LoadedKernel:
    found = find_kernels(program.kernels, case.kernel) if case.kernel else list(program.kernels)
    if len(found) > 1:
        kernels = [loaded.kernel for loaded in found]
        found = [found[index] for index in find_best_kernel_indices(kernels, load_gpu(case.gpu))]
    if len(found) != 1:
        raise UsageError(f"{case.dump_text}: {len(found)} kernels fit {case.kernel!r}")
    return found[0]


_UNRELATED = ("report", "render", "models/residuals.py", "models/operators", "models/learned", "tuning")


@cache
def digest_simulation_code() -> str:
    """Return a digest of the sources that predicted times follow from, and of the opcode tables."""
    digest = hashlib.sha256()
    for folder, pattern in (("analyzer", "*.py"), ("grammars", "*"), ("hwdb/isa", "*")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            name = path.relative_to(ROOT / folder).as_posix()
            if path.is_file() and "__pycache__" not in name and not name.startswith(_UNRELATED):
                digest.update(f"{folder}/{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
