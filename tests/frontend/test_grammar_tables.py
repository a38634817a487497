"""Tables of parsers are those of the grammars, and parse as the grammars do."""

import json
from pathlib import Path

import lark
import pytest
from paths import TRACES, read_module

from analyzer.frontend import grammar
from analyzer.frontend.grammar import build_parser, load_parser, make_table_path, serialize_parse_table

NAMES = ("ptx", "sass", "trace", "triton")


@pytest.mark.parametrize("name", NAMES)
def test_shipped_table_is_made_of_the_shipped_grammar(name: str) -> None:
    made_of = json.loads(make_table_path(name).read_text(encoding="utf-8"))["made_of"]
    if made_of.split()[1] != lark.__version__:
        pytest.skip("the table is of another version of Lark; parsers are made of the grammar")
    assert made_of == json.loads(serialize_parse_table(name))["made_of"], (
        "run: python -m analyzer.frontend.grammar"
    )


def test_table_parses_as_the_grammar_does() -> None:
    kernel = read_module(TRACES / "triton" / "sm_90" / "matmul.sass").kernels[0]
    from_table, from_grammar = load_parser("sass"), build_parser("sass")
    for text in {kernel.decode_form(row).text for row in range(len(kernel))}:
        assert from_table.parse(text, start="instruction") == from_grammar.parse(text, start="instruction")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"made_of": "lark 0 0"}', "[1"])
def test_a_table_that_does_not_fit_is_left_alone(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sass.json"
    path.write_text(content)
    monkeypatch.setattr(grammar, "make_table_path", lambda name: path)
    load_parser.cache_clear()
    try:
        assert load_parser("sass").parse("EXIT", start="instruction").data == "instruction"
    finally:
        load_parser.cache_clear()
