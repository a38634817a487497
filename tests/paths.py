"""Where the shipped traces lie, and how tests read them."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from analyzer.frontend.sass_parser import parse_sass
from analyzer.ir.module import Kernel, Module

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "traces"
CASES = ROOT / "grammars" / "cases"
HWDB = ROOT / "hwdb"
_CHUNK_BYTES = 1 << 20
# An instruction line as cuobjdump and nvdisasm print it: address, guard, mnemonic, the rest up to `;`.
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(\S+)\s+)?([A-Z][\w.]*)([^;]*);", re.M)


def read_chunks(path: Path, size: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of a file in pieces."""
    with path.open("rb") as file:
        while chunk := file.read(size):
            yield chunk


def list_sass_dumps() -> list[Path]:
    """Every `cuobjdump -sass` text that is shipped."""
    return sorted(TRACES.glob("*/sm_*/*.sass"))


def list_nvdisasm_texts() -> list[Path]:
    """Every nvdisasm text that is shipped."""
    return sorted((TRACES / "nvdisasm").glob("*.txt"))


def list_nvdisasm_graphs() -> list[Path]:
    """Every control-flow graph that `nvdisasm -bbcfg` drew."""
    return sorted((TRACES / "nvdisasm").glob("*.dot"))


def format_trace_name(path: Path) -> str:
    """`triton/sm_90/softmax.sass`: how a test names its trace."""
    return path.relative_to(TRACES).as_posix()


@cache
def read_module(path: Path) -> Module:
    """A dump, read once for all tests; modules do not change."""
    return parse_sass(str(path), read_chunks(path))


def read_kernel(dump: str, kernel: str = "") -> Kernel:
    """One kernel of a shipped dump, the only one where no name is given."""
    module = read_module(TRACES / dump)
    if not kernel:
        assert len(module) == 1, f"{dump} holds {len(module)} kernels"
        return module.kernels[0]
    return next(k for k in module if k.name == kernel)


def parse_lines(*texts: str, arch: str = "sm_90") -> Kernel:
    """A kernel of the given instruction texts."""
    return parse_sass("kernel.sass", [format_dump(arch, *texts).encode()]).kernels[0]


def format_dump(arch: str, *texts: str) -> str:
    """The given instruction texts of a kernel as cuobjdump would print them, without encodings."""
    lines = [f"        /*{16 * row:04x}*/                   {text} ;" for row, text in enumerate(texts)]
    return "\n".join((f"\tcode for {arch}", "\t\tFunction : kernel", *lines, ""))
