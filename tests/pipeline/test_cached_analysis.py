"""The cache of kernel reports: the same report whatever it holds, no work twice, and no trust in its files."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from paths import TRACES

from analyzer.cli.app import run
from analyzer.cli.launch_options import parse_launch
from analyzer.execution.profile.branch_rules import BranchTakenRule
from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.hardware.parameter_edits import parse_setting
from analyzer.ir.launch import Dim3, Launch, LaunchTable
from analyzer.models.calibration import Calibration
from analyzer.pipeline import Options, analyze_programs, input_index, load_all
from analyzer.pipeline import whatif as whatif_module
from analyzer.pipeline.cached_analysis import analyze_files
from analyzer.pipeline.content_digests import digest_code
from analyzer.pipeline.edited_kernels import HardwareEdits
from analyzer.pipeline.entry_store import EntryStore, measure_folder
from analyzer.pipeline.kernel_cache import _OPTIONS_WITHOUT_EFFECT, KernelCache
from analyzer.pipeline.kernel_runner import KernelRunner
from analyzer.pipeline.whatif import whatif_programs
from analyzer.render.json import render_json
from analyzer.report.analyze_schema import Report

DUMP = TRACES / "cuda" / "sm_80" / "report16.sass"
MATMUL = TRACES / "triton" / "sm_90" / "matmul.sass"


@pytest.fixture
def analyzed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels that were analyzed."""
    names: list[str] = []
    run_task = KernelRunner._run_task

    def noted(self: KernelRunner, task: Any) -> Any:
        names.append(task.loaded.name)
        return run_task(self, task)

    monkeypatch.setattr(KernelRunner, "_run_task", noted)
    return names


@pytest.fixture
def no_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let whoever reads a file from now on fail."""

    def forbid() -> None:
        def refuse(paths: Sequence[str], **_: object) -> Iterator[object]:
            assert not paths, "a file was read"
            return iter(())

        monkeypatch.setattr(input_index, "read_modules", refuse)

    return forbid


def analyze_afresh(paths: Sequence[str], gpu: str | None, options: Options) -> Report:
    """The report of `load_all` and `analyze_programs`, without any cache."""
    return analyze_programs([one for path in paths for one in load_all(path)], gpu, options)


def copy_dump(folder: Path) -> Path:
    """A dump with its file of resources in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in (".sass", ".res"):
        shutil.copy(DUMP.with_suffix(suffix), folder / f"k{suffix}")
    return folder / "k.sass"


def list_entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("gpu", ["a100", None])
def test_the_report_is_the_same_cold_and_warm(
    gpu: str | None, tmp_path: Path, analyzed: list[str], no_reading: Callable[[], None]
) -> None:
    paths = [str(DUMP), str(MATMUL)]
    kept = Options(cache_folder=tmp_path / "cache", trip_rules=(TripCountRule(5, address=0x10),))
    fresh = render_json(analyze_afresh(paths, gpu, replace(kept, cache_folder=None)))
    assert render_json(analyze_files(paths, gpu, kept)) == fresh
    analyzed.clear()
    no_reading()
    assert render_json(analyze_files(paths, gpu, kept)) == fresh
    assert analyzed == []


def test_without_a_folder_nothing_is_kept(analyzed: list[str]) -> None:
    for _ in range(2):
        analyze_files([str(MATMUL)], "h100", Options())
    assert len(analyzed) == 2


def test_chosen_kernels_are_found_among_all(
    tmp_path: Path, analyzed: list[str], no_reading: Callable[[], None]
) -> None:
    kept = Options(cache_folder=tmp_path)
    some = replace(kept, kernels=("saxpy", "#1"))
    fresh = render_json(analyze_afresh([str(DUMP)], "a100", replace(some, cache_folder=None)))
    analyze_files([str(DUMP)], "a100", kept)
    analyzed.clear()
    no_reading()
    found = analyze_files([str(DUMP)], "a100", some)
    assert len(found.kernels) == 2
    assert render_json(found) == fresh
    assert analyzed == []


