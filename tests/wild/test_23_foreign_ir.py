"""Triton IR that is not for NVIDIA's GPUs is refused by name; what is not known is shown, and no total is sure."""

from pathlib import Path

import pytest
from triton_task_cases import divide, moved

from analyzer.cli.app import run

Capture = pytest.CaptureFixture[str]

# By an option: the attributes of the module, operations before the store, and the words before the name.
KERNEL = """{header}
module {attributes}{{
  tt.func {how}@{name}(%x: !tt.ptr<f32>, %n: i32) {{
    %r = tt.make_range {{end = 128 : i32, start = 0 : i32}} : tensor<128xi32>
    %t = tt.splat %x : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %p = tt.addptr %t, %r : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %v = tt.load %p : tensor<128x!tt.ptr<f32>>
    {operations}
    tt.return
  }}
}}
"""
HEADER = """// -----// IR Dump Before SCCP (sccp) ('builtin.module' operation) //----- //"""
ALL_AMOUNTS = {
    *("mma_fma", "xu_operations", "fma_operations", "bytes_loaded", "bytes_stored"),
    *("shared_bytes", "atomics", "barriers"),
}


def write(
    folder: Path,
    *,
    attributes: str = "",
    operations: str = "",
    how: str = "public ",
    name: str = "k",
    header: str = "",
) -> str:
    """The text of a kernel, written to kernel.ttir too."""
    text = KERNEL.format(attributes=attributes, operations=operations, how=how, name=name, header=header)
    (folder / "kernel.ttir").write_text(text)
    return text


