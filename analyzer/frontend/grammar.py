"""Loads the Lark grammars, from tables that were made of them before where they fit.

Making a parser of a grammar takes longer than parsing a small dump. `grammars/tables/NAME.json` holds what
Lark makes of `NAME.lark`; it is used where the grammar and Lark's version are those it was made of.

    python -m analyzer.frontend.grammar        # writes the tables anew
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.resources import find_data_folder

if TYPE_CHECKING:
    from lark import Lark

_START_RULES = {
    "sass": ("instruction", "operands"),
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
    """The LALR parser of `grammars/NAME.lark`; made once, on first use."""
    return _load_cached_parser(name) or build_parser(name)


def build_parser(name: str) -> "Lark":
    """The parser from the grammar itself."""
    from lark import Lark

    return Lark.open(
        str(_make_grammar_path(name)),
        parser="lalr",
        lexer="contextual",
        start=list(_START_RULES[name]),
        propagate_positions=False,
    )


def serialize_parse_table(name: str) -> str:
    """What stands in a grammar's table."""
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    data, memo = build_parser(name).memo_serialize([TerminalDef, Rule])
    table = {"made_of": _make_fingerprint(name), "data": data, "memo": memo}
    return json.dumps(table, sort_keys=True, separators=(",", ":")) + "\n"


def make_table_path(name: str) -> Path:
    """Where it is kept."""
    return find_data_folder("grammars") / "tables" / f"{name}.json"


def _make_grammar_path(name: str) -> Path:
    return find_data_folder("grammars") / f"{name}.lark"


def _make_fingerprint(name: str) -> str:
    """Lark's version and the grammar's text, as one word."""
    import lark

    digest = hashlib.sha256(_make_grammar_path(name).read_bytes()).hexdigest()
    return f"lark {lark.__version__} {digest}"


def _load_cached_parser(name: str) -> "Lark | None":
    """The parser of a table; None where there is none of this grammar and this Lark."""
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
    # As Lark's own stand-alone parsers are made of their tables.
    parser: Lark = untyped._load_from_dict(table["data"], table["memo"])
    return parser


def _restore_integer_keys(table: dict[str, Any]) -> dict[Any, Any]:
    """JSON writes keys as text: those that were numbers are numbers again."""
    if not any(map(str.isdecimal, table)):
        return table
    return {int(key) if key.isdecimal() else key: value for key, value in table.items()}


def main() -> None:
    """Write all tables."""
    for name in _START_RULES:
        path = make_table_path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(serialize_parse_table(name), encoding="utf-8")


if __name__ == "__main__":
    main()
