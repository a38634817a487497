"""A cache of model results on disk, found again only if nothing that they depend on has changed.

The key of a result is a SHA-256 digest of the dump and the files beside it, the launch and the contents of
its arguments, the GPU's figures, and the sources of this package with all shipped tables. A result is a JSON
file in a folder of its version of the code.
"""

import glob
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

import analyzer
from analyzer.evaluation.case_table import Case
from analyzer.files import find_home_folder, read_file, write_file
from analyzer.fingerprint import compute_model_fingerprint, list_model_files
from analyzer.frontend.cuda_tools import TOOL_NAMES, find_tool
from analyzer.hardware.gpu import Gpu
from analyzer.models.registry import is_own_model
from analyzer.text.errors import UsageError

_FORMAT_VERSION = 1  # of keys and entries
_MAX_KEPT_VERSIONS = 4
_MAX_ENTRY_BYTES = 1 << 20
_BINARY_PROBE_BYTES = 4096
_VERSIONED_LIBRARIES = ("numpy", "scikit-learn")  # whose version may change a result


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one model for one row; fields as in `CasePrediction` and `CaseEntry`."""

    provenance: str = ""
    transferred: bool = False
    kernel: str = ""
    cycles: float = 0.0
    time_us: float = 0.0
    time_us_low: float = 0.0
    time_us_high: float = 0.0
    bound: str = ""
    clock_mhz: float = 0.0
    cpi_shares: Mapping[str, float] = {}
    reason: str = ""  # why there is no result


def find_default_folder() -> Path | None:
    """Return `~/.cache/warplens/validate`, or the folder below XDG_CACHE_HOME; None without a home."""
    root = find_home_folder("XDG_CACHE_HOME", ".cache")
    return None if root is None else root / "warplens" / "validate"


class ResultCache:
    """Results of this version of the code in a folder; without a folder nothing is kept."""

    __slots__ = ("_folder",)

    def __init__(self, folder: Path | None) -> None:
        code = None if folder is None else digest_code()
        self._folder = None if folder is None or code is None else folder / f"v{_FORMAT_VERSION}-{code[:16]}"

    @property
    def is_enabled(self) -> bool:
        """True if results are kept."""
        return self._folder is not None

    def find(self, key: str) -> CaseResult | None:
        """Return the result of a key; None where there is none that can be read."""
        if self._folder is None:
            return None
        try:
            path = self._make_entry_path(key)
            if not path.is_file():  # a FIFO would keep us waiting
                return None
            return msgspec.json.decode(read_file(path, _MAX_ENTRY_BYTES), type=CaseResult)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
            return None

    def store(self, results: Mapping[str, CaseResult]) -> None:
        """Store results by their keys, each completely or not at all; a full disk is not an error."""
        if self._folder is None or digest_code() is None:
            return
        for key, result in results.items():
            path = self._make_entry_path(key)
            if path.exists() and not path.is_file():  # someone put a folder or a FIFO there
                continue
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_file(path, [msgspec.json.encode(result)])

    def _make_entry_path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key[2:]}.json"


def prepare_folder(folder: Path) -> None:
    """Make the folder, and remove results of old versions of the code. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--cache {folder}: {error.strerror}", hint="or --no-cache") from None
    except ValueError as error:  # a null byte in the path
        raise UsageError(f"--cache {folder}: {error}", hint="or --no-cache") from None
    with suppress(OSError):  # another run may do the same
        kept = sorted(folder.glob(f"v[0-9]*-{'[0-9a-f]' * 16}"), key=lambda p: p.stat().st_mtime_ns)
        for old in kept[:-_MAX_KEPT_VERSIONS]:
            shutil.rmtree(old, ignore_errors=True)


def make_cache_keys(case: Case, models: Sequence[str], *, inputs: str, gpu: Gpu) -> dict[str, str]:
    """Return the key of each model's result.

    inputs: the digest that `digest_inputs` returns. Raises OSError where a file cannot be read.
    """
    facts = _digest_json(
        [
            _FORMAT_VERSION,
            digest_code() or "",
            inputs,
            [gpu.key, gpu.file, gpu.arch],
            case.kernel,
            [case.grid.sizes, case.block.sizes, case.cluster and case.cluster.sizes],
            case.dynamic_shared_bytes,
            [[which, repr(value)] for which, value in case.arguments],
            [_digest_file(path) for path in case.data_files],
            case.l2,
            case.clock_mhz,
            case.timing,
        ]
    )
    return {model: _digest_json([facts, model]) for model in models if is_own_model(model)}


def digest_inputs(path: Path) -> str:
    """Return a digest of a dump and of all files of its stem; of a binary also of the tools that read it.

    Raises OSError where a file cannot be read.
    """
    beside = sorted(p for p in path.parent.glob(f"{glob.escape(path.stem)}.*") if p != path and p.is_file())
    parts: list[object] = [_digest_file(path), *([p.name, _digest_file(p)] for p in beside)]
    with path.open("rb") as file:
        if b"\0" in file.read(_BINARY_PROBE_BYTES):
            parts += [[name, _read_tool_state(name)] for name in TOOL_NAMES]
    return _digest_json(parts)


def _read_tool_state(name: str) -> list[object]:
    """Return path, size and modification time of the disassembler that would run."""
    tool = find_tool(name)
    if tool is None:
        return []
    state = os.stat(tool.path)
    return [tool.path, state.st_size, state.st_mtime_ns]


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_json(parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def digest_code() -> str | None:
    """Return a digest of the code, its tables and libraries; None if one was edited after the import."""
    if max(file.changed_ns for file in list_model_files()) > analyzer.IMPORT_TIME_NS:
        return None
    code = compute_model_fingerprint()
    libraries = [_find_library_version(library) for library in _VERSIONED_LIBRARIES]
    return _digest_json([code, libraries]) if code else None


@cache
def _find_library_version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""
