"""Numbers as people read them, and marks for what they rest on. Exact numbers are in the JSON."""

MARKS = {"exact": "", "traced": "", "assumed": "~", "unknown": "?"}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", "k", "M", "G", "T", "P")


def mark(provenance: str) -> str:
    """`~` before a count that is assumed, `?` before one that is not known."""
    return MARKS.get(provenance, "?")


def short_count(value: float) -> str:
    """`999`, `4.19M`, `3.5`: three digits, or all of an integer below 1,000."""
    return _scaled(value, 1000.0, _DECIMAL, "")


def short_bytes(value: float) -> str:
    """`512 B`, `1.50 KiB`, `138 MiB`."""
    return _scaled(value, 1024.0, _BINARY, " ")


def ratio(value: float) -> str:
    """`4`, `3.5`, `4.04`: two digits behind the point, no empty ones."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value < 100 else f"{value:,.0f}"


def percent(share: float) -> str:
    """`12%`; what is neither nothing nor all never reads as 0 % or 100 %."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def _scaled(value: float, step: float, units: tuple[str, ...], gap: str) -> str:
    scaled, place = value, 0
    while scaled >= (999.5 if place or step == 1000.0 else step) and place < len(units) - 1:
        scaled, place = scaled / step, place + 1
    unit = gap + units[place] if units[place] else ""
    if place == 0:
        return ratio(scaled) + unit if scaled < 100 else f"{scaled:,.0f}{unit}"
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:,.{digits}f}{unit}"
