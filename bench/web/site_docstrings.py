"""Docstrings as Markdown: lines that explain parameters become a list, and what is raised a paragraph.

Read a dump.                            Read a dump.

path: of the dump.                      - `path`: of the dump.
arch: architecture of code that    →    - `arch`: architecture of code that names none.
    names none.
Raises InputError.                      Raises InputError.
"""

import re
from typing import Any

import griffe

_PARAMETERS = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): ")
_NEW_PARAGRAPH = re.compile(r"(?:Raises|Returns|Yields|A|An|The|Where|If)\b")


def list_parameters(text: str, known: set[str]) -> str:
    """Return a docstring in which lines that begin with known parameters are items of a list."""
    lines: list[str] = []
    is_item = False
    for line in text.split("\n"):
        found = _PARAMETERS.match(line)
        names = found[1].split(", ") if found else []
        if found and known.issuperset(names):
            line = f"- {', '.join(f'`{name}`' for name in names)}: {line[found.end() :]}"
            if not is_item:
                lines.append("")
            is_item = True
        elif is_item and _NEW_PARAGRAPH.match(line):
            lines.append("")
            is_item = False
        lines.append(line)
    return "\n".join(lines)


class ParameterLists(griffe.Extension):
    """Edits the docstrings of functions as they are collected."""

    def on_function(self, *, func: griffe.Function, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Turn lines about parameters into a list."""
        if func.docstring:
            known = {parameter.name for parameter in func.parameters}
            func.docstring.value = list_parameters(func.docstring.value, known)