def test_a_kernel_that_moved_is_not_analyzed_again(tmp_path: Path, analyzed: list[str]) -> None:
    dump, kept = copy_dump(tmp_path / "in"), Options(cache_folder=tmp_path / "cache")
    first = analyze_files([str(dump)], "a100", kept)
    analyzed.clear()
    head, *functions = dump.read_text().split("\t\tFunction : ")
    assert len(functions) == len(first.kernels) > 3
    changed = functions[1].replace("FADD", "FMUL").replace("FFMA", "FADD", 1)
    assert changed != functions[1]
    # The last function comes first, after three lines more; another one has other code.
    dump.write_text(
        "\t\tFunction : ".join(["\n\n\n" + head, functions[-1], functions[0], changed, *functions[2:-1]])
    )
    found = analyze_files([str(dump)], "a100", kept)
    assert analyzed == [first.kernels[1].name]
    assert [kernel.name for kernel in found.kernels][:2] == [first.kernels[-1].name, first.kernels[0].name]
    assert found.kernels[1].line != first.kernels[0].line
    assert render_json(found) == render_json(analyze_afresh([str(dump)], "a100", Options()))


def test_a_file_under_another_name_has_the_same_kernels(tmp_path: Path, analyzed: list[str]) -> None:
    dump, kept = copy_dump(tmp_path / "in"), Options(cache_folder=tmp_path / "cache")
    analyze_files([str(dump)], "a100", kept)
    analyzed.clear()
    other = copy_dump(tmp_path / "elsewhere")
    found = render_json(analyze_files([str(other)], "a100", kept))
    assert analyzed == []
    assert found == render_json(analyze_afresh([str(other)], "a100", Options()))


def test_a_changed_file_beside_the_input_counts(tmp_path: Path) -> None:
    dump, kept = copy_dump(tmp_path / "in"), Options(cache_folder=tmp_path / "cache")
    before = analyze_files([str(dump)], "a100", kept)
    usage = dump.with_suffix(".res")
    usage.write_text(usage.read_text().replace("REG:", "REG:1"))
    after = analyze_files([str(dump)], "a100", kept)
    assert [kernel.registers for kernel in after.kernels] != [kernel.registers for kernel in before.kernels]
    assert render_json(after) == render_json(analyze_afresh([str(dump)], "a100", Options()))


BASE = Options(launch=Launch(grid=Dim3(4), block=Dim3(128)))
CHANGES: dict[str, Any] = {
    "trip_rules": (TripCountRule(7),),
    "launch": Launch(grid=Dim3(5), block=Dim3(128)),
    "launch_table": LaunchTable((("*", (Launch(grid=Dim3(9), block=Dim3(64)),)),)),
    "branch_rules": (BranchTakenRule(0x10, 1.0),),
    "models": ("roofline",),
    "advice": True,
    "advice_rules": ("bank-conflicts",),
    "explain": True,
    "step_limit": 50,
    "calibration": Calibration("warplens/calibration/1", "a100-80gb-sxm", ()),
    "assumes_launch": True,
    "hardware_curves": True,
    "identifies": True,
    "is_brief": True,
}
NOT_KEPT = {"listing", "levels"}  # with them nothing is kept


def test_every_option_is_a_part_of_the_key_or_without_effect() -> None:
    assert set(CHANGES) | NOT_KEPT | _OPTIONS_WITHOUT_EFFECT == set(Options.__struct_fields__)


def make_keys(folder: Path, options: Options, gpu: str = "a100", n_kernels: int = 3) -> list[str]:
    """Keys of the kernels of a dump."""
    from analyzer.hardware.gpu_selection import find_gpus

    options = replace(options, cache_folder=folder)
    cache = KernelCache(options)
    reader = input_index.InputReader(input_index.ReadingOptions(), cache.store)
    (one,) = input_index.index_inputs([str(DUMP)], (), reader)
    return [cache.make_kernel_key(kernel, find_gpus(gpu), n_kernels) for kernel in one.facts.kernels]


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_another_option_is_another_key(name: str, tmp_path: Path) -> None:
    assert not set(make_keys(tmp_path, BASE)) & set(
        make_keys(tmp_path, replace(BASE, **{name: CHANGES[name]}))
    )


@pytest.mark.parametrize("name", sorted(NOT_KEPT))
def test_what_quotes_other_files_is_not_kept(name: str, tmp_path: Path) -> None:
    assert set(make_keys(tmp_path, replace(BASE, **{name: True}))) == {""}


