"""Files of weights, of all learned models: arrays in safetensors, whose metadata hold a header as JSON."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzer.files import write_file
from analyzer.resources import find_data_folder
from analyzer.text.errors import UsageError

Arrays = dict[str, NDArray[Any]]
_HEADER = "warplens"  # key of the metadata that holds the JSON
_Header = TypeVar("_Header")
_Weights = TypeVar("_Weights")


def find_weights_file(name: str, folder: Path | None = None) -> Path | None:
    """Return the file of that name in a folder, else the shipped one; None if there is neither."""
    folders = ([folder] if folder else []) + [find_data_folder("hwdb") / "weights"]
    paths = [each / f"{name}.safetensors" for each in folders]
    return next((path for path in paths if path.is_file()), None)


def read_weights_file(
    path: Path,
    header_type: type[_Header],
    build: Callable[[_Header, Arrays], _Weights],
    *,
    what: str,
    hint: str,
) -> _Weights:
    """Return what `build` makes of a file's header and arrays.

    what: names a file that is none of these, "no network of SynPerf"; hint: what to do then.
    Raises UsageError for such a file, also where an array is missing, or `build` raises ValueError.
    """
    arrays, metadata = _load_arrays(path)
    try:
        return build(msgspec.json.decode(metadata.get(_HEADER, ""), type=header_type), arrays)
    except (msgspec.DecodeError, KeyError, ValueError) as error:  # ValueError: parts that do not fit
        raise UsageError(f"{path}: {what}: {error}", hint=hint) from None


def write_weights_file(path: Path, header: object, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a header and arrays, beside the file first."""
    from safetensors.numpy import save

    path.parent.mkdir(parents=True, exist_ok=True)
    data = save(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()},
        metadata={_HEADER: msgspec.json.encode(header).decode()},
    )
    write_file(path, [data])


def _load_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and the metadata of a safetensors file. Raises UsageError if it is none."""
    from safetensors import SafetensorError, safe_open

    hint = "name a file of `warplens learn`"
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (SafetensorError, OSError, TypeError) as error:  # TypeError: of a type that numpy has not
        raise UsageError(f"{path}: no set of weights: {error}", hint=hint) from None
    for name, array in arrays.items():
        if np.isnan(array).any():
            raise UsageError(f"{path}: {name} has values that are no numbers", hint=hint)
    return arrays, metadata
