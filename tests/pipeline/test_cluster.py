"""Analyses on a cluster: the same report as by one process, whoever dies meanwhile, and errors that say enough."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from paths import TRACES

from analyzer import worker_pool
from analyzer.cli.app import run
from analyzer.pipeline import Options, analysis_plan, cached_analysis
from analyzer.pipeline.analysis_plan import FileTask
from analyzer.pipeline.cached_analysis import analyze_files
from analyzer.pipeline.input_index import IndexedFile, InputReader, ReadingOptions
from analyzer.pipeline.task_runner import TaskAnswer, run_task
from analyzer.render.json import render_json
from analyzer.report.input_entries import KernelFacts
from analyzer.text.errors import InputError, ToolError
from analyzer.worker_pool import Backend, pack_task, run_packed_task, unpack_result

# Dask leaves sockets and event loops to the end of the process.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.platform != "linux", reason="signals of Linux"),
]
DUMPS = [*map(str, sorted((TRACES / "triton" / "sm_90").glob("*.sass"))[:6])]
REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")


@pytest.fixture(scope="module")
def dask() -> "Iterator[Any]":
    """A cluster of two worker processes on this machine, which gives a task up at its first death but one."""
    distributed = pytest.importorskip("distributed")
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=60
        ) as found,
    ):
        yield found


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each kernel of a file be a range of its own."""
    monkeypatch.setattr(analysis_plan, "_MIN_RANGE_INSTRUCTIONS", 100)


def end_process(_: bytes) -> bytes:
    """A task that no worker survives."""
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def test_a_killed_worker_loses_nothing(dask: Any, tmp_path: Path) -> None:
    paths = [*DUMPS, REPORT16]
    serial = render_json(analyze_files(paths, None, Options()))
    killed: list[int] = []

    def kill_one(done: int, total: int, what: str) -> None:
        if what == "files" and done == 1 and not killed:
            assert total > 3
            killed.append(dask.workers[0].pid)
            os.kill(dask.workers[0].pid, signal.SIGKILL)

    options = Options(
        backend=Backend.DASK, scheduler=dask.scheduler_address, cache_folder=tmp_path / "cache", jobs=2
    )
    assert render_json(analyze_files(paths, None, options, kill_one)) == serial
    assert killed
    # All of it was kept: nobody is asked again.
    kept = replace(options, scheduler="tcp://127.0.0.1:1")
    assert render_json(analyze_files(paths, None, kept)) == serial


def test_kernels_of_one_file_are_shared(dask: Any, ranges: None) -> None:
    options = Options(kernels=("*a*",), models=("roofline",))
    there = replace(options, backend=Backend.DASK, scheduler=dask.scheduler_address)
    sent: list[int] = []
    found = analyze_files(
        [REPORT16], "a100", there, lambda _, total, what: sent.append(total) if "ranges" in what else None
    )
    assert sent[0] > 4
    assert render_json(found) == render_json(analyze_files([REPORT16], "a100", options))


def test_a_file_that_cannot_be_read_is_the_same_error(dask: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.sass"
    bad.write_text(Path(REPORT16).read_text().replace("EXIT ;", "EXIT ", 1))
    there = Options(backend=Backend.DASK, scheduler=dask.scheduler_address)
    told = []
    for options in (Options(), there):
        with pytest.raises(InputError) as caught:
            analyze_files([REPORT16, str(bad)], "a100", options)
        told.append(caught.value.diagnostic)
    assert told[0] == told[1]
    assert told[0].location is not None


def test_a_task_that_no_worker_survives_is_an_error(dask: Any) -> None:
    with (
        worker_pool.open_runner(Backend.DASK, dask.scheduler_address, 2) as run_tasks,
        pytest.raises(ToolError, match="task 1 of 1 has ended each worker"),
    ):
        list(run_tasks(end_process, [b""], bytes))


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(worker_pool, "_CONNECT_TIMEOUT_S", 0.5)
    for address in ("tcp://127.0.0.1:1", "nonsense://x", "no address at all"):
        words = ["analyze", DUMPS[0], "--backend", "dask", "--scheduler", address, "--no-cache"]
        assert run(words) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"error: --scheduler {address}: ")
        assert told.count("\n") == 2, "the error and what to do"


def test_a_backend_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert run(["analyze", DUMPS[0], "--backend", "dask"]) == 2
    told = capsys.readouterr().err
    assert "--backend dask" in told
    assert "pip install" in told


