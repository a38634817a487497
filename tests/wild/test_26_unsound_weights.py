"""Case 26: learned weights whose parts do not fit each other are refused before anything is computed with them."""

import json
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from safetensors import safe_open
from safetensors.numpy import save_file

from analyzer.cli.app import run

Capture = pytest.CaptureFixture[str]


def refuse(capsys: Capture, *arguments: str) -> str:
    """Run a command that must refuse its input; return the message."""
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "internal error" not in shown.err
    return shown.err


WEIGHTS = "ours-elementwise"
ELEMENTWISE = ["predict", "elementwise", "--elements", "4096", "--dtype", "fp32", "-g", "t4", "--weights"]


def write_weights(folder: Path, fault: str) -> None:
    """Write the shipped weights with a fault into a folder."""
    with safe_open(ROOT / "hwdb" / "weights" / f"{WEIGHTS}.safetensors", framework="numpy") as file:
        arrays = {name: file.get_tensor(name).copy() for name in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()["warplens"])
    match fault:
        case "a feature that no row has":
            arrays["known.trees.features"][3, 1] = 999
        case "a feature before the first":
            arrays["known.trees.features"][3, 1] = -1
        case "leaves of other trees":
            arrays["known.trees.leaves"] = arrays["known.trees.leaves"][:-1]
        case "not a number":
            arrays["known.trees.leaves"][5, 2] = np.nan
        case "flat trees":
            arrays["known.trees.features"] = arrays["known.trees.features"].ravel()
        case "no interval":
            del header["intervals"]["known"]
        case "an edge too many":
            header["intervals"]["known"]["edges_us"].append(1e9)
        case "a feature without a range":
            header["feature_low"].pop()
        case "no GPUs":
            header["taught"] = []
    save_file(arrays, folder / f"{WEIGHTS}.safetensors", metadata={"warplens": json.dumps(header)})


def test_sound_weights_are_taken(tmp_path: Path, capsys: Capture) -> None:
    write_weights(tmp_path, "none")
    assert run([*ELEMENTWISE, str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "fault",
    [
        *("a feature that no row has", "a feature before the first", "leaves of other trees", "not a number"),
        *("flat trees", "no interval", "an edge too many", "a feature without a range", "no GPUs"),
    ],
)
def test_weights_that_do_not_fit_themselves_are_refused(fault: str, tmp_path: Path, capsys: Capture) -> None:
    write_weights(tmp_path, fault)
    assert f"{WEIGHTS}.safetensors: " in refuse(capsys, *ELEMENTWISE, str(tmp_path))
