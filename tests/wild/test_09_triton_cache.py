"""Case 09: Triton's own cache, whose metadata has no signature, gives names, types and folded arguments."""

import json
import shutil
from pathlib import Path

import pytest

import analyzer
from analyzer.cli.app import run
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.triton_ir import parse_ir_signature, read_ir_signature

FOLDER = Path(__file__).parent / "09-triton-cache"
NEW, OLD = FOLDER / "scale_rows.ttir", FOLDER / "scale_rows_3.4.ttir"
GRID = ["-g", "h100", "--grid", "64"]
NAMES = ["x", "y", "n", "x_stride", "factor"]
needs_tools = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="nvdisasm is not installed here")

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of one kernel, as Triton lays it out; its source is not where it was."""
    folder = tmp_path / "cache" / "V7NLAKCT"
    folder.mkdir(parents=True)
    for suffix in (".cubin", ".json", ".ttir"):
        shutil.copy(FOLDER / f"scale_rows{suffix}", folder)
    for suffix in (".ttgir", ".llir", ".ptx"):
        (folder / f"scale_rows{suffix}").write_text("\n")
    (folder / "__grp__scale_rows.json").write_text('{"child_paths": {}}')
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def program() -> analyzer.Program:
    """The kernel with its source at hand."""
    if find_tool("nvdisasm") is None:
        pytest.skip("nvdisasm is not installed here")
    return analyzer.load(str(FOLDER))


def analyze(program: analyzer.Program, **arguments: object) -> analyzer.Report:
    return analyzer.analyze(program, "h100", launch=analyzer.Launch(64, arguments=arguments))


def test_the_signature_of_the_intermediate_code() -> None:
    found = read_ir_signature(NEW)
    assert found is not None
    assert [(each.name, each.type_name, each.divisibility) for each in found.parameters] == [
        ("x", "*fp32", 1),
        ("y", "*fp32", 1),
        ("n", "i32", 1),
        ("x_stride", "i32", 16),
        ("factor", "fp32", 1),
    ]
    assert [(each.name, each.value, each.n_before) for each in found.folded] == [
        ("y_stride", "1", 4),
        ("bias", "None or 1", 5),
        ("BLOCK", "512", 5),
        ("ROUND", "", 5),
    ]


def test_code_of_older_triton_has_types_and_no_names_where_some_are_folded() -> None:
    found = read_ir_signature(OLD)
    assert found is not None
    assert [(each.name, each.type_name) for each in found.parameters] == [
        ("", "*fp32"), ("", "*fp32"), ("", "i32"), ("", "i32"), ("", "fp32"),
    ]  # fmt: skip
    assert found.folded == ()


def test_names_of_older_triton_come_from_the_source(tmp_path: Path) -> None:
    source = "\n@triton.jit\ndef k(x, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n"
    (tmp_path / "k.py").write_text(source)
    text = (
        '#loc = loc("/gone/k.py":2:0)\nmodule {\n  tt.func public @k('
        '%arg0: !tt.ptr<bf16, 1> {tt.divisibility = 16 : i32} loc("/gone/k.py":2:0), '
        '%arg1: i64 loc("/gone/k.py":2:0)) attributes {noinline = false} {\n'
        "    %0 = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32> loc(#loc1)\n"
        '#loc1 = loc("/gone/k.py":4:21)\n'
    )
    found = parse_ir_signature(text, tmp_path)
    assert found is not None
    assert [(each.name, each.type_name) for each in found.parameters] == [("x", "*bf16"), ("n", "i64")]
    assert [(each.name, each.value) for each in found.folded] == [("B", "256")]


@pytest.mark.parametrize(
    "text",
    ["", "module {\n}\n", "tt.func public @k(", "tt.func public @k(%x", "tt.func public @k(x: i32)", "tt.func public @k(%x: i32, !)"],
)  # fmt: skip
def test_other_text_has_no_signature(text: str) -> None:
    found = parse_ir_signature(text)
    assert found is None or not found.parameters


def test_source_of_another_function_or_place_is_not_believed(tmp_path: Path) -> None:
    text = NEW.read_text()
    for source in (
        "def other(x): pass\n",
        "\n" * 40 + "def scale_rows(x, z): pass\n",
        "def scale_rows(:\n",
        "\0",
    ):
        (tmp_path / "scale_rows.py").write_text(source)
        found = parse_ir_signature(text, tmp_path)
        assert found is not None
        assert (len(found.parameters), found.folded) == (5, ())


@needs_tools
@pytest.mark.parametrize("depth", ["cache", "folder", "file"])
def test_a_folder_a_cache_and_a_file_give_the_same(cache: Path, depth: str, capsys: Capture) -> None:
    path = {"cache": cache, "folder": cache / "V7NLAKCT", "file": cache / "V7NLAKCT" / "scale_rows.cubin"}
    options = ["--arg", "n=500", "--arg", "x_stride=512", "--format", "json"]
    assert run(["analyze", str(path[depth]), *GRID, *options]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["input"] == str(path["file"])
    assert kernel["counts"]["provenance"] == "exact"
    assert kernel["launch"]["block"] == [128, 1, 1]
    read = next(space for space in kernel["memory_spaces"] if space["space"] == "global")
    assert read["bytes"] == 2 * 4 * 64 * 500


def test_scratch_pointers_are_not_arguments(program: analyzer.Program) -> None:
    kernel = program.kernels[0].kernel
    assert [(each.name, each.is_hidden) for each in kernel.parameters or ()] == [
        *((name, False) for name in NAMES),
        ("", True),
        ("", True),
    ]
    for which in ("5", "6", "5+4"):
        with pytest.raises(analyzer.WarplensError, match="5 parameters; 2 more are the compiler's") as caught:
            analyze(program, **{which: 7})
        assert "positions count from 0 to 4" in caught.value.diagnostic.hint


@needs_tools
def test_scratch_pointers_are_known_without_the_intermediate_code(cache: Path, capsys: Capture) -> None:
    (cache / "V7NLAKCT" / "scale_rows.ttir").unlink()
    assert run(["analyze", str(cache), *GRID, "--arg", "5=ptr"]) == 2
    assert "has 5 parameters; 2 more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("which", "value", "says"),
    [
        (
            "y_stride",
            1,
            "y_stride is no parameter of scale_rows: it is folded into the code as a constant (1)",
        ),
        ("bias", None, "folded into the code as a constant (None or 1)"),
        ("BLOCK", 512, "folded into the code as a constant (512)"),
        ("ROUND", 1, "folded into the code as a constant"),
        ("4", 2.0, "a position behind y_stride"),
        ("m", 4, "it has: x, y, n, x_stride, factor; constants and arguments of 1 or None"),
        ("n", 2.5, "is an integer (i32)"),
        ("x", 7.5, "is a pointer"),
    ],
)
def test_arguments_that_do_not_fit(program: analyzer.Program, which: str, value: object, says: str) -> None:
    with pytest.raises(analyzer.WarplensError) as caught:
        analyze(program, **{which: value})
    assert says in f"{caught.value} {caught.value.diagnostic.hint}"


def test_a_value_that_the_code_was_not_compiled_for_is_noted(program: analyzer.Program) -> None:
    for value, is_noted in ((500, True), (512, False)):
        notes = analyze(program, x_stride=value, n=100).kernels[0].counts.assumptions
        assert any("was compiled for multiples of 16" in note for note in notes) is is_noted


@needs_tools
def test_a_cache_of_several_kernels(cache: Path) -> None:
    other = cache / "AAAA"
    shutil.copytree(cache / "V7NLAKCT", other)
    for path in list(other.glob("scale_rows.*")):
        path.rename(path.with_stem("another"))
    options = analyzer.Options(kernels=("#2",))
    (kernel,) = analyzer.analyze(str(cache), options=options).kernels
    assert kernel.input.endswith("scale_rows.cubin")
    (other / "another.cubin").write_bytes(b"\x7fELF\2\1\1" + bytes(11) + b"\xbe\0" + bytes(60))
    report = analyzer.analyze(str(cache))
    assert len(report.kernels) == 1
    assert [warning.code for warning in report.warnings] == ["unreadable-file"]
    with pytest.raises(analyzer.WarplensError, match="holds 2 kernels"):
        analyzer.load(str(cache))


def test_folders_without_cubins_say_so(tmp_path: Path, capsys: Capture) -> None:
    for name, says in (("k.sass", "without a cubin"), ("k.hsaco", "for AMD GPUs")):
        folder = tmp_path / name[2:]
        folder.mkdir()
        (folder / name).write_text("")
        assert run(["analyze", str(folder)]) == 2
        assert says in capsys.readouterr().err