def test_options_that_need_a_cluster_or_exclude_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", DUMPS[0], "--scheduler", "tcp://x:1"]) == 2
    assert "--backend" in capsys.readouterr().err
    assert run(["analyze", DUMPS[0], "--backend", "dask", "--trace", "x"]) == 2
    assert "--trace" in capsys.readouterr().err


class TestTask:
    """What a machine makes of a task, in this process."""

    def make(self, **values: Any) -> FileTask:
        reading = ReadingOptions(digests=True)
        return FileTask(paths=(DUMPS[0],), options=Options(), reading=reading, **values)

    def run_there(self, packed: bytes) -> TaskAnswer:
        return unpack_result(run_packed_task(run_task, packed), TaskAnswer)

    def test_its_answer_survives_the_way(self) -> None:
        task = self.make()
        assert self.run_there(pack_task(task)) == run_task(task)

    def test_another_version_of_the_code(self) -> None:
        packed = pack_task(self.make()).replace(
            cached := __import__("analyzer.fingerprint").fingerprint.compute_model_fingerprint().encode(),
            bytes(reversed(cached)),
        )
        with pytest.raises(ToolError, match="another version"):
            self.run_there(packed)

    def test_another_file_of_the_same_name(self) -> None:
        with pytest.raises(InputError, match="another one"):
            run_task(self.make(chosen=((replace(self.find_kernel(), digest="0" * 64), ()),)))

    def find_kernel(self) -> KernelFacts:
        (file,) = run_task(self.make(chosen=())).files
        assert file.facts is not None
        return file.facts.kernels[0]

    def test_the_same_file_of_the_same_name(self) -> None:
        (file,) = run_task(self.make(chosen=((self.find_kernel(), ()),))).files
        assert list(file.results) == [1]

    def test_a_folder_that_is_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        here = tmp_path / "here"
        here.mkdir()
        with monkeypatch.context() as patch:
            patch.chdir(here)
            packed = pack_task(self.make())
        here.rmdir()
        with pytest.raises(InputError, match="here"):
            self.run_there(packed)

    def test_a_cache_that_this_machine_does_not_see(self, tmp_path: Path) -> None:
        options = Options(cache_folder=tmp_path / "nowhere")
        answer = self.run_there(pack_task(replace(self.make(), options=options)))
        assert not (tmp_path / "nowhere").exists()
        assert not answer.is_kept


def test_what_a_machine_cannot_keep_is_kept_by_whoever_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run_without_cache(task: FileTask) -> TaskAnswer:
        return run_task(replace(task, options=replace(task.options, cache_folder=None)))

    serial = render_json(analyze_files(DUMPS, None, Options()))
    monkeypatch.setattr(analysis_plan, "_MIN_SHARED_BYTES", 0)
    monkeypatch.setattr(worker_pool, "count_forkable_cores", lambda: 2)
    monkeypatch.setattr(cached_analysis, "run_task", run_without_cache)
    options, reading = Options(jobs=2, cache_folder=tmp_path), ReadingOptions(digests=True)
    assert render_json(analyze_files(DUMPS, None, options, reading=reading)) == serial
    monkeypatch.setattr(worker_pool, "run_in_forks", lambda *_: pytest.fail("a process"))
    monkeypatch.setattr(InputReader, "read", lambda _, files: pytest.fail("read") if files else None)
    assert render_json(analyze_files(DUMPS, None, options, reading=reading)) == serial


def test_many_files_are_shared_by_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serial = render_json(analyze_files(DUMPS, None, Options()))
    monkeypatch.setattr(analysis_plan, "_MIN_SHARED_BYTES", 0)
    monkeypatch.setattr(worker_pool, "count_forkable_cores", lambda: 3)
    read, parent = InputReader.read, os.getpid()

    def read_there(self: InputReader, files: Sequence[IndexedFile]) -> None:
        assert not files or os.getpid() != parent, "read here"
        read(self, files)

    monkeypatch.setattr(InputReader, "read", read_there)
    for folder in (None, tmp_path):
        options = Options(jobs=3, cache_folder=folder)
        assert render_json(analyze_files(DUMPS, None, options)) == serial
    monkeypatch.setattr(worker_pool, "run_in_forks", lambda *_: pytest.fail("a process"))
    assert render_json(analyze_files(DUMPS, None, Options(jobs=3, cache_folder=tmp_path))) == serial
