"""Loop rows of a launch: busy shares of the warps that are there, and no loops that never run."""

import json
from pathlib import Path

import pytest

from analyzer.cli.app import run

FOLDER = Path(__file__).parent / "05-loop-rows"
GPUS = {"80": "a100", "90": "h100"}
Capture = pytest.CaptureFixture[str]


def analyze(capsys: Capture, arch: str, kernel: str, *options: str) -> dict:
    arguments = ["analyze", str(FOLDER / f"loops_{arch}.sass"), "-k", kernel, "-g", GPUS[arch], *options]
    assert run([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["kernels"][0]


@pytest.mark.parametrize(("arch", "latency"), [("80", 24), ("90", 24)])
def test_one_warp_of_products_waits_for_each(capsys: Capture, arch: str, latency: int) -> None:
    kernel = analyze(capsys, arch, "mma_chain", "--grid", "1", "--block", "32", "--arg", "1=8000")
    assert kernel["predictions"][0]["bound"] == "latency"
    loop = kernel["loops"][0]
    assert (loop["trip_count"], loop["bound"], loop["busiest"]) == (1000, "latency", "tensor")
    assert loop["limited_by_recurrence"]
    assert loop["cycles_per_iteration"] == pytest.approx(8 * latency, rel=0.08)
    tensor = loop["pipes"]["tensor"]["cycles"]
    assert loop["busiest_share"] == pytest.approx(tensor / loop["cycles_per_iteration"])
    assert loop["busiest_share"] < 0.4


@pytest.mark.parametrize("arch", GPUS)
def test_more_warps_keep_the_pipe_busy(capsys: Capture, arch: str) -> None:
    shares = []
    for ctas_per_sm in (1, 8):
        grid = str(ctas_per_sm * {"80": 108, "90": 132}[arch])
        kernel = analyze(capsys, arch, "mma_chain", "--grid", grid, "--block", "128", "--arg", "1=8000")
        loop = kernel["loops"][0]
        shares.append(loop["busiest_share"])
    assert shares[0] < 0.4
    assert shares[1] == pytest.approx(1.0)
    assert loop["bound"] == "tensor"


@pytest.mark.parametrize("arch", GPUS)
def test_loops_that_no_warp_enters_are_left_out(capsys: Capture, arch: str) -> None:
    options = ["--grid", "1", "--block", "32", "--arg", "1=8000", "--arg", "2=0"]
    kernel = analyze(capsys, arch, "chain", *options)
    assert [loop["trip_count"] for loop in kernel["loops"]] == [2000]
    assert kernel["loops"][0]["bound"] == "latency"
    assert kernel["loops"][0]["busiest_share"] < 0.5
    idle = kernel["loops_not_entered"]
    assert len(idle) == 2
    entered = analyze(capsys, arch, "chain", *options[:-1], "2=5")
    assert len(entered["loops"]) == 2
    assert len(entered["loops_not_entered"]) == 1

    assert (
        run(
            [
                "analyze",
                str(FOLDER / f"loops_{arch}.sass"),
                "-k",
                "chain",
                "-g",
                GPUS[arch],
                *options,
                "--loops",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "each of 0" not in text
    assert f"loops that no warp enters: {', '.join(map(hex, idle))}" in text


@pytest.mark.parametrize("arch", GPUS)
def test_warps_outside_of_a_loop_do_not_count(capsys: Capture, arch: str) -> None:
    alone = analyze(capsys, arch, "one_warp", "--grid", "1", "--block", "32", "--arg", "1=1000")["loops"][0]
    beside = analyze(capsys, arch, "one_warp", "--grid", "1", "--block", "256", "--arg", "1=1000")["loops"][0]
    assert beside["bound"] == alone["bound"] == "latency"
    assert beside["bounds"]["issue"] == alone["bounds"]["issue"]
    assert beside["busiest_share"] == pytest.approx(alone["busiest_share"], rel=0.2)
