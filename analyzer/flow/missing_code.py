"""Sentences about code that the input lacks: it was cut off, or is a part of a function.

`Cfg.missing_code` lists the ways that lead out of the code that is there. Where there is one, what runs
behind it is not counted, so no count of the function is exact.

    0x20  @P0 BRA 0x500     leads to 0x500, which is not in the input
    0x30  FADD R2, R2, R2   the last instruction: the code ends without EXIT
"""

from analyzer.flow.cfg import Cfg, MissingCode

CUT_OFF_CODE = "cut-off-code"  # code of the warning
_MAX_SHOWN_WAYS = 3


def format_missing_code(cfg: Cfg) -> tuple[str, ...]:
    """Return a sentence for the report about what is missing of a function; empty where it is whole."""
    ways = [_format_way(cfg, missing) for missing in cfg.missing_code]
    if not ways:
        return ()
    if cfg.kernel.is_excerpt:
        return ("a part of a kernel: what stands around it is not counted",)
    more = f" and {len(ways) - _MAX_SHOWN_WAYS} more" if len(ways) > _MAX_SHOWN_WAYS else ""
    return (f"the code is cut off: {', '.join(ways[:_MAX_SHOWN_WAYS])}{more}; what follows is not counted",)


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
