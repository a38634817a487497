"""Reads the tables of the instruction set, `hwdb/isa/*.toml`."""

from typing import TypeVar

import msgspec
import tomli

from analyzer.resources import find_data_folder
from analyzer.text.errors import HardwareError

Table = TypeVar("Table")


def load_table(file_name: str, schema: type[Table]) -> Table:
    """Read a file of `hwdb/isa/` and check it by its schema.

    Raises HardwareError, with the path of the file, if it is missing, no TOML, or breaks the schema.
    """
    path = find_data_folder("hwdb") / "isa" / file_name
    try:
        return msgspec.convert(tomli.loads(path.read_text(encoding="utf-8")), schema)
    except OSError as error:
        raise HardwareError(f"{path}: {error.strerror or error}", hint="install warplens again") from None
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError and msgspec's ValidationError
        raise HardwareError(f"{path}: {error}", hint="mend the file") from None