def test_gpus_and_shared_limits_are_parts_of_the_key(tmp_path: Path) -> None:
    keys = [
        make_keys(tmp_path, BASE)[0],
        make_keys(tmp_path, BASE, gpu="h100")[0],
        make_keys(tmp_path, BASE, n_kernels=4)[0],
        make_keys(tmp_path, replace(BASE, shares_steps=False))[0],
    ]
    assert len(set(keys)) == len(keys)
    alone = replace(BASE, shares_steps=False)
    assert make_keys(tmp_path, alone, n_kernels=3) == make_keys(tmp_path, alone, n_kernels=4)
    jobs = replace(BASE, jobs=7, kernels=("a",), min_coverage=0.5)
    assert make_keys(tmp_path, jobs) == make_keys(tmp_path, BASE)


def test_contents_of_arguments_are_a_part_of_the_key(tmp_path: Path) -> None:
    data = tmp_path / "x.npy"

    def make_first_key() -> str:
        launch = parse_launch(
            grid="4", block="128", cluster=None, dynamic_shared=None, arguments=(f"0=@{data}",)
        )
        return make_keys(tmp_path / "cache", replace(BASE, launch=launch))[0]

    np.save(data, np.zeros(1000, np.float32))
    zeros, again = make_first_key(), make_first_key()
    np.save(data, np.concatenate([np.zeros(999), [1.0]]).astype(np.float32))
    assert zeros == again != make_first_key()


def test_a_user_s_gpu_is_known_by_its_figures(tmp_path: Path, analyzed: list[str]) -> None:
    kept = Options(cache_folder=tmp_path / "cache")
    times = []
    for count in (108, 27):
        gpu = tmp_path / str(count) / "mine.toml"  # of the same name
        gpu.parent.mkdir()
        gpu.write_text(
            'schema = "warplens/gpu/1"\nname = "mine"\ninherits = "h100-sxm"\n'
            f'[sm]\ncount = {{ value = {count}, basis = "assumed", source = "-" }}\n'
        )
        (kernel,) = analyze_files([str(MATMUL)], str(gpu), kept).kernels
        times.append(kernel.predictions[0].time_us)
    assert len(analyzed) == 2
    assert times[0] != times[1]


def spoil_by_cutting(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-5])


def spoil_by_swapping(entry: Path) -> None:
    others = [path for path in list_entries(entry.parents[2]) if path != entry]
    shutil.copy(others[0], entry)


def spoil_with_a_folder(entry: Path) -> None:
    entry.unlink()
    entry.mkdir()


def spoil_with_a_pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


def spoil_with_a_link(entry: Path) -> None:
    entry.unlink()
    entry.symlink_to(entry.parents[2] / "precious")


def spoil_with_an_endless_file(entry: Path) -> None:
    with entry.open("r+b") as file:
        file.truncate(1 << 40)


SPOILERS = [
    spoil_by_cutting,
    spoil_by_swapping,
    spoil_with_a_folder,
    spoil_with_a_pipe,
    spoil_with_a_link,
    spoil_with_an_endless_file,
]


