"""Parameters and constants of the kernels in an object or library, from the cubins in it."""

from analyzer.frontend.binaries import extract_cubins
from analyzer.frontend.cubin_info import read_cubin
from analyzer.frontend.kernel_facts import KernelFacts
from analyzer.text.errors import InputError, ToolError

BinaryFacts = dict[tuple[str, str], KernelFacts | None]


def read_binary_facts(path: str) -> BinaryFacts:
    """What the cubins in a file state, by architecture and kernel; nothing where they cannot be had.

    The disassembler reads the same file: it says what is wrong with it.
    """
    found: BinaryFacts = {}
    try:
        for cubin in extract_cubins(path):
            for name, facts in read_cubin(cubin.content).facts.items():
                add_facts(found, cubin.arch, name, facts)
    except (InputError, OSError, ToolError):
        return {}
    return found


def add_facts(found: BinaryFacts, arch: str, name: str, facts: KernelFacts) -> None:
    """What one cubin states; None for a kernel that is there twice, and differs."""
    key = (arch, name)
    found[key] = facts if found.get(key, facts) == facts else None
