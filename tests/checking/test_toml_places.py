"""Places of keys and values in TOML texts."""

import tomli
from hypothesis import given
from hypothesis import strategies as st

from analyzer.checking.toml_places import find_toml_places

TEXT = '''# [not.a.header]
top = 1 # = 2
"quoted key" = """
[neither]
a = 3
"""
[a.b]
x.y = [ 1, "two, [", # comment ]
   3 ]
[[a.list]]
k = 'v'
[[a.list]]
k = { inner = 5, other = [6] }
[a.list.sub]
z = 1979-05-27
'''


def test_paths_of_headers_arrays_and_strings() -> None:
    places = find_toml_places("f.toml", TEXT)
    lines = TEXT.splitlines()

    def at(path: tuple[str | int, ...], *, value: bool = False) -> tuple[int, str]:
        place = places.locate_value(path) if value else places.locate_key(path)
        return place.line, place.text[place.column - 1 : place.column - 1 + place.length]

    assert at(("top",)) == (2, "top")
    assert at(("top",), value=True) == (2, "1")
    assert at(("quoted key",)) == (3, '"quoted key"')
    assert at(("a", "b", "x", "y")) == (8, "x.y")
    assert at(("a", "b", "x", "y", 1), value=True) == (8, '"two, ["')
    assert at(("a", "b", "x", "y", 2), value=True) == (9, "3")
    assert at(("a", "list", 1, "k")) == (13, "k")
    assert at(("a", "list", 1, "k", "inner")) == (13, "k")  # that of the inline table
    assert at(("a", "list", 1, "sub", "z"), value=True) == (15, "1979-05-27")
    assert at(("a", "list", 0, "nowhere")) == (10, "a.list")
    assert places.locate_key(("gone",)).text == lines[0]


_NAMES = st.text("ab-_1", min_size=1, max_size=3)
_TEXTS = st.text('ab[]{}=#, ".\n', max_size=6)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(
    st.lists(st.tuples(_NAMES, st.dictionaries(_NAMES, st.lists(_TEXTS, max_size=3), max_size=3)), max_size=4)
)
def test_every_key_and_item_of_arrays_of_tables_is_found(
    tables: list[tuple[str, dict[str, list[str]]]],
) -> None:
    lines, wanted = [], []
    counts: dict[str, int] = {}
    for name, table in tables:
        number = counts[name] = counts.get(name, -1) + 1
        lines.append(f"[[{name}]]")
        for key, items in table.items():
            lines.append(f"{key} = [{', '.join(map(_quote, items))}]  # comment = [")
            wanted.append(((name, number, key), len(lines), items))
    text = "\n".join(lines)
    tomli.loads(text)
    places = find_toml_places("f.toml", text)
    for path, line, items in wanted:
        assert places.locate_key(path).line == line
        for index, item in enumerate(items):
            place = places.locate_value((*path, index))
            assert place.text[place.column - 1 :][: place.length] == _quote(item)
