"""The reference of commands: a page for each subcommand, filled by mkdocs-click from the command itself."""

from collections.abc import Iterator

import click

from analyzer.cli.app import app

_PAGE = """\
::: mkdocs-click
    :module: analyzer.cli.{name}
    :command: {name}
    :prog_name: warplens {name}
    :style: table
    :depth: 0
"""
_FOLDER = "reference/commands"


def list_command_pages() -> list[dict[str, str]]:
    """Return the entries of the navigation, in the order of the help text."""
    return [{name: f"{_FOLDER}/{name}.md"} for name, _ in _list_commands()]


def _list_commands() -> list[tuple[str, click.Command]]:
    context = click.Context(app, info_name="warplens")
    found = ((name, app.get_command(context, name)) for name in app.list_commands(context))
    return [(name, command) for name, command in found if command is not None]


def make_command_pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of the list of commands and of the page of each."""
    rows = []
    for name, command in _list_commands():
        rows.append(f"| [`warplens {name}`]({name}.md) | {_summarize(command)} |")
        yield f"{_FOLDER}/{name}.md", _PAGE.format(name=name) + _make_examples(command)
    head = "# Commands\n\nMade from the commands themselves; `warplens COMMAND --help` says the same.\n\n"
    ends = "\n\nHow each of them ends: docs/exit-codes.md.\n"
    yield f"{_FOLDER}/index.md", "\n".join((f"{head}| command | job |\n|---|---|", *rows)) + ends


def _summarize(command: click.Command) -> str:
    """Return the first paragraph of the help as one line of a table."""
    paragraph = (command.help or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


def _make_examples(command: click.Command) -> str:
    """Return the examples that end the help of a command, as a section; empty where there are none."""
    lines = [line[2:] for line in (command.epilog or "").splitlines() if line.startswith("  ")]
    if not lines:
        return ""
    return "\n".join(("\n## Examples\n", "They run in the root of a checkout.\n", "```", *lines, "```", ""))
