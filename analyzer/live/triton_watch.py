"""`watch_triton`: records the launches of a running program to a file for `--launch`.

Triton calls a hook at each launch (`knobs.runtime.launch_enter_hook`, before Triton 3.4
`CompiledKernel.launch_enter_hook`) with a `LazyDict`, in which by itself stand only the kernel's name, its
handle and the stream. `CompiledKernel.launch_metadata` makes that dict and gets grid and arguments, so it is
wrapped for as long as the hook is in place, and leaves both with the dict. A kernel whose author gave
`@triton.jit(launch_metadata=...)` has them there anyway. `knobs.runtime.jit_post_compile_hook` tells which
arguments are `tl.constexpr`.

Nothing is copied from the GPU and nothing is waited for: of a tensor its size and alignment are taken. What
goes wrong in a hook is counted and never reaches the program.
"""

import atexit
import json
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from analyzer.files import write_file
from analyzer.live.triton_arguments import (
    Description,
    describe_value,
    find_alignment_bytes,
    flatten_arguments,
    is_tensor,
    read_kernel_arguments,
)
from analyzer.text.errors import UsageError

_MARK = "_warplens_launch"
_MAX_LAUNCHES_PER_KERNEL = 1_000  # distinct ones
_MAX_TOTAL_BYTES = 12 << 20  # `--launch` reads 16 MiB
_ENTRY_BYTES = 100  # of a launch in the file, beside what tells it from others
_MAX_ARGUMENTS = 1_000
_RECORDED_METADATA = ("hash", "num_warps", "num_stages", "num_ctas", "shared", "maxnreg", "triton_version")
_HASH_CHARACTERS = 16  # of a kernel's hash in the name of its launches


class TritonWatch:
    """Records launches between `enable` and `disable`; the file is written by `disable` and `save`.

    n_launches: launches seen; n_distinct: of them different ones; n_lost: those beyond the limits, and those
    of which nothing could be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.n_launches = self.n_lost = self._n_bytes = 0
        self._launches: dict[str, dict[str, dict[str, Any]]] = {}  # by kernel, then by what was launched
        self._declared: dict[str, frozenset[str]] = {}  # arguments that are constants, by kernel
        self._undo: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def n_distinct(self) -> int:
        """Launches that differ in kernel, grid or arguments."""
        return sum(map(len, self._launches.values()))

    def enable(self) -> "TritonWatch":
        """Begin to record. Raises UsageError if Triton is not installed, or has no hooks."""
        if self._undo:
            return self
        holder, compiled_kernel = _find_hook_holders()
        self._undo = [
            _install_hook(holder, "launch_enter_hook", self._record_launch),
            _install_hook(holder, "jit_post_compile_hook", self._record_compilation),
        ]
        if hasattr(compiled_kernel, "launch_metadata"):
            self._undo.append(_wrap_launch_metadata(compiled_kernel))
        atexit.register(self._save_at_exit)
        return self

    def disable(self) -> None:
        """Stop recording, and write the file. Raises UsageError if it cannot be written."""
        if not self._undo:
            return
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        atexit.unregister(self._save_at_exit)
        self.save()

    def save(self) -> None:
        """Write the launches seen so far; recording goes on. Raises UsageError if that fails."""
        with self._lock:
            kernels = ",\n".join(
                f" {json.dumps(name)}: [\n  " + ",\n  ".join(map(json.dumps, launches.values())) + "\n ]"
                for name, launches in self._launches.items()
            )
        try:
            write_file(self.path, [b'{"kernels": {\n', kernels.encode(), b"\n}}\n"])
        except OSError as error:
            raise UsageError(
                f"{self.path}: {error.strerror or error}", hint="name a file that can be written"
            ) from None

    def __enter__(self) -> "TritonWatch":
        return self.enable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disable()

    def _save_at_exit(self) -> None:
        with suppress(UsageError):
            self.disable()

    def _record_launch(self, metadata: Any = None, *_: object, **__: object) -> None:
        """Record one launch; called by Triton with a `LazyDict` before the kernel starts."""
        try:
            name, entry = self._describe_launch(metadata)
        except Exception:  # whatever a version of Triton passes, the program goes on
            self.n_launches, self.n_lost = self.n_launches + 1, self.n_lost + 1
            return
        key = json.dumps(entry, sort_keys=True, default=str)
        with self._lock:
            self.n_launches += 1
            known = self._launches.get(name, {})
            if key not in known:
                n_bytes = self._n_bytes + len(key) + len(name) + _ENTRY_BYTES
                if len(known) >= _MAX_LAUNCHES_PER_KERNEL or n_bytes > _MAX_TOTAL_BYTES:
                    self.n_lost += 1
                    return
                self._n_bytes = n_bytes
                entry["recorded"]["count"] = 0
                known = self._launches.setdefault(name, known)
                known[key] = entry
            known[key]["recorded"]["count"] += 1

    def _record_compilation(self, *_: object, **values: Any) -> None:
        with suppress(Exception):
            function = values["fn"].jit_function
            names = (p.name for p in function.params if getattr(p, "is_constexpr", False))
            self._declared[str(values["fn"].name)] = frozenset(names)

    def _describe_launch(self, metadata: Any) -> tuple[str, dict[str, Any]]:
        """Return the kernel's name, with its hash where it is known, and the entry of a launch file."""
        kernel, grid, values = _find_launch(metadata)
        details = _list_metadata(getattr(kernel, "metadata", None) if kernel is not None else None)
        if kernel is None and (extra := _find_extra(metadata)) is not None:
            grid, details, values = extra[0], _list_metadata(extra[1]), extra[2]
        name = str(details.get("name") or _read_name(metadata))
        if kernel is not None:
            arguments = read_kernel_arguments(getattr(kernel, "src", None))
            bound = arguments.bind(values) if arguments.names else dict(values)
        else:
            constants = self._declared.get(name, frozenset())
            bound = {key: value for key, value in dict(values).items() if key not in constants}
        kernel_hash = str(details.get("hash") or getattr(kernel, "hash", "") or "")
        entry = _make_entry(grid, bound, details)
        return (f"{name}@{kernel_hash[:_HASH_CHARACTERS]}" if kernel_hash else name), entry


