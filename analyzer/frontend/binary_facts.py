"""Parameters and constants of the kernels in an object or library, from the cubins in it."""

import re

from analyzer.frontend.binaries import extract_cubins
from analyzer.frontend.cubin_info import read_cubin
from analyzer.frontend.kernel_facts import KernelFacts
from analyzer.text.errors import InputError, ToolError

_VARIANT = re.compile(r"(?<=\d)[a-z]$")


class BinaryFacts:
    """Facts by architecture and name; of kernels that are there twice, and differ, nothing is said."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str, str], KernelFacts | None] = {}

    def add(self, arch: str, name: str, facts: KernelFacts) -> None:
        """What one cubin states; sm_90a is found as sm_90 too."""
        for key in {(arch, name), (_VARIANT.sub("", arch), name)}:
            self._facts[key] = facts if self._facts.get(key, facts) == facts else None

    def find(self, arch: str, name: str) -> KernelFacts | None:
        """Facts of a kernel, None where there are none."""
        key = (arch, name)
        return self._facts.get(key) or self._facts.get((_VARIANT.sub("", arch), name))


def read_binary_facts(path: str) -> BinaryFacts:
    """What the cubins in a file state; nothing where they cannot be taken out of it.

    The disassembler reads the same file: it says what is wrong with it.
    """
    found = BinaryFacts()
    try:
        for cubin in extract_cubins(path):
            for name, facts in read_cubin(cubin.content).facts.items():
                found.add(cubin.arch, name, facts)
    except (InputError, OSError, ToolError):
        return BinaryFacts()
    return found
