"""What the page says on causes: written by hand, after looking at the rows."""

FINDINGS = """## What is off, and why

TODO
"""
