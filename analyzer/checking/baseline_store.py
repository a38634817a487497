"""Baselines on disk: one file for all inputs, or a folder with a file for each.

What is read may have been through a merge, an editor or a full disk, so every fault is one error with its
place. What is written replaces the old file at once or not at all.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from analyzer.files import check_writable, list_files, lock_folder, read_file, write_file
from analyzer.report.baseline_schema import BASELINE_SCHEMA, Baseline, BaselineKernel
from analyzer.text.errors import InputError, UsageError
from analyzer.text.escaping import escape_json
from analyzer.text.json_spans import find_json_spans, split_decode_error, split_validation_error
from analyzer.text.source import locate

_MAX_FILE_BYTES = 256 << 20
_MAX_FILES = 100_000
_SUFFIX = ".json"
_CONFLICT = re.compile(rb"^(<{7}|={7}|>{7}|\|{7})(?: |\r?$)", re.M)
_MAX_NAME_CHARS = 80
_NAME_DIGITS = 8
_WRITE_AGAIN_HINT = (
    "check it out from version control, or remove it and write a new one: warplens check --update"
)


class StoredBaseline(Struct, frozen=True):
    """A baseline and its file."""

    path: Path
    baseline: Baseline


class _Head(Struct, frozen=True):
    """The fields that decide how the rest is read."""

    schema: str
    tool_version: str = ""


def read_baselines(path: Path) -> tuple[StoredBaseline, ...]:
    """Return the baseline in a file, or those in a folder by name; none where there is neither.

    Raises InputError: unreadable, cut off, with the marks of a merge conflict, of another schema, with a
    kernel twice.
    """
    if path.is_dir():
        files = list_files(path, _SUFFIX)
        if len(files) > _MAX_FILES:
            raise InputError(f"{path}: {len(files):,} baselines, at most {_MAX_FILES:,} are read")
    else:
        files = [path] if os.path.lexists(path) else []
    found = tuple(StoredBaseline(file, read_baseline(file)) for file in files)
    owners: dict[str, Path] = {}
    for stored in found:
        for name in sorted({kernel.input for kernel in stored.baseline.kernels}):
            if owners.setdefault(name, stored.path) != stored.path:
                raise InputError(
                    f"{stored.path}: has kernels of {name}, and so has {owners[name].name}",
                    hint="remove one of the two files",
                )
    return found


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in a file. Raises InputError."""
    try:
        data = read_file(path, _MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if mark := _CONFLICT.search(data):
        location = locate(str(path), data, mark.start(), length=len(mark[1]))
        raise InputError(
            "an unresolved merge conflict",
            location=location,
            hint="take either side, then: warplens check --update",
        )
    baseline = _decode(path, data)
    _check_unique(path, data, baseline.kernels)
    return baseline


def _decode(path: Path, data: bytes) -> Baseline:
    try:
        data.decode()  # msgspec looks only into the strings that it takes
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError:
        raise InputError(
            f"{path}: no baseline of warplens: it has no schema", hint=f"its schema is {BASELINE_SCHEMA}"
        ) from None
    except UnicodeDecodeError as error:
        location = locate(str(path), data, error.start)
        raise InputError("this is not UTF-8 text", location=location, hint=_WRITE_AGAIN_HINT) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _make_syntax_error(path, data, error) from None
    if head.schema != BASELINE_SCHEMA:
        raise InputError(
            f"{path}: its schema is {head.schema!r:.80}, and this warplens reads {BASELINE_SCHEMA}",
            hint=f"written by warplens {head.tool_version or '?':.40}; remove it, then write a new one: "
            "warplens check --update",
        )
    try:
        return msgspec.json.decode(data, type=Baseline)
    except msgspec.ValidationError as error:
        words, where = split_validation_error(str(error))
        span = find_json_spans(data).find_value(where)
        raise InputError(
            f"not as {BASELINE_SCHEMA} has it: {words[:1].lower()}{words[1:]}",
            location=locate(str(path), data, span.offset, length=span.length),
            hint=_WRITE_AGAIN_HINT,
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _make_syntax_error(path, data, error) from None


def _make_syntax_error(path: Path, data: bytes, error: Exception) -> InputError:
    """Return the error at the byte that it names, at the end of the data where it names none."""
    reason, offset = split_decode_error(str(error))
    last = max(0, len(data.rstrip()) - 1)
    return InputError(
        f"not JSON: {reason}",
        location=locate(str(path), data, last if offset is None else min(offset, last)),
        hint=f"the file may be cut off: {_WRITE_AGAIN_HINT}",
    )


def _check_unique(path: Path, data: bytes, kernels: Sequence[BaselineKernel]) -> None:
    seen: set[tuple[str, ...]] = set()
    for index, kernel in enumerate(kernels):
        if kernel.key in seen:
            span = find_json_spans(data).find_value(("kernels", index))
            raise InputError(
                f"kernel {kernel.name:.200} of {kernel.input:.200} is there twice",
                location=locate(str(path), data, span.offset),
                hint="a merge may have kept both sides: remove one line, then: warplens check --update",
            )
        seen.add(kernel.key)


def format_baseline(baseline: Baseline) -> str:
    """Return a baseline as text: a line for each fact, GPU, input and kernel; equal ones give equal texts."""
    kernels = sorted({kernel.key: kernel for kernel in baseline.kernels}.values(), key=lambda each: each.key)
    whole = replace(baseline, kernels=tuple(kernels))
    lines = []
    for name in Baseline.__struct_fields__:
        value = getattr(whole, name)
        if isinstance(value, tuple):
            items = ",\n".join(_encode(item) for item in value)
            lines.append(f'"{name}": [\n{items}\n]' if items else f'"{name}": []')
        else:
            lines.append(f'"{name}": {_encode(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _encode(value: object) -> str:
    return escape_json(msgspec.json.encode(value, order="deterministic").decode())


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline completely or not at all. Raises UsageError where that cannot be.

    A file that has the same contents already is left alone, so that its time says when it changed.
    """
    data = format_baseline(baseline).encode()
    with suppress(OSError, ValueError):
        if path.is_file() and read_file(path, len(data)) == data:
            return
    with _tell_what_fails(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, [data])


def check_baseline_writable(path: Path) -> None:
    """Raise UsageError where a baseline, or a folder with some, cannot be written."""
    with _tell_what_fails(path):
        check_writable(path / "file" if path.is_dir() else path, makes_folders=True)


@contextmanager
def hold_baselines(path: Path) -> Iterator[None]:
    """Hold a baseline, or a folder with some, against other checks, to read it and write it anew.

    Raises UsageError where that cannot be.
    """
    with ExitStack() as held:
        with _tell_what_fails(path):
            held.enter_context(lock_folder(path.parent))
        yield


@contextmanager
def _tell_what_fails(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot write the baseline {path}: {reason}", hint="name another place with --baseline FILE"
        ) from None


def remove_baselines(paths: Iterable[Path]) -> None:
    """Remove the files of inputs that are gone. Raises UsageError."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot remove the baseline {path}: {error.strerror}") from None


def make_input_file_name(name: str) -> str:
    """Return the file of an input in a folder of baselines: its name, and a digest where that was changed."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".") or "input"
    if plain == name and len(plain) <= _MAX_NAME_CHARS:
        return plain + _SUFFIX
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_NAME_DIGITS]
    return f"{plain[-_MAX_NAME_CHARS:]}-{digest}{_SUFFIX}"
