"""Find, merge and validate hardware files.

Search order: a path, the user's folder (`WARPLENS_HWDB`, else `~/.config/warplens/gpu`), the shipped files.
Architectures of the user's own are in `WARPLENS_HWDB/arch`, else in `~/.config/warplens/arch`.
A file that names a parent (`inherits = "gb202"`) has the parent's tables; its own values override these.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli

from analyzer.files import find_home_folder, list_files, read_file
from analyzer.hardware.derived_figures import with_derived_figures
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import with_inherited_figures
from analyzer.hardware.parameter_paths import collect_parameters, collect_struct_parameters
from analyzer.hardware.schema import Arch, GpuFile
from analyzer.resources import find_data_folder
from analyzer.text.errors import HardwareError
from analyzer.text.source import Location

_VENDOR_PREFIX = re.compile(r"^(nvidia|geforce|amd|instinct|tesla|quadro)-")
_ERROR_KEY_PATH = re.compile(r"`\$\.?([^`]*)`")
_MAX_INHERITANCE_DEPTH = 8
_MAX_FILE_BYTES = 1 << 20
_CHIP_FOLDER, _ARCH_FOLDER = "chip", "arch"
# Figures outside are typing errors, and products of such would overflow floats.
_LEAST_FIGURE, _MOST_FIGURE = 1e-12, 1e18
_SM_COUNT_KEY, _MOST_SMS = "sm.count", 100_000.0
_OPTIONAL_PREFIX = "link."  # 0: there is none

TomlTable = dict[str, Any]
_FileT = TypeVar("_FileT", Arch, GpuFile)


def find_user_folder() -> Path | None:
    """Return the folder of the user's own GPU files, None for a user without a home."""
    if override := os.environ.get("WARPLENS_HWDB"):
        return Path(override)
    base = find_home_folder("XDG_CONFIG_HOME", ".config")
    return None if base is None else base / "warplens" / "gpu"


def find_user_arch_folder() -> Path | None:
    """Return the folder of the user's own architectures, None for a user without a home."""
    folder = find_user_folder()
    base = folder if folder is None or os.environ.get("WARPLENS_HWDB") else folder.parent
    return base and base / _ARCH_FOLDER


def find_gpu_paths() -> dict[str, Path]:
    """Return all GPU files by key; a file of the user overrides a shipped one."""
    folders = (find_data_folder("hwdb") / "gpu", find_user_folder())
    return {path.stem: path for folder in folders if folder for path in list_files(folder, ".toml")}


def normalize_gpu_name(name: str) -> str:
    """Return a GPU name in the form of keys: lower case, hyphens, without vendor prefix and "GPU".

    `NVIDIA GeForce RTX 5090` and `rtx_5090` become `rtx-5090`, `RTX 3080 Laptop GPU` `rtx-3080-laptop`.
    """
    text = re.sub(r"[\s_-]+", "-", name.strip().lower())
    while (shorter := _VENDOR_PREFIX.sub("", text)) != text:
        text = shorter
    return text.removesuffix("-gpu")


def load_gpu(name: str) -> Gpu:
    """Return a GPU by name, alias or path of a TOML file.

    Raises HardwareError: with the nearest names if no GPU matches, or with the location in an invalid file.
    """
    path = Path(name)
    if path.suffix == ".toml" or os.sep in name:
        if not path.is_file():
            raise HardwareError(f"{name}: no such hardware file")
        return _read_gpu(path.stem, path)
    paths = find_gpu_paths()
    key = _find_gpu_key(name, paths)
    return _read_gpu(key, paths[key])


def load_all_gpus(*, kernels_only: bool = False) -> tuple[Gpu, ...]:
    """Return every known GPU, sorted by architecture and key.

    kernels_only: leave out GPUs that only operator models support.
    """
    gpus = [_read_gpu(key, path) for key, path in find_gpu_paths().items()]
    if kernels_only:
        gpus = [gpu for gpu in gpus if gpu.arch is not None]
    return tuple(sorted(gpus, key=lambda gpu: (_make_arch_sort_key(gpu.file.arch), gpu.key)))


def strip_arch_suffix(arch: str) -> str:
    """Return an architecture without the suffix of its specific features: `sm_90` for `sm_90a`."""
    return re.sub(r"^(sm_\d+)[af]$", r"\1", arch)


def list_known_archs() -> tuple[str, ...]:
    """Return the names of the architectures that have a file, sorted by number."""
    return tuple(sorted(_find_arch_paths(find_user_arch_folder()), key=_make_arch_sort_key))


@cache
def _find_arch_paths(own: Path | None) -> dict[str, Path]:
    """Return all architecture files by name; one in the user's folder overrides a shipped one."""
    folders = (find_data_folder("hwdb") / _ARCH_FOLDER, own)
    return {path.stem: path for folder in folders if folder for path in list_files(folder, ".toml")}


def load_arch(name: str) -> Arch:
    """Return an architecture by name, merged with its parents.

    Raises HardwareError if it has no file, or with the location in an invalid one.
    """
    path = _find_arch_paths(find_user_arch_folder()).get(strip_arch_suffix(name))
    if path is None:
        raise HardwareError(
            f"no figures for architecture {name}", hint=f"known: {', '.join(list_known_archs())}"
        )
    return _read_arch(path)


