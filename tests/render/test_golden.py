"""Reports of real kernels as they were last looked at; `pytest --bless` rewrites them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import TRACES

from analyzer.cli.app import run

Golden = Callable[..., None]

# (dump, kernel, GPU, further options)
REPORTS = [
    ("cuda/sm_75/report16.sass", "vector_add", "rtx 2080 ti", "--grid 4096 --block 256"),
    ("cuda/sm_75/report16.sass", "conv2d_3x3", "t4", "--grid 64,64 --block 16,16"),
    ("cuda/sm_80/report16.sass", "saxpy", "a100", "--grid 4096 --block 256"),
    ("cuda/sm_80/report16.sass", "matmul_naive", "a100", "--grid 32,32 --block 32,32 --trip 64"),
    ("cuda/sm_80/report16.sass", "matmul_tiled", "a100", "--grid 32,32 --block 32,32 --trip 32"),
    ("cuda/sm_80/report16.sass", "vector_add_divergent", "a100", ""),
    ("cuda/sm_86/report16.sass", "reduce_sum", "rtx 3090", "--grid 1024 --block 256 --trip 8"),
    ("cuda/sm_89/report16.sass", "histogram", "rtx 4070", "--grid 1024 --block 256"),
    ("cuda/sm_89/report16.sass", "conv2d_7x7", "l40s", ""),
    ("cuda/sm_90/report16.sass", "shared_transpose", "h100", ""),
    ("cuda/sm_100/report16.sass", "dot_product", "b200", ""),
    ("cuda/sm_120/report16.sass", "naive_transpose", "rtx 5090", ""),
    ("triton/sm_80/matmul.sass", "matmul", "a100", "--grid 1024 --trip 128"),
    ("triton/sm_80/softmax.sass", "softmax", "a100", "--grid 4096"),
    ("triton/sm_80/flash_attention.sass", "", "a100", "--grid 64,32 --trip 32"),
    ("triton/sm_90/matmul.sass", "matmul", "h100", "--grid 1024 --trip 64"),
    ("triton/sm_90/rmsnorm.sass", "", "h200", "--grid 4096"),
    ("triton/sm_90/fused_moe.sass", "", "h20", "--grid 512 --trip 64"),
    ("triton/sm_100/matmul.sass", "matmul", "b200", "--grid 1024 --trip 64"),
    ("triton/sm_120/softmax.sass", "softmax", "rtx pro 6000 blackwell server", "--grid 4096"),
]


# The same, with launch facts that let the grid be executed.
LAUNCHED = {
    "matmul_naive": (
        "cuda/sm_80/report16.sass",
        "a100",
        "-k matmul_naive --grid 17,33 --block 16,8 --arg 3=263 --memory",
    ),
    "triton-matmul-512": (
        "triton/sm_90/matmul.sass",
        "h100",
        "--grid 32 --arg m=512 --arg n=512 --arg k=512"
        " --arg a_stride=512 --arg b_stride=512 --arg c_stride=512 --memory",
    ),
    "histogram": (
        "cuda/sm_80/report16.sass",
        "a100",
        "-k histogram --grid 1024 --block 256 --arg 1=1000000 --memory",
    ),
    "bank-conflict": (
        "cuda/sm_80/report16.sass",
        "a100",
        "-k shared_bank_conflict --grid 32,32 --block 32,32 --arg 2=1024 --memory",
    ),
    "csr": (
        "cuda/sm_90/exactness.sass",
        "h100",
        "-k csr_row_sums --grid 64 --block 128 --arg 3=8000 --memory",
    ),
    "grouped-gemm": ("triton/sm_90/grouped_gemm.sass", "h100", "--grid 2 --trip 4"),
    "grouped-gemm-all-branches": ("triton/sm_90/grouped_gemm.sass", "h100", "--grid 2 --trip 4 --all"),
    "launch-file": ("triton/sm_90/matmul.sass", "h100", "--launch {launches}"),
}


def report_name(case: tuple[str, str, str, str]) -> str:
    dump, kernel, gpu, _ = case
    return f"{Path(dump).parent.name}-{kernel or Path(dump).stem}-{gpu}"


@pytest.mark.parametrize("case", REPORTS, ids=report_name)
def test_report(case: tuple[str, str, str, str], golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    dump, kernel, gpu, options = case
    chosen = ["-k", kernel] if kernel else []
    layers = ["--loops", "--advice"]
    assert run(["analyze", str(TRACES / dump), *chosen, "--gpu", gpu, *layers, *options.split()]) == 0
    golden(capsys.readouterr().out)


@pytest.mark.parametrize("name", LAUNCHED)
def test_launched(name: str, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    dump, gpu, options = LAUNCHED[name]
    options = options.format(launches=TRACES.parent / "docs" / "launch.json")
    assert run(["analyze", str(TRACES / dump), "--gpu", gpu, "--loops", *options.split()]) == 0
    golden(capsys.readouterr().out)


def test_listing_of_a_launch(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    options = "-k csr_row_sums --gpu h100 --grid 64 --block 128 --arg 3=8000"
    assert run(["annotate", str(TRACES / "cuda/sm_90/exactness.sass"), *options.split()]) == 0
    golden(capsys.readouterr().out)


def test_listing_names_shared_wavefronts(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    options = "-k shared_bank_conflict --gpu a100 --grid 32,32 --block 32,32 --arg 2=1024"
    assert run(["annotate", str(TRACES / "cuda/sm_80/report16.sass"), *options.split()]) == 0
    golden(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("dump", "kernel", "gpu"),
    [
        ("cuda/sm_80/report16.sass", "shared_transpose", "a100"),
        ("triton/sm_90/softmax.sass", "softmax", "h100"),
        ("nvdisasm/softmax_sm_90.txt", "softmax", "h100"),
    ],
)
def test_listing(
    dump: str, kernel: str, gpu: str, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["annotate", str(TRACES / dump), "-k", kernel, "--gpu", gpu]) == 0
    golden(capsys.readouterr().out)


def test_summary_of_many_kernels(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", str(TRACES / "cuda/sm_80/report16.sass"), "--gpu", "a100"]) == 0
    golden(capsys.readouterr().out)


def test_json(golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TRACES)
    arguments = ["cuda/sm_80/report16.sass", "-k", "naive_transpose", "--gpu", "a100", "--format", "json"]
    assert run(["analyze", *arguments]) == 0
    # The fingerprint changes with every change of the code.
    text = re.sub(r'("model_fingerprint": )"[0-9a-f]{16}"', r'\1"..."', capsys.readouterr().out)
    assert '"model_fingerprint": "..."' in text
    golden(text, suffix=".json")
