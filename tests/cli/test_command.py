"""The command line as a user meets it: exit codes, messages, formats."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"
MATMUL = str(TRACES / "triton" / "sm_90" / "matmul.sass")
REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")

Capture = pytest.CaptureFixture[str]


def fails(capsys: Capture, *arguments: str) -> str:
    """Standard error of a command that must end with exit code 2 and no traceback."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return captured.err


def test_analyze_prints_all_layers(capsys: Capture) -> None:
    assert run(["analyze", MATMUL, "--gpu", "h100", "--grid", "1024", "--trip", "64"]) == 0
    out = capsys.readouterr().out
    for piece in ("kernel matmul", "sm_90a", "H100 SXM", "bound", "occupancy", "tensor", "long_scoreboard"):
        assert piece in out
    assert "64 trips, as --trip says" in out


def test_output_is_the_same_twice(capsys: Capture) -> None:
    arguments = ["analyze", REPORT16, "-k", "matmul", "--all", "--gpu", "a100"]
    outputs = []
    for _ in range(2):
        assert run(arguments) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_several_gpus_make_one_row_each(capsys: Capture) -> None:
    assert run(["analyze", REPORT16, "-k", "saxpy", "-g", "a100", "-g", "rtx 5090", "-g", "NVIDIA L4"]) == 0
    out = capsys.readouterr().out
    assert "A100-80GB SXM" in out
    assert re.search(r"RTX 5090 \(transferred\)", out)
    assert "it does not run there" not in out.partition("rests on")[0]


