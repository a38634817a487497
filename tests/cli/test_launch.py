"""--arg, --cluster, --taken and the file of --launch, as a user meets them."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.cli.app import run
from analyzer.execution.binding.launch_file import load_launch_file
from analyzer.ir.launch import Argument, Buffer, Dim3, Launch, LaunchTable, NullPointer, Pointer
from analyzer.text.errors import UsageError, format_diagnostic

TRACES = Path(__file__).resolve().parents[2] / "traces"
SOFTMAX = str(TRACES / "triton" / "sm_90" / "softmax.sass")

Capture = pytest.CaptureFixture[str]


def launch_of(capsys: Capture, *arguments: str) -> dict[str, object]:
    """The launch in the report of a command that must succeed."""
    assert run(["analyze", SOFTMAX, "--gpu", "h100", "--format", "json", *arguments]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)["kernels"][0]["launch"]
    return found


def fault(tmp_path: Path, text: str) -> str:
    """What is said of a file that cannot be used."""
    path = tmp_path / "launch.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_launch_file(path)
    return format_diagnostic(caught.value.diagnostic).replace(str(tmp_path), "DIR")


def refusal(data: bytes) -> UsageError | None:
    """What is said of a file with these bytes; None where it is read."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "launch.json"
        path.write_bytes(data)
        try:
            load_launch_file(path)
        except UsageError as error:
            return error
    return None


def book(tmp_path: Path, kernels: object) -> LaunchTable:
    path = tmp_path / "launch.json"
    path.write_text(json.dumps({"kernels": kernels}))
    return load_launch_file(path)


