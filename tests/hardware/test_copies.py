"""A copy of a machine under other names answers the same, in every command: figures decide, not names.

The architecture of a copy is one file in the user's folder that inherits and changes nothing. Intervals are
compared as well: a GPU whose figures are all those of a measured one is that machine, under another name.
"""

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from paths import ROOT, TRACES

from analyzer.cli.app import run
from analyzer.hardware.gpu_database import list_known_archs, load_arch, load_gpu

COPIES = {"sm_100": ("b200", "sm_199"), "sm_90": ("h100-sxm", "sm_198"), "sm_80": ("a100-80gb-sxm", "sm_197")}
MODELS = ("ours", "nearest", "synperf", "linear", "neusight", "roofline")
EXTRA_ROWS = (
    {"operator": "gemm", "dtype": "fp32", "m": "2048", "n": "1024", "k": "1024"},
    {"operator": "gemm", "dtype": "int4_wo", "m": "8", "n": "8192", "k": "8192"},
    {"operator": "attention", "dtype": "fp8", "kind": "generic", "q_lengths": "[1, 1]", "kv_lengths": "[8192, 512]", "heads": "32", "kv_heads": "8", "head_dim": "128"},
    {"operator": "attention", "dtype": "bf16", "kind": "fa3_ragged", "q_lengths": "[512]", "kv_lengths": "[512]", "heads": "32", "kv_heads": "8", "head_dim": "128"},
)  # fmt: skip
LLAMA, GPT2 = str(ROOT / "docs" / "llama-3.1-8b.json"), str(ROOT / "docs" / "gpt2-large.json")
LAUNCHES = str(ROOT / "docs" / "launches.csv")
BATCH = ("--batch", "4", "--input-tokens", "512", "--output-tokens", "8")
Ask = Callable[[Sequence[str]], tuple[int, str]]
COMMANDS = {
    "analyze": ("analyze", "{dump}", "-g", "{gpu}", "-m", "all", "--no-cache"),
    "analyze-launch": ("analyze", "{dump}", "-g", "{gpu}", "-m", "sm,hybrid", "--grid", "256", "--no-cache"),
    "whatif": ("whatif", "{dump}", "-g", "{gpu}", "-m", "steady", "--set", "dram=x2"),
    "forecast": ("forecast", LLAMA, *BATCH, "--gpu", "{gpu}"),
    "forecast-vllm": ("forecast", LLAMA, *BATCH, "--gpu", "{gpu}", "--tp", "2", "--framework", "vllm"),
    "forecast-narrow": ("forecast", LLAMA, *BATCH, "--gpu", "{gpu}", "--dtype", "int8", "--tp", "4"),
    "serving": ("serving", LLAMA, "--input-tokens", "256", "--output-tokens", "16", "--rate", "4", "--count", "20", "--gpu", "{gpu}", "--framework", "vllm"),
    "iteration": ("iteration", GPT2, "--batch", "4", "--seq", "512", "--gpu", "{gpu}", "--training", "--tp", "4"),
    "iteration-nearest": ("iteration", GPT2, "--batch", "2", "--seq", "512", "--gpu", "{gpu}", "-m", "nearest"),
    "transfer-to": ("transfer", LAUNCHES, "--from", "v100-pcie", "--to", "{gpu}", "--no-cache", "-j", "1"),
    "transfer-from": ("transfer", LAUNCHES, "--from", "{gpu}", "--to", "l40s", "--no-cache", "-j", "1"),
    "rank": ("tune", "rank", "--m", "64", "--experts", "64", "--topk", "6", "--hidden", "3584", "--intermediate", "1536", "--gpu", "{gpu}", "--top", "20"),
}  # fmt: skip


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, with an architecture and a GPU for each of `COPIES`."""
    monkeypatch.setenv("WARPLENS_HWDB", str(tmp_path))
    (tmp_path / "arch").mkdir()
    for parent, (gpu, arch) in COPIES.items():
        head = f'schema = "warplens/arch/1"\nname = "{arch}"\nfamily = "Own"\n'
        (tmp_path / "arch" / f"{arch}.toml").write_text(f'{head}inherits = "{parent}"\n')
        head = f'schema = "warplens/gpu/1"\nname = "Copied {load_gpu(gpu).name}"\narch = "{arch}"\n'
        (tmp_path / f"copied-{gpu}.toml").write_text(f'{head}inherits = "{gpu}"\n')
    return tmp_path


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Exit code and output of a command; names of copies in it are those of their originals."""

    def answer(arguments: Sequence[str]) -> tuple[int, str]:
        code = run(arguments)
        printed = capsys.readouterr()
        text = re.sub(r"[Cc]opied[ -]", "", printed.out or printed.err)
        for parent, (_, arch) in COPIES.items():
            text = text.replace(arch, parent)
        return code, text

    return answer


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("parent", COPIES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_copy_answers_as_its_original(parent: str, command: str, ask: Ask) -> None:
    gpu, _ = COPIES[parent]
    dump = str(TRACES / "triton" / parent / "softmax.sass")
    original, copy = (
        ask([*(word.format(gpu=one, dump=dump) for word in COMMANDS[command]), "--format", "json"])
        for one in (gpu, f"copied-{gpu}")
    )
    assert copy == original
    assert original[0] == 0


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("parent", COPIES)
@pytest.mark.parametrize("model", MODELS)
def test_operators_on_a_copy_take_as_long(parent: str, model: str, ask: Ask, tmp_path: Path) -> None:
    gpu, _ = COPIES[parent]
    shipped = (ROOT / "docs" / "operators.csv").read_text(encoding="utf-8").splitlines()
    table = tmp_path / "rows.csv"
    answered = 0
    for row in (*csv.DictReader(shipped), *EXTRA_ROWS):
        answers = []
        for one in (gpu, f"copied-{gpu}"):
            with table.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, {**row, "gpu": one})
                writer.writeheader()
                writer.writerow({**row, "gpu": one})
            answers.append(ask(["predict", "--table", str(table), "-m", model, "--format", "json"]))
        assert answers[1] == answers[0]
        answered += answers[0][0] == 0
    assert answered >= 5


