"""Lookup of data on a kernel by architecture and name."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def find_arch_entry(table: Mapping[tuple[str, str], T], arch: str, name: str) -> T | None:
    """Return a kernel's entry: for its architecture, for one of another suffix, or for none (`""`).

    The suffix may differ because cuobjdump disassembles an image of `arch = sm_100f` as sm_100.
    """
    base = arch.rstrip("af")
    names = (arch, base, f"{base}a", f"{base}f", "")
    return next((table[key, name] for key in names if (key, name) in table), None)
