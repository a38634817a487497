"""Case 11: code without the headers of a tool, as one pastes it, is read; --arch names its architecture."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from analyzer.cli.app import run
from analyzer.flow.cfg import build_cfg
from analyzer.frontend.module_reader import read_module
from analyzer.ir.module import Kernel
from analyzer.isa.control_encoding import decode_control_code
from analyzer.text.errors import InputError

FOLDER = Path(__file__).parent / "11-snippets"
DUMP = FOLDER / "total_90.sass"
_INSTRUCTION = re.compile(r"^ +/\*(\w+)\*/ +([^;]*?) *;", re.M)
PAIRS = [(int(address, 16), text) for address, text in _INSTRUCTION.findall(DUMP.read_text())]
LOOP = [(address, text) for address, text in PAIRS if 0xA0 <= address <= 0x120]

Capture = pytest.CaptureFixture[str]


def facts(kernel: Kernel) -> tuple[list[str], list[tuple[int, int]]]:
    """Instructions, targets of branches left out, and edges of a kernel."""
    texts = [re.sub(r"(BRA) .*", r"\1", form.text) for form in kernel.decode_forms(0, len(kernel))]
    return texts, [(edge.source, edge.target) for edge in build_cfg(kernel).edges]


def read_text(tmp_path: Path, text: str, name: str = "pasted.txt") -> Kernel:
    path = tmp_path / name
    path.write_text(text)
    (kernel,) = read_module(str(path))
    return kernel


def with_labels(
    pairs: list[tuple[int, str]], label: Callable[[int], str], target: Callable[[int], str]
) -> str:
    """The code without addresses, its branches to labels."""
    targets = {int(text.split()[-1], 16) for _, text in pairs if "BRA" in text}
    lines = []
    for address, text in pairs:
        lines += [label(address)] * (address in targets)
        lines.append(
            " " + re.sub(r"0x\w+$", lambda m: target(int(m[0], 16)), text) if "BRA" in text else " " + text
        )
    return "\n".join(lines)


FORMS = {
    "a part of a dump": "".join(f"        /*{a:04x}*/                   {t} ;\n" for a, t in PAIRS),
    "addresses without semicolons": "".join(f"/*{a:04x}*/ {t}\n" for a, t in PAIRS),
    "semicolons without addresses": "".join(f"{t};\n" for _, t in PAIRS),
    "bare": "\n".join(t for _, t in PAIRS),
    "no blanks after commas": "\n".join(t.replace(", ", ",") for _, t in PAIRS),
    "tabs and windows lines": "".join(f"\t/*{a:04x}*/\t{t.replace(' ', chr(9), 1)} ;\r\n" for a, t in PAIRS),
    "hexadecimal columns": "".join(f"0x{a:04x}: {t}\n" for a, t in PAIRS),
    "numbered lines": "".join(f"{n}  /*{a:04x}*/ {t}\n" for n, (a, t) in enumerate(PAIRS)),
    "comments": "// a loop\n# of mine\n" + "".join(f"{t} ; // {a:x}\n" for a, t in PAIRS),
    "fenced": "```\n" + "".join(f"{t}\n" for _, t in PAIRS) + "```\n",
    "labels of nvdisasm": with_labels(PAIRS, lambda a: f".L_x_{a}:", lambda a: f"`(.L_x_{a})"),
    "plain labels": with_labels(PAIRS, lambda a: f"L{a}:", lambda a: f"L{a}"),
    "compiler explorer": "total(float const*, float*, int):\n"
    + with_labels(PAIRS, lambda a: f".L_x_{a}:", lambda a: f"`(.L_x_{a})"),
    "compiler explorer, mangled": "_Z5totalPKfPfi:\n.text._Z5totalPKfPfi:\n"
    + with_labels(PAIRS, lambda a: f".L_x_{a}:", lambda a: f"`(.L_x_{a})"),
    "hex words": "".join(f"/*{a:04x}*/ {t} ; /* 0x00000a0000017a02 */\n /* 0x000fe40000000f00 */\n" for a, t in PAIRS),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_code_of_the_dump(tmp_path: Path, form: str) -> None:
    (whole,) = read_module(str(DUMP))
    kernel = read_text(tmp_path, FORMS[form])
    assert facts(kernel) == facts(whole)
    assert kernel.arch == ""
    assert kernel.name in ("pasted", "total(float const*, float*, int)", "_Z5totalPKfPfi")
    assert (kernel.control_words is not None) is (form == "hex words")


def test_raw_output_of_nvdisasm_names_its_architecture() -> None:
    (whole,) = read_module(str(DUMP))
    (kernel,) = read_module(str(FOLDER / "total_90_raw.txt"))
    assert facts(kernel) == facts(whole)
    assert (kernel.name, kernel.arch) == ("total_90_raw", "sm_90")


def test_two_functions_are_two_kernels(tmp_path: Path) -> None:
    path = tmp_path / "two.txt"
    path.write_text("f(int):\n MOV R1, c[0x0][0x28]\n EXIT\ng(int):\n EXIT\n")
    assert [(kernel.name, len(kernel)) for kernel in read_module(str(path))] == [("f(int)", 2), ("g(int)", 1)]


@pytest.mark.parametrize(
    "text", ["\n".join(t for _, t in LOOP), "".join(f"/*{a:04x}*/ {t} ;\n" for a, t in LOOP)]
)
def test_a_loop_alone_is_a_loop(tmp_path: Path, capsys: Capture, text: str) -> None:
    """Its way out leads out of the code, so its trips are not known, and --trip sets them."""
    path = tmp_path / "loop.sass"
    path.write_text(text)
    trips = []
    for options in ([], ["--trip", "100"]):
        assert run(["analyze", str(path), "--arch", "sm_90", "--format", "json", *options]) == 0
        (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
        (loop,) = kernel["loops"]
        assert (kernel["architecture"], loop["header"], loop["instructions"]) == ("sm_90", 0xA0, len(LOOP))
        assert kernel["counts"]["provenance"] == "assumed"
        assert kernel["predictions"][0]["gpu"].startswith("h100")
        trips.append(loop["trip_count"])
    assert trips == [16, 100]


def test_a_part_of_a_kernel_is_not_called_cut_off(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "loop.sass"
    path.write_text("\n".join(f"/*{address:04x}*/ {text} ;" for address, text in LOOP))
    assert run(["analyze", str(path), "--arch", "sm_90", "--gpu", "h100", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (kernel,) = report["kernels"]
    assert kernel["missing_code"] == ["a part of a kernel: what stands around it is not counted"]
    assert kernel["counts"]["provenance"] != "exact"
    assert [each["code"] for each in report["warnings"]] == []
    assert run(["analyze", str(path), "--gpu", "h100"]) == 0
    assert "ARCHITECTURE UNKNOWN" in capsys.readouterr().out


def test_a_loop_alone_is_executed(capsys: Capture) -> None:
    """Registers that nothing sets are unknown, so --trip decides here too."""
    options = ["--arch", "sm_90", "--grid", "4", "--block", "64", "--trip", "50", "--format", "json"]
    assert run(["analyze", str(FOLDER / "loop.sass"), *options]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["loops"][0]["trip_count"] == 50
    assert kernel["counts"]["executed_warp_instructions"] == 4 * 2 * 50 * len(LOOP)
    assert kernel["counts"]["provenance"] == "assumed"


def test_the_first_address_of_bare_code_is_its_lowest_target(tmp_path: Path) -> None:
    path = tmp_path / "bare.sass"
    path.write_text("LDG.E R7, [R2.64]\nFADD R6, R6, R7\n@!P0 BRA 0x50\n")
    module = read_module(str(path))
    assert module.kernels[0].addresses.tolist() == [0x50, 0x60, 0x70]
    assert [d.code for d in module.diagnostics] == ["no-addresses"]


@pytest.mark.parametrize("command", ["analyze", "annotate", "whatif"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "SM90", "90"])
def test_commands_take_the_architecture(command: str, arch: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "bare.sass"
    path.write_text(FORMS["bare"])
    options = ["--no-elasticity"] if command == "whatif" else []
    assert run([command, str(path), "--arch", arch, *options]) == 0
    assert "H100" in capsys.readouterr().out


def test_trace_takes_the_architecture(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "bare.sass"
    path.write_text(FORMS["bare"])
    options = ["--grid", "1", "--block", "32", "--arg", "2=3"]
    assert run(["trace", str(path), "--arch", "sm_90", *options]) == 0
    assert "-binary version = 90" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "arch", "says"),
    [
        (DUMP, "sm_80", "is sm_90 code"),
        (FOLDER / "total_90_raw.txt", "sm_100", "is sm_90 code"),
        (DUMP, "sm_61", "before sm_70"),
        (DUMP, "sm_999", "no figures for architecture sm_999"),
        (DUMP, "hopper", "no architecture"),
        (DUMP, "sm_", "no architecture"),
    ],
)
def test_an_architecture_that_is_none_or_another_is_refused(
    file: Path, arch: str, says: str, capsys: Capture
) -> None:
    assert run(["analyze", str(file), "--arch", arch]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "help:" in error


def test_the_suffix_of_a_header_stays(capsys: Capture) -> None:
    assert run(["analyze", str(DUMP), "--arch", "sm_90a", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["architecture"] == "sm_90"


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("MOV R1, R2\nMOV R1,, R2\n", 2, 1, "not a SASS instruction"),
        ("MOV R1, R2\n   IADD3 R1, [R2, R3\n", 2, 4, "not a SASS instruction"),
        ("MOV R1, R2\nhello there\n", 2, 1, "not a SASS instruction"),
        ("MOV R1, R2\nmov r1, r2\n", 2, 1, "not a SASS instruction"),
        ("/*0010*/ MOV R1, R2\n/*0010*/ EXIT\n", 2, 10, "does not follow"),
        ("/*ffffffffffffffff*/ MOV R1, R2\n", 1, 22, "beyond the memory"),
        ("0xfffffffffffffff0: MOV R1, R2\n", 1, 21, "beyond the memory"),
        ("/*0010*/ MOV R1, R2\n/*0020*/ ;\n", 2, 10, "not a SASS instruction"),
        ("[B------:R-:W-:-:S02] MOV R1, R2 ;\n[B------:R-:W-:-:S77] EXIT ;\n", 2, 1, "no control code"),
        ("[B------:R-:W-:-:S02] MOV R1, R2 ;\n[B9-----:R-:W-:-:S02] EXIT ;\n", 2, 1, "no control code"),
        ("MOV R1, R2\nEXIT" + " " * 70_000 + "x\n", 2, 1, "longer than any instruction"),
    ],
)
def test_bad_lines_have_a_place(tmp_path: Path, text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_text(tmp_path, text)
    location = caught.value.diagnostic.location
    assert location is not None
    assert location.line == line
    assert location.column >= column
    assert caught.value.diagnostic.hint


def test_prose_is_no_code(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a SASS dump"):
        read_text(tmp_path, "NOTE: the kernel is slow\nand MOV is an opcode\n")


def test_a_whole_file_of_cuassembler(tmp_path: Path) -> None:
    kernel = read_text(
        tmp_path,
        """\
	.headerflags    @"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM75 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM75)"
	.elftype        @"ET_EXEC"
  .__elf_ident_osabi      51
