"""Reads the code in the source page of Nsight Compute, exported as CSV.

Three layouts occur: the window's export, `ncu --page source --csv`, and the same with CUDA source beside the
code, where each line of source stands above its instructions and so the addresses do not ascend:

    "Kernel Name","k"
    "#","Address","Source","# Samples"
    "0","7f2c5b000000","      MOV R1, c[0x0][0x28] ","0"

    "File Path","k.cu"
    "Function Name","k"
    "Line No","Source","Address","Source","# Samples"
    "12","x[i] = 1;","-","-","3"
    "","","0x7f2c5b000010","EXIT","3"
"""

import csv
import re
from collections.abc import Iterator, Sequence
from io import StringIO

from msgspec import Struct

from analyzer.frontend.code_listing import ListedFunction, ListedInstruction, build_listing_module
from analyzer.frontend.sass_diagnostics import SassDiagnostics
from analyzer.ir.module import Module, SourceFormat
from analyzer.text.errors import InputError
from analyzer.text.source import Location

EXPORT_HINT = "export it with: ncu --import REPORT --page source --csv --print-source sass > code.csv"
_DELIMITERS = ",;\t"
_CODE_TITLES = ("sass", "source")
_ADDRESS_TITLE = "address"
_NAME_TITLES = ("kernel name", "function name", "kernel", "function")
_ADDRESS = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_MAX_FIELD_CHARACTERS = 1 << 17


class _Columns(Struct, frozen=True):
    """Places of the columns that hold code and addresses."""

    code: int
    address: int | None


def parse_source_page(path: str, data: bytes, name: str) -> Module:
    """Parse the export; `name` is that of a function that it does not name.

    Raises InputError, with line, column and caret, if a row's code is no instruction.
    """
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    functions: list[ListedFunction] = []
    columns: _Columns | None = None
    title = name
    for number, row in _read_rows(path, text):
        if (given := _find_name(row)) is not None:
            columns, title = None, given
        elif (found := find_columns(row)) is not None:
            columns = found
            functions.append(ListedFunction(title, line=number))
            title = name
        elif columns is not None and len(row) > columns.code:
            listed = _read_instruction(path, lines, number, row, columns)
            functions[-1].instructions += [] if listed is None else [listed]
    if columns is None and not functions:
        raise InputError(f"{path}: no column of code", hint=EXPORT_HINT)
    for function in functions:
        _order_by_address(function)
    return build_listing_module(path, SourceFormat.SOURCE_PAGE, functions, SassDiagnostics(path))


def find_columns(row: Sequence[str]) -> _Columns | None:
    """Return the columns that a row of titles names; None for any other row."""
    titles = [cell.strip().lower() for cell in row]
    if len(titles) < 2:
        return None
    address = titles.index(_ADDRESS_TITLE) if _ADDRESS_TITLE in titles else None
    # Beside CUDA source there are two columns `Source`: code stands after its address.
    places = [place for title in _CODE_TITLES for place, each in enumerate(titles) if each == title]
    after = [place for place in places if address is None or place > address]
    if not after or (address is None and "# samples" not in titles and "#" not in titles):
        return None
    return _Columns(min(after) if address is not None else after[0], address)


def split_row(line: str) -> list[str]:
    """Return the cells of one line, whatever separates them."""
    try:
        return next(csv.reader([line], delimiter=_find_delimiter(line)), [])
    except csv.Error:
        return []


def _find_delimiter(text: str) -> str:
    """Return the separator after the first quoted cell, else the most frequent one of the first line."""
    first = text[:_MAX_FIELD_CHARACTERS].partition("\n")[0]
    return max(_DELIMITERS, key=first.count)


def _read_rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the last line, cells) of each row. Raises InputError if the text is no CSV."""
    titles = next((line for line in text.split("\n") if find_columns(split_row(line)) is not None), text)
    reader = csv.reader(StringIO(text, newline=""), delimiter=_find_delimiter(titles))
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            place = Location(path, reader.line_num, 1, "")
            raise InputError(f"this is no CSV: {error}", location=place, hint=EXPORT_HINT) from None
        yield reader.line_num, row


def _find_name(row: Sequence[str]) -> str | None:
    """Return the function in a row such as `"Kernel Name","k"`, or in one of a single cell."""
    cells = [cell.strip() for cell in row]
    if len(cells) >= 2 and cells[0].lower() in _NAME_TITLES and find_columns(cells) is None:
        return cells[1] or None
    if len(cells) == 1 and cells[0] and not cells[0].startswith("=="):
        return cells[0]
    return None


def _read_instruction(
    path: str, lines: Sequence[str], number: int, row: Sequence[str], columns: _Columns
) -> ListedInstruction | None:
    """Return the instruction of a row; None for a row of CUDA source."""
    text = row[columns.code].strip().rstrip(";").rstrip()
    address = None
    if columns.address is not None:
        match = _ADDRESS.fullmatch(row[columns.address].replace(" ", ""))
        if match is None:
            return None
        address = int(match[1], 16)
    if not text:
        return None
    line = lines[number - 1] if number <= len(lines) else ""
    place = Location(path, number, max(0, line.find(text)) + 1, line)
    return ListedInstruction(text=text, location=place, address=address)


def _order_by_address(function: ListedFunction) -> None:
    """Sort by address, drop rows that stand under several lines of source, and find the first address."""
    addresses = [each.address for each in function.instructions if each.address is not None]
    if len(addresses) < len(function.instructions) or not addresses:
        return
    distinct = {address: each for address, each in zip(addresses, function.instructions, strict=True)}
    function.instructions = [distinct[address] for address in sorted(distinct)]
    function.base_address = min(addresses)
