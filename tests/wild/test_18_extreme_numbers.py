"""The largest launches that CUDA allows, and nests of loops beyond the range of floats: right counts, no overflow."""

import json
import math
from pathlib import Path

import pytest
from paths import format_dump

from analyzer.cli.app import run

GRID = (2**31 - 1, 65535, 65535)
N_CTAS = math.prod(GRID)
SCALE = [  # out[i] = ... where i < n, with i = blockIdx.x * blockDim.x + threadIdx.x
    "MOV R1, c[0x0][0x28]",
    "S2R R0, SR_CTAID.Y",
    "S2R R3, SR_TID.X",
    "IMAD R0, R0, c[0x0][0x0], R3",
    "ISETP.GE.U32.AND P0, PT, R0, c[0x0][0x168], PT",
    "@P0 EXIT",
    "MOV R2, 0x4",
    "IMAD.WIDE.U32 R4, R0, R2, c[0x0][0x160]",
    "STG.E [R4.64], R0",
    "EXIT",
]


def find_negatives(value: object, path: str = "") -> list[str]:
    """Return the paths of numbers that are negative or missing (a NaN is written as null)."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in find_negatives(item, f"{path}/{key}")]
    if isinstance(value, list):
        return [found for item in value for found in find_negatives(item, path)]
    return [path] if isinstance(value, int | float) and value < 0 else []


def analyze(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["analyze", *words, "--format", "json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert find_negatives({key: kernel[key] for key in ("counts", "memory", "traffic")}) == []
    return kernel


@pytest.mark.parametrize("n", [65535 * 1024, 65535 * 1024 - 1000, 5])
def test_the_largest_grid_has_right_counts(
    n: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scale.sass"
    path.write_text(format_dump("sm_80", *SCALE))
    grid = ",".join(map(str, GRID))
    options = ("-g", "a100", "--grid", grid, "--block", "1024", "--arg", f"1={n}")
    kernel = analyze(capsys, str(path), *options)
    assert kernel["counts"]["provenance"] == "exact"
    n_planes = GRID[0] * GRID[2]  # CTAs with the same y
    (store,) = kernel["memory"]
    assert store["bytes"] == pytest.approx(4 * n * n_planes, rel=1e-14)
    assert store["requests"] == pytest.approx(math.ceil(n / 32) * n_planes, rel=1e-14)
    assert store["unique_bytes"] == 4 * n
    first, *_ = kernel["counts"]["blocks"]
    assert first["executed_warps"] == pytest.approx(32 * N_CTAS, rel=1e-14)
    assert run(["analyze", str(path), *options]) == 0
    assert "counts above" in capsys.readouterr().out


def test_nests_beyond_the_range_of_floats_are_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    depth = 260
    lines = [f"IADD3 R{level % 200}, R{level % 200}, 0x1, RZ" for level in range(depth)]
    for level in reversed(range(depth)):
        lines += [f"ISETP.NE.AND P0, PT, R{level % 200}, c[0x0][0x160], PT", f"@P0 BRA {16 * level:#x}"]
    path = tmp_path / "nest.sass"
    path.write_text(format_dump("sm_80", *lines, "EXIT"))
    assert run(["analyze", str(path), "-g", "a100"]) == 0
    out = capsys.readouterr().out
    assert "inf" not in out.split()
    assert "1e+18" in out


@pytest.mark.parametrize("trips", [10**30, 10**400])
def test_trips_beyond_all_bounds_are_refused(
    trips: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "loop.sass"
    lines = ["IADD3 R2, R2, 0x1, RZ", "ISETP.NE.AND P0, PT, R2, c[0x0][0x160], PT", "@P0 BRA 0x0", "EXIT"]
    path.write_text(format_dump("sm_80", *lines))
    assert run(["analyze", str(path), "-g", "a100", "--trip", str(trips)]) != 0
    assert "at most" in capsys.readouterr().err
    for grid in ([], ["--grid", "9", "--block", "32"]):
        assert run(["analyze", str(path), "-g", "a100", *grid, "--trip", str(1 << 40)]) == 0
