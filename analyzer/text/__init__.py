"""Text as the user gave it: sources, spans, diagnostics, and the one printer of carets."""
