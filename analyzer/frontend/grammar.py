"""Loads the Lark grammars and turns their errors into ours."""

from functools import cache
from typing import TYPE_CHECKING

from analyzer.resources import data_root

if TYPE_CHECKING:
    from lark import Lark


@cache
def load_grammar(name: str, starts: tuple[str, ...]) -> "Lark":
    """The LALR parser of `grammars/NAME.lark`; built once, on first use."""
    from lark import Lark

    return Lark.open(
        str(data_root("grammars") / f"{name}.lark"),
        parser="lalr",
        lexer="contextual",
        start=list(starts),
        propagate_positions=False,
    )
