"""Simulate a whole SM event by event, for the `sm` model."""
