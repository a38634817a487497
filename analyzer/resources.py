"""Finds grammars/ and hwdb/: inside an installed wheel, else in the checkout beside the package."""

from importlib.resources import files
from pathlib import Path
from typing import Literal

DataKind = Literal["grammars", "hwdb"]


def data_root(kind: DataKind) -> Path:
    """Folder with the shipped data of one kind.

    The shipped copy is asked first, so that a foreign `site-packages/hwdb` is never read.
    """
    shipped = Path(str(files("analyzer"))) / "_shipped" / kind
    if shipped.is_dir():
        return shipped
    return Path(__file__).resolve().parents[1] / kind
