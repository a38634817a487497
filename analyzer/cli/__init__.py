"""The `warplens` command, one file per subcommand."""