def fails(capsys: Capture, *arguments: str) -> str:
    """Standard error of a command that must end with exit code 2 and no traceback."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return captured.err


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        (
            'attributes {ttg.target = "hip:gfx942", "ttg.threads-per-warp" = 64 : i32} ',
            ("gfx942", "AMD", "64 threads"),
        ),
        (
            'attributes {triton_gpu.target = "hip:gfx90a", "triton_gpu.threads-per-warp" = 64 : i32} ',
            ("gfx90a", "AMD"),
        ),
        # RDNA has 32 threads a warp as well.
        ('attributes {ttg.target = "hip:gfx1201", "ttg.threads-per-warp" = 32 : i32} ', ("gfx1201", "AMD")),
        ('attributes {ttg.target = "xpu", "ttg.threads-per-warp" = 16 : i32} ', ("xpu", "Intel")),
        ('attributes {ttg.target = "npu:a2"} ', ("a2",)),
        ('attributes {"ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 64 : i32} ', ("64 threads",)),
    ],
)
@pytest.mark.parametrize("command", [("tasks",), ("predict", "-g", "h100", "--kernel")])
def test_code_for_other_vendors_is_refused_by_name(
    attributes: str, told: tuple[str, ...], command: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    write(tmp_path, attributes=attributes)
    message = fails(capsys, *command, str(tmp_path / "kernel.ttir"), "--grid", "8")
    assert all(each in message for each in told)
    assert "NVIDIA" in message


def test_code_for_nvidia_is_not_refused(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, attributes='attributes {ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} ')
    report = divide(capsys, tmp_path / "kernel.ttir", "8")
    assert report["inexact"] == {}
    assert report["warnings"] == []


UNKNOWN = """%w = amdg.buffer_load %x[%r] : tensor<128xf32>
    tlx.async_tasks {
      ttng.arrive_barrier_named %n, %n : i32, i32
    }
    %m = tlx.make_mask %r : tensor<128xi32> -> tensor<128xi1>
    tt.store %p, %w, %m : tensor<128x!tt.ptr<f32>>"""


def test_unknown_operations_are_shown_and_no_total_is_sure(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, operations=UNKNOWN)
    report = divide(capsys, tmp_path / "kernel.ttir", "8")
    (warning,) = report["warnings"]
    assert (warning["code"], warning["count"]) == ("unknown-operation", 4)
    names = {"amdg.buffer_load", "tlx.async_tasks", "ttng.arrive_barrier_named", "tlx.make_mask"}
    assert all(name in warning["message"] for name in names)
    assert report["inexact"] == dict.fromkeys(ALL_AMOUNTS, "unknown")
    rows = {each["operation"]: each for each in report["operations"]}
    assert all(rows[name]["executions"] == 8 and rows[name]["uncounted"] for name in names)
    assert rows["tt.store"]["is_assumed"]
    assert not rows["tt.load"]["is_assumed"]

    assert run(["tasks", str(tmp_path / "kernel.ttir"), "--grid", "8"]) == 0
    text = capsys.readouterr().out
    assert "?4,096" in text
    assert "~4,096 B stored" in text
    assert "(4 times)" in text
    assert text.count("not counted") >= len(names)


def test_a_time_without_unknown_operations_is_only_a_bound(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, operations=UNKNOWN)
    assert run(["predict", "-g", "h100", "--kernel", str(tmp_path / "kernel.ttir"), "--grid", "80000"]) == 0
    text = capsys.readouterr().out
    assert "at least" in text
    assert "?" in text
    assert "amdg.buffer_load" in text


@pytest.mark.parametrize(
    ("operation", "touched"),
    [
        (
            '%e = tt.elementwise_inline_asm "ex2 $0, $1;" {constraints = "=r,r", packed_element = 1 : i32, pure = true} %v : tensor<128xf32> -> tensor<128xf32>',
            {"xu_operations", "fma_operations"},
        ),
        (
            '%e = tt.elementwise_inline_asm "st $0, $1;" {constraints = "=r,r", packed_element = 1 : i32, pure = false} %v : tensor<128xf32> -> tensor<128xf32>',
            ALL_AMOUNTS,
        ),
        (
            '%e = tt.extern_elementwise %v {libname = "", libpath = "", pure = true, symbol = "__nv_j0f"} : (tensor<128xf32>) -> tensor<128xf32>',
            {"xu_operations", "fma_operations"},
        ),
        ("%e = math.tan %v : tensor<128xf32>", {"xu_operations", "fma_operations"}),
        ("%e = tt.call @absent(%v) : (tensor<128xf32>) -> tensor<128xf32>", ALL_AMOUNTS),
    ],
)
def test_known_operations_of_unknown_work_leave_open_what_they_touch(
    operation: str, touched: set[str], tmp_path: Path, capsys: Capture
) -> None:
    write(tmp_path, operations=operation)
    report = divide(capsys, tmp_path / "kernel.ttir", "8")
    assert report["inexact"] == dict.fromkeys(touched, "unknown")
    (warning,) = report["warnings"]
    assert warning["code"] == "uncounted-work"
    assert report["total"]["bytes_loaded"] == 8 * 128 * 4


STORE = "tt.store %p, %v : tensor<128x!tt.ptr<f32>>"


def test_the_last_of_several_dumps_is_read_and_said(tmp_path: Path, capsys: Capture) -> None:
    early = write(tmp_path, header=HEADER)
    late = write(tmp_path, operations=STORE, header=HEADER.replace("Before SCCP", "After CSE"))
    other = write(tmp_path, name="other", header=HEADER)
    lowered = HEADER + "\nmodule {\n  llvm.func @k(%x: !llvm.ptr) {\n    llvm.return\n  }\n}\n"
    path = tmp_path / "dump.mlir"

    path.write_text(early + late + lowered)
    report = divide(capsys, path, "8")
    assert moved(report) == (8 * 512, 8 * 512)
    (warning,) = report["warnings"]
    assert warning["code"] == "several-dumps"
    assert "2 dumps of k" in warning["message"]
    assert "after CSE" in warning["message"]
    assert report["operations"][0]["line"] == early.count("\n") + 1 + late.split("\n").index(
        next(line for line in late.split("\n") if "tt.load" in line)
    )

    path.write_text(late + early)
    assert moved(divide(capsys, path, "8")) == (8 * 512, 0)

    path.write_text(early + late + other)
    message = fails(capsys, "tasks", str(path), "--grid", "8")
    assert "2 kernels in this file" in message
    assert "k, other" in message
    assert moved(divide(capsys, path, "8", "-k", "k")) == (8 * 512, 8 * 512)
    assert moved(divide(capsys, path, "8", "-k", "other")) == (8 * 512, 0)


def test_a_lone_function_is_the_kernel(tmp_path: Path, capsys: Capture) -> None:
    text = write(tmp_path, operations=STORE, how="")
    path = tmp_path / "kernel.ttir"
    assert moved(divide(capsys, path, "8")) == (8 * 512, 8 * 512)

    bare = text[text.index("  tt.func") : text.rindex("}")]
    path.write_text(bare)
    assert moved(divide(capsys, path, "8")) == (8 * 512, 8 * 512)

    path.write_text(  # a function that it calls is none
        bare.replace("tt.return", "tt.call @helper(%n) : (i32) -> ()\n    tt.return")
        + "  tt.func @helper(%n: i32) {\n    tt.return\n  }\n"
    )
    assert divide(capsys, path, "8")["kernel"] == "k"

    path.write_text(bare + bare.replace("@k(", "@other("))
    assert "2 kernels in this file" in fails(capsys, "tasks", str(path), "--grid", "8")
    assert divide(capsys, path, "8", "-k", "other")["kernel"] == "other"
