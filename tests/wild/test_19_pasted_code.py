"""Case 19: code as people paste it into issues and forums is read as the code it was, and the report says so."""

import html
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.cli.app import run
from analyzer.frontend import pasted_text
from analyzer.frontend.input_format import HEAD_BYTES
from analyzer.frontend.module_reader import read_module
from analyzer.frontend.pasted_text import PASTED_BYTES, is_pasted, undo_pasting
from analyzer.frontend.ptx_reader import PtxOptions
from analyzer.frontend.triton_file import is_triton_ir, read_triton_module
from analyzer.ir.module import Module
from analyzer.text.errors import InputError

TRACES = Path(__file__).parents[2] / "traces"
MAX_BYTES = 60_000  # GitHub takes issues of 65,536 characters
SASS = [path for path in sorted(TRACES.rglob("*.sass")) if path.stat().st_size < MAX_BYTES]
PTX = [path for path in sorted(TRACES.rglob("*.ptx")) if path.stat().st_size < MAX_BYTES]
VIRTUAL = PtxOptions(is_virtual=True)
ODD_SPACE, ZERO_WIDTH = "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}"

Capture = pytest.CaptureFixture[str]
Pasting = Callable[[str], str]


def number(text: str, form: str = "{:>4} ") -> str:
    """Put a number before each line."""
    return "".join(form.format(n) + line for n, line in enumerate(text.splitlines(keepends=True), 7))


def mark(text: str, prefix: str) -> str:
    """Put a prefix before each line."""
    return "".join(prefix + line for line in text.splitlines(keepends=True))


def join_lines(text: str) -> str:
    """Lose all line ends."""
    return " ".join(text.split())


def as_hunk(text: str) -> str:
    """Make a hunk of a diff: every fifth line was another one before."""
    lines = text.splitlines(keepends=True)
    body = "".join(f"-\told one\n+{line}" if n % 5 == 4 else f" {line}" for n, line in enumerate(lines))
    return (
        f"diff --git a/k b/k\nindex 12ab..34cd 100644\n--- a/k\n+++ b/k\n@@ -1,9 +1,{len(lines)} @@\n{body}"
    )


CHARACTERS: dict[str, Pasting] = {
    "no-break spaces": lambda text: text.replace(" ", ODD_SPACE),
    "some no-break spaces": lambda text: text.replace("  ", f" {ODD_SPACE}").replace(", ", f",{ODD_SPACE}"),
    "zero width": lambda text: text.replace(", ", f",{ZERO_WIDTH} "),
    "blanks for tabs": lambda text: text.expandtabs(4),
    "tabs for blanks": lambda text: text.replace("    ", "\t"),
    "smart quotes": lambda text: re.sub('"([^"\n]*)"', "\u201c\\1\u201d", text),
    "colors": lambda text: text.replace("R0", "\x1b[31mR0\x1b[0m").replace("%r1", "\x1b[1m%r1\x1b[0m"),
    "backquotes eaten": lambda text: text.replace("`", ""),
}
LINE_ENDS: dict[str, Pasting] = {
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "windows": lambda text: text.replace("\n", "\r\n"),
}
ONE_LINE: dict[str, Pasting] = {
    "one line": join_lines,
    "old mac": lambda text: text.replace("\n", "\r"),
    "escaped": lambda text: text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t"),
}
MARKS: dict[str, Pasting] = {
    "fence": lambda text: f"```ptx\n{text}\n```\n",
    "tildes": lambda text: f"~~~\n{text}\n~~~\n",
    "fence without its end": lambda text: f"```\n{text}",
    "end of a fence": lambda text: f"{text}\n```\n",
    "prose": lambda text: f"I see this:\n\n```asm\n{text}\n```\n\nWhy is it so slow?\n",
    "quote": lambda text: mark(text, "> "),
    "quote of a quote": lambda text: mark(text, "> > "),
    "bare quote": lambda text: mark(text, ">"),
    "cat -n": lambda text: number(text, "{:>6}\t"),
    "editor": lambda text: number(text, "{:>4} "),
    "less -N": lambda text: number(text, "{:>7} "),
    "bat": lambda text: number(text, "{:>4}   \N{BOX DRAWINGS LIGHT VERTICAL} "),
    "brackets": lambda text: number(text, "[{}] "),
    "grep -n": lambda text: number(text, "{}:"),
    "grep -n of files": lambda text: number(text, "out/k.txt:{}:"),
    "added lines": lambda text: mark(text, "+"),
    "hunk": as_hunk,
    "indented": lambda text: mark(text, "    "),
}
ESCAPES: dict[str, Pasting] = {
    "entities": lambda text: html.escape(text, quote=False),
    "all entities": html.escape,
    "page": lambda text: (
        f'<p>I see:</p>\n<pre><code class="x">\n{html.escape(text)}\n</code></pre>\n<p>Why?</p>'
    ),
    "inline tags": lambda text: f"<pre>{html.escape(text).replace('R0', '<b>R0</b>')}</pre>",
}
PASTINGS = CHARACTERS | LINE_ENDS | ONE_LINE | MARKS | ESCAPES


