"""Rows that nobody knows: an unknown word is one value on its way to the lanes, and what it decides no fact."""

import re
from pathlib import Path

import pytest

import analyzer
from analyzer.cli.app import run
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import KernelReport, MemoryEntry

FOLDER = Path(__file__).parent / "21-row-gather"
GATHERS, GLOBALS = FOLDER / "gathers_80.sass", FOLDER / "globals_80.txt"
LAUNCH = ("-g", "a100", "--grid", "1024", "--block", "256", "--arg", "3=5")


def analyze(path: Path, kernel: str, *arguments: str) -> KernelReport:
    launch = Launch(grid=Dim3(1024), block=Dim3(256), arguments=tuple(map(parse_argument, arguments)))
    options = Options(launch=launch, kernels=(kernel,), advice=True)
    (report,) = analyzer.analyze(str(path), "a100", options=options).kernels
    return report


def find_gather(report: KernelReport) -> MemoryEntry:
    (found,) = (one for one in report.memory if one.opcode.startswith("LDG.E.128"))
    return found


@pytest.mark.parametrize(
    "kernel",
    ["own_slot", "other_slot", "two_slots", "copied", "shuffled", "reduced", "on_the_stack", "row_of_cta"],
)
def test_lanes_with_one_unknown_word_read_one_row(kernel: str) -> None:
    report = analyze(GATHERS, kernel, "3=5")
    gather = find_gather(report)
    assert gather.sectors == 16 * (gather.requests or 0) == gather.ideal_sectors
    assert gather.unique_bytes is None
    assert gather.provenance == "assumed"
    assert report.counts.provenance == "exact"
    assert report.counts.addresses in ("assumed", "unknown")
    assert all(one.address != gather.address for one in report.advice)


def test_a_masked_word_keeps_its_range() -> None:
    gather = find_gather(analyze(GATHERS, "one_bit"))
    assert gather.requests
    assert gather.sectors == pytest.approx(
        12 * gather.requests, rel=0.02
    )  # two rows, half of the time the same
    assert gather.unique_bytes == 512


def test_guesses_are_marked_and_come_after_facts(capsys: pytest.CaptureFixture[str]) -> None:
    report = analyze(GATHERS, "scattered")
    guesses = [one.is_guess for one in report.advice]
    assert guesses == sorted(guesses)
    (found,) = (one for one in report.advice if one.is_guess)
    assert found.address == find_gather(report).address
    assert run(["analyze", str(GATHERS), "-k", "scattered", *LAUNCH, "--memory", "--advice"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"LDG\.E\.128\S* +8\.19k +32 +~32 \(16\) +~32 \(4\) +~\d", text)
    assert re.search(r"global .* ~\d+\.\d+ sectors/request .* LDG\.E\.128\.CONSTANT, ~32 ", text)
    assert re.search(r"read .* ~\S+ MiB distinct", text)
    assert re.search(r"written .* requested, 4\.00 MiB distinct", text)
    assert re.search(r"^~\w+-bound: ", text, re.M)
    assert " ~latency " in text or " ~L2 " in text or " ~launch " in text
    before, _, after = text.partition("if lanes address memory at random, which is not known")
    assert "uncoalesced-access" not in before
    assert re.search(r"uncoalesced-access +gains ~\d", after)


def test_known_rows_are_facts(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    data = tmp_path / "pick.npy"
    numpy.save(data, numpy.arange(1 << 14, dtype=numpy.int32)[::-1])
    for kernel in ("own_slot", "copied"):
        gather = find_gather(analyze(GATHERS, kernel, f"0=@{data}"))
        assert gather.sectors == 16 * (gather.requests or 0)
        assert gather.unique_bytes == (1 << 14) * 256
        assert gather.provenance == "exact"


def test_addresses_that_the_loader_sets_are_one_word_for_all_lanes() -> None:
    entries = {one.address: one for one in analyze(GLOBALS, "look_up").memory}
    loads = [one for one in entries.values() if one.opcode == "LDG.E"]
    assert [(one.sectors, one.unique_bytes) for one in loads] == [(8192, 4), (32768, 1024)]
    stores = [one for one in analyze(GLOBALS, "put", "1=3").memory if one.opcode == "STG.E"]
    assert [(one.sectors, one.unique_bytes) for one in stores] == [(32768, 65536), (1, 4)]
    assert all(one.provenance == "exact" for one in (*loads, *stores))


def test_the_barriers_of_a_conversion_of_layouts_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Triton loads row numbers in one layout and names rows by them in another."""
    options = ("-g", "a100", "--grid", "256", "--block", "128", "--arg", "3=4096", "--advice")
    assert run(("analyze", str(FOLDER / "bag_mean_80.sass"), *options)) == 0
    said = capsys.readouterr().out
    (finding,) = re.findall(r"layout-exchange +gains \d+%.*\n(?: {5}.*\n)+", said)
    assert "stall barrier" in finding
    assert re.search(r"0x02f0|0x0a50", finding), "the conversion's barriers"
