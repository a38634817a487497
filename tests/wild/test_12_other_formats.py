"""Case 12: code in nvdisasm's JSON, Nsight Compute's source page as CSV, and cuda-gdb's disassembly."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli.app import run
from analyzer.flow.cfg import build_cfg
from analyzer.frontend.module_reader import read_module
from analyzer.ir.module import Kernel, SourceFormat
from analyzer.text.errors import InputError

FOLDER = Path(__file__).parent
DUMP = FOLDER / "11-snippets" / "total_90.sass"
JSON = FOLDER / "12-other-formats" / "total_90.json"
BASE = 0x7F2C5B000000
_INSTRUCTION = re.compile(r"^ +/\*(\w+)\*/ +([^;]*?) *;", re.M)
PAIRS = [(int(address, 16), text) for address, text in _INSTRUCTION.findall(DUMP.read_text())]
ABSOLUTE = [
    (BASE + address, re.sub(r"(BRA) 0x(\w+)", lambda m: f"{m[1]} {BASE + int(m[2], 16):#x}", text))
    for address, text in PAIRS
]


def facts(kernel: Kernel) -> tuple[list[str], list[int], list[tuple[int, int]]]:
    """Instructions, addresses and edges of a kernel."""
    texts = [form.text for form in kernel.decode_forms(0, len(kernel))]
    edges = [(edge.source, edge.target) for edge in build_cfg(kernel).edges]
    return texts, kernel.addresses.tolist(), edges


def row(*cells: str, separator: str = ",") -> str:
    return separator.join(f'"{cell}"' for cell in cells) + "\n"


def csv_pages() -> dict[str, str]:
    """The code in the layouts of Nsight Compute."""
    window = row("#", "Address", "Source", "# Samples", "Instructions Executed")
    window += "".join(row(str(n), f"{a:x}", f"      {t} ", "1,234", "0") for n, (a, t) in enumerate(ABSOLUTE))
    command_line = row("Kernel Name", "total") + row("Address", "Source", "Live Registers", "# Samples")
    command_line += "".join(row(f"{a:#x}", t, "8", "0") for a, t in ABSOLUTE)
    beside = row("File Path", "/x/loop.cu") + row("Function Name", "total")
    beside += row("Line No", "Source", "Address", "Source", "# Samples")
    for number, half in ((7, ABSOLUTE[8:]), (3, ABSOLUTE[:9])):  # one instruction under two lines
        beside += row(str(number), "int i = blockIdx.x, j;", "-", "-", "5")
        beside += "".join(row("", "", f"{a:#x}", t, "0") for a, t in half)
    semicolons = "".join(line.replace('","', '";"') for line in window.splitlines(keepends=True))
    return {
        "window": window,
        "command line": "==PROF== Connected to process 1\n" + command_line,
        "banner": row("total(float const*, float*, int)") + command_line.partition("\n")[2],
        "beside source": beside,
        "semicolons": semicolons,
        "tabs": window.replace('","', '"\t"'),
        "byte order mark": "\ufeff" + window,
        "no addresses": row("#", "Source", "# Samples")
        + "".join(row(str(n), t, "0") for n, (_, t) in enumerate(PAIRS)),
        "spaces in addresses": re.sub(r'"7f2c5b(\w+)"', r'"00007f2c 5b\1"', window),
        "column SASS": window.replace('"Source"', '"SASS"'),
    }


def read(tmp_path: Path, text: str, name: str) -> Kernel:
    path = tmp_path / name
    path.write_text(text)
    (kernel,) = read_module(str(path))
    return kernel


@pytest.mark.parametrize("layout", csv_pages())
def test_source_page(tmp_path: Path, layout: str) -> None:
    (whole,) = read_module(str(DUMP))
    kernel = read(tmp_path, csv_pages()[layout], "page.csv")
    assert facts(kernel) == facts(whole)
    named = layout in ("command line", "beside source", "banner")
    assert kernel.name.startswith("total" if named else "page")


def test_pages_of_several_kernels(tmp_path: Path) -> None:
    page = csv_pages()["command line"].partition("\n")[2]
    path = tmp_path / "pages.csv"
    path.write_text(page + page.replace('"total"', '"other"'))
    module = read_module(str(path))
    assert [kernel.name for kernel in module] == ["total", "other"]
    assert facts(module.kernels[0]) == facts(module.kernels[1])


def test_json_of_nvdisasm() -> None:
    (whole,) = read_module(str(DUMP))
    module = read_module(str(JSON))
    kernel = module.kernels[0]
    n = len(whole)  # the dump has no padding
    texts, addresses, edges = facts(kernel)
    assert (texts[:n], addresses[:n], edges) == facts(whole)
    assert (kernel.name, kernel.arch) == ("_Z5totalPKfPfi", "sm_90")
    assert module.source_format is SourceFormat.NVDISASM_JSON
    assert module.toolchain.startswith("nvdisasm V")


def test_calls_in_json_are_said_to_be_without_a_place(tmp_path: Path) -> None:
    content = json.loads(JSON.read_text())
    call = {
        "opcode": "CALL.REL.NOINC",
        "operands": "$_Z5totalPKfPfi$_Z4stepf",
        "other-attributes": {"control-flow": "True", "subroutine-call": "True"},
    }
    content[1][0]["sass-instructions"][4] = call
    path = tmp_path / "k.json"
    path.write_text(json.dumps(content))
    (diagnostic,) = read_module(str(path)).diagnostics
    assert (diagnostic.code, diagnostic.count) == ("unknown-call-target", 1)


def gdb_listings() -> dict[str, str]:
    """The code as cuda-gdb shows it."""
    body = [(a - BASE, f"{a:#018x}", t) for a, t in ABSOLUTE]
    whole = "".join(f"   {a} <+{offset}>:\t{t} \n" for offset, a, t in body)
    frame = "(cuda-gdb) disassemble\nDump of assembler code for function total:\n{}End of assembler dump.\n"
    return {
        "disassemble": frame.format(whole),
        "at the current place": frame.format(whole.replace("   0x", "=> 0x", 3).replace("=> 0x", "   0x", 2)),
        "with source": frame.format(
            "".join(
                f"{n}\t  float x = y, z; // {a}\n   {a} <+{o}>:\t{t} \n" for n, (o, a, t) in enumerate(body)
            )
        ),
        "with raw bytes": frame.format(
            "".join(f"   {a} <+{o}>:\t24 76 01 ff 00 0a 00 00\t{t} \n" for o, a, t in body)
        ),
        "examine": "".join(f"   {a} <total+{o}>:\t{t}\n" for o, a, t in body).replace("   0x", "=> 0x", 1),
    }


@pytest.mark.parametrize("form", gdb_listings())
def test_disassembly_of_cuda_gdb(tmp_path: Path, form: str) -> None:
    (whole,) = read_module(str(DUMP))
    kernel = read(tmp_path, gdb_listings()[form], "session.txt")
    assert facts(kernel) == facts(whole)
    assert kernel.name == "total"


def test_a_part_of_a_function_keeps_its_offsets(tmp_path: Path) -> None:
    lines = [f"   {a:#018x} <total(float*, int)+{a - BASE}>:\t{t}\n" for a, t in ABSOLUTE[10:19]]
    kernel = read(tmp_path, "".join(lines), "session.txt")
    assert kernel.name == "total(float*, int)"
    assert kernel.addresses.tolist() == [0xA0 + 16 * n for n in range(9)]
    assert build_cfg(kernel).edges[0].target == 0  # the loop


def damaged_json(change: dict[str, Any]) -> str:
    content = json.loads(JSON.read_text())
    content[1][0]["sass-instructions"][3].update(change)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("name", "text", "says", "at"),
    [
        ("k.json", JSON.read_text()[:900], "not JSON", None),
        ("k.json", damaged_json({"opcode": 5}), "expected `str`", '5, "operands"'),
        ("k.json", damaged_json({"operands": "R1,[R2"}), "not a SASS instruction", '"IMAD.MOV.U32"'),
        ("k.json", damaged_json({"opcode": "hello"}), "not a SASS instruction", '"hello"'),
        ("k.json", '[{"SM": 5}, [{"function-name": "k", "sass-instructions": []}]]', "expected `object", "5"),
        ("k.json", JSON.read_text().replace('"minor":0', '"minor":-1'), "expected `int` >= 0", "-1"),
        ("k.csv", row("Address", "Source", "# Samples") + row("0x0", "EXIT", "0") + row("0x10", "hello", "0"),
         "not a SASS instruction", "hello"),
        ("k.txt", "Dump of assembler code for function k:\n   0x00007f2c5b000000 <+0>:\tmov rax, 5\n",
         "not a SASS instruction", "mov rax"),
    ],
)  # fmt: skip
def test_damage_has_a_place(tmp_path: Path, name: str, text: str, says: str, at: str | None) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        read(tmp_path, text, name)
    diagnostic = caught.value.diagnostic
    assert diagnostic.hint
    if at is not None:
        assert diagnostic.location is not None
        assert diagnostic.location.text[diagnostic.location.column - 1 :].startswith(at)


@pytest.mark.parametrize("name", ["page.csv", "session.txt", "k.json"])
def test_reports_of_such_inputs(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = {
        "page.csv": csv_pages()["window"],
        "session.txt": gdb_listings()["disassemble"],
        "k.json": JSON.read_text(),
    }
    path = tmp_path / name
    path.write_text(text[name])
    options = ["--grid", "8", "--block", "32", "--arg", "2=100"]
    assert run(["analyze", str(path), "--arch", "sm_90", "--format", "json", *options]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["loops"][0]["trip_count"] == 100
    assert kernel["counts"]["provenance"] == "exact"