def test_a_copied_file_is_the_same_machine_too(own_folder: Path) -> None:
    text = (ROOT / "hwdb" / "gpu" / "b200.toml").read_text().replace('name = "B200"', 'name = "Mine"')
    (own_folder / "mine.toml").write_text(f'arch = "sm_199"\n{text}')
    assert (load_gpu("mine").measured_key, load_gpu("mine").code) == ("b200", ("sm_100",))
    figure = '{ value = 147, basis = "assumed", source = "my estimate" }'
    (own_folder / "other.toml").write_text(
        f"{(own_folder / 'copied-b200.toml').read_text()}[sm]\ncount = {figure}\n"
    )
    assert load_gpu("other").measured_key == "other"


def test_a_changed_figure_of_an_architecture_makes_another_machine(own_folder: Path) -> None:
    path = own_folder / "arch" / "sm_199.toml"
    path.write_text(f"{path.read_text()}[operators]\nshares_requests = false\n")
    found = load_gpu("copied-b200")
    assert found.operators.shares_requests is False
    assert (found.measured_key, found.correction_arch) == ("copied-b200", "sm_100")


def test_an_architecture_of_one_s_own_is_known_by_name(own_folder: Path) -> None:
    assert set(list_known_archs()) > {"sm_197", "sm_198", "sm_199", "sm_100"}
    assert load_arch("sm_199").sched == load_arch("sm_100").sched


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("code = []", "Expected `array` of length >= 1"),
        ('code = ["hopper"]', "Expected `str` matching regex"),
        ('[operators]\nl2_layout = "thirds"', "Invalid enum value 'thirds'"),
        ('[operators]\nfp32_linear_tiles = ["1x1"]', "Invalid enum value '1x1'"),
        ("[limits]\nmax_warps = 1", "unknown field `max_warps`"),
    ],
)
def test_faults_of_an_architecture_have_their_place(
    own_folder: Path, line: str, message: str, ask: Ask
) -> None:
    path = own_folder / "arch" / "sm_198.toml"
    path.write_text(f"{path.read_text()}{line}\n")
    code, text = ask(["gpus", "copied-h100-sxm"])
    assert code == 2
    assert message in text
    assert f"{path}:".replace("sm_198", "sm_90") in text
    assert "^" in text
