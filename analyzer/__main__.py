"""`python -m analyzer` is the `warplens` command."""

from analyzer.cli.app import main

if __name__ == "__main__":
    main()