def test_the_report_holds_the_arguments(capsys: Capture) -> None:
    options = (
        "--grid",
        "64",
        "--cluster",
        "2",
        "--arg",
        "columns=1024",
        "--arg",
        "0=ptr",
        "--arg",
        "4=0x400",
    )
    assert launch_of(capsys, *options) == {
        "grid": [64, 1, 1],
        "block": [128, 1, 1],
        "cluster": [2, 1, 1],
        "dynamic_shared_bytes": 16,
        "arguments": {"columns": "1024", "0": "ptr", "4": "1024"},
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--arg", "columns"], "not WHICH=VALUE"),
        (["--arg", "rows=3"], "no parameter 'rows'"),
        (["--arg", "columns=ptr"], "argument 2 (columns) has 4 bytes, a pointer has 8"),
        (["--arg", "0=@missing.npy"], "No such file"),
        (["--arg", "12=1"], "softmax has 5 parameters; 2 more are"),
        (["--arg", "2=1", "--arg", "columns=2"], "given twice"),
        (["--cluster", "3"], "does not divide"),
        (["--cluster", "32"], "x must be 1 to 16"),
        (["--cluster", "4,4,2"], "at most 16"),
        (["--grid", "1,65536"], "y must be 1 to 65535"),
        (["--block", "1,1,128"], "z must be 1 to 64"),
        (["--taken", "here=yes"], "not an address"),
        (["--taken", "0x370=yes", "--taken", "370=no"], "given twice"),
        (["--launch", "missing.json"], "No such file"),
    ],
)
def test_wrong_options_are_one_message(capsys: Capture, options: list[str], says: str) -> None:
    assert run(["analyze", SOFTMAX, "--grid", "4", *options]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("error: ")
    assert "Traceback" not in error


def test_what_might_be_a_pointer_bounds_no_loop(capsys: Capture) -> None:
    dump = str(TRACES / "cuda" / "sm_80" / "exactness.sass")
    assert run(["analyze", dump, "-k", "row_sums_64", "--grid", "10", "--block", "64"]) == 0
    out = capsys.readouterr().out
    assert "as pointers they would bound a loop" in out
    assert "depends on argument 3" in out
    assert "trips assumed" in out


def test_annotate_takes_the_same_options(capsys: Capture) -> None:
    assert run(["annotate", SOFTMAX, "--arg", "columns=1024", "--grid", "4"]) == 0
    assert "EXIT" in capsys.readouterr().out


def test_the_first_glob_that_fits_counts(tmp_path: Path) -> None:
    found = book(tmp_path, {"soft*": {"grid": 4, "block": [128, 2]}, "*": {"grid": [1, 2, 3]}})
    assert found.find_launches("softmax") == (Launch(grid=Dim3(4), block=Dim3(128, 2)),)
    assert found.find_launches("_Z3foov", "foo()") == (Launch(grid=Dim3(1, 2, 3)),)
    assert book(tmp_path, {"foo()": {}}).find_launches("_Z3foov", "foo()") == (Launch(),)
    assert book(tmp_path, {"a": {}}).find_launches("b") == ()
    assert found.find_unused_globs([(("softmax",), "")]) == ("*",)


def test_a_list_is_one_launch_each(tmp_path: Path) -> None:
    found = book(tmp_path, {"*": [{"grid": 1}, {"grid": 2, "cluster": 2, "dynamic_shared_bytes": 512}]})
    assert found.find_launches("k") == (
        Launch(grid=Dim3(1)),
        Launch(grid=Dim3(2), cluster=Dim3(2), dynamic_shared_bytes=512),
    )


def test_arguments_of_every_kind(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.int32))
    values = {"0": "ptr", "1": None, "n": 1024, "a": 1.5, "m": "0x10", "x": "@x.npy"}
    (launch,) = book(tmp_path, {"*": {"arguments": values}}).find_launches("k")
    assert launch.arguments[:5] == (
        Argument(0, Pointer()),
        Argument(1, NullPointer()),
        Argument("n", 1024),
        Argument("a", 1.5),
        Argument("m", 16),
    )
    buffer = launch.arguments[5].value
    assert isinstance(buffer, Buffer)
    assert buffer.contents.tolist()[::4] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "place", "says", "marked"),
    [
        ('{"kernels": {"a": {"grid": 1,}}}', "1:30", "not JSON", "}"),
        ('{"kernels": {"a": {"grid": 1}', "1:29", "not JSON", "}"),
        ("[]", "1:1", 'no "kernels"', "["),
        ('{"kernels": {}, "kernel": 1}', "1:17", "unknown key 'kernel'", '"kernel"'),
        ('{\n  "kernels": {\n    "a": {"grdi": 1}\n  }\n}', "3:11", "unknown key 'grdi'", '"grdi"'),
        ('{"kernels": {"a": {"grid": "x"}}}', "1:28", "expected `int | array | null`", '"x"'),
        ('{"kernels": {"a": [{}, {"block": [1, "y"]}]}}', "1:38", "expected `int`", '"y"'),
        ('{"kernels": {"a": {"block": [1, 2, 3, 4]}}}', "1:29", "one to three numbers", "["),
        ('{"kernels": {"a": {"block": 2048}}}', "1:29", "x must be 1 to 1024", "2048"),
        ('{"kernels": {"a": {"grid": 0}}}', "1:28", "x must be 1 to", "0"),
        ('{"kernels": {"a": {"grid": 3, "cluster": 2}}}', "1:42", "does not divide", "2"),
        ('{"kernels": {"a": {"dynamic_shared_bytes": -1}}}', "1:44", "cannot be negative", "-1"),
        ('{"kernels": {"a": {"arguments": {"0": [1]}}}}', "1:39", "not an array", "["),
        ('{"kernels": {"a": {"arguments": {"0": true}}}}', "1:39", "not true or false", "true"),
        ('{"kernels": {"a": {"arguments": {"0": "pointer"}}}}', "1:39", "'pointer' is no value", '"pointer"'),
        ('{"kernels": {"a": {"arguments": {"0": "@no.npy"}}}}', "1:39", "No such file", '"@no.npy"'),
        ('{"kernels": {"a": {"arguments": {"": 1}}}}', "1:34", "needs a place or a name", '""'),
        ('{"kernels": {"a": {}, "a": {}}}', "1:23", "'a' is given twice", '"a"'),
        ('{"kernels": {"a": 3}}', "1:19", "must be an object", "3"),
        ('{"kernels": {"a": []}}', "1:19", "empty list", "["),
        ('{"kernels": {"a": [3]}}', "1:20", "expected `object`", "3"),
        ('{"kernels": []}', "1:13", "must be an object", "["),
        ("", "1:1", "not JSON", ""),
    ],
)
def test_a_fault_is_shown_where_it_stands(
    tmp_path: Path, text: str, place: str, says: str, marked: str
) -> None:
    shown = fault(tmp_path, text)
    assert shown.startswith(f"DIR/launch.json:{place}: error: ")
    assert says in shown
    lines = shown.splitlines()
    assert lines[-1].startswith("    help: ")
    if marked:
        source, caret = lines[1], lines[2]
        assert source[caret.index("^") : caret.rindex("^") + 1].startswith(marked[: caret.count("^")])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["kernels", "*", "grid", "arguments", "0"]), inner, max_size=3)
        ),
    )
)
def test_any_json_is_read_or_refused(content: object) -> None:
    for whole in (content, {"kernels": content}, {"kernels": {"*": content}}):
        error = refusal(json.dumps(whole).encode())
        assert error is None or error.diagnostic.location is not None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for content in (data, b'{"kernels": {"*": ' + data + b"}}", b"[" * 5000 + data):
        error = refusal(content)
        assert error is None or format_diagnostic(error.diagnostic)
