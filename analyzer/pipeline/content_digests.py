"""Digests of all that decides a result: files, kernels, launches, GPUs, options, and this code itself.

SHA-256 over JSON, in which each part is delimited, or over bytes with their lengths before them: no two
different contents have the same text.

    digest_kernel   instructions, control words, resources, constants, lines of the source, and the name;
                    not the place in the file, so that a kernel that moved is the same kernel
    digest_input    bytes of a file and of the files read with it, and the tools that read it
    digest_code     sources and tables of this package, and the libraries that compute
"""

import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analyzer import version
from analyzer.fingerprint import compute_model_fingerprint, list_model_files
from analyzer.frontend.cuda_tools import TOOL_NAMES, find_tool
from analyzer.ir.module import Kernel, SourceFormat
from analyzer.ir.numbered_labels import make_label_renamer

_VERSIONED_LIBRARIES = ("numpy", "msgspec")  # of which a result may depend on the version
_BINARY_PROBE_BYTES = 4096
_JSON = msgspec.json.Encoder(order="deterministic", enc_hook=lambda value: _encode_other(value))


def digest_json(parts: object) -> str:
    """Return the digest of values that JSON can hold, and of msgspec values."""
    return hashlib.sha256(_JSON.encode(parts)).hexdigest()


def encode_json(parts: object) -> bytes:
    """Return values as JSON whose bytes depend on the values alone."""
    return _JSON.encode(parts)


def digest_file(path: str | Path) -> str:
    """Return the digest of a file's bytes. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_code() -> str | None:
    """Return a digest of the code, its tables and libraries; None if one was edited after the import."""
    if max(file.changed_ns for file in list_model_files()) > version.IMPORT_TIME_NS:
        return None
    code = compute_model_fingerprint()
    versions = [getattr(import_module(name), "__version__", "") for name in _VERSIONED_LIBRARIES]
    machine = os.uname().machine if hasattr(os, "uname") else sys.platform
    return digest_json([code, versions, sys.version_info[:2], machine]) if code else None


def digest_input(path: str | Path, siblings: Sequence[Path], facts: Sequence[object] = ()) -> str:
    """Return a digest of a file, of files read with it, and of the tools that read it, if it is a binary.

    facts: what else decides how the file is read.
    Raises OSError where a file cannot be read.
    """
    parts: list[object] = [digest_file(path), [[one.name, digest_file(one)] for one in siblings], *facts]
    with open(path, "rb") as file:
        if b"\0" in file.read(_BINARY_PROBE_BYTES):
            parts.append(read_tool_states())
    return digest_json(parts)


def read_tool_states() -> list[tuple[object, ...]]:
    """Return path, size and modification time of the disassemblers and of the assembler that would run."""
    paths = ((name, _find_tool_path(name)) for name in TOOL_NAMES)
    return [(name, *read_program_state(path)) for name, path in paths if path]


@cache
def _find_tool_path(name: str) -> str:
    tool = find_tool(name)
    return "" if tool is None else tool.path


def read_program_state(path: str) -> tuple[object, ...]:
    """Return path, size and modification time of a program; the path alone where there is none."""
    with suppress(OSError, ValueError):
        state = os.stat(path)
        return (path, state.st_size, state.st_mtime_ns)
    return (path,)


def digest_kernel(kernel: Kernel, source_format: SourceFormat, salt: str = "") -> str:
    """Return a digest of a kernel's content, which decides its report but for its place in the input.

    salt: what decides, beside the texts, how instructions are decoded; "" for text of a disassembler.
    """
    used, local_ids = np.unique(kernel.text_ids, return_inverse=True)
    # Distinct texts are numbered by their first appearance: ids of the module depend on other kernels.
    order = np.argsort(_find_first_rows(local_ids, len(used)), kind="stable")
    ranks = np.empty(len(used), np.int64)
    ranks[order] = np.arange(len(used))
    texts = kernel.form_table.texts
    rename = make_label_renamer(kernel)
    own_texts = [rename(texts[int(used[place])]) for place in order]
    digest = hashlib.sha256()
    _update(digest, _JSON.encode([salt, source_format.value, own_texts]))
    _update(digest, ranks[local_ids].astype("<i8").tobytes())
    for column in (kernel.addresses, kernel.control_words, kernel.ptx_lines):
        _update(digest, b"" if column is None else np.ascontiguousarray(column).astype("<u8").tobytes())
    _update(digest, b"-" if kernel.control_words is None else b"+")
    _update(digest, _encode_lines(kernel))
    _update(digest, _JSON.encode([getattr(kernel, name) for name in _DIGESTED_FIELDS]))
    _update(digest, _JSON.encode([(rename(name), address) for name, address in kernel.labels]))
    return digest.hexdigest()


# Beside the columns, which are digested as bytes, and `line` and `form_table`, which are the file's.
_DIGESTED_FIELDS = (
    "name",
    "arch",
    "resources",
    "branch_targets",
    "is_entry",
    "is_excerpt",
    "parameters",
    "parameter_base",
    "signature",
    "folded_arguments",
    "constant_banks",
    "cluster",
    "triton_hash",
)


def _find_first_rows(local_ids: "np.ndarray[Any, Any]", n_texts: int) -> "np.ndarray[Any, Any]":
    first = np.full(n_texts, len(local_ids), np.int64)
    np.minimum.at(first, local_ids, np.arange(len(local_ids)))
    return first


def _encode_lines(kernel: Kernel) -> bytes:
    """Return the source lines of all rows; a table of lines is the module's, so each row's own is taken."""
    ids = kernel.source_line_ids
    if ids is None:
        return b""
    used, local_ids = np.unique(ids, return_inverse=True)
    lines = [kernel.source_lines[number] if number >= 0 else None for number in used.tolist()]
    order = sorted(range(len(lines)), key=lambda place: _JSON.encode(lines[place]))
    ranks = np.empty(len(lines), np.int64)
    ranks[order] = np.arange(len(lines))
    return _JSON.encode([lines[place] for place in order]) + b"\n" + ranks[local_ids].astype("<i8").tobytes()


def _update(digest: "hashlib._Hash", part: bytes) -> None:
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)


def digest_parts(parts: Iterable[bytes]) -> str:
    """Return the digest of several pieces of bytes, each delimited."""
    digest = hashlib.sha256()
    for part in parts:
        _update(digest, part)
    return digest.hexdigest()


def _encode_other(value: object) -> object:
    """Return what msgspec cannot encode as values that it can. Raises TypeError for what has no content."""
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return [value.dtype.str, list(value.shape), content]
    if isinstance(value, complex | range):
        return repr(value)
    raise TypeError(f"no digest of {type(value).__name__}")
