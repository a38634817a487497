"""The reference of commands: a page for each subcommand, from what click says in `--help`."""

from collections.abc import Iterator

import click
from site_markdown import make_cell

from analyzer.cli.app import app

_FOLDER = "reference/commands"
_HEAD = """\
# Commands

Made from the commands themselves: `warplens COMMAND --help` says the same. How each of them ends:
docs/exit-codes.md.

| command | job |
|---|---|
"""


def list_command_pages() -> list[dict[str, str]]:
    """Return the entries of the navigation, in the order of the help text."""
    return [{context.info_name or "": _make_path(context)} for context in _list_commands(_make_root())]


def make_command_pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of the list of commands and of the page of each."""
    rows = []
    for context in _list_commands(_make_root()):
        about = make_cell(_split_help(context.command)[0])
        rows.append(f"| [`{context.command_path}`]({context.info_name}.md) | {about} |\n")
        sections = [_make_section(each, "##") for each in _list_commands(context)]
        yield _make_path(context), "\n".join([_make_section(context, "#"), *sections])
    yield f"{_FOLDER}/index.md", _HEAD + "".join(rows)


def _make_root() -> click.Context:
    return click.Context(app, info_name="warplens")


def _make_path(context: click.Context) -> str:
    return f"{_FOLDER}/{context.info_name}.md"


def _list_commands(context: click.Context) -> list[click.Context]:
    """Return the subcommands of a group, none of a command."""
    group = context.command
    if not isinstance(group, click.Group):
        return []
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return [
        click.Context(command, info_name=name, parent=context, **command.context_settings)
        for name, command in found
        if command is not None and not command.hidden
    ]


def _split_help(command: click.Command) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (command.help or "").strip().split("\n\n")]


def _make_section(context: click.Context, mark: str) -> str:
    """Return heading, help, usage, options and examples of one command."""
    usage = " ".join((context.command_path, *context.command.collect_usage_pieces(context)))
    lines = [f"{mark} {context.command_path}", *_split_help(context.command), f"```text\n{usage}\n```"]
    options = (each for each in context.command.get_params(context) if isinstance(each, click.Option))
    records = (option.get_help_record(context) for option in options)
    rows = [f"| {_make_name_cell(record[0])} | {make_cell(record[1])} |" for record in records if record]
    lines.append("\n".join(("| option | meaning |", "|---|---|", *rows)))
    return "\n\n".join((*lines, *_make_examples(context.command, mark))) + "\n"


def _make_name_cell(names: str) -> str:
    """Return the names of an option, each with its value: `-g, --gpu TEXT`."""
    return f"<code class='option'>{make_cell(names)}</code>"


def _make_examples(command: click.Command, mark: str) -> tuple[str, ...]:
    """Return the examples that end the help of a command; none where it has none."""
    lines = [line[2:] for line in (command.epilog or "").splitlines() if line.startswith("  ")]
    if not lines:
        return ()
    return (
        f"{mark}# Examples",
        "They run in the root of a checkout.",
        "\n".join(("```", *lines, "```")),
    )