def watch_triton(path: str | Path) -> TritonWatch:
    """Return a recorder of the launches of this program, which `analyze --launch` reads from `path`.

    It is a context manager, or begins and ends with `enable()` and `disable()`.

    >>> with watch_triton("launches.json"):  # doctest: +SKIP
    ...     train_step()
    """
    return TritonWatch(path)


def _find_hook_holders() -> tuple[Any, Any]:
    """Return where the hooks are set, and the class of compiled kernels. Raises UsageError."""
    try:
        triton: Any = sys.modules.get("triton") or import_module("triton")
    except ImportError as error:
        raise UsageError(f"Triton cannot be imported: {error}", hint="pip install triton") from None
    compiler = getattr(triton, "compiler", None)
    compiled_kernel = getattr(compiler, "CompiledKernel", None)
    runtime = getattr(getattr(triton, "knobs", None), "runtime", None)
    for holder in (runtime, compiled_kernel):
        if hasattr(holder, "launch_enter_hook"):
            return holder, compiled_kernel
    version = getattr(triton, "__version__", "")
    raise UsageError(
        f"Triton {version} has no launch hook".replace("  ", " "), hint="use Triton 3.2 or later"
    )


def _install_hook(holder: Any, name: str, function: Callable[..., object]) -> Callable[[], None]:
    """Add a function to a hook: to its chain (Triton 3.5 on), else before what is set; return the undo."""
    old: Any = getattr(holder, name, None)
    if hasattr(old, "add") and hasattr(old, "remove"):
        old.add(function)
        return lambda: old.remove(function)

    def call_both(*args: Any, **kwargs: Any) -> Any:
        function(*args, **kwargs)
        return old(*args, **kwargs) if old is not None else None

    setattr(holder, name, call_both)

    def undo() -> None:
        if getattr(holder, name, None) is call_both:  # else somebody put another one around it
            setattr(holder, name, old)

    return undo


def _wrap_launch_metadata(compiled_kernel: Any) -> Callable[[], None]:
    """Let each `LazyDict` of a launch carry kernel, grid and arguments; return the undo."""
    original = compiled_kernel.launch_metadata

    def launch_metadata(self: Any, grid: Any, stream: Any, *args: Any) -> Any:
        found = original(self, grid, stream, *args)
        with suppress(AttributeError, TypeError):
            setattr(found, _MARK, (self, grid, args))
        return found

    compiled_kernel.launch_metadata = launch_metadata

    def undo() -> None:
        if compiled_kernel.launch_metadata is launch_metadata:
            compiled_kernel.launch_metadata = original

    return undo


def _find_launch(metadata: Any) -> tuple[Any, Any, Any]:
    """Return kernel, grid and arguments that `launch_metadata` left; None and no arguments without them."""
    found = getattr(metadata, _MARK, None)
    return found if isinstance(found, tuple) else (None, None, ())


def _find_extra(metadata: Any) -> tuple[Any, Any, Mapping[str, object]] | None:
    """Return grid, metadata and arguments that Triton keeps for the author's `launch_metadata` function."""
    for _, values in getattr(metadata, "extras", ()):
        if isinstance(values, tuple) and len(values) == 3 and isinstance(values[2], Mapping):
            return values
    return None


def _read_name(metadata: Any) -> str:
    """Return the name in a `LazyDict`, without asking for what it computes only when it is read."""
    data = metadata if isinstance(metadata, Mapping) else metadata.data
    return str(data["name"])


def _list_metadata(metadata: Any) -> Mapping[str, Any]:
    if hasattr(metadata, "_asdict"):
        found: Mapping[str, Any] = metadata._asdict()
        return found
    return metadata if isinstance(metadata, Mapping) else {}


def _make_entry(grid: Any, values: Mapping[str, object], details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the launch as a launch file has it; `recorded` is for people and other programs."""
    arguments: dict[str, Description] = {}
    alignments: dict[str, int] = {}
    for name, value in list(flatten_arguments(values))[:_MAX_ARGUMENTS]:
        description = describe_value(value)
        if description is not None:
            arguments[name] = description
        if is_tensor(value) and (alignment := find_alignment_bytes(value)) is not None:
            alignments[name] = alignment
    recorded = {key: details[key] for key in _RECORDED_METADATA if details.get(key) is not None}
    entry: dict[str, Any] = {"arguments": arguments, "recorded": {**recorded, "alignments": alignments}}
    n_ctas = int(details.get("num_ctas") or 1)
    if grid is not None:
        sizes = [int(size) for size in ((grid,) if isinstance(grid, int) else tuple(grid))]
        # Triton's grid counts clusters along x.
        entry["grid"] = [sizes[0] * n_ctas, *sizes[1:3]]
    if n_ctas > 1:
        entry["cluster"] = [n_ctas]
    if isinstance(details.get("shared"), int):
        entry["dynamic_shared_bytes"] = details["shared"]
    return entry
