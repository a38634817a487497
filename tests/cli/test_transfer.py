"""`warplens transfer`: forms of tables, results beside the rows, and what is said of a faulty table."""

import csv
import gzip
import json
from pathlib import Path

import pytest
from jsonschema import validate as check_schema
from paths import TRACES

from analyzer.cli.app import run
from analyzer.report.report_reader import read_report

TURING, ADA = (TRACES / "cuda" / arch / "report16.sass" for arch in ("sm_75", "sm_89"))
HEAD = "kernel,grid,block,registers,shared_bytes,flops,bytes,time_us,dump,dump_to,arguments"
FIELDS = {
    "kernel": "vector_add",
    "grid": "1024",
    "block": "256",
    "registers": "12",
    "shared_bytes": "0",
    "flops": "262144",
    "bytes": "3145728",
    "time_us": "60",
}
RESULTS = ("algorithm1_us", "roof_us", "predicted_us", "low_us", "high_us", "basis", "reason")
NCU_RAW = """==PROF== Connected to process 1
"ID","Process ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum",\
"launch__registers_per_thread","launch__shared_mem_per_block_static","dram__bytes_read.sum",\
"dram__bytes_write.sum","smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
"","","","","","us","register/thread","Kbyte/block","Mbyte","Mbyte",""
"0","1","saxpy(float, int)","(256, 1, 1)","(16,384, 1, 1)","95.84","12","4.10","33.5","16.8","4,194,304"
"""
NCU_DETAILS = """"ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value"
"0","saxpy","(256, 1, 1)","(64, 1, 1)","GPU Speed Of Light Throughput","Memory Throughput","%","80.1"
"0","saxpy","(256, 1, 1)","(64, 1, 1)","GPU Speed Of Light Throughput","Duration","msecond","0.1"
"0","saxpy","(256, 1, 1)","(64, 1, 1)","Memory Workload Analysis","Memory Throughput","Gbyte/second","400"
"0","saxpy","(256, 1, 1)","(64, 1, 1)","Launch Statistics","Registers Per Thread","register/thread","12"
"""
TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "dur": 5, "args": {"grid": "none"}},
        {
            "ph": "X",
            "cat": "kernel",
            "name": "void add<float>(float*)",
            "ts": 1,
            "dur": 95.5,
            "args": {
                "grid": [4096, 1, 1],
                "block": [256, 1, 1],
                "registers per thread": 16,
                "shared memory": 0,
            },
        },
    ],
}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def line(**fields: str) -> str:
    named = FIELDS | fields
    return ",".join(named.get(column, "") for column in HEAD.split(","))


def write(folder: Path, *lines: str, head: str = HEAD) -> str:
    path = folder / "in.csv"
    path.write_text("\n".join((head, *lines, "")), encoding="utf-8")
    return str(path)


def transfer(path: str | Path, folder: Path, *options: str) -> list[dict[str, str]]:
    """Return the rows of the CSV that the command writes."""
    out = folder / "out.csv"
    arguments = ["transfer", str(path), "--from", "2080 ti", "--to", "rtx 4070", *options]
    assert run([*arguments, "--format", "csv", "-o", str(out)]) == 0
    with out.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_results_stand_behind_the_columns_of_the_input(tmp_path: Path) -> None:
    head = f"note,{HEAD}"
    path = write(tmp_path, f"first,{line()}", f"second,{line(registers='', flops='', bytes='')}", head=head)
    first, second = transfer(path, tmp_path)
    assert tuple(first) == (*head.split(","), *RESULTS)
    assert (first["note"], second["note"], first["basis"]) == ("first", "second", "analytic")
    assert float(first["algorithm1_us"]) == pytest.approx(60 * 616 / 504, rel=1e-4)
    assert float(first["low_us"]) < float(first["predicted_us"]) < float(first["high_us"])
    assert second["algorithm1_us"] == second["roof_us"] == ""
    assert float(second["predicted_us"]) > 0
    again = transfer((tmp_path / "out.csv").rename(tmp_path / "again.csv"), tmp_path)
    assert again == [first, second]


