"""Find and read the shipped traces."""

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
    """Yield the bytes of a file in chunks."""
    with path.open("rb") as file:
        while chunk := file.read(size):
            yield chunk


def list_sass_dumps() -> list[Path]:
    """Return all shipped `cuobjdump -sass` texts."""
    return sorted(TRACES.glob("*/sm_*/*.sass"))


def list_nvdisasm_texts() -> list[Path]:
    """Return all shipped nvdisasm texts."""
    return sorted((TRACES / "nvdisasm").glob("*.txt"))


def list_nvdisasm_graphs() -> list[Path]:
    """Return all shipped control-flow graphs of `nvdisasm -bbcfg`."""
    return sorted((TRACES / "nvdisasm").glob("*.dot"))


def format_trace_name(path: Path) -> str:
    """Format the name of a trace in test ids, such as `triton/sm_90/softmax.sass`."""
    return path.relative_to(TRACES).as_posix()


@cache
def read_module(path: Path) -> Module:
    """Parse a dump, once for all tests; modules are immutable."""
    return parse_sass(str(path), read_chunks(path))


def read_kernel(dump: str, kernel: str = "") -> Kernel:
    """Return one kernel of a shipped dump, its only one if no name is given."""
    module = read_module(TRACES / dump)
    if not kernel:
        assert len(module) == 1, f"{dump} holds {len(module)} kernels"
        return module.kernels[0]
    return next(k for k in module if k.name == kernel)


def parse_lines(*texts: str, arch: str = "sm_90") -> Kernel:
    """Parse a kernel of the given instruction texts."""
    return parse_sass("kernel.sass", [format_dump(arch, *texts).encode()]).kernels[0]


def format_dump(arch: str, *texts: str) -> str:
    """Format instruction texts of a kernel as cuobjdump prints them, without encodings."""
    lines = [f"        /*{16 * row:04x}*/                   {text} ;" for row, text in enumerate(texts)]
    return "\n".join((f"\tcode for {arch}", "\t\tFunction : kernel", *lines, ""))
