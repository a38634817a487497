"""One launch, one figure: whatever command or format says time, cycles, clock, bound, bytes or occupancy.

`validate` reads all launches from one table. `check` times kernels on their own, so it is held against
`analyze --timing kernel`, and says so where that makes another clock.
"""

import csv
import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from paths import TRACES

import analyzer
from analyzer.cli.app import run
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch, Timing
from analyzer.pipeline import Options
from analyzer.render.html.analysis_page import render_analysis_page
from analyzer.report.analyze_schema import KernelReport, PredictionEntry, Report

REPORT16 = "cuda/{}/report16.sass"


class Case(NamedTuple):
    """A launch of a kernel of traces/."""

    dump: str
    kernel: str
    gpu: str
    grid: str
    block: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.kernel}-{self.gpu}"

    @property
    def path(self) -> str:
        return str(TRACES / self.dump)

    @property
    def options(self) -> tuple[str, ...]:
        arguments = ("--arg", self.argument) if self.argument else ()
        return ("-k", self.kernel, "-g", self.gpu, "--grid", self.grid, "--block", self.block, *arguments)


CASES = [
    Case(REPORT16.format("sm_75"), "vector_add", "t4", "4096", "256", "3=1048576"),
    Case(REPORT16.format("sm_75"), "matmul_tiled", "rtx-2080-ti", "16,16", "16,16", "3=256"),
    Case(REPORT16.format("sm_80"), "saxpy", "a100", "4096", "256", "3=1048576"),
    Case(REPORT16.format("sm_80"), "matmul_naive", "a100", "17,33", "16,8", "3=263"),
    Case(REPORT16.format("sm_80"), "matmul_tiled", "a30", "16,16", "16,16", "3=256"),
    Case(REPORT16.format("sm_80"), "shared_bank_conflict", "a100", "8,8", "32,32", "2=256"),
    Case(REPORT16.format("sm_80"), "naive_transpose", "a100", "16,16", "16,16", "2=256"),
    Case(REPORT16.format("sm_86"), "reduce_sum", "rtx-3090", "512", "256", "2=131072"),
    Case(REPORT16.format("sm_86"), "matmul_naive", "a10", "8,8", "16,16", "3=128"),
    Case(REPORT16.format("sm_89"), "histogram", "l40s", "256", "256", "2=65536"),
    Case(REPORT16.format("sm_89"), "vector_add_divergent", "rtx-4090", "512", "256", "3=131072"),
    Case(REPORT16.format("sm_90"), "shared_transpose", "h100", "32,32", "32,32", "2=1024"),
    Case(REPORT16.format("sm_90"), "dot_product", "h200", "1024", "256", "3=262144"),
    Case(REPORT16.format("sm_90"), "matmul_tiled", "h100", "32,32", "16,16", "3=512"),
    Case(REPORT16.format("sm_100"), "dot_product", "b200", "256", "256", "3=65536"),
    Case(REPORT16.format("sm_120"), "saxpy", "rtx-5090", "8192", "256", "3=2097152"),
    Case("cuda/sm_90/exactness.sass", "csr_row_sums", "h100", "64", "128", "3=8000"),
    Case("triton/sm_80/softmax.sass", "softmax", "a100", "512", "128"),
    Case("triton/sm_90/matmul.sass", "matmul", "h100", "512", "128", "k=512"),
    Case("triton/sm_90/softmax.sass", "softmax", "h20", "1024", "128"),
    Case("wild/gathers", "other_slot", "a100", "1024", "256")._replace(
        dump=str(Path(__file__).parent / "21-row-gather" / "gathers_80.sass")
    ),
]
CHECK_OPTIONS = ("--baseline", "base.json", "--no-cache")
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


@cache
def analyze(case: Case, timing: Timing = Timing.INTERVAL) -> tuple[Report, KernelReport, PredictionEntry]:
    arguments = (parse_argument(case.argument),) if case.argument else ()
    launch = Launch(
        grid=Dim3(*map(int, case.grid.split(","))),
        block=Dim3(*map(int, case.block.split(","))),
        arguments=arguments,
        timing=timing,
    )
    report = analyzer.analyze(
        case.path, case.gpu, options=Options(launch=launch, kernels=(case.kernel,), listing=True)
    )
    (kernel,) = report.kernels
    return report, kernel, kernel.predictions[0]


def cut_out_kernel(case: Case, folder: Path) -> str:
    """Write the dump with one of its kernels, and what lies beside it; `check` has no `--kernel`."""
    dump = Path(case.path)
    folder.mkdir()
    head, *functions = dump.read_text().split("\n\t\tFunction : ")
    chosen = [one for one in functions if one.partition("\n")[0] == case.kernel]
    assert len(chosen) == 1
    for other in dump.parent.glob(f"{dump.stem}.*"):
        shutil.copy(other, folder)
    (folder / dump.name).write_text("\n\t\tFunction : ".join((head, *chosen)))
    return str(folder / dump.name)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@EVERY_CASE
