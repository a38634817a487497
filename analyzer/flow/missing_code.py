"""Sentences about code that the input lacks: it was cut off, or is a part of a function.

`Cfg.missing_code` lists the ways that lead out of the code that is there. Where there is one, what runs
behind it is not counted, so no count of the function is exact.

    0x20  @P0 BRA 0x500     leads to 0x500, which is not in the input
    0x30  FADD R2, R2, R2   the last instruction: the code ends without EXIT

The same holds for instructions whose operands are not understood, and for calls of functions that the input
does not have: of the system (malloc, printf) or of another file.
"""

from collections.abc import Sequence

from analyzer.flow.cfg import Cfg, MissingCode

CUT_OFF_CODE = "cut-off-code"  # code of the warning
_MAX_SHOWN_WAYS = 3


def format_missing_code(cfg: Cfg, called_rows: Sequence[int] = ()) -> tuple[str, ...]:
    """Return sentences for the report about code that is missing; none where all is there.

    called_rows: calls of functions outside the input that were executed.
    """
    ways = [_format_way(cfg, missing) for missing in cfg.missing_code]
    found = []
    if ways and cfg.kernel.is_excerpt:
        found.append("a part of a kernel: what stands around it is not counted")
    elif ways:
        found.append(f"the code is cut off: {_format_first(ways)}; what follows is not counted")
    if unparsed := cfg.kernel.unparsed_rows:
        places = [f"{int(cfg.kernel.addresses[row]):#06x}" for row in unparsed]
        found.append(
            f"operands that are not understood at {_format_first(places)}: their results are unknown"
        )
    if called_rows:
        places = [f"{int(cfg.kernel.addresses[row]):#06x}" for row in called_rows]
        found.append(
            "calls of functions that the input does not have (malloc, printf or of another file) at "
            f"{_format_first(places)}: what runs there is not counted"
        )
    return tuple(found)


def _format_first(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MAX_SHOWN_WAYS} more" if len(texts) > _MAX_SHOWN_WAYS else ""
    return ", ".join(texts[:_MAX_SHOWN_WAYS]) + more


def _format_way(cfg: Cfg, missing: MissingCode) -> str:
    """Return how control leaves the code that is there."""
    kernel, row = cfg.kernel, missing.row
    place = f"{int(kernel.addresses[row]):#06x}"
    if missing.is_target:
        target = "a label" if missing.address is None else f"{missing.address:#x}"
        return f"{kernel.find_opcode(row).name} at {place} names {target}, which is not there"
    if row + 1 < cfg.blocks[-1].stop:
        return f"instructions are missing after {place}"
    return f"it ends without EXIT after {place}"