def read_text(text: str, folder: Path, name: str = "pasted.txt", arch: str = "") -> Module:
    """Read a text as a file."""
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return read_module(str(path), arch=arch, ptx=VIRTUAL)


def facts(module: Module) -> list[tuple[object, ...]]:
    """Return of each kernel what counts and times depend on."""
    return [
        (
            kernel.name,
            kernel.arch,
            tuple(form.text for form in kernel.decode_forms(0, len(kernel))),
            kernel.addresses.tolist(),
            [] if kernel.control_words is None else kernel.control_words.tolist(),
            kernel.resources,
            kernel.parameters,
        )
        for kernel in module.kernels
    ]


def list_codes(module: Module) -> set[str]:
    return {diagnostic.code for diagnostic in module.diagnostics}


@pytest.mark.parametrize("pasting", PASTINGS)
@pytest.mark.parametrize("path", [SASS[0], SASS[-1], PTX[0]], ids=lambda path: path.name)
def test_every_way_of_pasting(tmp_path: Path, path: Path, pasting: str) -> None:
    text = path.read_text()
    assert facts(read_text(PASTINGS[pasting](text), tmp_path)) == facts(read_text(text, tmp_path))


def pick(ways: dict[str, Pasting], most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(sorted(ways)), max_size=most, unique=True)


@settings(max_examples=30, deadline=None)
@given(
    path=st.sampled_from([*SASS, *PTX]),
    ways=st.one_of(
        st.tuples(pick(CHARACTERS, 2), pick(LINE_ENDS, 1), pick(MARKS, 2), pick(ESCAPES, 1)),
        st.tuples(pick(CHARACTERS, 2), pick(ONE_LINE, 1), pick(ESCAPES, 1)),
    ),
)
def test_pasted_code_is_the_code(
    tmp_path_factory: pytest.TempPathFactory, path: Path, ways: tuple[list[str], ...]
) -> None:
    folder, clean = tmp_path_factory.mktemp("law"), path.read_text()
    text = clean
    for pasting in chain(*ways):
        text = PASTINGS[pasting](text)
    assert facts(read_text(text, folder)) == facts(read_text(clean, folder))


def test_clean_code_is_left_alone() -> None:
    paths = [
        path
        for suffix in ("sass", "ptx", "ttir", "ttgir", "res", "json", "cubin")
        for path in TRACES.rglob(f"*.{suffix}")
    ]
    assert len(paths) > 100
    for path in paths:
        data = path.read_bytes()
        assert not is_pasted(data[:PASTED_BYTES]), path
        assert undo_pasting(data) is None, path


