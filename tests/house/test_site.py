"""The pages of the site that are made from the sources, and the navigation; `.ci/run` builds the site itself."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from site_commands import make_command_pages
from site_docstrings import list_parameters
from site_formats import make_format_pages, make_schema_files
from site_hardware import make_hardware_pages
from site_markdown import escape_registers, link_mentions, make_cell, separate_blocks

from analyzer.cli.app import app
from analyzer.hardware.gpu_database import load_all_gpus
from analyzer.render.json import make_json_schema
from analyzer.report.report_reader import REPORT_TYPES

ROOT = Path(__file__).resolve().parents[2]
TITLES = {"models.md": "The models", "rules/README.md": "Rules"}


def find_pages(entry: Any) -> list[str]:
    """Return the paths in a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [path for part in parts for path in find_pages(part)]


def load_navigation() -> list[str]:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return find_pages(yaml.safe_load(text.partition("\nnav:\n")[2]))


def test_every_document_has_a_place_in_the_navigation() -> None:
    pages = load_navigation()
    assert len(pages) == len(set(pages))
    assert {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} <= set(pages)


def test_every_command_has_a_page_with_all_its_options() -> None:
    pages = dict(make_command_pages())
    context = click.Context(app)
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None
        page = pages[f"reference/commands/{name}.md"]
        assert f"({name}.md)" in pages["reference/commands/index.md"]
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        assert [option.name for option in options if option.opts[-1] not in page] == []
    assert "## warplens gpus show" in pages["reference/commands/gpus.md"]


def test_schemas_lie_where_their_addresses_say() -> None:
    files = dict(make_schema_files())
    urls = [str(make_json_schema(schema)["$id"]) for schema in REPORT_TYPES]
    site = yaml.safe_load(re.findall(r"^site_url: (.*)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)[0])
    assert [url.removeprefix(site) for url in urls] == list(files)


def test_links_between_types_of_a_format_have_a_target() -> None:
    for _, page in make_format_pages():
        targets = {name.lower() for name in re.findall(r"^## (\w+)$", page, re.MULTILINE)}
        assert set(re.findall(r"\]\(#(\w+)\)", page)) <= targets


def test_every_gpu_has_a_page_with_the_basis_of_each_figure() -> None:
    pages = dict(make_hardware_pages())
    for gpu in load_all_gpus():
        assert f"({gpu.key}.md)" in pages["hardware/index.md"]
        page = pages[f"hardware/{gpu.key}.md"]
        rows = [line for line in page.splitlines() if line.startswith("| `")]
        assert len(rows) > 5
        assert all(re.search(r"\| (measured|vendor|calibrated|assumed) \|", row) for row in rows)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a list:\n- one\n- two", "a list:\n\n- one\n- two"),
        ("a table:\n| a |\n|---|", "a table:\n\n| a |\n|---|"),
        ("- one\n  more of it\n- two", "- one\n  more of it\n- two"),
        ("```\ntext\n- no list\n```\n- a list", "```\ntext\n- no list\n```\n- a list"),
    ],
)
def test_blocks_begin_after_an_empty_line(text: str, wanted: str) -> None:
    assert separate_blocks(text) == wanted


@pytest.mark.parametrize(
    ("page", "text", "wanted"),
    [
        ("index.md", "see docs/models.md.", "see [The models](models.md)."),
        ("guides/a.md", "(docs/models.md)", "([The models](../models.md))"),
        ("rules/b.md", "docs/rules/README.md", "[Rules](README.md)"),
        ("index.md", "`docs/models.md`", "`docs/models.md`"),
        ("index.md", "docs/missing.md", "docs/missing.md"),
        ("index.md", "```\ndocs/models.md\n```", "```\ndocs/models.md\n```"),
    ],
)
def test_names_of_documents_become_links(page: str, text: str, wanted: str) -> None:
    assert link_mentions(text, page, TITLES) == wanted


def test_nothing_in_a_cell_is_markup() -> None:
    assert make_cell("a|b <b>x</b> [y](z) `i<j`") == "a\\|b &lt;b>x&lt;/b> \\[y\\](z) `i<j`"


def test_operands_are_no_links() -> None:
    assert escape_registers("desc[UR4][R2.64+0x4]") == "desc[UR4]\\[R2.64+0x4]"


def test_parameters_of_a_docstring_become_a_list() -> None:
    text = "Read it.\n\npath: of it.\na, b: two\n    lines.\nRaises E.\nnote: is no parameter."
    wanted = (
        "Read it.\n\n\n- `path`: of it.\n- `a`, `b`: two\n    lines.\n\nRaises E.\nnote: is no parameter."
    )
    assert list_parameters(text, {"path", "a", "b"}) == wanted


def test_pictures_are_small_and_ask_no_server() -> None:
    pictures = list((ROOT / "docs" / "assets" / "pictures").iterdir())
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 150_000
        if picture.suffix == ".svg":
            assert not re.search(r"url\(['\"]?http|(?:href|src)=", picture.read_text(encoding="utf-8"))
