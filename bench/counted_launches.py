"""Keep counted launches in files, from which models predict again without executing the code.

    count_dump(cases)              execute and keep the rows of a table that one dump has
    replay_case(case, model)       what a model says of such a row
    load_launch(path)              a kept launch, read in some milliseconds

To count a launch takes seconds and says the same as long as nothing but models and figures of hwdb change.
What is kept are code, counts, recorded addresses and simulated caches: nothing of a model. Instructions are
kept decoded. The code made ready for abstract execution consists of closures, which do not pickle; it is
compiled again where a figure changes which addresses are asked for. Files are those of a developer: another
version of the code may not read them, and they are trusted as the checkout is.
"""

import hashlib
import json
import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
from kernels.compiling import BUILT
from variant_predictions import Variant, count_case, predict_counted

from analyzer.evaluation.case_table import Case
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.kernel_compiler import compile_kernel
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.module import FormTable
from analyzer.pipeline.gpu_binding import CountedLaunch
from analyzer.pipeline.loaded_program import load
from analyzer.text.errors import WarplensError

COUNTED = BUILT / "counted"


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A measured launch and what a model says of it."""

    suite: str
    gpu: str
    case: str
    measured_us: float
    predicted_us: float
    bound: str
    seconds: float  # CPU time of binding and model
    stalls: Mapping[str, float]  # share of the cycles

    @property
    def key(self) -> str:
        """Its name among all rows."""
        return f"{self.suite} {self.gpu} {self.case}"

    @property
    def error(self) -> float:
        """Relative error without its sign."""
        return abs(self.predicted_us / self.measured_us - 1.0)


def count_dump(cases: Sequence[Case]) -> list[str]:
    """Count and keep launches of one dump; return what went wrong."""
    messages = []
    program = None
    for case in cases:
        try:
            if case.problem:
                raise WarplensError(case.problem)
            program = program or load(str(case.dump))
            counted = count_case(program, case)
            predict_counted(counted, case, Variant(load_gpu(case.gpu), case.clock_mhz), "roofline")
            keep_launch(find_path(case), counted)
        except WarplensError as error:
            messages.append(f"{case.suite} {case.gpu} {case.name}: {error}")
    return messages


def find_path(case: Case) -> Path:
    """Return where the counted launch of a row lies."""
    facts = [case.suite, case.gpu, case.name, case.dump_text, [repr(part) for part in case.execution_key]]
    return COUNTED / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]}.pickle"


def replay_case(case: Case, model: str) -> Replayed | None:
    """Return what a model says of a row; None, told, where there is nothing."""
    path = find_path(case)
    if not path.exists():
        print(f"{case.suite} {case.gpu} {case.name}: not counted", file=sys.stderr)
        return None
    counted = load_launch(path)
    gpu = load_gpu(case.gpu)
    begin = time.process_time()
    answer = predict_counted(counted, case, Variant(gpu, case.clock_mhz), model)
    seconds = time.process_time() - begin
    if answer.refusal:
        print(f"{case.suite} {case.gpu} {case.name}: {answer.refusal}", file=sys.stderr)
        return None
    return Replayed(
        suite=case.suite,
        gpu=gpu.key,
        case=case.name,
        measured_us=case.time_us,
        predicted_us=answer.predicted_us,
        bound=answer.bound,
        seconds=seconds,
        stalls=answer.stalls,
    )


def keep_launch(path: Path, counted: CountedLaunch) -> None:
    """Write a launch, with all that was computed of it so far."""
    out = BytesIO()
    _Pickler(out, counted).dump(counted)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(out.getvalue())
    partial.rename(path)


def load_launch(path: Path) -> CountedLaunch:
    """Read a launch that `keep_launch` wrote."""
    with path.open("rb") as file:
        counted = pickle.load(file)
    assert isinstance(counted, CountedLaunch)
    return counted


class _Pickler(pickle.Pickler):
    """Pickles code made ready for execution by what it is made of, and cached properties with their owner."""

    def __init__(self, out: BytesIO, counted: CountedLaunch) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        experiment = counted.cache_experiment
        self._image = None if experiment is None else experiment.prepared.image

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, CompiledKernel):
            return _LateKernel, (value.cfg, value.loop_forest, self._image)
        if isinstance(value, FormTable):
            forms = {text: value.decode_form(text_id) for text_id, text in enumerate(value.texts)}
            return FormTable, (value.texts, value.opcode_ids, value.opcodes, forms.__getitem__)
        if isinstance(value, msgspec.Struct) and getattr(value, "__dict__", None):
            plain = value.__reduce__()  # how to make it again: a function and its arguments
            assert isinstance(plain, tuple)
            return (*plain, value.__dict__, None, None, _restore_cached)
        return NotImplemented


def _restore_cached(owner: Any, cached: dict[str, object]) -> None:
    owner.__dict__.update(cached)


class _LateKernel:
    """Stands for a `CompiledKernel` that is compiled when more than its graph is asked for."""

    def __init__(self, cfg: Cfg, loop_forest: LoopForest, image: ConstantImage) -> None:
        self.cfg = cfg
        self.loop_forest = loop_forest
        self._image = image

    @cached_property
    def _compiled(self) -> CompiledKernel:
        image = self._image
        return compile_kernel(
            self.cfg, self.loop_forest, knows_memory=image.has_contents, knows_tensors=bool(image.tensors)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._compiled, name)