def test_a_row_without_an_answer_keeps_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, line(block="1024", registers="206"), line())
    refused, answered = transfer(path, tmp_path)
    assert refused["predicted_us"] == refused["basis"] == ""
    assert "does not fit on RTX 2080 Ti: too much registers" in refused["reason"]
    assert answered["reason"] == ""


def test_code_on_both_gpus_is_compared_where_a_row_names_it(tmp_path: Path) -> None:
    arguments = '"[""ptr"", ""ptr"", ""ptr"", 262144]"'
    code = {"dump": str(TURING), "dump_to": str(ADA)}
    path = write(
        tmp_path,
        line(**code, arguments=arguments),
        line(**code, arguments="ptr;ptr;ptr;262144"),
        line(dump="gone.sass"),
        line(**code, kernel="gone"),
    )
    rows = transfer(path, tmp_path, "-j1", "--no-cache")
    assert [row["basis"] for row in rows] == ["static", "static", "analytic", "analytic"]
    assert rows[0]["predicted_us"] == rows[1]["predicted_us"] != rows[2]["predicted_us"]
    assert "no dump" in rows[2]["reason"]
    assert "no kernel fits 'gone'" in rows[3]["reason"]


def test_ncu_exports_of_both_pages(tmp_path: Path) -> None:
    raw, details = tmp_path / "raw.txt", tmp_path / "details.csv"
    raw.write_text(NCU_RAW, encoding="utf-8")
    details.write_text(NCU_DETAILS, encoding="utf-8")
    (one,) = transfer(raw, tmp_path)
    assert (one["kernel"], one["grid"], one["block"]) == ("saxpy(float, int)", "16384x1x1", "256x1x1")
    assert (one["registers"], one["shared_bytes"], one["time_us"]) == ("12", "4100", "95.84")
    assert (float(one["bytes"]), float(one["flops"])) == (50_300_000, 2 * 4_194_304)
    (other,) = transfer(details, tmp_path)
    assert (other["time_us"], float(other["bytes"]), other["registers"]) == ("100", 40_000_000, "12")


@pytest.mark.parametrize("is_compressed", [False, True])
def test_traces_of_the_pytorch_profiler(is_compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    data = json.dumps(TRACE).encode()
    path.write_bytes(gzip.compress(data) if is_compressed else data)
    (row,) = transfer(path, tmp_path)
    assert (row["kernel"], row["grid"], row["time_us"]) == ("void add<float>(float*)", "4096x1x1", "95.5")
    assert (row["algorithm1_us"], row["basis"]) == ("", "analytic")


def test_a_file_of_another_gpu_and_a_kernel_of_no_time_are_told(tmp_path: Path, capsys: Capture) -> None:
    events = [*TRACE["traceEvents"], TRACE["traceEvents"][-1] | {"dur": 0}]  # type: ignore[misc, operator]
    devices = [{"id": 0, "name": "NVIDIA A100", "computeMajor": 8, "computeMinor": 0}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"deviceProperties": devices, "traceEvents": events}), encoding="utf-8")
    assert run(["transfer", str(path), "--from", "2080ti", "--to", "4070"]) == 0
    text = capsys.readouterr().out
    assert "the file says sm_80, RTX 2080 Ti is sm_75" in text
    assert "it has no time" in text
    assert run(["transfer", str(path), "--from", "a100", "--to", "4070"]) == 0
    assert "the file says" not in capsys.readouterr().out


def test_json_follows_its_schema_and_is_read_back(tmp_path: Path, capsys: Capture) -> None:
    path, out = write(tmp_path, line()), tmp_path / "out.json"
    arguments = ["transfer", path, "--from", "titan-v", "--to", "4070", "--format", "json", "-o", str(out)]
    assert run(arguments) == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    schema = json.loads((TRACES.parent / "hwdb" / "schema" / "transfer-1.json").read_text(encoding="utf-8"))
    check_schema(report, schema)
    assert (report["source"], report["target"], report["timing"]) == ("titan-v", "rtx-4070", "interval")
    assert read_report(out).schema == "warplens/transfer/1"
    assert capsys.readouterr().out == ""


