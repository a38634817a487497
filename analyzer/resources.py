"""Finds grammars/ and hwdb/: inside an installed wheel, else in the checkout beside the package."""

from pathlib import Path
from typing import Literal

DataKind = Literal["grammars", "hwdb"]


def find_data_folder(kind: DataKind) -> Path:
    """Folder with the shipped data of one kind.

    The shipped copy is asked first, so that a foreign `site-packages/hwdb` is never read.
    """
    package = Path(__file__).resolve().parent
    shipped = package / "_shipped" / kind
    return shipped if shipped.is_dir() else package.parent / kind
