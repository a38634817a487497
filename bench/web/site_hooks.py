"""Hooks of mkdocs: pages made from the sources while the site is built, so that none can be out of date.

| page | made from |
|---|---|
| `reference/commands/*.md` | the click commands |
| `hardware/*.md` | `hwdb/gpu`, `hwdb/chip`, `hwdb/arch` |
| `reference/formats/*.md`, `schema/*.json` | the types of the reports |
| `changelog.md`, `contributing.md` | `CHANGELOG.md`, `CONTRIBUTING.md` |
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_commands import list_command_pages, make_command_pages
from site_formats import list_format_pages, make_format_pages, make_schema_files
from site_hardware import make_hardware_pages
from site_markdown import escape_registers, find_title, link_mentions, separate_blocks

ROOT = Path(__file__).resolve().parents[2]
_COPIED_PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


_FOLDERS = {
    "reference/commands/index.md": list_command_pages,
    "reference/formats/index.md": list_format_pages,
}


class _Titles(dict[str, str]):
    """Titles of the pages of this build, by path below `docs`."""


_titles = _Titles()


def make_pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of each page and file that is made from the sources."""
    yield from make_command_pages()
    yield from make_hardware_pages()
    yield from make_format_pages()
    yield from make_schema_files()
    for path, source in _COPIED_PAGES.items():
        yield path, (ROOT / source).read_text(encoding="utf-8")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add commands and formats to the navigation."""
    for section in config.nav or []:
        for pages in section.values() if isinstance(section, dict) else ():
            if isinstance(pages, list):
                pages[:] = [_add_parts(page) for page in pages]
    return config


def _add_parts(page: object) -> object:
    """Return an entry of the navigation; the index of a folder that is made here with all pages in it."""
    for title, path in page.items() if isinstance(page, dict) else ():
        if isinstance(path, str) and path in _FOLDERS:
            return {title: [path, *_FOLDERS[path]()]}
    return page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made from the sources, and note all titles."""
    for path, text in make_pages():
        files.append(File.generated(config, path, content=text))
    _titles.clear()
    for file in files.documentation_pages():
        _titles[file.src_uri] = find_title(file.content_string)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page as Python-Markdown wants it."""
    titles: Mapping[str, str] = _titles
    return separate_blocks(escape_registers(link_mentions(markdown, page.file.src_uri, titles)))