def test_text_names_rows_without_an_answer(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, line(), line(block="1024", registers="206"))
    assert run(["transfer", path, "--from", "2080ti", "--to", "4070", "--timing", "kernel"]) == 0
    text = capsys.readouterr().out
    for piece in ("RTX 2080 Ti", "vector_add", "line 3: a CTA does not fit", "times are of kernel"):
        assert piece in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"time_us": "-3"}, ("column time_us", "'-3'", "microseconds")),
        ({"time_us": "1e13"}, ("column time_us", "days")),
        ({"grid": "99999999999"}, ("column grid", "'99999999999'")),
        ({"block": "2048"}, ("column block", "1024")),
        ({"registers": "-1"}, ("column registers", "'-1'")),
        ({"registers": "many"}, ("column registers", "'many'")),
        ({"shared_bytes": "1e12"}, ("column shared_bytes", "'1e12'")),
        ({"flops": "nan"}, ("column flops", "'nan'")),
        ({"bytes": "1e30"}, ("column bytes", "'1e30'", "leave it empty")),
        ({"dump": str(TURING), "arguments": "[1"}, ("column arguments", "not JSON")),
        ({"kernel": "a,b"}, ("12 fields, the header has 11",)),
    ],
)
def test_a_faulty_field_is_shown_where_it_stands(
    fields: dict[str, str], said: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    path = write(tmp_path, line(), line(**fields))
    assert run(["transfer", path, "--from", "2080ti", "--to", "4070"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{path}:3:")
    for piece in (*said, "error: ", "help: ", "^"):
        assert piece in error


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the table is empty"),
        (HEAD.encode(), "no launch in it"),
        (b"kernel,grid\na,1\n", "no column block, registers"),
        (b"kernel;grid\n", "separate columns by commas"),
        (f"{HEAD}\nk\xe9".encode("latin-1"), "this is not UTF-8 text"),
        (HEAD.encode("utf-16"), "this is not UTF-8 text"),
        (bytes(range(256)), "this is not UTF-8 text"),
        (b'{"traceEvents": [{"cat": "ker', "not JSON"),
        (b'{"events": []}', "no trace of PyTorch"),
        (b'{"traceEvents": 7, "a', "not JSON"),
        (b'[{"cat": "kernel", "dur": 1, "args": {"grid": [1, 1]}}]', "kernel 1"),
        (b'[{"cat": "kernel", "dur": -1, "args": {"grid": [1, 1, 1], "block": [1, 1, 1]}}]', "a duration"),
        (b'"ID","Kernel Name","Grid Size","Block Size"\n"0","k","(1, 1, 1)","(1, 1, 1)"\n', "no duration"),
        (b"\x1f\x8b\x08 not gzip", "transfer takes"),
    ],
)
def test_what_is_no_table_is_refused_by_one_message(
    data: bytes, said: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "in"
    path.write_bytes(data)
    assert run(["transfer", str(path), "--from", "2080ti", "--to", "4070"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "help: " in error
    assert "Traceback" not in error


def test_the_sample_of_the_page_is_what_is_answered(tmp_path: Path) -> None:
    folder, out = TRACES.parent / "docs", tmp_path / "out.csv"
    command = ["transfer", str(folder / "launches.csv"), "--from", "v100-pcie", "--to", "a100-40gb-pcie"]
    assert run([*command, "--format", "csv", "-o", str(out)]) == 0
    page = (folder / "transfer.md").read_text(encoding="utf-8")
    with out.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            interval = f"{float(row['low_us']):.0f} to {float(row['high_us']):.0f}"
            predicted = f"{float(row['predicted_us']):.1f} ({interval})"
            assert f"| {row['kernel']} | {float(row['time_us']):.1f} us | {predicted} |" in page


def test_unknown_gpus_and_options(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, line())
    assert run(["transfer", path, "--from", "rtx 4071", "--to", "4070"]) == 2
    assert "rtx-4070" in capsys.readouterr().err
    assert run(["transfer", path, "--from", "p100", "--to", "4070"]) == 2
    assert run(["transfer", path, "--from", "2080ti", "--to", "4070", "-o", path]) == 2
    assert "would replace" in capsys.readouterr().err
