"""Files of Triton IR: what tells them from others, and how they are read."""

from pathlib import Path

from analyzer.files import read_file
from analyzer.frontend.input_format import HEAD_BYTES, InputFormat, detect_format
from analyzer.frontend.pasted_text import undo_pasting
from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.ir.tile_operations import TritonModule
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic

_MAX_IR_BYTES = 64 << 20
_OWN_TARGET = "cuda"
_VENDORS = {"hip": "AMD", "xpu": "Intel"}
_VENDOR_HINT = "give code for a GPU of NVIDIA: a target of cuda, 32 threads a warp"


def is_triton_ir(path: str) -> bool:
    """Return whether a file holds Triton IR; False for what cannot be read, and for standard input."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return False
    cleaned = undo_pasting(head)
    return detect_format(head if cleaned is None else cleaned.text) is InputFormat.TRITON_IR


def read_triton_module(path: str, kernel: str | None = None) -> tuple[TritonModule, tuple[Diagnostic, ...]]:
    """Read a TTIR or TTGIR file; return its module, and warnings.

    kernel: which to look for in a file of several dumps. Raises InputError, also for another vendor's GPU, or
    UsageError if the file has dumps of several kernels and none is named.
    """
    try:
        data = read_file(Path(path), _MAX_IR_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    cleaned = undo_pasting(data)
    text = (data if cleaned is None else cleaned.text).decode("utf-8", "replace")
    module, diagnostics = parse_triton_ir(text, path, kernel)
    _refuse_other_vendors(module, path)
    return module, (*(() if cleaned is None else cleaned.diagnostics), *diagnostics)


def _refuse_other_vendors(module: TritonModule, path: str) -> None:
    vendor, _, gpu = module.target.partition(":")
    threads = f"{module.threads_per_warp} threads a warp"
    if vendor not in ("", _OWN_TARGET):
        name = f" ({_VENDORS[vendor]})" if vendor in _VENDORS else ""
        raise InputError(f"{path}: this is code for {gpu or vendor}{name}, with {threads}", hint=_VENDOR_HINT)
    if module.threads_per_warp != WARP_SIZE:
        raise InputError(f"{path}: this is code for a GPU with {threads}", hint=_VENDOR_HINT)
