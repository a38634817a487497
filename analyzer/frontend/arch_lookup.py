"""Looking up what is said of a kernel, by architecture and name."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def find_arch_entry(table: Mapping[tuple[str, str], T], arch: str, name: str) -> T | None:
    """The kernel's entry: of its architecture, of that with another suffix, or of none.

    An image that `arch = sm_100f` announces is disassembled as sm_100.
    """
    base = arch.rstrip("af")
    names = (arch, base, f"{base}a", f"{base}f", "")
    return next((table[key, name] for key in names if (key, name) in table), None)
