"""Compile the pairs of kernels: `python tests/advice/build_pairs.py [FILE ...]`. Needs nvcc 13 and cuobjdump."""

import gzip
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAIRS = Path(__file__).resolve().parent / "pairs"
MAX_PLAIN_CHARACTERS = 100_000
ARCHS_BY_RULE = {"serialized-wgmma": ("90a",), "instruction-cache": ("75", "120")}
ARCHS = ("80", "90")
PROMISED_ARCHS = ("80", "86", "90")


def build(source: Path) -> None:
    """Write the dump and the resources of the pairs in one file for each architecture."""
    archs = PROMISED_ARCHS if source.stem == "promises" else ARCHS_BY_RULE.get(source.parent.name, ARCHS)
    for arch in archs:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
            subprocess.run(
                ["nvcc", "-O3", f"-arch=sm_{arch}", "-cubin", "-o", cubin.name, str(source)], check=True
            )
            for option, ending in (("-sass", "sass"), ("-res-usage", "res")):
                text = subprocess.run(
                    ["cuobjdump", option, cubin.name], check=True, capture_output=True, text=True
                ).stdout
                _write(source.with_name(f"{source.stem}_{arch.rstrip('a')}.{ending}"), _shorten(text))


def _write(path: Path, text: str) -> None:
    """Write a text, compressed if it is long."""
    if len(text) > MAX_PLAIN_CHARACTERS:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text, encoding="utf-8")


def _shorten(text: str) -> str:
    """Return a dump without the padding behind each function and with single spaces."""
    lines = [re.sub(r"[ \t]+", " ", line).strip() for line in text.splitlines()]
    kept, is_padding = [], False
    for line in lines:
        is_padding = line.startswith("/*") and (" NOP;" in line or (is_padding and line.startswith("/* 0x")))
        if line and not is_padding:
            kept.append(line)
    return "\n".join([*kept, ""])


for file in [Path(name) for name in sys.argv[1:]] or sorted(PAIRS.glob("*/*.cu")):
    build(file)
