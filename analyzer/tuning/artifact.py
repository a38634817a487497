"""The file that `tune fit` writes and a runtime reads: two small arrays and a description.

An .npz file of three entries, readable with numpy alone:

    coefficients  float32 [C, W + 1, 4]: alpha, beta, gamma, delta of each macro configuration and wave, the
                  last row for waves beyond W; microseconds
    micro_table   uint32 [C, W + 1, A, 2]: loop anchors, increasing, each with its micro configuration's row
    description   uint8: JSON with names, values and origin (`ArtifactDescription`)

Nothing in it is code, no entry is unpickled, and whatever does not agree is refused with one message.
"""

import io
import zipfile
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.archives import read_npz
from analyzer.files import read_file, write_file
from analyzer.text.errors import InputError, UsageError
from analyzer.tuning.kernel_space import KernelSpace
from analyzer.version import __version__

ARTIFACT_SCHEMA = "warplens/tune-artifact/1"
_MAX_FILE_BYTES = 4 << 20
_MAX_ENTRY_BYTES = 64 << 20  # unpacked
_MOST_CONFIGS, _MOST_ROWS, _MOST_ANCHORS = 65_535, 4096, 64
_MOST_SMS, _MOST_VALUE = 100_000, 1 << 30
_N_TERMS = 4
_FIRST_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_HINT = "write it with `warplens tune fit`"


class ArtifactDescription(Struct, frozen=True, kw_only=True):
    """What the rows of the two arrays mean, and where they come from."""

    schema: str
    tool_version: str
    kernel: str
    gpu: str
    n_sms: int
    variant: str
    n_samples: int
    buckets_by_rank: tuple[int, ...]  # how many (macro, wave) buckets had samples for 0, 1, 2, 3, 4 terms
    space: KernelSpace
    macros: tuple[tuple[int, ...], ...]
    micros: tuple[tuple[int, ...], ...]


class Artifact(Struct, frozen=True):
    """A fitted model as a runtime needs it."""

    description: ArtifactDescription
    coefficients: NDArray[np.float32]
    micro_table: NDArray[np.uint32]


def make_artifact(
    space: KernelSpace,
    coefficients: NDArray[np.float64],
    anchors: NDArray[np.int64],
    micro_ids: NDArray[np.int64],
    *,
    macros: NDArray[np.int64],
    micros: NDArray[np.int64],
    gpu: str,
    n_sms: int,
    variant: str = "wavetune",
    n_samples: int = 0,
    ranks: NDArray[np.int64] | None = None,
) -> Artifact:
    """Return the artifact of a fitted model, see `wave_model.WaveTables`."""
    by_rank = np.bincount(np.zeros(0, np.int64) if ranks is None else ranks.ravel(), minlength=_N_TERMS + 1)
    description = ArtifactDescription(
        schema=ARTIFACT_SCHEMA,
        tool_version=__version__,
        kernel=space.name,
        gpu=gpu,
        n_sms=n_sms,
        variant=variant,
        n_samples=n_samples,
        buckets_by_rank=tuple(by_rank.tolist()),
        space=space,
        macros=tuple(tuple(row) for row in macros.tolist()),
        micros=tuple(tuple(row) for row in micros.tolist()),
    )
    return Artifact(
        description,
        coefficients.astype(np.float32),
        np.stack([anchors, micro_ids], axis=-1).astype(np.uint32),
    )


