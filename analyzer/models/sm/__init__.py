"""A whole SM, event by event: what the `sm` model rests on."""