def test_text_and_page_say_what_the_json_says(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    report, _kernel, entry = analyze(case)
    assert run(["analyze", case.path, *case.options, "--memory", "--loops"]) == 0
    text = capsys.readouterr().out
    page = render_analysis_page(report)
    (row,) = re.findall(rf"^ {re.escape(entry.gpu_name)} .*$", text, re.M)
    time = f"{entry.time_us:,.2f}" if entry.time_us < 1000 else f"{entry.time_us:,.0f}"
    for figure in (f"{entry.cycles:,.0f}", time, entry.bound, f"{entry.occupancy:.0%}"):
        assert re.search(rf"[ ~]{re.escape(figure)}( |$)", row)
    assert f"{entry.cycles:,.0f}" in page
    assert entry.time_us * entry.clock_mhz == pytest.approx(entry.cycles)
    assert sum(entry.cpi_stack.values()) == pytest.approx(entry.cycles)
    found = entry.speed_of_light
    assert found is not None
    assert re.search(rf"^~?{re.escape(entry.bound)}-bound: ", text, re.M)
    for level in found.memory:
        assert level.gbps * entry.time_us * 1e3 == pytest.approx(level.bytes, rel=1e-6, abs=1)
        share = "<1 %" if 0 < level.peak_share < 0.01 else f"{level.peak_share * 100:.0f} %"
        gbps = f"{level.gbps:,.0f}" if level.gbps >= 10 else f"{level.gbps:.2g}"
        assert re.search(rf"{level.level} ~?{share}, {re.escape(gbps)} GB/s", text)


@EVERY_CASE
def test_nothing_said_of_dram_contradicts_its_bytes(case: Case) -> None:
    _, kernel, entry = analyze(case)
    assert entry.speed_of_light is not None
    moved = {level.level: level.bytes for level in entry.speed_of_light.memory}
    notes = " ".join(entry.assumptions)
    if "nothing comes from DRAM" in notes:
        assert not moved.get("DRAM")
        assert set(re.findall(r"(\d+)% (?:of global bytes )?come from DRAM", notes)) <= {"0"}
    if entry.speed_of_light.memory and not moved.get("DRAM"):
        assert all(not loop.bounds.get("DRAM") and loop.bound != "DRAM" for loop in kernel.loops)
        assert entry.bound != "DRAM"


@EVERY_CASE
def test_other_commands_say_the_same(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, entry = analyze(case)
    edited = run_json(capsys, "whatif", case.path, *case.options, "--set", "dram=x1.5")["kernels"][0]["base"]
    for name in ("cycles", "time_us", "clock_mhz", "bound", "occupancy", "waves", "cpi_stack"):
        assert edited[name] == getattr(entry, name)
    path, new = cut_out_kernel(case, tmp_path / "old"), cut_out_kernel(case, tmp_path / "new")
    Path(new).write_text(re.sub(r"\bS2U?R\b", "CS2R", Path(path).read_text(), count=1))
    changed = run_json(capsys, "diff", path, new, *case.options[2:])["kernels"]
    (before,) = changed[0]["predictions"]
    assert before["old_bound"] == entry.bound
    for name in ("cycles", "time_us", "cpi_stack"):
        assert before[f"old_{name}"] == getattr(entry, name)
    _, _, alone = analyze(case, Timing.KERNEL)
    checked = run_json(capsys, "check", path, *case.options[2:], *CHECK_OPTIONS)
    (mine,) = checked["kernels"]
    figures = {
        one["metric"]: one["value"] for one in mine["metrics"] if not one["limit"].startswith(("<", ">"))
    }
    assert figures["cycles"] == pytest.approx(alone.cycles, abs=0.5)
    assert figures["occupancy"] == pytest.approx(alone.occupancy)
    if alone.clock_mhz != entry.clock_mhz:
        assert any("timed alone (--timing kernel)" in note for note in checked["notes"])


def test_validate_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "cases.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("case", "dump", "kernel", "gpu", "grid", "block", "arguments", "time_us"))
        for number, case in enumerate(CASES):
            name, _, value = case.argument.partition("=")
            argument = json.dumps({name: int(value)}) if name else ""
            rows.writerow((number, case.path, case.kernel, case.gpu, case.grid, case.block, argument, 10.0))
    found = run_json(capsys, "validate", str(table), "--model", "sm")
    for number, case in enumerate(CASES):
        _, _, entry = analyze(case)
        (mine,) = (one for one in found["cases"] if one["case"] == str(number))
        (prediction,) = mine["predictions"]
        for name in ("cycles", "time_us", "clock_mhz", "bound"):
            assert prediction[name] == getattr(entry, name), case
