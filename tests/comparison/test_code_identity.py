"""Equal code has one digest wherever it stands, whatever it is called and whatever tool printed it."""

import re
from pathlib import Path

import pytest
from paths import TRACES

import analyzer
from analyzer.comparison.canonical_code import list_canonical_texts
from analyzer.comparison.code_identity import digest_code, digest_instructions
from analyzer.ir.module import Kernel

REPORT16 = TRACES / "cuda" / "sm_80" / "report16.sass"


def load_kernels(path: Path) -> dict[str, Kernel]:
    return {each.name: each.kernel for each in analyzer.load(str(path)).kernels}


def write(folder: Path, text: str) -> dict[str, Kernel]:
    path = folder / "edited.sass"
    path.write_text(text)
    return load_kernels(path)


def test_tools_that_print_one_cubin_agree() -> None:
    binary = load_kernels(TRACES / "cubin" / "softmax_sm_90.cubin")["softmax"]
    graph = load_kernels(TRACES / "nvdisasm" / "softmax_sm_90.hex_g.txt")["softmax"]
    assert digest_instructions(binary) == digest_instructions(graph)


def test_names_order_and_line_of_functions_do_not_count(tmp_path: Path) -> None:
    text = REPORT16.read_text()
    head, *functions = re.split(r"(?=^\t\tFunction : )", text, flags=re.M)
    renamed = [re.sub(r"Function : (\w+)", r"Function : other_\1", each) for each in reversed(functions)]
    found = write(tmp_path, "\n\n" + head + "".join(renamed))
    expected = {f"other_{name}": digest_instructions(each) for name, each in load_kernels(REPORT16).items()}
    assert {name: digest_instructions(each) for name, each in found.items()} == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("LEA R5, R5, R4, 0x5", "LEA R5, R5, R4, 0x6", id="operand"),
        pytest.param("0x001fc800078e28ff", "0x001fca00078e28ff", id="stall count"),
        pytest.param("@!P0 BRA 0x120", "@!P0 BRA 0x130", id="target"),
    ],
)
def test_what_a_gpu_sees_counts(old: str, new: str, tmp_path: Path) -> None:
    text = REPORT16.read_text()
    assert old in text
    found = write(tmp_path, text.replace(old, new, 1))
    expected = {name: digest_instructions(each) for name, each in load_kernels(REPORT16).items()}
    changed = {name for name, each in found.items() if digest_instructions(each) != expected[name]}
    assert changed == {"shared_bank_conflict"}


def test_resources_count(tmp_path: Path) -> None:
    kernel = load_kernels(REPORT16)["saxpy"]
    (tmp_path / "edited.res").write_text(
        "Resource usage:\n Function saxpy:\n  REG:40 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:380 TEXTURE:0"
        " SURFACE:0 SAMPLER:0\n"
    )
    other = write(tmp_path, REPORT16.read_text())["saxpy"]
    assert digest_instructions(kernel) == digest_instructions(other)
    assert digest_code(kernel) != digest_code(other)


def test_labels_and_own_names_become_offsets() -> None:
    texts = list_canonical_texts(
        analyzer.load(str(TRACES / "blackwell" / "products_6_persistent.cubin")).kernels[0].kernel
    )
    assert not [text for text in texts if "`(" in text]
    assert any(text.startswith("CALL.REL.NOINC @0x") for text in texts)
    assert any(text.startswith("RET.REL.NODEC R2 @0x0") for text in texts)
