"""The launch of a kernel: dimensions, dynamic shared memory, arguments; each may be unknown."""

from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct

from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_GRID_DIMS = (2**31 - 1, 65535, 65535)
MAX_BLOCK_DIMS = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
MAX_DYNAMIC_SHARED_BYTES = 1 << 30  # far more than any GPU has
MAX_CLUSTER_CTAS = 16
MAX_CLOCK_MHZ = 10_000
NOBODY_GAVE = "nobody gave"  # how a sentence on what was assumed of a launch begins


class Timing(StrEnum):
    """What the time of a launch spans; the value is its name in tables and on the command line.

    The three differ by one to three microseconds.
    """

    INTERVAL = "interval"  # from one launch to the next in a stream: never under the launch floor
    KERNEL = "kernel"  # start to end of the kernel, as the PyTorch profiler or CUPTI see it
    NCU = "ncu"  # Nsight Compute's gpu__time_duration of a kernel that runs alone


class Dim3(Struct, frozen=True):
    """A grid, block or cluster in three dimensions."""

    x: int
    y: int = 1
    z: int = 1

    @property
    def count(self) -> int:
        """Product of the three sizes."""
        return self.x * self.y * self.z

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sizes along x, y and z."""
        return (self.x, self.y, self.z)

    def __str__(self) -> str:
        return f"{self.x}x{self.y}x{self.z}"


class Pointer(Struct, frozen=True):
    """The address of an allocation of its own, far from all others, with unknown contents."""

    size_bytes: int | None = None  # of the allocation, None if unknown

    def __str__(self) -> str:
        return "ptr" if self.size_bytes is None else f"ptr:{self.size_bytes}"


class NullPointer(Struct, frozen=True):
    """The null pointer."""

    def __str__(self) -> str:
        return "null"


class TensorLayout(Struct, frozen=True):
    """Layout of the tensor of a TMA descriptor, as for `cuTensorMapEncodeTiled`; innermost axis first."""

    type_name: str  # of an element, as PTX names it
    element_bytes: int
    extents: tuple[int, ...]  # in elements
    box_extents: tuple[int, ...]  # in elements
    strides_bytes: tuple[int, ...]  # from one element to the next along each axis

    @property
    def box_row_bytes(self) -> int:
        """Contiguous bytes of a box: those along its innermost axis."""
        return self.box_extents[0] * self.element_bytes

    def __str__(self) -> str:
        parts = [self.type_name, _format_extents(self.extents), _format_extents(self.box_extents)]
        if self.strides_bytes != compute_packed_strides(self.element_bytes, self.extents):
            parts.append(_format_extents(self.strides_bytes[1:]))
        return ":".join(parts)


def compute_packed_strides(element_bytes: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides in bytes of a tensor without gaps."""
    return tuple(element_bytes * prod(extents[:axis]) for axis in range(len(extents)))


def _format_extents(numbers: tuple[int, ...]) -> str:
    return "x".join(map(str, numbers))


class TensorMap(Struct, frozen=True):
    """A TMA descriptor passed by value: only its address is known, not its bits."""

    layout: TensorLayout | None = None  # what the descriptor describes, None if the user does not say

    def __str__(self) -> str:
        return "tensormap" if self.layout is None else f"tensormap:{self.layout}"


class Buffer(Struct, frozen=True, eq=False):
    """The address of an allocation with known contents."""

    contents: "NDArray[np.uint8]"
    path: str  # file of the contents, or `zeros`

    def __str__(self) -> str:
        return self.path if self.path == "zeros" else f"@{self.path}"


class FilledBuffer(Struct, frozen=True):
    """The address of an allocation filled with one number."""

    value: int | float
    element: str = ""  # type of the elements, as `i64` or `bf16`; "": an int32, or a float in binary32

    def __str__(self) -> str:
        return f"fill:{self.element}:{self.value}" if self.element else f"fill:{self.value}"


ArgumentValue = Pointer | NullPointer | TensorMap | Buffer | FilledBuffer | int | float


class Argument(Struct, frozen=True):
    """The value of one parameter."""

    parameter: int | str  # place in the compiled signature, from 0, or name
    value: ArgumentValue

    def __str__(self) -> str:
        return f"{self.parameter}={self.value}"


