"""Entry point of `python -m analyzer` and of the `warplens` command."""

import signal


def main() -> None:
    """Load the command line and run it; an interrupt while it loads ends the process without a traceback."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background of a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from analyzer.cli.app import main as run_console_script

    run_console_script()


if __name__ == "__main__":
    main()
