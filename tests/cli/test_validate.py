"""`warplens validate`: outputs, the gate, and what is said of a table that is not as it must be."""

import json
from pathlib import Path

import pytest
from paths import TRACES

from analyzer.cli.app import run

REPORT16 = TRACES / "cuda" / "sm_80" / "report16.sass"
HEAD = "dump,kernel,gpu,grid,block,time_us,arguments,split,l2,clock_mhz,dynamic_shared_bytes,cluster,counted"
FIELDS = {
    "dump": str(REPORT16),
    "kernel": "vector_add",
    "gpu": "a100",
    "grid": "1000",
    "block": "256",
    "time_us": "10",
    "arguments": '"[""ptr"", ""ptr"", ""ptr"", 256000]"',
}

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def line(**fields: str) -> str:
    """One row, its fields as they stand in the file."""
    named = FIELDS | fields
    return ",".join(named.get(column, "") for column in HEAD.split(","))


def table(folder: Path, *lines: str, head: str = HEAD) -> str:
    path = folder / "cases.csv"
    path.write_text("\n".join((head, *lines, "")), encoding="utf-8")
    return str(path)


def test_tables_and_worst_rows(tmp_path: Path, capsys: Capture) -> None:
    rows = (line(), line(time_us="40"), line(counted="no"), line(dump="gone.sass"))
    path = table(tmp_path, *rows)
    arguments = ["validate", path, "-m", "roofline,warp", "-j1"]
    outputs = []
    for _ in range(2):
        assert run(arguments) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    for piece in (
        "4 rows",
        "1 row not counted",
        "1 row without an answer",
        "MAPE",
        "Spearman",
        "no dump gone",
    ):
        assert piece in outputs[0]
    assert "worst rows of roofline" in outputs[0]
    assert (tmp_path / "cache" / "warplens" / "validate").is_dir()


def test_json_page_and_output_file(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("plotly", reason="the charts extra is not installed")
    path, page, out = table(tmp_path, line()), tmp_path / "page.html", tmp_path / "out.json"
    options = ["-m", "roofline", "-m", "warp", "--format", "json", "-o", str(out), "--html", str(page)]
    assert run(["validate", path, "--no-cache", *options]) == 0
    assert capsys.readouterr().out == ""
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["schema"] == "warplens/validate/1"
    assert [p["model"] for p in report["cases"][0]["predictions"]] == ["roofline", "warp"]
    text = page.read_text(encoding="utf-8")
    assert 'src="http' not in text
    assert "<option>warp</option>" in text
    assert "A100-80GB SXM" in text
    assert not (tmp_path / "cache").exists()


def test_the_page_shows_text_of_the_table_as_text(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="the charts extra is not installed")
    path = table(tmp_path, f"{line()},<script>x</script>", head=f"{HEAD},suite")
    page = tmp_path / "page.html"
    assert run(["validate", path, "-m", "roofline", "--html", str(page), "-o", str(tmp_path / "out")]) == 0
    assert "<script>x" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("limit", "code"), [("1", 1), ("1e9", 0)])
def test_the_gate(limit: str, code: int, tmp_path: Path, capsys: Capture) -> None:
    path = table(tmp_path, line(time_us="1"), line(time_us="1"))
    assert run(["validate", path, "-m", "roofline", "--max-mape", limit]) == code
    said = capsys.readouterr()
    assert ("gate: MAPE of roofline" in said.err) == (code == 1)
    assert "worst rows" in said.out


def test_a_gate_with_nothing_to_judge_by_does_not_pass(tmp_path: Path, capsys: Capture) -> None:
    path = table(tmp_path, line(counted="no"))
    assert run(["validate", path, "-m", "roofline", "--max-mape", "50"]) == 2
    assert "no answer for any counted row" in capsys.readouterr().err


