"""Rounded numbers for text, with marks of their provenance. Exact numbers are in the JSON."""

import math

PROVENANCE_MARKS = {"exact": "", "traced": "", "assumed": "~", "unknown": "?"}
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MIN_SHOWN_TAIL_SHARE = 0.01
_DECIMAL_PREFIXES = ("", "k", "M", "G", "T", "P")
_RATE_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_provenance(provenance: str) -> str:
    """Return the mark before a count: `~` if it is assumed, `?` if it is not known."""
    return PROVENANCE_MARKS.get(provenance, "?")


def format_count(value: float) -> str:
    """Return `999`, `4.19M`, `3.5`: three digits, or all of an integer below 1,000."""
    return _format_scaled(value, 1000.0, _DECIMAL_PREFIXES, "")


def format_bytes(value: float) -> str:
    """Return `512 B`, `1.50 KiB`, `138 MiB`."""
    return _format_scaled(value, 1024.0, _BINARY_UNITS, " ")


def format_ratio(value: float) -> str:
    """Return `4`, `3.5`, `4.04`: at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value < 100 else f"{value:,.0f}"


def format_percent(share: float) -> str:
    """Return `12%`; only 0 reads as 0 % and only 1 as 100 %."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def format_waves(waves: float, tail_share: float | None) -> str:
    """Return `3.88` or `1.001 (tail 49 %)`; a tail below 1 % is not named.

    As many decimals as show that it is no whole number, two at least.

    tail_share: share of the time that the last wave costs, None where it is not known.
    """
    text = f"{waves:,.2f}"
    beyond = abs(waves - round(waves))
    if beyond and float(f"{waves:.2f}") == round(waves):
        text = f"{waves:,.{min(9, -math.floor(math.log10(beyond)))}f}"
    return text + format_tail(tail_share)


def format_tail(tail_share: float | None) -> str:
    """Return ` (tail 12 %)` of what the last wave costs; nothing where that is not known, or below 1 %."""
    if tail_share is None or tail_share < _MIN_SHOWN_TAIL_SHARE:
        return ""
    return f" (tail {tail_share * 100:.0f} %)"


def _format_scaled(value: float, step: float, units: tuple[str, ...], gap: str) -> str:
    scaled, index = value, 0
    while scaled >= (999.5 if index or step == 1000.0 else step) and index < len(units) - 1:
        scaled, index = scaled / step, index + 1
    unit = gap + units[index] if units[index] else ""
    if index == 0:
        return format_ratio(scaled) + unit if scaled < 100 else f"{scaled:,.0f}{unit}"
    return format_three_digits(scaled) + unit


def format_three_digits(value: float) -> str:
    """Return `4.56`, `12.3`, `1,230`: three digits of a number from 1 on, all of those before the point."""
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f}"


def format_milliseconds(time_ms: float) -> str:
    """Return `412 us`, `23.4 ms`, `1.23 s`: three digits."""
    for unit, scale in (("us", 1e-3), ("ms", 1.0)):
        if time_ms < 999.5 * scale:
            return f"{format_three_digits(time_ms / scale)} {unit}"
    return f"{format_three_digits(time_ms / 1e3)} s"


def format_rate(per_second: float) -> str:
    """Return `407 T`, `1.25 T`: three digits and the prefix of a unit."""
    for step, prefix in _RATE_PREFIXES:
        if per_second >= 0.9995 * step:
            return f"{format_three_digits(per_second / step)} {prefix}"
    return f"{per_second:,.0f} "
