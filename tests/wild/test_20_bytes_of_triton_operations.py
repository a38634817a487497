"""One rule sizes each memory operation of Triton IR, from the type that moves; what it cannot size is unknown."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from triton_task_cases import divide, moved

FOLDER = Path(__file__).parent / "20-triton-operations"
Capture = pytest.CaptureFixture[str]

# A kernel of Triton 2: the type behind a load or store is that of the value.
OLD = """
module {{
  tt.func public @copy(%arg0: !tt.ptr<{t}, 1>, %arg1: !tt.ptr<{t}, 1>, %arg2: i32) {{
    %0 = tt.make_range {{end = 128 : i32, start = 0 : i32}} : tensor<128xi32>
    %1 = tt.splat %arg0 : (!tt.ptr<{t}, 1>) -> tensor<128x!tt.ptr<{t}, 1>>
    %2 = tt.addptr %1, %0 : tensor<128x!tt.ptr<{t}, 1>>, tensor<128xi32>
    %3 = tt.splat %arg2 : (i32) -> tensor<128xi32>
    %4 = "triton_gpu.cmpi"(%0, %3) <{{predicate = 2 : i64}}> : (tensor<128xi32>, tensor<128xi32>) -> tensor<128xi1>
    %5 = tt.load %2, %4 {{cache = 1 : i32, evict = 1 : i32, isVolatile = false}} : tensor<128x{t}>
    %6 = tt.splat %arg1 : (!tt.ptr<{t}, 1>) -> tensor<128x!tt.ptr<{t}, 1>>
    %7 = tt.addptr %6, %0 : tensor<128x!tt.ptr<{t}, 1>>, tensor<128xi32>
    tt.store %7, %5, %4 {{cache = 1 : i32, evict = 1 : i32}} : tensor<128x{t}>
    tt.return
  }}
}}
"""
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "f8E4M3FN": 1, "f64": 8, "i64": 8, "!tt.ptr<i8>": 8}

# The start of a kernel over tiles of 128 elements, x and y pointers and offsets %o, 128 by program.
HEAD = """
module {
  tt.func public @k(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32, %m: i32) {
    %c128 = arith.constant 128 : i32
    %one = arith.constant dense<1> : tensor<128xi32>
    %zero = arith.constant dense<0> : tensor<128xi32>
    %true = arith.constant dense<true> : tensor<128xi1>
    %false = arith.constant dense<false> : tensor<128xi1>
    %pid = tt.get_program_id x : i32
    %start = arith.muli %pid, %c128 : i32
    %start_t = tt.splat %start : i32 -> tensor<128xi32>
    %r = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %o = arith.addi %start_t, %r : tensor<128xi32>
    %px_t = tt.splat %x : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %px = tt.addptr %px_t, %o : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %n_t = tt.splat %n : i32 -> tensor<128xi32>
    %m_t = tt.splat %m : i32 -> tensor<128xi32>
    %a = arith.cmpi slt, %o, %n_t : tensor<128xi32>
    %b = arith.cmpi sge, %o, %m_t : tensor<128xi32>
"""
TAIL = """
    %v = tt.load %px, %mask : tensor<128x!tt.ptr<f32>>
    tt.store %px, %v, %mask : tensor<128x!tt.ptr<f32>>
    tt.return
  }
}
"""
N, M, PROGRAMS = 300, 100, 4
A, B = set(range(N)), set(range(M, PROGRAMS * 128))
ALL = set(range(PROGRAMS * 128))
MASKS = {
    "product": ("%mask = arith.muli %a, %b : tensor<128xi1>", A & B),
    "and": ("%mask = arith.andi %a, %b : tensor<128xi1>", A & B),
    "or": ("%mask = arith.ori %a, %b : tensor<128xi1>", A | B),
    "sum of one bit": ("%mask = arith.addi %a, %b : tensor<128xi1>", A ^ B),
    "difference of one bit": ("%mask = arith.subi %a, %b : tensor<128xi1>", A ^ B),
    "not": ("%mask = arith.xori %a, %true : tensor<128xi1>", ALL - A),
    "unsigned least": ("%mask = arith.minui %a, %b : tensor<128xi1>", A & B),
    "unsigned most": ("%mask = arith.maxui %a, %b : tensor<128xi1>", A | B),
    "signed least, true is -1": ("%mask = arith.minsi %a, %b : tensor<128xi1>", A | B),
    "signed most, true is -1": ("%mask = arith.maxsi %a, %b : tensor<128xi1>", A & B),
    "select": ("%mask = arith.select %a, %b, %false : tensor<128xi1>, tensor<128xi1>", A & B),
    "equal": ("%mask = arith.cmpi eq, %a, %b : tensor<128xi1>", ALL - (A ^ B)),
    "unsigned order": ("%mask = arith.cmpi ult, %a, %b : tensor<128xi1>", B - A),
    "signed order, true is -1": ("%mask = arith.cmpi slt, %a, %b : tensor<128xi1>", A - B),
    "extended and back": (
        "%e = arith.extui %a : tensor<128xi1> to tensor<128xi32>\n"
        "%f = arith.extui %b : tensor<128xi1> to tensor<128xi32>\n"
        "%g = arith.muli %e, %f : tensor<128xi32>\n"
        "%mask = arith.trunci %g : tensor<128xi32> to tensor<128xi1>",
        A & B,
    ),
    "sign extended": (
        "%e = arith.extsi %a : tensor<128xi1> to tensor<128xi32>\n%mask = arith.cmpi slt, %e, %zero : tensor<128xi32>",
        A,
    ),
    "counted conditions": (
        "%e = arith.extui %a : tensor<128xi1> to tensor<128xi32>\n"
        "%f = arith.extui %b : tensor<128xi1> to tensor<128xi32>\n"
        "%g = arith.addi %e, %f : tensor<128xi32>\n%mask = arith.cmpi sgt, %g, %one : tensor<128xi32>",
        A & B,
    ),
    "least of bounds": (
        "%e = arith.minsi %n_t, %m_t : tensor<128xi32>\n%mask = arith.cmpi slt, %o, %e : tensor<128xi32>",
        set(range(min(N, M))),
    ),
    "unsigned compare": ("%mask = arith.cmpi ult, %o, %n_t : tensor<128xi32>", A),
}


def write(folder: Path, text: str, name: str = "kernel.ttir") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(("type_name", "size"), BYTES.items())
def test_values_of_triton_2_are_those_behind_the_pointers(
    type_name: str, size: int, tmp_path: Path, capsys: Capture
) -> None:
    report = divide(capsys, write(tmp_path, OLD.format(t=type_name)), "10", **{"2": 100})
    assert moved(report) == (10 * 100 * size, 10 * 100 * size)
    assert not report["assumptions"]
    assert not report["inexact"]


@pytest.mark.parametrize(
    ("combiner", "lets_through"),
    [
        ("andi", {0, 1}),
        ("muli", {0, 1}),
        ("maxsi", {0, 1}),
        ("ori", {0, 1, 2}),
        ("maxui", {0, 1, 2}),
        ("addi", {2}),
        ("xori", {2}),
    ],
)
def test_masks_that_a_program_reduces(
    combiner: str, lets_through: set[int], tmp_path: Path, capsys: Capture
) -> None:
    # Of programs 0 to 3 the first two have 128 true elements, the third has 44 + 1, the last none.
    code = f"""
    %c299 = arith.constant dense<{N + 1}> : tensor<128xi32>
    %c = arith.cmpi slt, %o, %c299 : tensor<128xi32>
    %all = "tt.reduce"(%c) <{{axis = 0 : i32}}> ({{
    ^bb0(%p: i1, %q: i1):
      %s = arith.{combiner} %p, %q : i1
      tt.reduce.return %s : i1
    }}) : (tensor<128xi1>) -> i1
    %mask = tt.splat %all : i1 -> tensor<128xi1>"""
    report = divide(capsys, write(tmp_path, HEAD + code + TAIL), str(PROGRAMS), n=N, m=M)
    assert moved(report) == (4 * 128 * len(lets_through), 4 * 128 * len(lets_through))
    assert not report["assumptions"]


def test_copy_to_shared_memory_of_triton_2(tmp_path: Path, capsys: Capture) -> None:
    text = OLD.format(t="f16").replace(
        "    tt.return",
        "    %c = arith.constant 0 : i32\n"
        "    %s = triton_gpu.alloc_tensor : tensor<3x128xf16, #triton_gpu.shared<{vec = 8}>>\n"
        "    %t = triton_gpu.insert_slice_async %2, %s, %c, %4 {axis = 0 : i32} : tensor<128x!tt.ptr<f16>> -> "
        "tensor<3x128xf16, #triton_gpu.shared<{vec = 8}>>\n    tt.return",
    )
    report = divide(capsys, write(tmp_path, text, "kernel.ttgir"), "10", **{"2": 100})
    assert moved(report) == (2 * 10 * 100 * 2, 10 * 100 * 2)
    assert report["total"]["shared_bytes"] == 10 * 128 * 2


def test_pipelined_product_of_triton_2(capsys: Capture) -> None:
    m, n, k, tile = 100, 112, 80, 64
    report = divide(capsys, FOLDER / "matmul_21.ttgir", "2x2", **{"3": m, "4": n, "5": k})
    assert moved(report) == ((2 * m * k + 2 * k * n) * 2, m * n * 2)
    assert report["total"]["mma_fma"] == 4 * 3 * tile * tile * 32
    # What threads load from shared memory as operands is a change of layout here, which nothing sizes.
    assert report["inexact"] == dict.fromkeys(("shared_bytes", "barriers"), "unknown")


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_all_makes_are_evaluated(name: str, tmp_path: Path, capsys: Capture) -> None:
    code, elements = MASKS[name]
    report = divide(capsys, write(tmp_path, HEAD + code + TAIL), str(PROGRAMS), n=N, m=M)
    assert moved(report) == (4 * len(elements), 4 * len(elements))
    assert not report["assumptions"]


@pytest.mark.parametrize(
    ("name", "options", "places"),
    [
        ("mulmask.ttir", (), ("M", "N")),
        ("mulmask.ttgir", (), ("M", "N")),
        ("mulmask.ptx", ("--virtual", "--block", "128"), ("2", "3")),
        ("mulmask.sass", ("--block", "128"), ("2", "3")),
    ],
)
def test_a_product_of_conditions_is_the_same_at_all_levels(
    name: str, options: tuple[str, ...], places: tuple[str, str], capsys: Capture
) -> None:
    report = divide(capsys, FOLDER / name, "2x2", *options, **dict(zip(places, (50, 100), strict=True)))
    assert moved(report) == (50 * 100 * 4, 50 * 100 * 4)


def test_masks_that_move_along_tiles(capsys: Capture) -> None:
    assert moved(divide(capsys, FOLDER / "flipk.ttir", "4", n=1000)) == (4000, 4000)
    # Joined pairs of 1,000 elements; then interleaved ones whose next element is inside, too.
    report = divide(capsys, FOLDER / "splitjoin.ttir", "4", n=1000)
    assert moved(report) == (4000, 4 * (2 * 1000 + 1000 + 999))
    assert not report["assumptions"]


@pytest.mark.parametrize(
    ("name", "loaded", "stored"),
    [
        ("descred.ttir", 50 * 64 * 4, 50 * 64 * 4),
        ("descred.ttgir", 50 * 64 * 4, 50 * 64 * 4),
        ("descgs.ttir", 32 * 64 * 2 + 32 * 4, 32 * 64 * 2),
        ("descgs.ttgir", 32 * 64 * 2 + 32 * 4, 32 * 64 * 2),
    ],
)
def test_boxes_of_descriptors(name: str, loaded: int, stored: int, capsys: Capture) -> None:
    grid = "2" if "red" in name else "1"
    assert moved(divide(capsys, FOLDER / name, grid, M=50, N=64)) == (loaded, stored)


@pytest.mark.parametrize("level", ["ttir", "ttgir"])
def test_rows_that_are_given_are_cut_off_at_the_tensor(level: str, tmp_path: Path, capsys: Capture) -> None:
    rows = tmp_path / "rows.npy"
    np.save(rows, np.arange(-4, 28, dtype=np.int32))  # of which 20 are inside
    report = divide(capsys, FOLDER / f"descgs.{level}", "1", ix=f"@{rows}", M=20, N=40)
    assert moved(report) == (20 * 40 * 2 + 32 * 4, 20 * 40 * 2)
    assert not report["assumptions"]


@pytest.mark.parametrize(
    "operation",
    [
        "tt.descriptor_store %d[%i, %i], %v : !tt.tensordesc<tensor<16x64xi32>>, tensor<16x64xi32>",
        '"tt.descriptor_store"(%d, %v, %i, %i) : (!tt.tensordesc<tensor<16x64xi32>>, tensor<16x64xi32>, i32, i32) -> ()',
        "tt.experimental_descriptor_store %d[%i, %i], %v : !tt.tensordesc<tensor<16x64xi32>>, tensor<16x64xi32>",
        "tt.descriptor_reduce max, %d[%i, %i], %v : !tt.tensordesc<tensor<16x64xi32>>, tensor<16x64xi32>",
        "tt.descriptor_scatter %d[%rows, %i], %v : !tt.tensordesc<tensor<1x64xi32>>, tensor<16xi32>, i32, tensor<16x64xi32>",
        "ttng.async_tma_copy_local_to_global %d[%i, %i] %s : !tt.tensordesc<tensor<16x64xi32>>, "
        "!ttg.memdesc<16x64xi32, #ttg.swizzled_shared<{vec = 1}>, #ttg.shared_memory, mutable>",
        "ttng.async_tma_reduce add, %d[%i, %i] %s : !tt.tensordesc<tensor<16x64xi32>>, "
        "!ttg.memdesc<16x64xi32, #ttg.swizzled_shared<{vec = 1}>, #ttg.shared_memory, mutable>",
        "ttng.async_tma_scatter %d[%rows, %i] %s : !tt.tensordesc<tensor<1x64xi32>>, tensor<16xi32>, i32, "
        "!ttg.memdesc<16x64xi32, #ttg.swizzled_shared<{vec = 1}>, #ttg.shared_memory, mutable>",
    ],
)
def test_each_store_through_a_descriptor_moves_its_tile(
    operation: str, tmp_path: Path, capsys: Capture
) -> None:
    text = f"""