class Launch(Struct, frozen=True, kw_only=True):
    """Configuration and arguments of one launch; None if unknown."""

    grid: Dim3 | None = None
    block: Dim3 | None = None
    cluster: Dim3 | None = None
    dynamic_shared_bytes: int | None = None
    arguments: tuple[Argument, ...] = ()
    clock_mhz: float | None = None  # SM clock during the kernel, None for the GPU's own
    l2_is_cold: bool = False  # as after a flush; else the L2 holds what fits of the launch before
    timing: Timing = Timing.INTERVAL  # which time is asked for
    assumptions: tuple[str, ...] = ()  # sentences for the report: what of it nobody gave

    @property
    def has_dimensions(self) -> bool:
        """True if grid and block are both known: without them nothing can be executed."""
        return self.grid is not None and self.block is not None


def check_launch(launch: Launch) -> None:
    """Raise UsageError if a GPU cannot launch these dimensions, or if they contradict each other."""
    if launch.grid is not None:
        _check_sizes("grid", launch.grid, MAX_GRID_DIMS)
    if launch.block is not None:
        _check_sizes("block", launch.block, MAX_BLOCK_DIMS)
        _check_count("block", launch.block, MAX_BLOCK_THREADS, "threads, a CTA")
    if launch.cluster is not None:
        _check_sizes("cluster", launch.cluster, (MAX_CLUSTER_CTAS,) * 3)
        _check_count("cluster", launch.cluster, MAX_CLUSTER_CTAS, "CTAs, a cluster")
    if launch.grid is not None and launch.cluster is not None:
        pairs = zip("xyz", launch.grid.sizes, launch.cluster.sizes, strict=True)
        for axis, grid, cluster in pairs:
            if grid % cluster:
                raise UsageError(
                    f"cluster {launch.cluster} does not divide grid {launch.grid}: {grid} CTAs in {axis}",
                    hint="the grid counts CTAs, not clusters",
                )
    if launch.clock_mhz is not None and not 0 < launch.clock_mhz <= MAX_CLOCK_MHZ:
        raise UsageError(f"a clock of {launch.clock_mhz:g} MHz", hint="give the SM clock in MHz, as 1410")
    dynamic = launch.dynamic_shared_bytes
    if dynamic is not None and not 0 <= dynamic <= MAX_DYNAMIC_SHARED_BYTES:
        why = "it cannot be negative" if dynamic < 0 else "no GPU has as much"
        raise UsageError(f"dynamic shared memory of {dynamic} bytes: {why}")


def _check_sizes(what: str, dims: Dim3, most: tuple[int, int, int]) -> None:
    for axis, size, limit in zip("xyz", dims.sizes, most, strict=True):
        if not 1 <= size <= limit:
            raise UsageError(f"{what} {dims}: {axis} must be 1 to {limit}")


def _check_count(what: str, dims: Dim3, most: int, unit: str) -> None:
    if dims.count > most:
        raise UsageError(f"{what} {dims}: {dims.count:,} {unit} has at most {most:,}")


class LaunchTable(Struct, frozen=True):
    """Launches of many kernels by globs of their names; the first glob that matches counts."""

    entries: tuple[tuple[str, tuple[Launch, ...]], ...] = ()

    def find_launches(self, *names: str, kernel_hash: str = "") -> tuple[Launch, ...]:
        """Return the launches of a kernel with these names (mangled, demangled); empty if no glob matches.

        kernel_hash: of Triton. A glob `NAME@HASH` is for kernels whose hash begins so, or is not known.
        """
        for glob, launches in self.entries:
            if _is_match(glob, names, kernel_hash):
                return launches
        return ()

    def find_unused_globs(self, kernels: Sequence[tuple[Sequence[str], str]]) -> tuple[str, ...]:
        """Return the globs that give launches to none of the kernels, each given by its names and hash."""
        used = {
            next((glob for glob, _ in self.entries if _is_match(glob, names, kernel_hash)), None)
            for names, kernel_hash in kernels
        }
        return tuple(glob for glob, _ in self.entries if glob not in used)


def _is_match(glob: str, names: Sequence[str], kernel_hash: str) -> bool:
    pattern, mark, start = glob.rpartition("@")
    if not mark:
        pattern = glob
    elif kernel_hash and not kernel_hash.startswith(start):
        return False
    return any(name == pattern or fnmatchcase(name, pattern) for name in names)
