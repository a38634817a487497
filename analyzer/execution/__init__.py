"""How often instructions run: trip counts and block counts without a GPU."""