module {{
  tt.func public @k(%d: !tt.tensordesc<tensor<16x64xi32>>, %v: tensor<16x64xi32>, %rows: tensor<16xi32>, %i: i32,
    %s: !ttg.memdesc<16x64xi32, #ttg.swizzled_shared<{{vec = 1}}>, #ttg.shared_memory, mutable>) {{
    {operation}
    tt.return
  }}
}}
"""
    report = divide(capsys, write(tmp_path, text), "4")
    assert moved(report) == (0, 4 * 16 * 64 * 4)
    assert report["inexact"] == {"bytes_stored": "assumed"}  # whether the box is inside, nobody says


BLOCK_POINTERS = """
module {
  tt.func public @k(%x: !tt.ptr<f16>, %y: !tt.ptr<f16>, %M: i64, %N: i64) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i64
    %c2 = arith.constant 2 : i32
    %c1_i32 = arith.constant 1 : i32
    %c32 = arith.constant 32 : i32
    %c64 = arith.constant 64 : i32
    %pid = tt.get_program_id x : i32
    %row = arith.muli %pid, %c32 : i32
    %p = tt.make_tensor_ptr %x, [%M, %N], [%N, %c1], [%row, %c0] {order = array<i32: 1, 0>} : <tensor<32x64xf16>>
    %q = tt.make_tensor_ptr %y, [%M, %N], [%N, %c1], [%row, %c0] {order = array<i32: 1, 0>} : <tensor<32x64xf16>>
    %last:2 = scf.for %k = %c0 to %c2 step %c1_i32 iter_args(%a = %p, %b = %q) -> (!tt.ptr<tensor<32x64xf16>>, !tt.ptr<tensor<32x64xf16>>) : i32 {
      %v = tt.load %a {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<32x64xf16>>
      tt.store %b, %v {boundaryCheck = array<i32: 0>} : !tt.ptr<tensor<32x64xf16>>
      %a1 = tt.advance %a, [%c0, %c64] : <tensor<32x64xf16>>
      %b1 = tt.advance %b, [%c0, %c64] : <tensor<32x64xf16>>
      scf.yield %a1, %b1 : !tt.ptr<tensor<32x64xf16>>, !tt.ptr<tensor<32x64xf16>>
    }
    tt.return
  }
}
"""


def test_blocks_are_cut_off_where_their_boundaries_are_checked(tmp_path: Path, capsys: Capture) -> None:
    report = divide(capsys, write(tmp_path, BLOCK_POINTERS), "2", M=50, N=100)
    assert moved(report) == (50 * 100 * 2, 50 * 128 * 2)
    assert not report["assumptions"]


@pytest.mark.parametrize(
    ("operations", "touched"),
    [
        ("%v = tt.load %p : !my.pointers", {"bytes_loaded"}),
        ("tt.store %p, %p : !my.pointers", {"bytes_stored"}),
        ("%v = tt.descriptor_load %p[%i] : !my.pointers -> !my.tile", {"bytes_loaded"}),
        ("%v = ttng.async_tma_gather %p : !my.pointers", {"bytes_loaded"}),
        (
            "%v = tt.atomic_rmw add, acq_rel, gpu, %p, %p : (!my.pointers, !my.pointers) -> !my.tile",
            {"atomics"},
        ),
        ("%v = tt.dot %p, %p, %p : !my.tile * !my.tile -> !my.tile", {"mma_fma", "fma_operations"}),
        ("%v = tt.reduce %t {axis = 0 : i32, redOp = 2 : i32} : tensor<64xf32> -> f32", {"fma_operations"}),
    ],
)
def test_what_cannot_be_sized_is_unknown_and_not_one_element(
    operations: str, touched: set[str], tmp_path: Path, capsys: Capture
) -> None:
    text = f"""
module {{
  tt.func public @k(%p: !my.pointers, %i: i32, %t: tensor<64xf32>) {{
    {operations}
    tt.return
  }}
}}
"""
    path = write(tmp_path, text)
    report: Any = divide(capsys, path, "4")
    assert all(report["total"][name] == 0 for name in touched)
    assert touched <= {name for name, provenance in report["inexact"].items() if provenance == "unknown"}
    assert [each["code"] for each in report["warnings"]] == ["uncounted-work"]
    assert set(report["operations"][0]["uncounted"]) >= touched
