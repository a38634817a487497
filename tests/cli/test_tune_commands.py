"""The commands around the fit: profile, evaluate, export, import."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
from tuned_profiles import write_artifact, write_profile

from analyzer.cli.app import run
from analyzer.tuning import triton_device
from analyzer.tuning.moe_config_files import read_moe_config_file

MODEL = "--experts 8 --topk 2 --hidden 1024 --intermediate 256"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_triton_profile_is_one_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "triton", None)
    write_profile(folder / "plan.csv")
    assert run(shlex.split("tune profile plan.csv -o out.csv")) == 2
    assert "profiling needs triton" in capsys.readouterr().err
    assert not (folder / "out.csv").exists()


def test_profile_counts_and_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Device:
        gpu = "h100-sxm"

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def measure_us(self, kernel: str, shape: Mapping[str, int], config: Mapping[str, int]) -> float:
            return 7.0

    monkeypatch.setattr(triton_device, "TritonDevice", Device)
    write_profile(folder / "plan.csv")
    assert run(shlex.split("tune profile plan.csv -o out.csv --rows 20")) == 0
    assert "20 measured, 0 cannot run, 0 were there, 40 of 60 are left" in capsys.readouterr().out
    assert run(shlex.split("tune profile plan.csv -o out.csv")) == 0
    assert "40 measured, 0 cannot run, 20 were there, 0 of 60 are left" in capsys.readouterr().out
    assert run(shlex.split("tune profile plan.csv -o plan.csv")) == 2


def test_evaluate_prints_a_table_and_the_same_bytes_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profile(folder / "p.csv", "grouped_gemm")
    command = "tune evaluate p.csv --split 0.5 --seed 3 --near-best 1 --trees 10 --no-clock"
    assert run(shlex.split(command)) == 0
    text = capsys.readouterr().out
    for name in ("default", "wavetune", "wavetune-smoothed", "step", "linear", "boosted", "tree", "oracle"):
        assert f" {name} " in text.replace("│", " ")
    assert "10 shapes teach, 10 judge" in text
    assert run(shlex.split(command)) == 0
    assert capsys.readouterr().out == text


def test_evaluate_as_json_with_a_table_that_judges(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_profile(folder / "p.csv")
    write_profile(folder / "t.csv")
    command = "tune evaluate p.csv --test t.csv --near-best 1 --policy wavetune --format json"
    assert run(shlex.split(command)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "warplens/tune-evaluate/1"
    assert [score["policy"] for score in found["scores"]] == ["default", "wavetune", "oracle"]
    assert found["scores"][1]["hits"] > found["scores"][0]["hits"]
    assert found["scores"][1]["decision_us"] > 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("tune evaluate p.csv", "say what judges"),
        ("tune evaluate p.csv --test t.csv --split 0.5", "say what judges"),
        ("tune evaluate p.csv --split 0.5 --policy best", "--policy best"),
        ("tune evaluate p.csv --split 0.5 --kernel gemm", "no such profile"),
        ("tune evaluate none.csv --split 0.5", "none.csv"),
        ("tune evaluate p.csv --test t.csv", "is of"),
        ("tune evaluate p.csv --split 0.5 --policy linear", "time of the default"),
        (f"tune export p.csv --format vllm {MODEL} --tokens 7", "has no times of"),
        (f"tune export p.csv --format vllm {MODEL} --tokens x", "--tokens x"),
        (f"tune export p.csv --format vllm {MODEL} --block-shape 3", "--block-shape 3"),
        (f"tune export gemm.npz --format vllm {MODEL}", "is of gemm"),
        ("tune import p.csv", "not JSON"),
        ("tune import none.json", "No such file"),
    ],
)
def test_errors_are_one_message(
    folder: Path, command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profile(folder / "p.csv", "grouped_gemm")
    write_profile(folder / "t.csv", "grouped_gemm", "a40")
    write_artifact(folder / "gemm.npz")
    assert run(shlex.split(command)) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("error:") == 1


def test_export_from_an_artifact_is_what_it_chooses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_artifact(folder / "moe.npz", "grouped_gemm")
    assert run(shlex.split(f"tune export moe.npz --format vllm {MODEL} --tokens 1,64,4096")) == 0
    path = folder / "E=8,N=256,device_name=NVIDIA_H100_80GB_HBM3.json"
    found = read_moe_config_file(path)
    assert [size for size, _ in found.by_tokens] == [1, 64, 4096]
    capsys.readouterr()
    command = "tune choose moe.npz --m 64 --experts 8 --topk 2 --n 512 --k 1024 --format json"
    assert run(shlex.split(command)) == 0
    assert found.by_tokens[1][1].as_fields() == json.loads(capsys.readouterr().out)["config"]


def test_export_from_a_profile_is_the_fastest_measured(folder: Path) -> None:
    write_profile(folder / "p.csv", "grouped_gemm")
    (folder / "out").mkdir()
    command = f"tune export p.csv --format sglang {MODEL} --device-name 'Some GPU' -o out --dtype fp8_w8a8 --block-shape 128,128"
    assert run(shlex.split(command)) == 0
    (path,) = (folder / "out").iterdir()
    assert path.name == "E=8,N=256,device_name=Some_GPU,dtype=fp8_w8a8,block_shape=[128, 128].json"
    found = read_moe_config_file(path)
    assert [size for size, _ in found.by_tokens] == [16, 64, 256, 1024, 4096]
    assert all(config.num_warps == 8 for _, config in found.by_tokens)  # twice as fast on this machine


def test_import_shows_the_nearest_and_carries_to_the_other_engine(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "E=8,N=256,device_name=NVIDIA_A100-SXM4-80GB,dtype=fp8_w8a8,block_shape=[128, 128].json"
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "SPLIT_K": 1}
    (folder / name).write_text(json.dumps({"1": config, "128": {**config, "BLOCK_SIZE_M": 64}}))
    assert run(["tune", "import", name, "--m", "100"]) == 0
    text = capsys.readouterr().out
    assert "   128  BLOCK_SIZE_M=64" in text
    assert "SPLIT_K: kept, not interpreted (2 times)" in text
    assert run(["tune", "import", name, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpu"], len(found["configurations"])) == ("a100-80gb-sxm", 2)
    assert run(["tune", "import", name, "--format", "vllm"]) == 0
    other = folder / name.replace("128, 128", "128,128")
    assert read_moe_config_file(other).by_tokens == read_moe_config_file(folder / name).by_tokens
    assert run(["tune", "import", name, "--format", "sglang"]) == 2  # would replace what it reads


def test_a_file_without_a_name_cannot_be_carried(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "x.json").write_text('{"1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64}}')
    assert run(["tune", "import", "x.json", "--format", "vllm"]) == 2
    assert "does not say what it was tuned for" in capsys.readouterr().err


def test_export_for_a_model_that_was_not_measured(folder: Path) -> None:
    write_profile(folder / "p.csv", "grouped_gemm")
    model = "--experts 16 --topk 2 --hidden 1024 --intermediate 512 --tokens 1,4096"
    assert run(shlex.split(f"tune export p.csv --format vllm {model}")) == 2
    assert run(shlex.split(f"tune export p.csv --format vllm {model} --unseen --near-best 1")) == 0
    found = read_moe_config_file(folder / "E=16,N=512,device_name=NVIDIA_H100_80GB_HBM3.json")
    few, many = (config for _, config in found.by_tokens)
    assert few.block_size_m < many.block_size_m
