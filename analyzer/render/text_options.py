"""Options of the text of an analysis, in a module that does not load rich."""

from msgspec import Struct


class TextOptions(Struct, frozen=True, kw_only=True):
    """Sections beyond the first five."""

    loops: bool = False
    memory: bool = False
    branches: bool = False  # all unknown branches, not only the first
    advice: bool = False
    listing: bool = False
    explain: bool = False
    levels: bool = False
    top: int | None = None  # of a listing, so many instructions that cost most; None: all
