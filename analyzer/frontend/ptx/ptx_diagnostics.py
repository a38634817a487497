"""Warnings of the PTX parser, counted by cause."""

from collections.abc import Callable, Iterator

from msgspec import Struct, field

from analyzer.frontend.sass_diagnostics import Occurrences
from analyzer.text.source import Diagnostic, Location, Severity

_MAX_NAMES = 256  # of one kind that are told apart
_OTHERS = "others"


class PtxDiagnostics(Struct):
    """Events that are collected while a file is read."""

    unknown_directives: dict[str, Occurrences] = field(default_factory=dict)
    unknown_registers: dict[str, Occurrences] = field(default_factory=dict)

    other_modules: Occurrences = field(default_factory=Occurrences)

    def add_directive(self, name: str, where: Callable[[], Location]) -> None:
        """Count a directive that is not known and was skipped."""
        _count(self.unknown_directives, name, where)

    def add_register(self, name: str, where: Callable[[], Location]) -> None:
        """Count a register that is neither declared nor known as a special one."""
        _count(self.unknown_registers, name, where)

    def build_warnings(self) -> Iterator[Diagnostic]:
        """Yield the warnings, each with its count and first location."""
        for name, occurrences in sorted(self.unknown_directives.items()):
            yield Diagnostic(
                Severity.WARNING,
                "unknown-directive",
                f"{name} is not a known directive of PTX; it is skipped",
                occurrences.first,
                hint="make sure that it changes no code",
                count=occurrences.count,
            )
        if self.other_modules.count:
            yield Diagnostic(
                Severity.WARNING,
                "other-modules",
                "a second module begins here; only the first one is read",
                self.other_modules.first,
                hint="give each a file of its own: cuobjdump -xptx all FILE",
            )
        for name, occurrences in sorted(self.unknown_registers.items()):
            yield Diagnostic(
                Severity.WARNING,
                "unknown-register",
                f"{name} is neither declared nor a known special register",
                occurrences.first,
                hint="its value counts as unknown",
                count=occurrences.count,
            )


def _count(table: dict[str, Occurrences], name: str, where: Callable[[], Location]) -> None:
    if name not in table and len(table) >= _MAX_NAMES:
        name = _OTHERS
    table.setdefault(name, Occurrences()).add(where)