def test_a_long_file_is_looked_at_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the first 64 KiB decide, so a large file costs no more than a small one."""
    seen: list[int] = []
    monkeypatch.setattr(pasted_text, "undo_pasting", lambda data: seen.append(len(data)))
    assert not is_pasted(b"\t.section .text.k\n" * (PASTED_BYTES // 18))
    assert seen == [seen[0]]
    assert seen[0] <= HEAD_BYTES


def test_comments_and_strings_keep_their_characters() -> None:
    text = '// \N{EM DASH} a &lt; b\n.file 1 "/home/m\N{NO-BREAK SPACE}e/&amp;.cu"\n'
    assert undo_pasting(text.encode()) is None


@pytest.mark.parametrize("pasting", ["prose", "quote", "cat -n", "entities", "added lines"])
def test_triton_ir_is_read_too(tmp_path: Path, pasting: str) -> None:
    path, clean = tmp_path / "pasted.txt", TRACES / "levels" / "sm_90" / "softmax.ttgir"
    path.write_text(PASTINGS[pasting](clean.read_text()))
    assert is_triton_ir(str(path))
    names = [function.name for function in read_triton_module(str(path))[0].functions]
    assert names == [function.name for function in read_triton_module(str(clean))[0].functions]


# What was taken away is said.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("> EXIT ;\n> EXIT ;\n", "quote marks of 2 lines"),
        ("  7 EXIT ;\n  8 EXIT ;\n", "line numbers of 2 lines"),
        ("See:\n```\nEXIT ;\n```\nok?\n", "2 fences, 2 lines outside left out"),
        ("@@ -1,2 +1,2 @@\n-NOP ;\n+EXIT ;\n EXIT ;\n", "marks of a diff, 1 lines of its old side left out"),
        ("/*0000*/ NOP ; /*0010*/ EXIT ;", "1 line ends put back"),
        (
            "/*0000*/ NOP ;\n/*0010*/ @P0 BRA (.L_0) ;\n.L_0:\n/*0020*/ EXIT ;\n",
            "1 backquotes and asterisks put back",
        ),
        ("FADD R0, R1,\N{NO-BREAK SPACE}R2 ;\nEXIT ;\n", "1 odd characters replaced"),
        ("/0000/ NOP ;\n/0010/ EXIT ;\n", "2 backquotes and asterisks put back"),
    ],
)
def test_the_report_says_what_was_taken(tmp_path: Path, capsys: Capture, text: str, said: str) -> None:
    path = tmp_path / "k.txt"
    path.write_text(text)
    assert run(["analyze", str(path), "--arch", "sm_80"]) == 0
    assert f"pasted text: {said}" in capsys.readouterr().out


def test_missing_lines_are_said(tmp_path: Path) -> None:
    module = read_text("3:EXIT ;\n9:EXIT ;\n", tmp_path)
    (warning,) = [each for each in module.diagnostics if each.code == "missing-lines"]
    assert "some 5 lines are missing" in warning.message


def test_code_is_taken_from_the_first_block_that_is_read(tmp_path: Path) -> None:
    cuda, ptx = "__global__ void k() {}", "mov.u32 %r1, %tid.x;"
    module = read_text(f"a\n```cuda\n{cuda}\n```\nb\n```\n{ptx}\n```\n```\nEXIT ;\n```\n", tmp_path)
    assert [kernel.name for kernel in module.kernels] == ["pasted"]
    assert "blocks of CUDA source, instructions without headers among them" in module.diagnostics[0].message


# PTX without its header, and bodies

KERNEL = """.visible .entry axpy(.param .u64 x, .param .u32 n)
{
.reg .pred %p<2>;
.reg .b32 %r<4>;
.reg .b64 %rd<4>;
ld.param.u64 %rd1, [x];
ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x;
setp.ge.u32 %p1, %r2, %r1;
@%p1 bra $L__BB0_2;
mul.wide.u32 %rd2, %r2, 4;
add.s64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r2;
$L__BB0_2:
ret;
}
"""
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
BODY = KERNEL[KERNEL.index("ld.param") : KERNEL.index("$L__BB0_2:\n")]


def list_texts(module: Module) -> list[str]:
    (kernel,) = module.kernels
    return [form.text for form in kernel.decode_forms(0, len(kernel))]


@pytest.mark.parametrize(
    "text",
    [
        KERNEL,
        KERNEL[KERNEL.index(".param .u32 n") :],
        KERNEL[KERNEL.index(".reg") :],
        KERNEL[KERNEL.index("ld.param") :],
        KERNEL[KERNEL.index("ld.param") :].replace("%r", "r").replace("%p1", "p1"),
        BODY,
        HEADER + BODY,
        ".version 8.0\n" + KERNEL,
        ".target sm_80\n" + KERNEL,
    ],
    ids=[
        "no header",
        "end of a head",
        "no head",
        "body",
        "no percent signs",
        "no end",
        "no kernel",
        "no target",
        "no version",
    ],
)
def test_parts_of_ptx_are_read(tmp_path: Path, text: str) -> None:
    module = read_text(text, tmp_path, arch="sm_80")
    assert list_texts(module) == list_texts(read_text(HEADER + KERNEL, tmp_path, arch="sm_80"))
    assert "incomplete-ptx" in list_codes(module)
    assert "incomplete-ptx" not in list_codes(read_text(HEADER + KERNEL, tmp_path))


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    (kernel,) = read_text(BODY, tmp_path, arch="sm_80").kernels
    assert kernel.ptx_lines is not None
    store = next(row for row in range(len(kernel)) if "STG" in kernel.decode_form(row).text)
    assert BODY.splitlines()[kernel.ptx_lines[store] - 1].startswith("st.global")


def test_nothing_of_a_part_is_left_out(tmp_path: Path) -> None:
    """What a loop leaves in registers is used by code that was not pasted."""
    loop = "$L:\nld.shared.f32 %f1, [tile];\nfma.rn.f32 %f2, %f1, %f1, %f2;\nsetp.lt.s32 %p1, %r1, 9;\n@%p1 bra $L;\nbra $E;\n"
    module = read_text(loop, tmp_path, arch="sm_80")
    names = [text.split()[0] for text in list_texts(module)]
    assert {"LDS", "FFMA"} <= set(names)
    assert "without the declaration of tile" in module.diagnostics[0].message
    assert module.kernels[0].is_excerpt


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        (KERNEL, "sm_80"),
        (BODY + "wgmma.fence.sync.aligned;\n", "sm_90a"),
        (BODY + "tcgen05.fence::before_thread_sync;\n", "sm_100a"),
    ],
)
def test_the_target_is_the_least_that_has_all(tmp_path: Path, text: str, arch: str) -> None:
    module = read_text(text, tmp_path)
    assert module.kernels[0].arch == arch
    assert f"taken as {arch}: --gpu or --arch names another" in module.diagnostics[0].message


@pytest.mark.parametrize(
    "text", [BODY + "foo bar baz\n", KERNEL.replace("mul.wide", "mul wide"), KERNEL[:-30]]
)
def test_damaged_ptx_is_not_called_sass(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_text(text, tmp_path, arch="sm_80")
    assert "SASS" not in str(caught.value)
    assert "cuobjdump" not in caught.value.diagnostic.hint


def test_the_place_of_an_error_in_the_first_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_text("mov.u32 %r1, %tid.x; ld.u32 %r1, [[;\nret;\n", tmp_path, arch="sm_80")
    place = caught.value.diagnostic.location
    assert place is not None
    assert (place.line, place.text) == (1, "mov.u32 %r1, %tid.x; ld.u32 %r1, [[;")
    assert place.text.index("ld") < place.column <= len(place.text)