// --------------------- .nv.info          --------------------------
	.section        .nv.info, "", @"SHT_CUDA_INFO"
  .L_0:
        /*0004*/ 	.byte	0x04, 0x11
        /*0008*/ 	.word   index@(_Z1kPf)
	.section        .text._Z1kPf, "ax", @progbits
	.sectioninfo    @"SHI_REGISTERS=8"
	.global         _Z1kPf
    _Z1kPf:
    .text._Z1kPf:
      [B------:R-:W-:-:S02]         /*0000*/                   MOV R1, c[0x0][0x28] ;
  .L_x_0:
      [B------:R-:W-:-:S05]         /*0010*/              @!P0 BRA `(.L_x_0) ;
      [B------:R-:W-:-:S05]         /*0020*/                   EXIT ;
""",
    )
    assert (kernel.name, kernel.arch, len(kernel)) == ("_Z1kPf", "sm_75", 3)
    assert facts(kernel)[1] == [(0, 1), (1, 1), (1, 2)]
    assert kernel.control_words is not None


def test_standard_input_is_called_so(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    stream = io.TextIOWrapper(io.BytesIO(FORMS["bare"].encode()))
    monkeypatch.setattr("sys.stdin", stream)
    assert run(["analyze", "-", "--arch", "sm_90", "--format", "json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (kernel["name"], kernel["input"]) == ("stdin", "<stdin>")


def test_control_codes_of_cuassembler_are_read(tmp_path: Path) -> None:
    lines = ["[B------:R-:W0:-:S02]", "[B0----5:R1:W-:Y:S11]", "[B------:R-:W-:-:S05]"]
    texts = ["LDG.E R4, [R2.64] ;", "STG.E [R2.64], R4 ;", "EXIT ;"]
    kernel = read_text(
        tmp_path,
        "".join(
            f"      {c}         /*{16 * n:04x}*/   {t}\n"
            for n, (c, t) in enumerate(zip(lines, texts, strict=True))
        ),
    )
    assert kernel.control_words is not None
    assert [str(decode_control_code(int(word))) for word in kernel.control_words] == lines