def test_split_filter(tmp_path: Path, capsys: Capture) -> None:
    path = table(tmp_path, line(split="learn"), line(split="judge", time_us="20"), line())
    assert run(["validate", path, "-m", "roofline", "--split", "judge", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [case["time_us"] for case in report["cases"]] == [20.0]
    assert report["split"] == "judge"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"time_us": "fast"}, ("column time_us", "'fast'", "microseconds")),
        ({"time_us": "-3"}, ("column time_us", "'-3'")),
        ({"time_us": "nan"}, ("column time_us", "'nan'")),
        ({"time_us": ""}, ("column time_us", "is empty")),
        ({"dump": ""}, ("column dump", "is empty")),
        ({"grid": "1;2;3;4"}, ("column grid", "'1;2;3;4'", "32x32x1")),
        ({"grid": "0"}, ("column grid", "x must be 1")),
        ({"block": "2048"}, ("column block", "1024")),
        ({"block": "16.5"}, ("column block", "'16.5'")),
        ({"cluster": "3"}, ("column cluster", "does not divide")),
        ({"gpu": "rtx 4071"}, ("column gpu", "'rtx 4071'", "rtx-4070")),
        ({"arguments": "[1"}, ("column arguments", "'[1'", "not JSON")),
        ({"arguments": "7"}, ("column arguments", "neither list nor object")),
        ({"arguments": '"[""pointer""]"'}, ("column arguments", "argument 0", "'pointer'", "tensormap")),
        ({"arguments": '"{""n"": [true]}"'}, ("column arguments", "argument n", "[True]")),
        ({"dynamic_shared_bytes": "4k"}, ("column dynamic_shared_bytes", "'4k'")),
        ({"split": "train"}, ("column split", "'train'", "learn or judge")),
        ({"l2": "hot"}, ("column l2", "'hot'", "warm or cold")),
        ({"clock_mhz": "0"}, ("column clock_mhz", "'0'", "MHz")),
        ({"counted": "maybe"}, ("column counted", "'maybe'", "yes or no")),
        ({"kernel": "a,b"}, ("14 fields, the header has 13",)),
    ],
)
def test_a_faulty_field_is_shown_where_it_stands(
    fields: dict[str, str], said: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    path = table(tmp_path, line(), line(**fields))
    assert run(["validate", path, "-m", "roofline"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{path}:3:")
    for piece in (*said, "error: ", "help: ", "^"):
        assert piece in error
    assert "Traceback" not in error


def test_the_caret_stands_under_the_field_even_behind_quoted_ones(tmp_path: Path, capsys: Capture) -> None:
    head = "note,grid,dump,gpu,block,time_us"
    path = table(tmp_path, f'"two\nlines, and ""quotes""",x1,{REPORT16},a100,32,1', head=head)
    assert run(["validate", path]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{path}:3:24: error: column grid: 'x1'")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the table is empty"),
        ("dump,gpu,grid,block,time_us\n", "no rows"),
        ("dump,gpu,grid\nk.sass,a100,1\n", "no column block, time_us"),
        ("dump;gpu;grid;block;time_us\n", "separate columns by commas"),
        ("dump,gpu,grid,block,time_us,gpu\n", "column gpu is there twice"),
        ('dump,gpu,grid,block,time_us\n"k.sass" x,a100,1,1,1\n', "not CSV"),
        ("dump,gpu,grid,block,time_us\nk.sass,a100\n", "2 fields, the header has 5"),
        ("dump,gpu,grid,block,time_us\nk\udcff,a100,1,1,1\n", "not UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_one_clear_error(
    text: str, said: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "cases.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert run(["validate", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "help: " in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--cache", "x", "--no-cache"), "exclude each other"),
        (("--cache", "/proc/none/such"), "--cache"),
        (("-m", "stedy"), "did you mean steady"),
        (("--suite", "nothing"), "no row fits"),
        (("--gpu", "voodoo"), "no GPU is called"),
    ],
)
def test_bad_options(options: tuple[str, ...], said: str, tmp_path: Path, capsys: Capture) -> None:
    assert run(["validate", table(tmp_path, line()), *options]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_table(capsys: Capture) -> None:
    assert run(["validate", "no/such.csv"]) == 2
    assert "no/such.csv" in capsys.readouterr().err
