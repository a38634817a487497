"""One file per architecture: its tensor graph from a description, batch and sequence length."""
