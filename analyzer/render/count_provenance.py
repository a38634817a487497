"""Provenance of execution counts, and the branches that nothing decides."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.execution.profile.provenance import INEXACT_PROVENANCES
from analyzer.render.number_format import format_percent
from analyzer.report.analyze_schema import CountsEntry, KernelReport, UnknownBranchEntry

MAX_SHOWN_BRANCHES = 5
_CODE = "code"
_TILES = "tiles of products"


def make_counts_line(kernel: KernelReport) -> Text:
    """Return `counts exact (executed 1,024 of 1,024 CTAs)`, or what the counts are assumed from."""
    counts = kernel.counts
    style = {"exact": "green", "traced": "green"}.get(counts.provenance, "yellow")
    text = Text.assemble("counts ", (counts.provenance, style))
    if counts.looked_at_ctas is None:
        return text.append(_describe_static_counts(kernel))
    if counts.provenance in INEXACT_PROVENANCES:
        text.append(f": {_format_assumed_shares(counts)}{_describe_cause(kernel)}")
    if counts.addresses in INEXACT_PROVENANCES:
        of_requests = f"{format_percent(counts.assumed_address_share)} of requests"
        text = Text.assemble(text, ", addresses ", (counts.addresses, "yellow"), f": {of_requests}")
    if any(entry.what == _TILES for entry in kernel.unknowns):
        text = Text.assemble(text, ", multiply-adds ", ("assumed", "yellow"))
    return text.append(f" ({_format_looked_at_ctas(kernel)})")


def _describe_cause(kernel: KernelReport) -> str:
    """Return what assumed or unknown counts of an executed launch rest on."""
    n_unknown = len(find_unknown_branches(kernel))
    if n_unknown:
        return f" depend on {n_unknown} unknown branch{'es' if n_unknown > 1 else ''}"
    if kernel.counts.provenance == "unknown":
        return ", execution did not come to the end"
    if kernel.missing_code:
        return ": a part of the code is missing"
    return " rest on a sample of the grid" if kernel.counts.is_sample else ""


def make_unknown_line(kernel: KernelReport) -> Text | None:
    """Return what the prediction depends on and nobody gave, with options that settle it; None if nothing.

    Example: `branches, addresses unknown: give --arg 2=N (n)`.
    """
    kinds = [entry.what for entry in kernel.unknowns if entry.what != _CODE]
    options = dict.fromkeys(
        f"{option} ({name})" if name else option
        for entry in kernel.unknowns
        for option, name in zip(entry.settle, entry.names, strict=True)
    )
    lines = list(kernel.missing_code)
    if kinds:
        lines.append(f"{', '.join(kinds)} unknown" + (f": give {', '.join(options)}" if options else ""))
    return Text("\n".join(lines), style="bold yellow") if lines else None


def _describe_static_counts(kernel: KernelReport) -> str:
    if kernel.counts.provenance == "exact":
        return " (no branch depends on the launch)"
    launch = kernel.launch
    missing = [name for name, dims in (("grid", launch.grid), ("block", launch.block)) if dims is None]
    return f": {' and '.join(missing) or 'architecture'} not known, loops and branches settled by rule"


def _format_assumed_shares(counts: CountsEntry) -> str:
    text = f"{format_percent(counts.assumed_share)} of instructions"
    if counts.assumed_time_share is not None:
        text += f", {format_percent(counts.assumed_time_share)} of a warp's time"
    return text


def _format_looked_at_ctas(kernel: KernelReport) -> str:
    counts, grid = kernel.counts, kernel.launch.grid
    looked_at = counts.looked_at_ctas or 0
    verb = "" if counts.provenance == "traced" else "executed "
    if grid is None:
        return f"{verb}{looked_at:,} CTAs"
    total = grid[0] * grid[1] * grid[2]
    is_proven = not counts.is_sample and counts.provenance in ("exact", "assumed")
    alike = ""
    if looked_at < total and counts.is_sample:
        alike = ", the others assumed to be like them"
    elif looked_at < total and is_proven:
        alike = ", the others proven alike"
    return f"{verb}{looked_at:,} of {total:,} CTAs{alike}"


def find_unknown_branches(kernel: KernelReport) -> list[UnknownBranchEntry]:
    """Return the undecided branches of an executed launch that counts depend on, largest share first.

    Branches that only zero counts depend on, such as slow paths that are not taken, are listed where there
    are no others.
    """
    counts = kernel.counts
    if counts.looked_at_ctas is None:
        return []
    only_zeros = counts.provenance == "assumed" and not counts.assumed_share
    found = [branch for branch in counts.unknown_branches if branch.share > 0 or only_zeros]
    return sorted(found, key=lambda branch: (-branch.share, branch.address))


def make_branch_list(kernel: KernelReport, *, everything: bool) -> RenderableType:
    """Return the undecided branches: what each depends on, what was assumed, how to settle it."""
    branches = find_unknown_branches(kernel)
    shown = branches if everything else branches[:MAX_SHOWN_BRANCHES]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for branch in shown:
        head = f"0x{branch.address:04x} {branch.instruction}"
        rule = f"\n{branch.rule}\nsettle with {branch.settle}"
        table.add_row(
            f"  {format_percent(branch.share)}",
            Text.assemble((head, "bold"), f"  depends on {branch.origin}{rule}"),
        )
    parts: list[RenderableType] = [
        Text("unknown branches, with the share of instructions that depend on them", style="italic"),
        table,
    ]
    if len(branches) > len(shown):
        parts.append(Text(f"  {len(branches) - len(shown)} more: --all", style="dim"))
    return Group(*parts)


def is_listed_branch_note(kernel: KernelReport, note: str) -> bool:
    """Return whether the list of unknown branches repeats the note."""
    return any(note.startswith(f"branch at {b.address:#06x}:") for b in find_unknown_branches(kernel))
