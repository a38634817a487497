"""`analyze --levels`: Triton IR, PTX and SASS of one launch do the same work, or say where they differ."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from analyzer.cli.app import app

LEVELS = Path(__file__).parents[2] / "traces" / "levels"
EXACT = ("mma_fma", "global_loaded_bytes", "global_stored_bytes", "xu_operations")
# Ragged edges: no size is a multiple of the tile.
PRODUCT = "m=1000 n=1104 k=528 a_stride=528 b_stride=1104 c_stride=1104"
LAUNCHES = {
    "sm_80/matmul": ("144", PRODUCT),
    "sm_90/matmul": ("144", PRODUCT),
    "sm_100/matmul": ("144", PRODUCT),
    "sm_90/matmul_unaligned": ("144", "m=1000 n=1100 k=521 a_stride=521 b_stride=1101 c_stride=1101"),
    "sm_90/flash_attention": ("8,4", "length=1000 stride=128 head_stride=128000 log2_scale=0.1"),
    "sm_90/softmax": ("100", "columns=1000 x_stride=1000 out_stride=1000"),
}


def run_levels(path: Path, grid: str, arguments: str, *more: str) -> dict[str, Any]:
    """Return the first kernel of the report of `analyze --levels`."""
    options = [part for one in arguments.split() for part in ("--arg", one)]
    command = ["analyze", str(path), "--grid", grid, *options, "--levels", "--format", "json", *more]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    kernel: dict[str, Any] = json.loads(result.stdout)["kernels"][0]
    return kernel


@pytest.mark.parametrize("name", LAUNCHES)
def test_levels_do_the_same_work(name: str) -> None:
    kernel = run_levels(LEVELS / f"{name}.cubin", *LAUNCHES[name])
    levels = kernel["levels"]
    assert [level["level"] for level in levels] == ["ttgir", "ptx", "sass"]
    for quantity in EXACT:
        amounts = {level[quantity] for level in levels}
        assert len(amounts) == 1, (quantity, amounts)


def test_amounts_are_those_of_the_closed_forms() -> None:
    """Products count whole tiles; stores, and loads of each tile, end where the matrices end."""
    kernel = run_levels(LEVELS / "sm_90/matmul.cubin", *LAUNCHES["sm_90/matmul"])
    for level in kernel["levels"]:
        assert level["mma_fma"] == 144 * 17 * 128 * 64 * 32
        assert level["global_stored_bytes"] == 2 * 1000 * 1104
        assert level["global_loaded_bytes"] == 2 * 144 * 528 * (128 + 64)


@pytest.mark.parametrize("arch", [90, 100])
def test_copies_through_tensor_maps_count_alike_at_all_levels(arch: int) -> None:
    """Sixteen of 64 programs, each with one tile of 128 x 128, in steps of 64 along k = 512."""
    maps = {"a": "512x1024:64x128", "b": "512x1024:64x128", "c": "1024x1024:64x128"}
    given = " ".join(f"{name}_desc=tensormap:f16:{box}" for name, box in maps.items())
    dump = LEVELS / f"sm_{arch}/matmul_tma_persistent.cubin"
    kernel = run_levels(dump, "16", f"m=1024 n=1024 k=512 {given}")
    for level in kernel["levels"]:
        assert level["mma_fma"] == 16 * 128 * 128 * 512
        assert level["global_loaded_bytes"] == 16 * 2 * 2 * 128 * 512
        assert level["global_stored_bytes"] == 16 * 2 * 128 * 128


def save_arrays(folder: Path, **arrays: list[int]) -> str:
    """Save arrays of 32-bit integers; return them as arguments."""
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", np.array(values, dtype=np.int32))
    return " ".join(f"{name}=@{folder / name}.npy" for name in arrays)


def test_experts_read_from_arrays_count_alike_at_all_levels(tmp_path: Path) -> None:
    """Of 100 tokens with two of eight experts each; a block of 32 rows has one expert and is padded."""
    experts = [flat * 5 % 8 for flat in range(200)]
    slots: list[int] = []
    blocks: list[int] = []
    for expert in range(8):
        own = [flat for flat in range(200) if experts[flat] == expert]
        padding = -len(own) % 32
        slots += own + [200] * padding
        blocks += [expert] * ((len(own) + padding) // 32)
    arrays = save_arrays(
        tmp_path, sorted_slot_ptr=slots, block_expert_ptr=blocks, used_slots_ptr=[len(slots)]
    )
    sizes = "n=256 k=192 slots=200 x_stride=192 expert_stride=49152 weight_stride=192 out_stride=256"
    kernel = run_levels(LEVELS / "sm_90/fused_moe.cubin", str(4 * len(blocks) + 8), f"{sizes} {arrays}")
    for level in kernel["levels"]:
        assert level["mma_fma"] == len(blocks) * 4 * 3 * 32 * 64 * 64
        assert level["global_stored_bytes"] == 2 * 200 * 256
    assert len({level["global_loaded_bytes"] for level in kernel["levels"]}) == 1


def test_groups_of_products_count_alike_at_all_levels(tmp_path: Path) -> None:
    groups = [(300, 16, 24), (64, 30, 8), (129, 8, 40)]  # m, n / 8, k / 8
    sizes = save_arrays(tmp_path, sizes_ptr=[size for group in groups for size in group])
    np.save(tmp_path / "pointers.npy", np.array([1 << 32, 1 << 33, 1 << 34], dtype=np.int64))
    pointers = " ".join(f"{name}_ptrs=@{tmp_path}/pointers.npy" for name in "abc")
    kernel = run_levels(LEVELS / "sm_90/grouped_gemm.cubin", "24", f"groups=3 {sizes} {pointers}")
    tiles = [-(-m // 32) * -(-8 * n // 32) * -(-8 * k // 32) for m, n, k in groups]
    for level in kernel["levels"]:
        assert level["mma_fma"] == sum(tiles) * 32**3
        assert level["global_stored_bytes"] == 2 * sum(m * 8 * n for m, n, _ in groups)


def test_bytes_of_boxes_that_nobody_gave_are_not_known() -> None:
    dump = LEVELS.parent / "triton/sm_90/matmul_tma_persistent.sass"
    (level,) = run_levels(dump, "16", "m=1024 n=1024 k=512")["levels"]
    assert level["global_loaded_bytes"] is None
    assert any("boxes of tensor copies" in assumption for assumption in level["assumptions"])


def test_a_difference_has_its_lines() -> None:
    kernel = run_levels(LEVELS / "sm_90/softmax.cubin", *LAUNCHES["sm_90/softmax"])
    found = [each for each in kernel["level_differences"] if each["quantity"] == "barriers"]
    assert found, "Triton adds barriers below TTGIR: this compilation no longer shows a difference"
    for each in found:
        assert each["upper_amount"] != each["lower_amount"]
        assert each["places"]
        assert all("kernels.py:" in place["source"] for place in each["places"])


def test_ptx_compares_with_the_code_that_ptxas_makes_of_it() -> None:
    kernel = run_levels(LEVELS / "sm_90/softmax.ptx", *LAUNCHES["sm_90/softmax"])
    assert [level["level"] for level in kernel["levels"]] == ["ttgir", "ptx", "sass"]


def test_a_level_that_does_not_fit_is_left_out_with_a_note(tmp_path: Path) -> None:
    for suffix in (".cubin", ".json"):
        shutil.copy(LEVELS / f"sm_90/softmax{suffix}", tmp_path)
    (tmp_path / "softmax.ptx").write_text((LEVELS / "sm_90/matmul.ptx").read_text())
    (tmp_path / "softmax.ttgir").write_text("module {\n")
    kernel = run_levels(tmp_path / "softmax.cubin", *LAUNCHES["sm_90/softmax"])
    notes = {level["level"]: level["note"] for level in kernel["levels"]}
    assert notes["ttgir"]
    assert "no kernel softmax" in notes["ptx"]
    assert notes["sass"] == ""


def test_text_says_what_differs() -> None:
    command = ["analyze", str(LEVELS / "sm_90/softmax.cubin"), "--grid", "100", "--levels"]
    options = [part for one in LAUNCHES["sm_90/softmax"][1].split() for part in ("--arg", one)]
    result = CliRunner().invoke(app, [*command, *options])
    assert result.exit_code == 0
    assert "transcendental operations" in result.output
    assert "kernels.py:" in result.output.partition("levels of the launch")[2]


def test_without_a_launch_there_is_nothing_to_compare() -> None:
    result = CliRunner().invoke(app, ["analyze", str(LEVELS / "sm_90/softmax.cubin"), "--levels"])
    assert result.exit_code == 0
    assert "levels: the launch is not known" in result.output
