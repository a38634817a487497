"""Loads the Lark grammars, from precomputed LALR tables if they are up to date.

Building a parser from a grammar takes longer than parsing a small dump. `grammars/tables/NAME.json` holds the
parse table that Lark builds from `NAME.lark`. It is used if its fingerprint, the hash of the grammar and the
version of Lark, is that of the present ones; else the parser is built from the grammar.

    python -m analyzer.frontend.grammar        # writes the tables
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.files import write_file
from analyzer.resources import find_data_folder

if TYPE_CHECKING:
    from lark import Lark

_START_RULES = {
    "ptx": ("operands", "call_operands", "declaration", "attributes"),
    "sass": ("instruction", "operands"),
    "triton": ("operation", "label", "type", "attribute", "location"),
    "trace": (
        "header",
        "marker",
        "line",
        "form",
        "nothing_tail",
        "list_tail",
        "stride_tail",
        "delta_tail",
        "entry",
    ),
}


@cache
def load_parser(name: str) -> "Lark":
    """Return the LALR parser of `grammars/NAME.lark`, which is made on first use."""
    return _load_cached_parser(name) or build_parser(name)


def build_parser(name: str) -> "Lark":
    """Build the parser from the grammar itself."""
    from lark import Lark

    return Lark.open(
        str(_make_grammar_path(name)),
        parser="lalr",
        lexer="contextual",
        start=list(_START_RULES[name]),
        propagate_positions=False,
    )


def serialize_parse_table(name: str) -> str:
    """Return the contents of a grammar's table file."""
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    data, memo = build_parser(name).memo_serialize([TerminalDef, Rule])
    table = {"made_of": _make_fingerprint(name), "data": data, "memo": memo}
    return json.dumps(table, sort_keys=True, separators=(",", ":")) + "\n"


def make_table_path(name: str) -> Path:
    """Return the path of a grammar's table file."""
    return find_data_folder("grammars") / "tables" / f"{name}.json"


def _make_grammar_path(name: str) -> Path:
    return find_data_folder("grammars") / f"{name}.lark"


def _make_fingerprint(name: str) -> str:
    """Return the fingerprint of a grammar: Lark's version and the hash of its text."""
    import lark

    digest = hashlib.sha256(_make_grammar_path(name).read_bytes()).hexdigest()
    return f"lark {lark.__version__} {digest}"


def _load_cached_parser(name: str) -> "Lark | None":
    """Return the parser of a table, None if there is none of this grammar and this Lark."""
    from lark import Lark

    try:
        table = json.loads(
            make_table_path(name).read_text(encoding="utf-8"), object_hook=_restore_integer_keys
        )
    except (OSError, ValueError):
        return None
    if not isinstance(table, dict) or table.get("made_of") != _make_fingerprint(name):
        return None
    untyped: Any = Lark
    # Lark's own stand-alone parsers are made in the same way; there is no public function for it.
    parser: Lark = untyped._load_from_dict(table["data"], table["memo"])
    return parser


def _restore_integer_keys(table: dict[str, Any]) -> dict[Any, Any]:
    """Return a table whose numeric keys are numbers again; JSON writes them as text."""
    if not any(map(str.isdecimal, table)):
        return table
    return {int(key) if key.isdecimal() else key: value for key, value in table.items()}


def main() -> None:
    """Write all tables."""
    for name in _START_RULES:
        path = make_table_path(name)
        path.parent.mkdir(exist_ok=True)
        write_file(path, [serialize_parse_table(name).encode()])


if __name__ == "__main__":
    main()
