"""Launches of many kernels from a JSON file.

`{"kernels": {"GLOB": {"grid": [..], "block": [..], "cluster": [..], "dynamic_shared_bytes": n,
"arguments": {"WHICH": VALUE}}}}`; a list in place of one launch stands for several.
"""

import json
import re
from pathlib import Path

import msgspec

from analyzer.execution.argument_text import make_argument, parse_value
from analyzer.execution.arguments import target_of
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, LaunchBook, Null, check_launch
from analyzer.text.errors import UsageError
from analyzer.text.source import Location, locate

_MAX_BYTES = 64 << 20
_HINT = 'write {"kernels": {"NAME": {"grid": [132], "block": [256], "arguments": {"0": "ptr", "n": 1024}}}}'
_KEYS = "grid, block, cluster, dynamic_shared_bytes, arguments"
_STEP = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")

Value = int | float | str | None


class LaunchEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch as written."""

    grid: int | list[int] | None = None
    block: int | list[int] | None = None
    cluster: int | list[int] | None = None
    dynamic_shared_bytes: int | None = None
    arguments: dict[str, Value] = {}


class LaunchFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    kernels: dict[str, LaunchEntry | list[LaunchEntry]]


def load_launch_file(path: Path) -> LaunchBook:
    """The launches in a file; `@data.npy` is looked for beside it.

    Raises UsageError that names the place in the file.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path}: larger than {_MAX_BYTES >> 20} MB", hint=_HINT)
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {reason}", hint="--launch takes a JSON file") from None
    return _Reader(path, data.removeprefix(b"\xef\xbb\xbf")).read()
