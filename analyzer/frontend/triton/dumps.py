"""Cuts a text into its dumps of modules, and finds the one to read: the last of a kernel.

MLIR_ENABLE_DUMP prints the module before each pass, the compiler's tests are divided by `// -----`, and
people put a .ttir and a .ttgir into one file. An alias such as `#blocked` means something else in each.

    // -----// IR Dump Before TritonGPUPipeline (tritongpu-pipeline) ('builtin.module' operation) //----- //
    #blocked = #ttg.blocked<{...}>
    module attributes {...} { ... }
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from analyzer.text.errors import UsageError
from analyzer.text.source import Diagnostic, Severity

_HEADER = re.compile(r"\s*// -----(?://\s*IR Dump (?P<stage>(?:Before|After) [^\s(]+))?")
_MODULE = re.compile(r'(?:builtin\.)?module\b|"builtin\.module"')
_ALIAS = re.compile(r"([#!][A-Za-z_][\w$.]*)\s*=\s*(?P<place>loc\()?")  # behind a module stand places alone
_FUNCTION = re.compile(
    r'^[ \t]*"?(?:tt|func)\.func\b(?P<how>[^@\n]*?)(?:@(?:"(?P<quoted>[^"\n]+)"|(?P<plain>[\w$.-]+))'
    r'|\bsym_name = "(?P<generic>[^"\n]+)"(?P<behind>[^\n]*))',
    re.M,
)
_PUBLIC = re.compile(r"\bpublic\b")
_MAX_SHOWN_NAMES = 8


class Dump(Struct, frozen=True):
    """One dump: the lines from `first` up to `end` (indices), and the kernels in it."""

    first: int
    end: int
    stage: str  # of the compiler: `after SCCP`, "" where nothing says
    kernels: tuple[str, ...]


def choose_dump(lines: Sequence[str], kernel: str | None) -> tuple[Dump, tuple[Diagnostic, ...]]:
    """Return the last dump of a kernel, with a warning if there are more of it.

    kernel: None: of the only one there is. Raises UsageError if no dump has it, and without a name if there
    are several kernels in different dumps.
    """
    dumps = [dump for dump in _split(lines) if dump.kernels]
    if len(dumps) < 2:  # what is missing is told by who reads it
        return dumps[0] if dumps else Dump(0, len(lines), "", ()), ()
    names = list(dict.fromkeys(name for dump in dumps for name in dump.kernels))
    fitting = [dump for dump in dumps if kernel is None or kernel in dump.kernels]
    if not fitting or (kernel is None and len(names) > len(fitting[-1].kernels)):
        raise UsageError(
            f"{len(names)} kernels in this file" if kernel is None else f"no kernel {kernel!r}",
            hint=f"one of {', '.join(names[:_MAX_SHOWN_NAMES])}",
        )
    chosen = fitting[-1]
    if len(fitting) == 1:
        return chosen, ()
    where = f"line {chosen.first + 1}" + (f", {chosen.stage}" if chosen.stage else "")
    message = f"{len(fitting)} dumps of {', '.join(chosen.kernels)}: the last one is read ({where})"
    return chosen, (Diagnostic(Severity.WARNING, "several-dumps", message),)


def _split(lines: Sequence[str]) -> Iterator[Dump]:
    """Yield the dumps of a text, each from its header, or from the aliases before its module."""
    first, stage = 0, ""
    has_module, aliases = False, set[str]()
    for number, line in enumerate(lines):
        header = _HEADER.match(line)
        alias = _ALIAS.match(line)
        is_of_next = alias is not None and (alias["place"] is None or alias[1] in aliases)
        is_module = _MODULE.match(line) is not None
        if header is not None or (has_module and (is_of_next or is_module)):
            yield _make_dump(lines, first, number, stage)
            first, stage = number, (header["stage"] or "") if header is not None else ""
            has_module, aliases = False, set()
        has_module = has_module or is_module
        if alias is not None:
            aliases.add(alias[1])
    yield _make_dump(lines, first, len(lines), stage)


def _make_dump(lines: Sequence[str], first: int, end: int, stage: str) -> Dump:
    """Return a dump with its kernels: the public functions, all where none is public."""
    functions = list(_FUNCTION.finditer("\n".join(lines[first:end])))
    public = [each for each in functions if _PUBLIC.search(each["how"] + (each["behind"] or ""))]
    names = [each["quoted"] or each["plain"] or each["generic"] for each in public or functions]
    return Dump(first, end, stage[:1].lower() + stage[1:], tuple(dict.fromkeys(names)))
