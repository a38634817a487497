"""Inputs of a launch that nobody gave and that something depends on, with the options that give them."""

from msgspec import Struct


class MissingInput(Struct, frozen=True, kw_only=True):
    """One input that nobody gave.

    option: of the command line, as `--arg 2=N`, `--arg 3=fill:N`, `--trip 0x150=N`.
    name: of the parameter in the source, "" if not known.
    """

    option: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.option} ({self.name})" if self.name else self.option


def make_scalar_option(selector: str) -> str:
    """Return the option that gives a number to an argument, a field of one, or a word of a constant bank."""
    return f"--arg {selector}=N"
