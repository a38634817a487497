"""One launch of a kernel at its levels: Triton IR, PTX and SASS, as far as they lie beside the input by name.

`matmul.cubin` has `matmul.ttgir` and `matmul.ptx` beside it in Triton's cache. Each is read and executed with
the same launch, and its work counted by source line, so that a difference can be told with its lines. A level
that cannot be had is left out with a note: PTX of another kernel, Triton IR that does not fit the launch.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from analyzer.demand.launch_work import Amounts, find_unmeasured_work, measure_instruction_work
from analyzer.demand.register_count import add_register_count
from analyzer.execution.machine.prepared_launch import PreparedLaunch
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.frontend.module_reader import read_module
from analyzer.frontend.ptx_reader import PtxOptions
from analyzer.ir.launch import Launch
from analyzer.ir.module import Kernel, SourceLine
from analyzer.pipeline.gpu_binding import CountedLaunch
from analyzer.pipeline.launch_execution import execute_kernel, find_matrix_descriptors
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.report.level_work import LINE_WORK, LevelName, LevelWork, LineWork
from analyzer.text.errors import WarplensError

_CODE_SUFFIXES = (".cubin", ".sass")
_PTX_SUFFIX, _TRITON_SUFFIX = ".ptx", ".ttgir"
_NO_PLACE = ""
_UNKNOWN_BOXES = (
    "boxes of tensor copies are not known, and so not their bytes: give the tensor map with --arg"
)


def compare_levels(counted: CountedLaunch) -> tuple[LevelWork, ...]:
    """Return the work of an executed launch at each level that is found, highest first.

    Nothing without a profile: what a launch does is not known then.
    """
    if counted.profile is None:
        return ()
    own = LevelName.PTX if counted.loaded.is_virtual else LevelName.SASS
    experiment = counted.cache_experiment
    prepared = None if experiment is None else experiment.prepared
    found = {own: _measure_code(own, counted.loaded, counted.profile, prepared)}
    for level, path in _find_files(counted.loaded.input_path, own):
        try:
            found[level] = _measure_file(level, path, counted.loaded.kernel, counted.launch)
        except WarplensError as error:
            found[level] = LevelWork(level=level, path=str(path), note=error.diagnostic.message)
    return tuple(found[level] for level in LevelName if level in found)


def _find_files(input_path: str, own: LevelName) -> Iterator[tuple[LevelName, Path]]:
    """Yield the files of other levels beside an input, or the input itself where it was PTX for ptxas."""
    path = Path(input_path)
    if not path.name:
        return
    choices = {
        LevelName.TTGIR: (path.with_suffix(_TRITON_SUFFIX),),
        LevelName.PTX: (path.with_suffix(_PTX_SUFFIX),),
        LevelName.SASS: tuple(path.with_suffix(suffix) for suffix in _CODE_SUFFIXES),
    }
    for level, files in choices.items():
        if level is not own:
            yield from [(level, file) for file in files if file.is_file()][:1]


def _measure_file(level: LevelName, path: Path, kernel: Kernel, launch: Launch) -> LevelWork:
    """Return the work of the kernel of a file. Raises a WarplensError."""
    if level is LevelName.TTGIR:
        return _measure_triton(path, kernel, launch)
    module = read_module(str(path), ptx=PtxOptions(arch=kernel.arch, is_virtual=True))
    own = next((each for each in module.kernels if each.name == kernel.name), None)
    if own is None:
        return LevelWork(level=level, path=str(path), note=f"there is no kernel {kernel.name} in it")
    loaded = LoadedKernel(add_register_count(own), input_path=str(path))
    executed = execute_kernel(loaded, launch)
    if executed is None:
        return LevelWork(level=level, path=str(path), note="it cannot be executed")
    work = _measure_code(level, loaded, executed.profile, executed.prepared)
    return replace(work, path=str(path))


def _measure_triton(path: Path, kernel: Kernel, launch: Launch) -> LevelWork:
    from analyzer.frontend.triton_file import read_triton_module
    from analyzer.tiles.decomposition import decompose_launch
    from analyzer.tiles.work import Quantity

    module, diagnostics = read_triton_module(str(path), kernel.name)
    assert launch.grid is not None
    tasks = decompose_launch(module, launch.grid, launch.arguments, kernel.name)
    columns = (
        Quantity.MMA_FMA,
        Quantity.BYTES_LOADED,
        Quantity.BYTES_STORED,
        Quantity.SHARED_BYTES,
        Quantity.BARRIERS,
        Quantity.XU_OPERATIONS,
    )
    lines: dict[str, Amounts] = {}
    for each in tasks.operations:
        amounts = np.array([each.amounts.values[column] for column in columns], dtype=np.float64)
        _add(lines, _name_place(each.operation.source_line), amounts)
    totals = tuple(None if column in tasks.uncounted else tasks.total.values[column] for column in columns)
    assumptions = (*(each.message for each in diagnostics), *tasks.assumptions)
    return _make_level(LevelName.TTGIR, str(path), totals, lines, assumptions)


def _measure_code(
    level: LevelName, loaded: LoadedKernel, profile: ExecutionProfile, prepared: PreparedLaunch | None
) -> LevelWork:
    kernel = loaded.kernel
    work = measure_instruction_work(loaded.cfg, profile, find_matrix_descriptors(loaded, profile, prepared))
    work = work[list(LINE_WORK)]
    lines: dict[str, Amounts] = {}
    for row in np.flatnonzero(work.any(axis=0)).tolist():
        _add(lines, _name_place(kernel.find_source_line(row)), work[:, row])
    unmeasured = find_unmeasured_work(loaded.cfg, profile)
    totals = tuple(
        None if quantity in unmeasured else round(float(total))
        for quantity, total in zip(LINE_WORK, work.sum(axis=1), strict=True)
    )
    assumptions = (*profile.assumptions, *([_UNKNOWN_BOXES] if unmeasured else []))
    return _make_level(level, loaded.input_path, totals, lines, assumptions)


def _name_place(line: SourceLine | None) -> str:
    """Return file and line of the kernel's own source: of an inlined function, the call that is outermost."""
    if line is None:
        return _NO_PLACE
    while line.inlined_at is not None:
        line = line.inlined_at
    return line.place


def _add(lines: dict[str, Amounts], place: str, amounts: Amounts) -> None:
    if amounts.any():
        lines[place] = lines[place] + amounts if place in lines else amounts.copy()


def _make_level(
    level: LevelName,
    path: str,
    totals: tuple[int | None, ...],
    lines: Mapping[str, Amounts],
    assumptions: tuple[str, ...],
) -> LevelWork:
    return LevelWork(
        level=level,
        path=path,
        totals=totals,
        lines=tuple(
            LineWork(place=place, amounts=tuple(round(float(each)) for each in amounts))
            for place, amounts in sorted(lines.items())
        ),
        assumptions=assumptions,
    )
