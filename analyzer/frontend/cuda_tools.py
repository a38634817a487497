"""Search for NVIDIA's tools: the disassemblers cuobjdump and nvdisasm, and the assembler ptxas.

Of several disassemblers the newest goes first: it prints the newest GPUs' code. It has forgotten the oldest
ones, which an older release still prints, such as the 12.8 in Triton's wheel.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.child_processes import ToolLimitError, ToolRun

TOOL_NAMES = ("cuobjdump", "nvdisasm", "ptxas")
TIMEOUT_VARIABLE = "WARPLENS_TOOL_TIMEOUT"
FOLDER_VARIABLE = "WARPLENS_TOOLS"  # a folder whose tools go before all others
_DISASSEMBLERS = ("cuobjdump", "nvdisasm")
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")
_RELEASE_NUMBERS = re.compile(r"\d+")
_VERSION_TIMEOUT_S = 10.0
_MAX_VERSION_BYTES = 1 << 16
_MAX_SILENCE_S = 24 * 3600.0
_CUDA_ROOT = Path("/usr/local")
_PTXAS_NAMES = ("ptxas", "ptxas-blackwell")  # the second one in Triton's wheel alone
_WHEELS = {"ptxas": "nvidia-cuda-nvcc"}  # of the tools whose wheel is not called as they are


class CudaTool(Struct, frozen=True):
    """An executable that the search found."""

    name: str
    path: str
    found_in: str  # place of the search, such as `PATH` or `CUDA_HOME`
    version: str = ""  # "" unless `query_version` was asked

    @property
    def folder(self) -> str:
        """Folder of the executable."""
        return os.path.dirname(self.path)


def make_install_hint() -> str:
    """Return how to come by the tools on this system."""
    if sys.platform == "linux":
        return "put CUDA's bin folder on PATH, or: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
    elsewhere = "dump where CUDA is: cuobjdump -sass FILE > kernel.sass"
    if sys.platform == "darwin":
        return f"NVIDIA has no such tools for macOS: {elsewhere}"
    return f"put the bin folder of CUDA on PATH, or {elsewhere}"


def find_tool(name: str) -> CudaTool | None:
    """Return the preferred tool of this name, see `find_tools`; None if there is none."""
    return next(iter(find_tools(name)), None)


def find_tools(name: str) -> tuple[CudaTool, ...]:
    """Return the tools of this name: user's folder, PATH, CUDA's folders, Triton, NVIDIA's wheels.

    Of several disassemblers the newest comes first, after those of the user's folder. Only for that a process
    is started: of a tool that is alone, `version` is empty (see `query_version`).
    """
    found = tuple(_iterate_tools(name, (name,)))
    if name not in _DISASSEMBLERS or len(found) < 2:
        return found
    return tuple(sorted(map(_query_known_version, found), key=_rank_disassembler, reverse=True))


def find_assemblers() -> Iterator[CudaTool]:
    """Yield each ptxas that is found, as they are preferred; releases know different architectures."""
    return _iterate_tools("ptxas", _PTXAS_NAMES)


def _iterate_tools(name: str, file_names: tuple[str, ...]) -> Iterator[CudaTool]:
    """Yield each executable with one of these names once, in the order of the search."""
    seen = set[str]()
    for file_name in file_names:
        for origin, path in _list_search_paths(file_name):
            for folder in filter(None, path.split(os.pathsep)):  # which() takes "" for PATH
                found = shutil.which(file_name, path=folder)
                if found and (real := os.path.realpath(found)) not in seen:
                    seen.add(real)
                    yield CudaTool(name, os.path.abspath(found), origin)


def _rank_disassembler(tool: CudaTool) -> tuple[bool, tuple[int, ...]]:
    return tool.found_in == FOLDER_VARIABLE, _parse_release(tool.version)


def _query_known_version(tool: CudaTool) -> CudaTool:
    with suppress(OSError):
        return _query_version_of(tool, os.stat(tool.path).st_mtime_ns)
    return tool


@lru_cache(maxsize=32)
def _query_version_of(tool: CudaTool, _modified_ns: int) -> CudaTool:
    return query_version(tool)


def find_max_silence_s(usual_s: float) -> float:
    """Return how long a tool may print nothing: the user's figure in `TIMEOUT_VARIABLE`, else the usual."""
    with suppress(ValueError):
        return min(max(0.0, float(os.environ.get(TIMEOUT_VARIABLE, ""))), _MAX_SILENCE_S)
    return usual_s


def query_version(tool: CudaTool) -> CudaTool:
    """Return the tool with the version that it prints; empty if it prints none or does not run."""
    run = ToolRun(
        (tool.path, "--version"), max_silence_s=_VERSION_TIMEOUT_S, max_output_bytes=_MAX_VERSION_BYTES
    )
    try:
        output = b"".join(run.read_output())
    except (OSError, ToolLimitError):
        return tool
    match = _VERSION.search(output.decode("utf-8", "replace"))
    return replace(tool, version=match[1] if match else "")


def find_all_tools() -> tuple[CudaTool, ...]:
    """Return the tools of `TOOL_NAMES` that are found, each with its version."""
    found = (find_tool(name) for name in TOOL_NAMES)
    return tuple(query_version(tool) for tool in found if tool is not None)


def make_tool_environment(tool: CudaTool) -> dict[str, str]:
    """Return an environment in which cuobjdump finds nvdisasm: beside itself, else where we found it."""
    disassembler = find_tool("nvdisasm")
    folders = [tool.folder]
    if disassembler is not None:
        folders.append(disassembler.folder)
    return {**os.environ, "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])}


def _list_search_paths(name: str) -> Iterator[tuple[str, str]]:
    """Yield (origin, search path) of each place, the preferred one first."""
    yield FOLDER_VARIABLE, os.environ.get(FOLDER_VARIABLE, "")
    yield "PATH", os.environ.get("PATH", os.defpath)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield variable, os.path.join(root, "bin")
    for root_path in _list_installed_toolkits():
        yield str(root_path), str(root_path / "bin")
    if folder := _find_triton_folder():
        yield "triton", str(folder)
    if folder := _find_wheel_folder(name):
        yield _find_wheel_name(name), str(folder)


def _list_installed_toolkits() -> list[Path]:
    """Return `/usr/local/cuda`, which the administrator chose, then `cuda-*`, the newest first."""
    versioned = sorted(_CUDA_ROOT.glob("cuda-*"), key=lambda root: _parse_release(root.name), reverse=True)
    return [_CUDA_ROOT / "cuda", *versioned]


def _parse_release(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _RELEASE_NUMBERS.findall(text))


def _find_triton_folder() -> Path | None:
    """Return the folder of tools in Triton's wheel; Triton itself is not imported."""
    try:
        spec = find_spec("triton")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "backends" / "nvidia" / "bin"


def _find_wheel_name(name: str) -> str:
    return _WHEELS.get(name, f"nvidia-cuda-{name}")


def _find_wheel_folder(name: str) -> Path | None:
    """Return the folder in which NVIDIA's wheel has one tool; the layout changes between releases."""
    try:
        files = distribution(_find_wheel_name(name)).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.stem == name and file.parent.name == "bin":
            return Path(str(file.locate())).parent
    return None
