"""The advice on a kernel as text: numbered findings, the largest gain first."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from analyzer.render.number_format import PROVENANCE_MARKS
from analyzer.report.analyze_schema import AdviceEntry, KernelReport
from analyzer.text.source import shorten_source

_MIN_GAIN_SHARE = 0.03
_MAX_OTHER_PLACES = 4
_GUESS_TITLE = "if lanes address memory at random, which is not known (--arg WHICH=@data.npy would tell)"
_GUESS_MARK = PROVENANCE_MARKS["assumed"]


def make_advice_list(kernel: KernelReport) -> RenderableType:
    """Return the findings that gain enough, guesses apart, then the names of those that gain less."""
    shown = [entry for entry in kernel.advice if entry.gain_share >= _MIN_GAIN_SHARE]
    n_facts = sum(not entry.is_guess for entry in shown)
    minor = [entry for entry in kernel.advice if entry.gain_share < _MIN_GAIN_SHARE]
    lines: list[RenderableType] = []
    if n_facts:
        lines.append(Text("advice, largest gain first; each gain by itself", style="italic"))
    else:
        lines.append(Text(f"advice: nothing found that would gain {_MIN_GAIN_SHARE * 100:.0f} % or more"))
    for number, entry in enumerate(shown, start=1):
        if number == n_facts + 1:
            lines.append(Text(_GUESS_TITLE, style="italic"))
        lines += _make_finding_lines(number, entry)
    if minor:
        names = ", ".join(f"{entry.rule} {_format_share(entry)}{_format_place(entry)}" for entry in minor)
        lines.append(Padding(Text(f"found too, but gains less: {names}", style="dim"), (0, 0, 0, 2)))
    return Group(*lines)


def _make_finding_lines(number: int, entry: AdviceEntry) -> list[RenderableType]:
    gain = f"gains {_GUESS_MARK * entry.is_guess}{entry.gain_share:.0%} ({entry.gain_cycles:,.0f} cycles)"
    header = Text.assemble(f"  {number}. ", (entry.rule, "bold"), f"  {gain}{_format_place(entry)}")
    details = [entry.finding + _format_other_places(entry), f"do: {entry.action}"]
    return [
        header,
        *(Padding(Text(detail), (0, 0, 0, 5)) for detail in details),
        Padding(Text(f"gain: {entry.gain_basis}", style="dim"), (0, 0, 0, 5)),
    ]


def _format_share(entry: AdviceEntry) -> str:
    limit = "at most " if entry.gain_is_limit else ""
    return f"{limit}{_GUESS_MARK * entry.is_guess}{entry.gain_share:.1%}"


def _format_place(entry: AdviceEntry) -> str:
    """Return opcode, address and source line of a finding; nothing for the kernel as a whole."""
    if entry.address is None:
        return ""
    source = f" ({shorten_source(entry.source)})" if entry.source else ""
    return f"  at {entry.address:#06x} {entry.opcode}{source}"


def _format_other_places(entry: AdviceEntry) -> str:
    others = entry.other_addresses
    if not others:
        return ""
    named = ", ".join(f"{address:#06x}" for address in others[:_MAX_OTHER_PLACES])
    more = len(others) - _MAX_OTHER_PLACES
    return f"; also at {named}" + (f" and {more} more" if more > 0 else "")