def pack_artifact(artifact: Artifact) -> bytes:
    """Return the bytes of the file; the same for equal artifacts."""
    description = np.frombuffer(msgspec.json.encode(artifact.description), dtype=np.uint8)
    entries = {
        "coefficients": artifact.coefficients,
        "micro_table": artifact.micro_table,
        "description": description,
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in entries.items():
            data = io.BytesIO()
            np.lib.format.write_array(data, np.ascontiguousarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _FIRST_ZIP_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data.getvalue())
    return packed.getvalue()


def save_artifact(artifact: Artifact, path: Path) -> int:
    """Write the file beside its place and rename it; return its bytes. Raises UsageError."""
    data = pack_artifact(artifact)
    try:
        write_file(path, [data])
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write {path}: {reason}") from None
    return len(data)


def load_artifact(path: str | Path) -> Artifact:
    """Return the artifact in a file. Raises InputError for one that cannot be read, is damaged or foreign."""
    try:
        data = read_file(path, _MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}", hint=_HINT) from None
    try:
        return _unpack(data)
    except _DamagedArtifactError as error:
        raise InputError(f"{path}: {error}", hint=_HINT) from None


class _DamagedArtifactError(Exception):
    """What is wrong with a file."""


def _unpack(data: bytes) -> Artifact:
    try:
        entries = read_npz(data, ("coefficients", "micro_table", "description"), _MAX_ENTRY_BYTES)
    except ValueError as error:
        raise _DamagedArtifactError(f"damaged, or no artifact of tune: {error}") from None
    description = _read_description(entries["description"])
    n_macros, n_micros = len(description.macros), len(description.micros)
    if entries["coefficients"].dtype != np.float32 or entries["micro_table"].dtype != np.uint32:
        raise _DamagedArtifactError("its arrays are not of float32 and uint32")
    coefficients, micro_table = (
        entries["coefficients"].view(np.float32),
        entries["micro_table"].view(np.uint32),
    )
    if coefficients.ndim != 3 or not _is_shape(coefficients.shape, (n_macros, _MOST_ROWS, _N_TERMS)):
        raise _DamagedArtifactError("the coefficient table does not fit the list of configurations")
    rows = coefficients.shape[1]
    if micro_table.ndim != 4 or micro_table.shape[:2] != (n_macros, rows) or micro_table.shape[3] != 2:
        raise _DamagedArtifactError("the micro table does not fit the coefficient table")
    if not 1 <= micro_table.shape[2] <= _MOST_ANCHORS or micro_table[..., 1].max() >= n_micros:
        raise _DamagedArtifactError("the micro table names configurations that are not listed")
    if micro_table[..., 0].min() < 1 or (np.diff(micro_table[..., 0].astype(np.int64), axis=2) < 0).any():
        raise _DamagedArtifactError("the loop anchors are not in order")
    if not np.isfinite(coefficients).all():
        raise _DamagedArtifactError("a coefficient is not finite")
    return Artifact(description, coefficients, micro_table)


def _is_shape(shape: tuple[int, ...], wanted: tuple[int, int, int]) -> bool:
    """Return whether a table has so many configurations and terms, and rows up to a limit."""
    return shape[0] == wanted[0] and 1 <= shape[1] <= wanted[1] and shape[2] == wanted[2]


def _read_description(data: NDArray[np.generic]) -> ArtifactDescription:
    try:
        found = msgspec.json.decode(data.tobytes(), type=ArtifactDescription)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _DamagedArtifactError(f"its description cannot be read: {error}") from None
    if found.schema != ARTIFACT_SCHEMA:
        raise _DamagedArtifactError(
            f"its schema is {found.schema[:60]!r}, and this version reads {ARTIFACT_SCHEMA}"
        )
    space = found.space
    tilings = (*space.grid, space.loop)
    named = {each.input for each in tilings}
    named |= {name for each in tilings for name in (each.factor, each.groups) if name}
    if not (named | set(space.multipliers)) <= set(space.inputs) or not space.inputs:
        raise _DamagedArtifactError("its description maps an input that the kernel does not have")
    if not {each.parameter for each in tilings} <= set(space.macro_parameters):
        raise _DamagedArtifactError("its description maps a parameter that the kernel does not have")
    for configs, names in ((found.macros, space.macro_parameters), (found.micros, space.micro_parameters)):
        if not 1 <= len(configs) <= _MOST_CONFIGS or any(len(row) != len(names) for row in configs):
            raise _DamagedArtifactError("its configurations do not have the kernel's parameters")
        if any(not 0 < value <= _MOST_VALUE for row in configs for value in row):
            raise _DamagedArtifactError("a configuration has a value out of range")
    if not 1 <= found.n_sms <= _MOST_SMS:
        raise _DamagedArtifactError(f"{found.n_sms} SMs")
    return found