@cache
def _read_arch(path: Path) -> Arch:
    return _convert_table(_read_merged_toml(path), Arch, path)


def _make_arch_sort_key(name: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", strip_arch_suffix(name))
    return (int(digits) if name.startswith("sm_") and digits else 10_000, name)


@cache
def _read_gpu(key: str, path: Path) -> Gpu:
    file = _convert_table(_read_merged_toml(path), GpuFile, path)
    _check_figures(file, path)
    arch = load_arch(file.arch) if file.support == "kernels" else None
    gpu = with_derived_figures(Gpu(key=key, file=file, arch=arch))
    if _is_shipped(path):
        return gpu
    parent = _find_parent_gpu(path)
    if parent is not None:
        own, figures = set(_list_figure_keys(_read_toml(path))), collect_parameters(gpu)
        gpu = with_inherited_figures(
            parent, gpu, {key: figures[key] for key in sorted(own) if key in figures}
        )
    return msgspec.structs.replace(gpu, twin=_find_twin(gpu, parent))


def _find_twin(gpu: Gpu, parent: Gpu | None) -> str | None:
    """Return the key of the parent, or of a shipped product of the same chip, with the same figures."""
    machine = _describe_machine(gpu)
    others = (parent,) if parent else map(load_gpu, _list_shipped_children(gpu.file.inherits))
    return next((other.measured_key for other in others if _describe_machine(other) == machine), None)


def _list_shipped_children(parent: str | None) -> list[str]:
    line = f'inherits = "{parent}"'
    shipped = (path for path in find_gpu_paths().values() if _is_shipped(path))
    return [path.stem for path in shipped if line in _read_text(path).splitlines()]


def _describe_machine(gpu: Gpu) -> Any:
    """Return all of a GPU and its architecture but how they are called and where figures come from."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict) and "value" in value:
            return value["value"]
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if key not in _NAMING_KEYS}
        return value

    return [strip(msgspec.to_builtins(part)) for part in (gpu.file, gpu.arch)]


def _is_shipped(path: Path) -> bool:
    """Return whether a file belongs to the shipped database, whose figures are all given on purpose."""
    return path.resolve().is_relative_to(find_data_folder("hwdb").resolve())


def _find_parent_gpu(path: Path) -> Gpu | None:
    """Return the GPU that a file inherits from; None where it has no parent or that is a chip."""
    name = _read_toml(path).get("inherits")
    parent = _find_parent(path, name) if isinstance(name, str) else None
    if parent is None or parent.parent.name == _CHIP_FOLDER:
        return None
    return _read_gpu(parent.stem, parent)


def _list_figure_keys(table: TomlTable, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of the figures that a file itself gives."""
    for name, value in table.items():
        if isinstance(value, dict):
            key = f"{prefix}{name}"
            yield from [key] if "value" in value else _list_figure_keys(value, f"{key}.")


def _check_figures(file: GpuFile, path: Path) -> None:
    """Check that models can divide by the figures of a GPU. Raises HardwareError that shows a faulty one."""
    for key, figure in collect_struct_parameters(file).items():
        least = 1.0 if key == _SM_COUNT_KEY else _LEAST_FIGURE
        most = _MOST_SMS if key == _SM_COUNT_KEY else _MOST_FIGURE
        if least <= figure.value <= most or (figure.value == 0 and key.startswith(_OPTIONAL_PREFIX)):
            continue
        raise HardwareError(
            f"{key} is {figure.value:g}, and must be {least:g} to {most:g}", location=_locate_key(path, key)
        )


def _find_gpu_key(name: str, paths: dict[str, Path]) -> str:
    wanted = normalize_gpu_name(name)
    if wanted in paths:
        return wanted
    aliases = _read_aliases()
    if wanted in aliases:
        return aliases[wanted]
    starts = [key for key in paths if key.startswith(f"{wanted}-")]
    if len(starts) == 1:
        return starts[0]
    import difflib

    near = difflib.get_close_matches(wanted, [*paths, *aliases], n=4, cutoff=0.25)
    keys = dict.fromkeys([*starts, *(aliases.get(n, n) for n in near)])
    raise HardwareError(
        f"no GPU is called {name!r}",
        hint=f"nearest: {', '.join(keys) or 'none'}; `warplens gpus` lists all",
    )


@cache
def _read_aliases() -> dict[str, str]:
    """Return keys by normalized alias; found by a regex, because to parse and validate all files is slow."""
    found: dict[str, str] = {}
    for key, text in _read_gpu_texts():
        match = re.search(r"^aliases = \[(.*?)\]", text, re.M | re.S)
        for alias in re.findall(r'"([^"]+)"', match[1]) if match else ():
            found[normalize_gpu_name(alias)] = key
    return found


@cache
def find_keys_by(field: str) -> dict[str, str]:
    """Return keys of GPUs by the text of a field that their files give, such as `device_name`."""
    expression = re.compile(rf'^{field} = "([^"]+)"', re.M)
    matches = ((key, expression.search(text)) for key, text in _read_gpu_texts())
    return {match[1]: key for key, match in reversed([*matches]) if match}  # of equal ones the shipped


def _read_gpu_texts() -> Iterator[tuple[str, str]]:
    for key, path in find_gpu_paths().items():
        with suppress(OSError):  # of the user's own files; an error once this one is asked for
            yield key, read_file(path, _MAX_FILE_BYTES).decode("utf-8", "replace")


def _read_merged_toml(path: Path, depth: int = 0) -> TomlTable:
    """Return the tables of a file, merged over those of the file that it inherits from."""
    if depth > _MAX_INHERITANCE_DEPTH:
        raise HardwareError(f"{path}: `inherits` goes in a circle")
    table = _read_toml(path)
    parent_name = table.get("inherits")
    if parent_name is None:
        return table
    if not isinstance(parent_name, str):
        raise HardwareError(f"{path}: `inherits` must be a name")
    parent = _find_parent(path, parent_name)
    if parent is None:
        location = _locate_key(path, "inherits")
        raise HardwareError(f"no file {parent_name!r} to inherit from", location=location)
    inherited = {
        k: v for k, v in _read_merged_toml(parent, depth + 1).items() if k not in _NOT_INHERITED_KEYS
    }
    return _merge_tables(inherited, table)


def _find_parent(path: Path, name: str) -> Path | None:
    """Return the file of a parent, by name or alias: in the same folder, else shipped (GPU or chip)."""
    shipped = (find_data_folder("hwdb") / kind for kind in (path.parent.name, "gpu", _CHIP_FOLDER))
    folders = (path.parent, *shipped)
    names = (name, name if _is_shipped(path) else _read_aliases().get(normalize_gpu_name(name), name))
    paths = (folder / f"{one}.toml" for one in names for folder in folders)
    return next((candidate for candidate in paths if candidate.is_file() and candidate != path), None)


_NAMING_KEYS = frozenset(
    {"name", "arch", "chip", "vendor", "year", "aliases", "device_name", "inherits", "note"}
    | {"family", "typical_gpu", "sources", "source", "basis"}
)
_NOT_INHERITED_KEYS = frozenset({"aliases", "inherits", "note", "typical_gpu"})


def _read_toml(path: Path) -> TomlTable:
    text = _read_text(path)
    try:
        return tomli.loads(text)
    except RecursionError:
        raise HardwareError(f"{path}: values are nested too deeply") from None
    except tomli.TOMLDecodeError as error:
        match = re.search(r"line (\d+), column (\d+)", str(error))
        line, column = (int(match[1]), int(match[2])) if match else (1, 1)
        lines = text.splitlines()
        shown = lines[line - 1] if line <= len(lines) else ""
        reason = str(error).partition(" (at")[0]
        raise HardwareError(
            f"not TOML: {reason}", location=Location(str(path), line, column, shown)
        ) from None
    except ValueError as error:  # such as a number of 10,000 digits
        raise HardwareError(f"{path}: {error}") from None


def _read_text(path: Path) -> str:
    """Return the text of a hardware file. Raises HardwareError."""
    try:
        return read_file(path, _MAX_FILE_BYTES).decode()
    except OSError as error:
        raise HardwareError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise HardwareError(f"{path}: this is not UTF-8 text", hint="save it as UTF-8") from None


def _merge_tables(base: TomlTable, over: TomlTable) -> TomlTable:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        is_figure = isinstance(value, dict) and "value" in value
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merge_tables(old, value) if both and not is_figure and old else value
    return merged


def _convert_table(table: TomlTable, kind: type[_FileT], path: Path) -> _FileT:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        match = _ERROR_KEY_PATH.search(where)
        keys = match[1] if match else ""
        raise HardwareError(
            f"{message} at {keys or 'the top level'}",
            location=_locate_key(path, keys),
            hint="`warplens gpus NAME --explain` shows a complete file's figures",
        ) from None


def _locate_key(path: Path, keys: str) -> Location:
    """Return the line of a key path such as `memory.bandwidth_gbps.value`, or of its nearest parent."""
    lines = _read_text(path).splitlines()
    wanted = [key for key in re.split(r"[.\[\]]+", keys) if key and key != "..."]
    table, best, best_depth = "", 1, 0
    for number, line in enumerate(lines, start=1):
        if header := re.match(r"\s*\[([^\]]+)\]", line):
            table = header[1]
            depth = _count_prefix_keys([*table.split(".")], wanted)
        elif key := re.match(r"\s*([\w-]+)\s*=", line):
            depth = _count_prefix_keys([*(table.split(".") if table else []), key[1]], wanted)
        else:
            continue
        if depth > best_depth:
            best, best_depth = number, depth
    text = lines[best - 1] if lines else ""
    return Location(str(path), best, 1, text, max(1, len(text.split("=")[0].rstrip())))


def _count_prefix_keys(have: list[str], wanted: list[str]) -> int:
    """Return the length of `have` if it is a prefix of `wanted`, else 0."""
    return len(have) if have == wanted[: len(have)] else 0
