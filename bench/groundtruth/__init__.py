"""Read what one H100 measured (traces/h100) and hold warplens against it; `bench/h100.py` writes the page."""
