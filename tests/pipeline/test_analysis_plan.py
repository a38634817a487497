"""How work is cut into tasks: decided from facts and sizes alone, so that no process is needed to see it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from analyzer.hardware.gpu_selection import find_gpus
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options, analysis_plan
from analyzer.pipeline.analysis_plan import AnalysisPlan, KernelWork
from analyzer.pipeline.input_index import IndexedFile, IndexedInput, ReadingOptions
from analyzer.report.input_entries import InputFacts, KernelFacts
from analyzer.worker_pool import Backend

LOCAL = Options()
DASK = Options(backend=Backend.DASK)


def make_plan(options: Options, n_workers: int = 2) -> AnalysisPlan:
    return AnalysisPlan(options, find_gpus("h100"), ReadingOptions(), n_workers)


def make_files(folder: Path, sizes: dict[str, int]) -> list[IndexedFile]:
    for name, size in sizes.items():
        (folder / name).write_bytes(bytes(size))
    return [IndexedFile(str(folder / name)) for name in sizes]


def group_names(plan: AnalysisPlan, files: list[IndexedFile]) -> list[list[str]]:
    return [[Path(file.path).name for file in group] for group in plan.group_files(files)]


def make_source(n_instructions: list[int], first_ordinal: int = 1) -> IndexedInput:
    """A file with a kernel for each number, at a place among the inputs."""
    kernels = tuple(
        KernelFacts(
            name=f"k{at}",
            arch="sm_90",
            line=at,
            ordinal=at + 1,
            instructions=n,
            is_excerpt=False,
            triton_hash="",
        )
        for at, n in enumerate(n_instructions)
    )
    facts = InputFacts(path="x", source_format="", toolchain="", triton={}, warnings=(), kernels=kernels)
    file = IndexedFile("x")
    file.facts = facts
    placed = tuple(replace(kernel, ordinal=kernel.ordinal + first_ordinal - 1) for kernel in kernels)
    return IndexedInput(file, replace(facts, kernels=placed), first_ordinal)


def test_files_are_shared_by_size_where_that_pays(tmp_path: Path) -> None:
    small = make_files(tmp_path, {"a.sass": 100, "b.sass": 100})
    assert group_names(make_plan(LOCAL), small) == []
    big = make_files(tmp_path, {"c.sass": 1 << 20, **{f"{n}.sass": 10 for n in range(4)}})
    assert group_names(make_plan(LOCAL), big) == [["c.sass"], [f"{n}.sass" for n in range(4)]]
    assert group_names(make_plan(LOCAL, n_workers=1), big) == []
    assert group_names(make_plan(DASK), small) == [["a.sass"], ["b.sass"]]
    assert group_names(make_plan(DASK), [IndexedFile("-")]) == []


def test_cubins_that_are_read_together_are_a_task(tmp_path: Path) -> None:
    cubins = make_files(tmp_path, {f"{n}.cubin": 1 << 19 for n in range(6)})
    assert [len(group) for group in make_plan(LOCAL).group_files(cubins)] == [3, 3]
    assert [len(group) for group in make_plan(DASK).group_files(cubins)] == [6]


@pytest.mark.parametrize(
    "options",
    [Options(kernels=("a",)), Options(listing=True), Options(launch=Launch(grid=Dim3(4), block=Dim3(32)))],
)
def test_kernels_that_depend_on_the_others_wait_for_the_facts(options: Options, tmp_path: Path) -> None:
    files = make_files(tmp_path, {"a.sass": 1 << 20, "b.sass": 1 << 20})
    plan = make_plan(options)
    assert plan.group_files(files) == []
    assert plan.make_task(files).chosen == ()
    assert make_plan(LOCAL).make_task(files).chosen is None


def test_a_big_cubin_has_parts(tmp_path: Path) -> None:
    (big, small) = make_files(tmp_path, {"a.cubin": 1 << 20, "b.cubin": 100})
    assert [task.part for task in make_plan(LOCAL).cut_cubin(big)] == [(0, 2), (1, 2)]
    assert len(make_plan(Options(assumes_launch=True, shares_steps=False)).cut_cubin(big)) == 4
    assert make_plan(LOCAL).cut_cubin(small) == make_plan(DASK).cut_cubin(big) == []


def test_kernels_go_to_a_cluster_in_ranges_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_plan, "_MIN_RANGE_INSTRUCTIONS", 100)
    works = [
        KernelWork(source, kernel, find_gpus("h100"), "")
        for source in (make_source([50, 50, 100]), make_source([10, 10], first_ordinal=4))
        for kernel in source.facts.kernels
    ]
    tasks = [task for _, task in make_plan(DASK).cut_kernels(works, 5)]
    names = [[kernel.name for kernel, _ in task.chosen or ()] for task in tasks]
    assert names == [["k0", "k1"], ["k2"], ["k0", "k1"]]
    assert [kernel.ordinal for kernel, _ in tasks[2].chosen or ()] == [1, 2], "as the file has them"
    assert {task.n_kernels for task in tasks} == {5}
