"""Entry point of the `warplens` command: subcommands, exit codes, and errors as one message.

`run` turns all that a user can cause into a message and an `ExitCode`; any other exception is a bug, which
`main` reports as one.
"""

import codecs
import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.path_claims import CLASH_HINT, OutputRead
from analyzer.text.errors import GateError, UsageError, WarplensError, format_diagnostic
from analyzer.text.escaping import encode_for_terminal, escape_controls
from analyzer.version import __version__
from analyzer.worker_pool import RARE_COLLECTION_THRESHOLDS

_COMMANDS = (
    "analyze",
    "annotate",
    "diff",
    "check",
    "whatif",
    "tasks",
    "predict",
    "forecast",
    "serving",
    "iteration",
    "transfer",
    "calibrate",
    "learn",
    "tune",
    "validate",
    "trace",
    "gpus",
    "doctor",
)
_TRACEBACK_VARIABLE = "WARPLENS_TRACEBACK"
_MAX_REASON_CHARS = 300
_LINE_FEED = "\n"


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
        result = _run_command(arguments)
        sys.stdout.flush()
    except WarplensError as error:
        _print_error(format_diagnostic(error.diagnostic))
        return ExitCode.GATE_TRIPPED if isinstance(error, GateError) else ExitCode.FAILED
    except OutputRead as error:
        return _fail(str(error), CLASH_HINT)
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        _print_error(f"error: {error.format_message()}")
        _print_error("    help: warplens --help")
        return ExitCode.FAILED
    except BrokenPipeError:  # the reader has gone (`| head`)
        _drop_output()
        return ExitCode.CLEAN
    except OSError as error:  # whoever reads or writes a file has named it, so this is standard output
        _drop_output()
        what = "cannot write to standard output" if error.filename is None else error.filename
        return _fail(f"{what}: {error.strerror or error}", "check space and permissions")
    except MemoryError:
        return _fail("memory has run out", "choose fewer kernels with -k, or give fewer --jobs")
    except RecursionError:
        return _fail("the input is nested too deeply", "name one part of it, with -k or in a file of its own")
    return result if isinstance(result, int) else ExitCode.CLEAN


def _run_command(arguments: Sequence[str] | None) -> object:
    """Run the subcommand; return what it returns."""
    if sys.stdout is None:  # `>&-`
        sys.stdout = _ClosedOutput()
    words = None if arguments is None else list(arguments)
    try:
        return app.main(args=words, prog_name="warplens", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return ExitCode.FAILED


class _ClosedOutput(io.TextIOBase):
    """Standard output that was closed before the start; writing nothing to it is no error."""

    def write(self, text: str, /) -> int:
        """Raise OSError, except for an empty text."""
        if not text:
            return 0
        raise OSError(errno.EBADF, "it is closed")


def _fail(message: str, hint: str) -> ExitCode:
    _print_error(format_diagnostic(UsageError(message, hint=hint).diagnostic))
    return ExitCode.FAILED


def _print_error(text: str) -> None:
    """Print on standard error, if that can be, with control characters escaped."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(escape_controls(text, keep=_LINE_FEED), file=sys.stderr, flush=True)


def _flush_output() -> None:
    """Write out what is left where a command failed halfway; that this fails, too, is not worth a message."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        _drop_output()


def _drop_output() -> None:
    """Discard what standard output still holds, which the interpreter would try to write at its end."""
    with suppress(OSError, ValueError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the console script."""
    heeds_interrupts = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if heeds_interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _prepare_streams()
    # numpy's linear algebra would start a thread per core, which costs more than a small dump does.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for reference cycles at the default rate took a fifth of the time.
    gc.set_threshold(*RARE_COLLECTION_THRESHOLDS)
    try:
        code = run()
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:
        code = _report_bug(error)
    if heeds_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing more to tidy up
    _flush_output()
    gc.freeze()  # else the interpreter would visit every value once more at its end
    sys.exit(code)


def _prepare_streams() -> None:
    """Keep closed standard streams from being taken by files, and those that are no UTF-8 from failing."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file to be opened would become it
            os.open(os.devnull, os.O_RDWR)
    codecs.register_error("warplens", encode_for_terminal)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="warplens")


def _report_bug(error: Exception) -> ExitCode:
    """Print one message of an error that no user should be able to cause."""
    if os.environ.get(_TRACEBACK_VARIABLE):
        import traceback

        _print_error("".join(traceback.format_exception(error)))
    reason = escape_controls(f"{type(error).__name__}: {error}"[:_MAX_REASON_CHARS])  # line feeds, too
    _print_error(f"error: internal error: {reason}")
    hint = f"please report it, with the input and what {_TRACEBACK_VARIABLE}=1 prints"
    _print_error(f"    help: {hint}")
    return ExitCode.FAILED
