"""Folders of shipped data, grammars/ and hwdb/: in an installed wheel, or in the checkout."""

from pathlib import Path
from typing import Literal

DataKind = Literal["grammars", "hwdb"]


def find_data_folder(kind: DataKind) -> Path:
    """Return the folder with the shipped data of one kind.

    The copy inside the package goes first, so that a `site-packages/hwdb` of another package is never read.
    """
    package = Path(__file__).resolve().parent
    shipped = package / "_shipped" / kind
    return shipped if shipped.is_dir() else package.parent / kind
