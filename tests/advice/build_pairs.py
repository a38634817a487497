"""Compile the pairs of kernels: `python tests/advice/build_pairs.py [RULE ...]`. Needs nvcc 13 and cuobjdump."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAIRS = Path(__file__).resolve().parent / "pairs"
ARCHS = (80, 90)


def build(folder: Path) -> None:
    """Write the dump and the resources of a pair for each architecture."""
    for arch in ARCHS:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
            source = str(folder / "pair.cu")
            suffix = "a" if "wgmma" in folder.name else ""
            subprocess.run(
                ["nvcc", "-O3", f"-arch=sm_{arch}{suffix}", "-cubin", "-o", cubin.name, source], check=True
            )
            for option, ending in (("-sass", "sass"), ("-res-usage", "res")):
                text = subprocess.run(
                    ["cuobjdump", option, cubin.name], check=True, capture_output=True, text=True
                ).stdout
                (folder / f"pair_{arch}.{ending}").write_text(_shorten(text), encoding="utf-8")


def _shorten(text: str) -> str:
    """Return a dump without the padding behind each function and with single spaces."""
    lines = [re.sub(r"[ \t]+", " ", line).strip() for line in text.splitlines()]
    kept, is_padding = [], False
    for line in lines:
        is_padding = line.startswith("/*") and (" NOP;" in line or (is_padding and line.startswith("/* 0x")))
        if line and not is_padding:
            kept.append(line)
    return "\n".join([*kept, ""])


for name in sys.argv[1:] or sorted(path.name for path in PAIRS.iterdir()):
    build(PAIRS / name)
