"""No name of an architecture or a GPU decides anything outside of `frontend` and `hardware`.

What differs from one machine to another is in `hwdb`, so that a new architecture is one file. Literals are
compared with the names of the database; docstrings and sentences (help, hints, examples) may name any.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from paths import ROOT

from analyzer.hardware.gpu_database import load_all_gpus

_MODULES = [
    path
    for path in sorted((ROOT / "analyzer").rglob("*.py"))
    if path.relative_to(ROOT).parts[1] not in ("frontend", "hardware")
]
_ARCH = re.compile(r"\bsm_|gfx", re.IGNORECASE)
_MOST_WORDS = 3  # of a literal that is compared or looked up; more of them are a sentence for readers
# Words of products' names that mean something of their own in code.
_COMMON_WORDS = {"gpu", "nvidia", "amd", "pcie", "server", "edition", "generation", "mobile", "super", "pro"}
_CAPABILITY = {"major", "minor", "compute_capability"}
_ALLOWED = {
    ("evaluation/ncu_export.py", "sm_"): "names the architecture that the numbers of an export give",
    ("evaluation/pytorch_trace.py", "sm_"): "names the architecture that the numbers of a trace give",
    ("ir/trace.py", "sm_"): "names the architecture that the number of a trace gives",
    ("pipeline/trace_matching.py", r"sm_\d+"): "finds the architecture in the name of a file",
    ("operators/families/scaled_mm.py", "sm_share"): "a feature: the busy share of the SMs",
    ("live/torch_module.py", "h100"): "the GPU of a call that names none, as its signature says",
}


@cache
def product_names() -> frozenset[str]:
    """Keys, aliases, chips and names of all GPUs, in lower case."""
    names: set[str] = set()
    for gpu in load_all_gpus():
        file = gpu.file
        names |= {gpu.key, gpu.name, file.chip, file.device_name, *file.aliases}
        names |= {gpu.arch.family} if gpu.arch else set()
    return frozenset(name.lower() for name in names if name)


@cache
def product_words() -> frozenset[str]:
    """Words of these names: `h100`, `titan`, `geforce`, `sxm5`."""
    words = {word for name in product_names() for word in re.split(r"[\s_-]+", name)}
    return frozenset(word for word in words - _COMMON_WORDS if len(word) > 2 and not word.isdigit())


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and texts of all strings that are no docstrings."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def decides(text: str) -> bool:
    if text.lower() in product_names():
        return True
    words = [word for word in re.split(r"[\s_-]+", text.lower()) if word]
    if len(words) > _MOST_WORDS or text.startswith("warplens "):
        return False
    return bool(_ARCH.search(text)) or not product_words().isdisjoint(words)


def compared_capabilities(tree: ast.Module) -> Iterator[int]:
    """Lines that compare the digits of a compute capability."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(isinstance(side, ast.Attribute) and side.attr in _CAPABILITY for side in sides):
                yield node.lineno


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], int]:
    """Lines of literals that decide, by module and text."""
    return {
        (path.relative_to(ROOT / "analyzer").as_posix(), text): line
        for path in _MODULES
        for line, text in literals(ast.parse(path.read_text(encoding="utf-8")))
        if decides(text)
    }


def test_no_name_of_a_machine_decides(found: dict[tuple[str, str], int]) -> None:
    assert [
        f"{path}:{line}: {text!r}" for (path, text), line in found.items() if (path, text) not in _ALLOWED
    ] == []


def test_every_exception_is_still_needed(found: dict[tuple[str, str], int]) -> None:
    assert set(_ALLOWED) <= set(found)


def test_no_digits_of_a_compute_capability_are_compared() -> None:
    trees = ((path, ast.parse(path.read_text(encoding="utf-8"))) for path in _MODULES)
    assert [f"{path}:{line}" for path, tree in trees for line in compared_capabilities(tree)] == []


@pytest.mark.parametrize(
    "text",
    [
        "sm_90",
        "sm_90a",
        "H200",
        "titan",
        "gb200",
        "rtx-",
        "a100",
        "gfx942",
        "NVIDIA H200",
        "Hopper",
        "GA100",
        "NVIDIA RTX 6000 Ada Generation",
    ],
)
def test_the_scan_sees(text: str) -> None:
    assert decides(text)


@pytest.mark.parametrize("text", ["gpu", "crosses PCIe", "warplens gpus h100", "on an H100 this takes long"])
def test_the_scan_passes(text: str) -> None:
    assert not decides(text)
