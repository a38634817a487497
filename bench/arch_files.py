"""Read the files of hwdb/arch as written, and order architectures by how near they are to another one."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from kernels.recipes import ROOT

Table = dict[str, Any]

# Architectures that may stand in for another one: those of measured kernels.
MEASURED_ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120", "sm_70", "sm_100")
_FIRST_MIXED_ARCH = 110  # sm_80, sm_90 and sm_100 are data-centre chips; sm_120 is not


class ArchFiles:
    """The files of hwdb/arch, with lookup through inheritance."""

    def __init__(self) -> None:
        folder = ROOT / "hwdb" / "arch"
        self.tables: Mapping[str, Table] = {
            path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.toml")
        }

    def list_ancestors(self, arch: str) -> Iterator[str]:
        """Yield an architecture, then those that it inherits from."""
        name: str | None = arch
        while name is not None:
            yield name
            name = self.tables[name].get("inherits")

    def find(self, arch: str, section: str, key: str) -> tuple[str, Table] | None:
        """Return the file that defines a figure of an architecture, and the figure; None if none does."""
        for name in self.list_ancestors(arch):
            table: Any = self.tables[name]
            for part in section.split("."):
                table = table.get(part, {})
            if key in table:
                return name, table[key]
        return None


def measure_arch_distance(one: str, other: str) -> tuple[bool, int]:
    """Return a sort key: whether the families (data centre, graphics) differ, then the version gap."""
    left, right = int(one[3:]), int(other[3:])
    return _is_data_center(left) != _is_data_center(right), abs(left - right)


def _is_data_center(number: int) -> bool:
    return number % 10 == 0 and number < _FIRST_MIXED_ARCH
