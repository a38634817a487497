"""`warplens tune`: configurations of a kernel, from a profile of your own GPU or from none."""

from importlib import import_module

import click

from analyzer.cli.examples import make_examples

# Each is the command of that name in `analyzer/cli/tune_NAME.py`.
_SUBCOMMANDS = ("plan", "profile", "fit", "choose", "evaluate", "rank", "export", "import")


class _LazyTuneGroup(click.Group):
    """A group whose subcommands are modules, loaded on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help text."""
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand, None for an unknown name; all are loaded then, so that click suggests one."""
        for name in (cmd_name,) if cmd_name in _SUBCOMMANDS else _SUBCOMMANDS:
            attribute = "import_file" if name == "import" else name  # a keyword
            self.commands[name] = getattr(import_module(f"analyzer.cli.tune_{name}"), attribute)
        return self.commands.get(cmd_name)


@click.group(
    cls=_LazyTuneGroup,
    epilog=make_examples(
        "warplens tune fit traces/h100/gemm_profile.csv -o gemm.npz",
        "warplens tune choose traces/h100/gemm_wavetune.npz --m 512 --n 4096 --k 4096",
    ),
)
def tune() -> None:
    """Choose configurations of a kernel: plan what to measure, fit the times, choose in microseconds."""
