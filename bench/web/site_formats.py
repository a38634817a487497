"""The reference of the JSON formats: the fields of each report, and the schemas at their addresses."""

from collections.abc import Iterator, Mapping
from typing import Any

from site_markdown import make_cell

from analyzer.render.json import format_schema, make_json_schema, make_schema_file_name
from analyzer.report.report_reader import REPORT_TYPES

_FOLDER = "reference/formats"
_HEAD = """\
# JSON formats

Every command that reports takes `--format json`. The first key, `schema`, names the format and its version.
Fields may be added to a version; none is renamed or removed. Each format is published as a JSON Schema
(2020-12), which lies in `hwdb/schema/` of the repository, too.

| `schema` | what it holds | JSON Schema |
|---|---|---|
"""


def make_schema_files() -> Iterator[tuple[str, str]]:
    """Yield path and text of each published schema; the path is that of its `$id`."""
    for schema in REPORT_TYPES:
        yield f"schema/{make_schema_file_name(schema)}", format_schema(make_json_schema(schema))


def list_format_pages() -> list[dict[str, str]]:
    """Return the entries of the navigation."""
    pages = [make_schema_file_name(schema).removesuffix(".json") for schema in REPORT_TYPES]
    return [{page: f"{_FOLDER}/{page}.md"} for page in pages]


def make_format_pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of the list of formats and of the page of each."""
    rows = []
    for schema in REPORT_TYPES:
        file = make_schema_file_name(schema)
        page = file.removesuffix(".json")
        definitions: Mapping[str, Any] = make_json_schema(schema)["$defs"]
        root = REPORT_TYPES[schema].__name__
        about = definitions[root].get("description", "")
        rows.append(f"| [`{schema}`]({page}.md) | {make_cell(about)} | [{file}](../../schema/{file}) |\n")
        sections = (_make_section(name, definitions[name]) for name in _sort_names(root, definitions))
        yield f"{_FOLDER}/{page}.md", f"# {schema}\n\n" + "\n".join(sections)
    yield f"{_FOLDER}/index.md", _HEAD + "".join(rows)


def _sort_names(root: str, definitions: Mapping[str, Any]) -> list[str]:
    """Return the names of the types, the report itself first."""
    return [root, *(name for name in sorted(definitions) if name != root)]


def _make_section(name: str, definition: Mapping[str, Any]) -> str:
    lines = [f"## {name}\n", definition.get("description", ""), ""]
    properties: Mapping[str, Any] = definition.get("properties", {})
    if properties:
        lines += ["| key | type | meaning |", "|---|---|---|"]
        lines += [
            f"| `{key}` | {_name_type(of)} | {make_cell(_describe(of))} |" for key, of in properties.items()
        ]
    elif "enum" in definition:
        lines.append("One of " + ", ".join(f"`{value}`" for value in definition["enum"]) + ".")
    return "\n".join(lines) + "\n"


def _describe(of: Mapping[str, Any]) -> str:
    text = str(of.get("description", ""))
    return text if "default" not in of else f"{text} May be absent.".strip()


def _name_type(of: Mapping[str, Any]) -> str:
    """Return the type of a field in a few words, with links to the types that this page describes."""
    if "$ref" in of:
        name = str(of["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in of:
        return " or ".join(dict.fromkeys(_name_type(each) for each in of["anyOf"]))
    if "enum" in of:
        return ", ".join(f"`{value}`" for value in of["enum"])
    match of.get("type"):
        case "array" if isinstance(items := of.get("items"), dict):
            return f"list of {_name_type(items)}"
        case "array":
            return " and ".join(_name_type(each) for each in of.get("prefixItems", [])) or "list"
        case "object" if isinstance(values := of.get("additionalProperties"), dict):
            return f"object of {_name_type(values)}"
        case str(name):
            return name
        case _:
            return "any"
