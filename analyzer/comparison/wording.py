"""Numbers and changes as the evidence of a verdict writes them."""


def format_amount(value: float) -> str:
    """Return a count for people: `41,200`, `12.3`, `1.52M`, `0.04`."""
    if abs(value) >= 1e6:
        for unit, size in (("G", 1e9), ("M", 1e6)):
            if abs(value) >= size:
                return (
                    f"{value / size:.3g}{unit}" if abs(value) < 1000 * size else f"{value / size:,.0f}{unit}"
                )
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_share(change: float) -> str:
    """Return a relative change with its sign: `+14.2 %`, `-3.1 %`; factors from 3 on as `x8.0`."""
    if change >= 2:
        return f"x{change + 1:.3g}"
    return f"{100 * change:+.1f} %"


def format_step(old: float, new: float) -> str:
    """Return `41,200 -> 47,050 (+14.2 %)`."""
    if not old:
        return f"{format_amount(old)} -> {format_amount(new)}"
    return f"{format_amount(old)} -> {format_amount(new)} ({format_share((new - old) / old)})"


def format_signed(value: float) -> str:
    """Return an amount with its sign."""
    return f"{'+' if value >= 0 else '-'}{format_amount(abs(value))}"


def count_things(number: int, what: str, plural: str = "") -> str:
    """Return `1 instruction`, `12 instructions`."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def compute_change(old: float | None, new: float | None) -> float | None:
    """Return new over old, less 1; None where the old value is 0 or one is not known."""
    if old is None or new is None or not old:
        return None
    return (new - old) / old