def test_json_holds_every_kernel(capsys: Capture) -> None:
    assert run(["analyze", REPORT16, "--gpu", "a100", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "warplens/analyze/1"
    assert len(report["kernels"]) == 16
    for kernel in report["kernels"]:
        assert sum(kernel["mix"].values()) == kernel["instructions"]
        (prediction,) = kernel["predictions"]
        assert sum(prediction["cpi_stack"].values()) == pytest.approx(prediction["cycles"])


def test_output_goes_to_a_file(tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "report.txt"
    assert run(["analyze", REPORT16, "-k", "saxpy", "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert "saxpy" in target.read_text()
    assert "cannot write" in fails(capsys, "analyze", REPORT16, "-o", str(tmp_path / "no" / "report.txt"))


def test_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "analyzer", "analyze", "-", "--gpu", "a100"]
    done = subprocess.run(command, input=Path(REPORT16).read_bytes(), capture_output=True, check=True)
    assert b"matmul_tiled" in done.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m analyzer annotate {MATMUL} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_annotate_shows_control_codes_and_causes(capsys: Capture) -> None:
    assert run(["annotate", REPORT16, "-k", "matmul_naive", "-g", "a100"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\[B[-0-5]{6}:R[-0-5]:W[-0-5]:[-Y]:S\d\d\]", out)
    assert re.search(r"long_scoreboard <- [0-9a-f]{4}", out)


def test_gpus_lists_explains_and_starts_a_file(tmp_path: Path, capsys: Capture) -> None:
    assert run(["gpus"]) == 0
    assert "h100-sxm" in capsys.readouterr().out
    assert run(["gpus", "H200", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "bandwidth_gbps" in out
    assert "  verified: " in out
    resources = [line for line in out.splitlines() if line.startswith(("l2: ", "dram: ", "tensor: "))]
    assert [line.partition(":")[0] for line in resources] == ["tensor", "l2", "dram"]
    assert "derived: l2.slices x" in " ".join(out.split())
    mine = tmp_path / "mine.toml"
    assert run(["gpus", "new", "--from", "h100", "-o", str(mine)]) == 0
    capsys.readouterr()
    text = mine.read_text().replace("# count = { value = 132", "count = { value = 66")
    mine.write_text(text)
    assert run(["analyze", MATMUL, "--gpu", str(mine)]) == 0
    assert (
        "unverified GPU: figures of mine that decide times are assumed: sm.count" in capsys.readouterr().out
    )
    assert run(["gpus", str(mine)]) == 0
    assert "  unverified: figures that decide times are assumed: sm.count" in capsys.readouterr().out
    assert "exists already" in fails(capsys, "gpus", "new", "--from", "h100", "-o", str(mine))


def test_doctor_names_the_tools(capsys: Capture) -> None:
    assert run(["doctor"]) == 0
    assert "cuobjdump" in capsys.readouterr().out


def test_unknown_gpu_lists_the_nearest(capsys: Capture) -> None:
    err = fails(capsys, "analyze", MATMUL, "--gpu", "h101")
    assert "no GPU is called 'h101'" in err
    assert "h100" in err


def test_code_that_a_gpu_has_no_unit_for_is_refused(capsys: Capture) -> None:
    assert "HGMMA" in fails(capsys, "analyze", MATMUL, "--gpu", "a100")


def test_operator_only_gpu_is_refused(capsys: Capture) -> None:
    assert "operator models only" in fails(capsys, "analyze", MATMUL, "--gpu", "mi300x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "0"], "must be 1 to"),
        (["--grid", "-4"], "not one to three positive numbers"),
        (["--grid", "1,2,3,4"], "not one to three positive numbers"),
        (["--block", "2048"], "at most 1,024"),
        (["--block", "many"], "not one to three positive numbers"),
        (["--trip", "x=y"], "is not a count"),
        (["--dynamic-shared", "-1"], "dynamic-shared"),
        (["-k", "nothing_like_it"], "no kernel fits"),
        (["--format", "xml"], "xml"),
        (["--min-coverage", "2"], "min-coverage"),
        (["--no-such-option"], "no-such-option"),
    ],
)
def test_bad_options_give_one_message(arguments: list[str], message: str, capsys: Capture) -> None:
    assert message in fails(capsys, "analyze", MATMUL, *arguments)


def test_an_unknown_command_suggests_the_nearest(capsys: Capture) -> None:
    assert "analyze" in fails(capsys, "analyse", MATMUL)


def mutated(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "dump.sass"
    path.write_bytes(data)
    return str(path)


def test_bad_inputs_give_a_place_and_a_caret(tmp_path: Path, capsys: Capture) -> None:
    good = Path(REPORT16).read_bytes()
    header = good.index(b"Function")
    cut = good.index(b";", header + 4000)
    cases = {
        b"": "empty",
        bytes(range(256)) * 40: "",
        good[: cut - 3]: ";",
        b"\n".join(line for line in good.splitlines() if b"Function" not in line): "a second function needs",
        good.replace(b"IMAD R", b"IMAD \xff", 1): "UTF-8",
        b"hello world\n": "not a SASS dump",
        b"/*0000*/ " + b"R" * 1_000_000 + b" ;\n": "longer than any instruction",
        good[: cut - 20] + b"A" * 1_000_000 + good[cut:]: "",
    }
    for data, message in cases.items():
        err = fails(capsys, "analyze", mutated(tmp_path, data))
        assert message in err
        assert "help:" in err
        assert len(err) < 2000


def test_errors_point_at_line_and_column(tmp_path: Path, capsys: Capture) -> None:
    lines = Path(REPORT16).read_text().splitlines(keepends=True)
    row = next(i for i, line in enumerate(lines) if "/*0040*/" in line)
    lines[row] = lines[row].partition(";")[0].rstrip() + "\n"
    err = fails(capsys, "analyze", mutated(tmp_path, "".join(lines).encode()))
    assert f"dump.sass:{row + 1}:" in err
    assert re.search(r"^ +\^", err, re.M)


def test_missing_file_and_folder(tmp_path: Path, capsys: Capture) -> None:
    assert "nothing.sass" in fails(capsys, "analyze", str(tmp_path / "nothing.sass"))
    assert str(tmp_path) in fails(capsys, "analyze", str(tmp_path))


def test_unknown_opcode_degrades_and_can_be_made_an_error(tmp_path: Path, capsys: Capture) -> None:
    dump = mutated(tmp_path, Path(REPORT16).read_bytes().replace(b" LDG.E", b" LDQ.E"))
    assert run(["analyze", dump, "-k", "reduce_sum"]) == 0
    assert "opcode LDQ is not in the table" in capsys.readouterr().out
    assert run(["analyze", dump, "--min-coverage", "1.0"]) == 1
    assert "below --min-coverage" in capsys.readouterr().err
    assert run(["analyze", dump, "--min-coverage", "0.1"]) == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_help_names_every_command(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for command in ("analyze", "annotate", "gpus", "doctor"):
        assert command in out


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 2)])
def test_a_gpu_refused_beside_one_that_answers_is_a_warning(
    options: tuple[str, ...], code: int, capsys: Capture
) -> None:
    assert run(["analyze", MATMUL, "-g", "h100", "-g", "l4", *options]) == code
    said = capsys.readouterr()
    assert "warning: refused beside GPUs that answer: L4" in said.out
    assert ("refused-gpu" in said.err) == bool(options)
    assert run(["analyze", MATMUL, "-g", "h100", *options]) == 0


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("analyzer.pipeline.input_index.read_modules", interrupted)
    assert run(["analyze", MATMUL]) == 130
    assert "Traceback" not in capsys.readouterr().err
