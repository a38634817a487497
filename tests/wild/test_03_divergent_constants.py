"""A constant load takes one pass for each distinct word of a warp: in the memory table, and in time."""

from pathlib import Path

import pytest

import analyzer
from analyzer.cli.app import run
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import KernelReport

FOLDER = Path(__file__).parent / "03-divergent-constants"
GPUS = {80: "a100", 90: "h100", 120: "rtx-5090"}
PASSES = {"one_word": 1, "two_words": 2, "word_per_lane": 32, "pair_per_lane": 32, "word_of_some_lanes": 4}
MODELS = ("sm", "steady", "warp", "amali")
N = 64


def analyze(arch: int, kernel: str, model: str = "sm") -> KernelReport:
    arguments = tuple(map(parse_argument, ("0=ptr", f"1={N}")))
    launch = Launch(grid=Dim3(108), block=Dim3(512), arguments=arguments)
    options = Options(kernels=(kernel,), launch=launch, models=(model,))
    (found,) = analyzer.analyze(str(FOLDER / f"tables_{arch}.sass"), GPUS[arch], options=options).kernels
    return found


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize(("kernel", "passes"), PASSES.items())
def test_distinct_words_are_counted(arch: int, kernel: str, passes: int) -> None:
    found = analyze(arch, kernel)
    loads = [entry for entry in found.memory if entry.space == "constant"]
    requests = sum(entry.requests or 0 for entry in loads)
    assert requests == 108 * 16 * N
    assert sum(entry.wavefronts or 0 for entry in loads) == passes * requests
    is_placed = (arch, kernel) != (80, "pair_per_lane")  # there by a word of bank 2, which a text lacks
    assert {entry.provenance for entry in loads} == {"exact" if is_placed else "assumed"}
    (space,) = (one for one in found.memory_spaces if one.space == "constant")
    assert (space.wavefronts, space.ideal_wavefronts) == (passes * requests, requests)


@pytest.mark.parametrize("model", MODELS)
def test_the_time_of_the_loads_grows_by_the_passes(model: str) -> None:
    found = analyze(80, "word_per_lane", model).predictions[0]
    per_load = 4 * 8  # warps of a sub-core, cycles of a pass for each
    assert found.cycles == pytest.approx(N * 32 * per_load, rel=0.3)
    assert found.cycles > 6 * analyze(80, "one_word", model).predictions[0].cycles


def test_the_memory_table_shows_the_passes(capsys: pytest.CaptureFixture[str]) -> None:
    dump = str(FOLDER / "tables_80.sass")
    launch = ("--grid", "1", "--block", "32", "--arg", f"1={N}")
    assert run(["analyze", dump, "-g", "a100", "-k", "word_per_lane", *launch, "--memory"]) == 0
    shown = capsys.readouterr().out
    assert "32 passes/request (ideal 1)" in shown
    assert any("LDC" in line and "32 (1)" in line for line in shown.splitlines())


def test_loads_at_unknown_addresses_are_said_to_be_assumed() -> None:
    options = Options(kernels=("word_per_lane",))
    (found,) = analyzer.analyze(str(FOLDER / "tables_80.sass"), "a100", options=options).kernels
    assert any("constant loads" in note for note in found.predictions[0].assumptions)
