"""`warplens tune rank` through the command line."""

import json
import subprocess
import sys

import pytest
from paths import ROOT

from analyzer.cli.app import run

SIZES = ["--m", "64", "--experts", "64", "--topk", "6", "--hidden", "3584", "--intermediate", "1536"]
COMMAND = ["tune", "rank", "--kernel", "fused_moe", *SIZES]


def test_json_lists_configurations_best_first(capsys) -> None:
    assert run([*COMMAND, "--gpu", "a100", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "warplens/tune-rank/1"
    times = [each["time_us"] for each in report["configurations"]]
    assert times == sorted(times)
    assert set(report["configurations"][0]["config"]) == {
        "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages",
    }  # fmt: skip
    assert report["pruned"]


def test_it_needs_neither_triton_nor_a_learning_library() -> None:
    """In a process of its own: in this one other tests have loaded them."""
    program = (
        "import sys; from analyzer.cli.app import run; "
        f"code = run({[*COMMAND, '--gpu', 'a100']!r}); "
        "sys.exit(code or ','.join({'triton', 'torch', 'sklearn'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)


def test_text_shows_the_best_and_what_was_left_out(capsys) -> None:
    assert run([*COMMAND, "--gpu", "h800", "--top", "3"]) == 0
    out = capsys.readouterr().out
    assert "fused_moe on H800" in out
    assert "left out" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*COMMAND, "--gpu", "nope"], "no GPU is called"),
        ([*COMMAND, "--gpu", "t4"], "sm_90"),
        ([*COMMAND, "--gpu", "mi300x"], "operator models only"),
        ([*COMMAND, "--gpu", "a40", "--dtype", "fp8"], "bf16, fp16"),
        ([*COMMAND[:2], "--kernel", "softmax", *SIZES, "--gpu", "a40"], "one of: fused_moe"),
        (["tune", "rank", *SIZES[:4], "--topk", "65", *SIZES[6:], "--gpu", "a40"], "more experts than"),
        ([*COMMAND, "--gpu", "a40", "--measured", "/nowhere.csv"], "nowhere"),
    ],
)
def test_impossible_requests_get_one_error(arguments: list[str], message: str, capsys) -> None:
    assert run(arguments) == 2
    found = capsys.readouterr()
    assert message in found.err
    assert found.err.count("error:") == 1
    assert not found.out
