"""Text of inputs and messages: places, diagnostics with carets, errors, kernel names."""
