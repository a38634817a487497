"""Entry point of the `warplens` command: subcommands, exit codes, and errors as one message.

Exit codes: 0 clean, 1 the tool or its input failed, 2 a gate tripped.
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from analyzer.cli.examples import make_examples
from analyzer.text.errors import WarplensError, format_diagnostic
from analyzer.version import __version__
from analyzer.worker_pool import RARE_COLLECTION_THRESHOLDS

EXIT_FAILED = 1
_COMMANDS = ("analyze", "annotate", "whatif", "validate", "trace", "gpus", "doctor")


class _LazyGroup(click.Group):
    """A group whose subcommands are modules of the same name, loaded on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help text."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand, None for an unknown name; all are loaded then, so that click suggests one."""
        for name in (cmd_name,) if cmd_name in _COMMANDS else _COMMANDS:
            self.commands[name] = getattr(import_module(f"analyzer.cli.{name}"), name)
        return self.commands.get(cmd_name)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=make_examples(
        "warplens analyze traces/triton/sm_90/matmul.sass -g h100 --launch docs/launch.json",
        "warplens gpus h100",
    ),
)
@click.version_option(__version__, prog_name="warplens", message="%(prog)s %(version)s")
def app() -> None:
    """Static performance analysis of GPU kernels from what the compiler dumps; no GPU needed."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code. Raises nothing that a user can cause."""
    try:
        result = app.main(
            args=None if arguments is None else list(arguments), prog_name="warplens", standalone_mode=False
        )
    except WarplensError as error:
        print(format_diagnostic(error.diagnostic), file=sys.stderr)
        return EXIT_FAILED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return EXIT_FAILED
    except click.Abort:
        return EXIT_FAILED
    except click.ClickException as error:
        print(f"error: {error.format_message()}", file=sys.stderr)
        print("    help: warplens --help", file=sys.stderr)
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader has gone (`| head`); keep the interpreter from complaining when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def main() -> None:
    """Run the console script."""
    # numpy's linear algebra would start a thread per core, which costs more than a small dump does.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for reference cycles at the default rate took a fifth of the time.
    gc.set_threshold(*RARE_COLLECTION_THRESHOLDS)
    code = run()
    gc.freeze()  # else the interpreter would visit every value once more at its end
    sys.exit(code)
