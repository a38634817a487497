"""Entry point of the `warplens` command: subcommands, exit codes, and errors as one message."""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from analyzer.cli.exit_codes import ExitCode
from analyzer.text.errors import GateError, WarplensError, format_diagnostic
from analyzer.version import __version__
from analyzer.worker_pool import RARE_COLLECTION_THRESHOLDS

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


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
        return ExitCode.GATE_TRIPPED if isinstance(error, GateError) else ExitCode.FAILED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return ExitCode.FAILED
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        print(f"error: {error.format_message()}", file=sys.stderr)
        print("    help: warplens --help", file=sys.stderr)
        return ExitCode.FAILED
    except BrokenPipeError:
        # The reader has gone (`| head`); keep the interpreter from complaining when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.CLEAN
    return result if isinstance(result, int) else ExitCode.CLEAN


def main() -> None:
    """Run the console script."""
    # numpy's linear algebra would start a thread per core, which costs more than a small dump does.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for reference cycles at the default rate took a fifth of the time.
    gc.set_threshold(*RARE_COLLECTION_THRESHOLDS)
    code = run()
    gc.freeze()  # else the interpreter would visit every value once more at its end
    sys.exit(code)
