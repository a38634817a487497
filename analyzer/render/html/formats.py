"""Numbers and names as pages show them: the filters of the templates."""

from analyzer.render.number_format import format_bytes, format_count, format_rate, format_ratio

__all__ = ["format_bytes", "format_count", "format_rate", "format_ratio"]

_DASH, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
_N_HEAT_LEVELS = 10
_MIN_SHOWN_CHANGE = 0.0005


def format_time(time_us: float | None) -> str:
    """Return microseconds with four digits: `338.2`, `0.841`, `12,345`."""
    if time_us is None:
        return _DASH
    digits = 0 if time_us >= 9999.5 else 1 if time_us >= 99.95 else 2 if time_us >= 9.995 else 3
    return f"{time_us:,.{digits}f}"


def format_number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands set apart, a dash where there is none."""
    return _DASH if value is None else f"{value:,.{digits}f}"


def format_share(share: float | None) -> str:
    """Return `41 %`; only 0 reads as 0 % and only 1 as 100 %; one digit more below 10 %."""
    if share is None:
        return _DASH
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.995 <= share < 1:
        return ">99 %"
    return f"{share * 100:.1f} %" if 0 < share < 0.0995 else f"{share * 100:.0f} %"


def format_change(change: float | None) -> str:
    """Return `+3.2 %`, `-12 %` with a minus sign, `=` for no change, a dash where it is not known."""
    if change is None:
        return _DASH
    if abs(change) < _MIN_SHOWN_CHANGE:
        return "=" if change == 0 else "~0"
    digits = 1 if abs(change) < 0.0995 else 0
    return f"{change * 100:+,.{digits}f} %".replace("-", _MINUS)


def format_address(address: int) -> str:
    """Return `0x16b0`."""
    return f"0x{address:04x}"


def format_coordinate(value: float) -> str:
    """Return a coordinate of a drawing with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def find_heat_level(share: float) -> int:
    """Return the class of a heat cell, 0 for nothing to 9 for everything."""
    if share <= 0:
        return 0
    return min(_N_HEAT_LEVELS - 1, 1 + int(min(1.0, share) * (_N_HEAT_LEVELS - 1)))


def format_label(name: str) -> str:
    """Return `long scoreboard` of `long_scoreboard`."""
    return name.replace("_", " ")