@pytest.mark.parametrize("spoil", SPOILERS)
def test_a_spoiled_entry_is_worked_out_again(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    kept = Options(cache_folder=folder)
    fresh = render_json(analyze_files([str(MATMUL)], "h100", kept))
    entries = list_entries(folder)
    assert len(entries) == 2, "the facts of the file and the result of its kernel"
    precious = folder / "precious"
    precious.write_text("mine")
    for entry in entries:
        spoil(entry)
    notes: list[str] = []
    assert render_json(analyze_files([str(MATMUL)], "h100", kept, notes=notes)) == fresh
    assert len(notes) == 1
    assert "2 damaged entries" in notes[0]
    assert precious.read_text() == "mine"
    if spoil not in (spoil_with_a_folder, spoil_with_a_pipe):
        again: list[str] = []
        assert render_json(analyze_files([str(MATMUL)], "h100", kept, notes=again)) == fresh
        assert again == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_no_changed_byte_goes_unnoticed(place: float, change: int, tmp_path: Path) -> None:
    store = EntryStore(tmp_path, lambda: "0" * 64)
    store.prepare()
    store.keep("ab" * 32, b"payload of an entry")
    (entry,) = list_entries(tmp_path)
    data = bytearray(entry.read_bytes())
    data[int(place * len(data))] ^= change
    entry.write_bytes(data)
    assert store.find("ab" * 32, bytes) is None
    assert store.n_damaged == 1


def test_an_entry_of_another_form_is_a_miss(tmp_path: Path, analyzed: list[str]) -> None:
    """One that is complete and that this version could not have written."""
    kept = Options(cache_folder=tmp_path)
    fresh = render_json(analyze_files([str(MATMUL)], "h100", kept))
    store = EntryStore(tmp_path, digest_code)
    for entry in list_entries(tmp_path):
        store.keep(entry.parent.name + entry.name, Raw(b"\x91" * 100_000))  # nested without end
    notes: list[str] = []
    assert render_json(analyze_files([str(MATMUL)], "h100", kept, notes=notes)) == fresh
    assert "2 damaged entries" in notes[0]


def _analyze_into(folder: Path, path: str, jobs: int, output: Path) -> None:
    options = Options(cache_folder=folder, jobs=jobs)
    output.write_text("".join(render_json(analyze_files([path], "a100", options))))


def test_several_processes_may_share_a_folder(tmp_path: Path) -> None:
    context = get_context("fork")
    outputs = [tmp_path / f"{number}.json" for number in range(3)]
    children = [
        context.Process(target=_analyze_into, args=(tmp_path / "cache", str(DUMP), 1, output))
        for output in outputs
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert len({output.read_text() for output in outputs}) == 1
    notes: list[str] = []
    kept = Options(cache_folder=tmp_path / "cache")
    assert (
        "".join(render_json(analyze_files([str(DUMP)], "a100", kept, notes=notes))) == outputs[0].read_text()
    )
    assert notes == []


def test_a_folder_that_cannot_be_written_is_told_of_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("analyzer.pipeline.entry_store.write_file", refuse)
    notes: list[str] = []
    analyze_files([str(MATMUL)], "h100", Options(cache_folder=tmp_path), notes=notes)
    assert "2 entries could not be written" in notes[0]


def test_old_versions_of_the_code_and_old_entries_are_removed(tmp_path: Path) -> None:
    for age, number in enumerate(range(7)):
        old = EntryStore(tmp_path, lambda number=number: f"{number:064x}"[::-1])  # type: ignore[misc]
        old.prepare()
        old.keep("aa" * 32, b"x" * 1000)
        (version,) = [
            path for path in tmp_path.iterdir() if path.name.endswith(f"-{number:x}".ljust(17, "0"))
        ]
        os.utime(version, (age, age))
    store = EntryStore(tmp_path, lambda: "f" * 64)
    store.prepare()
    assert len(list(tmp_path.iterdir())) == 4
    for number in range(50):
        store.keep(f"{number:064x}", b"y" * 1000)
    used = time.time()
    for entry in list_entries(tmp_path):
        os.utime(entry, (used - 100, used - 100))
    newest = [f"{number:064x}" for number in (3, 7)]
    for key in newest:
        os.utime(tmp_path / f"v2-{'f' * 16}" / key[:2] / key[2:])
    store.prune(20_000)
    assert measure_folder(tmp_path).size_bytes <= 20_000
    assert all(store.find(key, bytes) for key in newest)


def test_an_unfinished_file_of_a_dead_writer_is_removed(tmp_path: Path) -> None:
    store = EntryStore(tmp_path, lambda: "f" * 64)
    store.prepare()
    store.keep("aa" * 32, b"y")
    (entry,) = list_entries(tmp_path)
    parts = [entry.with_name(f".{number}.part") for number in range(2)]
    for part in parts:
        part.write_text("half")
    os.utime(parts[0], (1, 1))
    store.prune()
    assert [part.exists() for part in parts] == [False, True]


def test_edited_sources_turn_the_cache_off(
    tmp_path: Path, analyzed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.version.IMPORT_TIME_NS", 0)
    for _ in range(2):
        analyze_files([str(MATMUL)], "h100", Options(cache_folder=tmp_path))
    assert len(analyzed) == 2
    assert list_entries(tmp_path) == []


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = copy_dump(tmp_path / "in")
    read_modules = input_index.read_modules

    def change_first(paths: Sequence[str], **options: Any) -> Any:
        if paths:
            dump.write_text(dump.read_text() + "\n\n")
        return read_modules(paths, **options)

    monkeypatch.setattr(input_index, "read_modules", change_first)
    analyze_files([str(dump)], "a100", Options(cache_folder=tmp_path / "cache"))
    kernels = len(list_entries(tmp_path / "cache"))
    monkeypatch.setattr(input_index, "read_modules", read_modules)
    analyze_files([str(dump)], "a100", Options(cache_folder=tmp_path / "cache"))
    assert len(list_entries(tmp_path / "cache")) == kernels + 1, "the facts were not kept before"


class TestCommand:
    def analyze(self, *words: str) -> int:
        return run(["analyze", str(MATMUL), "-g", "h100", "--format", "json", *words])

    def test_a_folder_by_option_or_by_the_environment(
        self,
        tmp_path: Path,
        analyzed: list[str],
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
        monkeypatch.delenv("WARPLENS_CACHE", raising=False)
        assert self.analyze() == self.analyze() == 0
        assert len(analyzed) == 2, "analyze keeps nothing unless it is told to"
        assert not (tmp_path / "home" / "warplens" / "kernels").exists()
        assert (
            self.analyze("--cache", str(tmp_path / "c")) == self.analyze("--cache", str(tmp_path / "c")) == 0
        )
        assert len(analyzed) == 3
        monkeypatch.setenv("WARPLENS_CACHE", str(tmp_path / "c"))
        assert self.analyze() == 0
        assert len(analyzed) == 3
        assert self.analyze("--no-cache") == 0
        assert len(analyzed) == 4
        out = capsys.readouterr().out
        assert out.count(out[: len(out) // 6]) == 6, "six times the same"

    def test_contradictions_and_a_folder_that_is_none(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.analyze("--cache", str(tmp_path), "--no-cache") == 2
        assert "exclude each other" in capsys.readouterr().err
        (tmp_path / "file").write_text("")
        assert self.analyze("--cache", str(tmp_path / "file")) == 2
        assert "file" in (told := capsys.readouterr().err)
        assert "--no-cache" in told

    def test_damage_is_told_on_standard_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.analyze("--cache", str(tmp_path)) == 0
        first = capsys.readouterr()
        assert first.err == ""
        for entry in list_entries(tmp_path):
            spoil_by_cutting(entry)
        assert self.analyze("--cache", str(tmp_path)) == 0
        second = capsys.readouterr()
        assert second.out == first.out
        assert second.err.count("\n") == 1
        assert "2 damaged entries" in second.err

    def test_doctor_says_where_and_how_much(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WARPLENS_CACHE", str(tmp_path))
        self.analyze()
        capsys.readouterr()
        assert run(["doctor"]) == 0
        told = "".join(capsys.readouterr().out.split("\n"))
        assert str(tmp_path) in told
        assert "2 entries" in told


class TestWhatIf:
    EDITS = HardwareEdits(settings=(parse_setting("dram=x2"),), elasticity=False)

    def run(self, options: Options, edits: HardwareEdits = EDITS) -> str:
        options = replace(options, models=("roofline",), kernels=("saxpy", "vector_add_divergent"))
        return "".join(render_json(whatif_programs(load_all(str(DUMP)), "a100", edits, options)))

    def test_kernels_are_kept_by_content_and_edits(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worked: list[str] = []
        evaluate = whatif_module.evaluate_kernel

        def noted(counted: Any, *others: Any) -> Any:
            worked.append(counted.loaded.name)
            return evaluate(counted, *others)

        monkeypatch.setattr(whatif_module, "evaluate_kernel", noted)
        fresh = self.run(Options())
        kept = Options(cache_folder=tmp_path)
        assert self.run(kept) == fresh
        assert len(worked) == 4
        assert self.run(kept) == fresh
        assert len(worked) == 4
        other = replace(self.EDITS, settings=(parse_setting("dram=x3"),))
        assert self.run(kept, other) != fresh
        assert len(worked) == 6

    def test_processes_give_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        alone = self.run(Options())
        monkeypatch.setattr("analyzer.worker_pool.count_forkable_cores", lambda: 2)
        monkeypatch.setattr(whatif_module, "evaluate_kernel", fail_unless_forked(os.getpid()))
        assert self.run(Options(jobs=2)) == alone


def fail_unless_forked(parent: int) -> Callable[..., Any]:
    """The evaluation of a kernel, which this process must leave to others."""
    evaluate = whatif_module.evaluate_kernel

    def evaluate_there(*arguments: Any) -> Any:
        assert os.getpid() != parent
        return evaluate(*arguments)

    return evaluate_there
