"""Puts this folder on the import path: its tests share an oracle."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
