"""Launches of shipped kernels with their expected counts: closed forms of the algorithms, not read from SASS.

Each family yields cases for every architecture that its kernel was compiled for. A count that the algorithm
does not determine is left out: the number of loads depends on vectorization, so totals are in bytes.
Example: `vector_add` of n floats loads 8 n bytes, stores 4 n bytes and makes 2 ceil(n / 32) load requests.

Sources of the kernels: traces/cuda/*.cu, traces/triton/*.py with the tile sizes of traces/variants.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

ARCHS = (80, 89, 90, 100, 120)
WARP = 32
SECTOR_BYTES = 32
F16, F32 = 2, 4

Dim = tuple[int, ...]


# ---- cases and expected counts -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Array:
    """A pointer argument to an allocation of its own; `contents` if control flow depends on them."""

    contents: NDArray[np.generic] | None = None


@dataclass(frozen=True)
class Descriptor:
    """A tensor map, passed by value."""


Value = Array | Descriptor | int | float


@dataclass(frozen=True)
class ExpectedCount:
    """The expected value of a measure.

    Measures:
    - read, read_unique, written, written_unique: bytes of global memory;
    - started_warps, started_lanes: executions of the first block;
    - warps, lanes: executions of an opcode by warps, and by the active lanes of its block;
    - requests, touched, sectors, wavefronts: executions, lanes, sectors and passes of the memory
      instructions of an opcode (their global accesses, if they copy from global to shared memory);
    - unknown_branches: at least so many.
    """

    measure: str
    value: int
    opcode: str = ""  # of the instructions that are counted, for measures of an opcode

    def __str__(self) -> str:
        return f"{self.measure} {self.opcode}".strip()


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One launch of one kernel on one architecture, with expected counts."""

    suite: str
    dump: str
    kernel: str
    arch: int
    shape: str
    grid: Dim
    block: Dim
    arguments: Mapping[int | str, Value]  # by position, or by name if the metadata has names
    truths: tuple[ExpectedCount, ...]
    shared: int = 0  # dynamic shared memory, bytes
    cluster: Dim = (1,)
    # True if all counts are exact; else they depend on memory that is not supplied, and the report must
    # name an unknown branch.
    is_exact: bool = True
    is_binary: bool = False  # the cubin itself is read, not a dump

    @property
    def path(self) -> str:
        """Path of the dump or cubin, under traces/."""
        if self.is_binary:
            return f"cubin/sm_{self.arch}/{self.dump}.cubin"
        return f"{self.suite}/sm_{self.arch}/{self.dump}.sass"

    def __str__(self) -> str:
        return f"{self.dump if self.suite == 'triton' else self.kernel}-{self.shape}-sm_{self.arch}"


def expect_reads(total: int, distinct: int) -> tuple[ExpectedCount, ...]:
    return ExpectedCount("read", total), ExpectedCount("read_unique", distinct)


def expect_writes(size: int) -> tuple[ExpectedCount, ...]:
    """Expect each byte of the output to be stored exactly once."""
    return ExpectedCount("written", size), ExpectedCount("written_unique", size)


def expect_starts(grid: Dim, block: Dim) -> tuple[ExpectedCount, ...]:
    """Expect every thread of the grid to start exactly once."""
    threads = prod(block)
    return (
        ExpectedCount("started_warps", prod(grid) * count_tiles(threads, WARP)),
        ExpectedCount("started_lanes", prod(grid) * threads),
    )


def expect_by_opcode(measure: str, **by_opcode: int) -> tuple[ExpectedCount, ...]:
    return tuple(ExpectedCount(measure, value, opcode) for opcode, value in by_opcode.items())


def count_tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def format_shape(*sizes: int) -> str:
    return "x".join(map(str, sizes))


def make_buffer(values: Iterable[int], dtype: type[np.generic]) -> Array:
    return Array(np.array(list(values), dtype=dtype))


# ---- CUDA ----------------------------------------------------------------------------------------


def make_cuda_cases(
    dump: str,
    kernel: str,
    shape: str,
    grid: Dim,
    block: Dim,
    arguments: Sequence[Value],
    *truths: tuple[ExpectedCount, ...],
    shared: int = 0,
    cluster: Dim = (1,),
    is_exact: bool = True,
    archs: Sequence[int] = ARCHS,
) -> Iterator[Case]:
    """Yield the same launch on every architecture."""
    for arch in archs:
        yield Case(
            suite="cuda",
            dump=dump,
            kernel=kernel,
            arch=arch,
            shape=shape,
            grid=grid,
            block=block,
            arguments=dict(enumerate(arguments)),
            truths=sum(truths, expect_starts(grid, block)),
            shared=shared,
            cluster=cluster,
            is_exact=is_exact,
        )


def warps_1d(n: int) -> int:
    return count_tiles(n, WARP)


def elementwise() -> Iterator[Case]:
    """One element per thread; arrays start at multiples of 256 bytes, which determines the sectors."""
    for n in (1, 31, 1000, 1_048_577):
        grid, block = (count_tiles(n, 256),), (256,)
        sectors = count_tiles(F32 * n, SECTOR_BYTES)
        common = (expect_reads(2 * F32 * n, 2 * F32 * n), expect_writes(F32 * n))
        requests = (
            expect_by_opcode("requests", LDG=2 * warps_1d(n), STG=warps_1d(n)),
            expect_by_opcode("sectors", LDG=2 * sectors, STG=sectors),
        )
        three = Array(), Array(), Array()
        yield from make_cuda_cases(
            "report16", "vector_add", f"{n}", grid, block, (*three, n), *common, *requests
        )
        yield from make_cuda_cases(
            "report16", "saxpy", f"{n}", grid, block, (2.0, *three, n), *common, *requests
        )
        yield from make_cuda_cases(
            "report16", "vector_add_divergent", f"{n}", grid, block, (*three, n), *common
        )
    for n in (1, 250, 100_003):
        moved = count_tiles(n, 8)
        yield from make_cuda_cases(
            "report16",
            "strided_copy_8",
            f"{n}",
            (count_tiles(moved, 256),),
            (256,),
            (Array(), Array(), n),
            expect_reads(F32 * moved, F32 * moved),
            expect_writes(F32 * moved),
            expect_by_opcode("sectors", LDG=moved, STG=moved),
        )


def partial_warps() -> Iterator[Case]:
    """CTAs whose last warp is not full, and whose rows do not match warps."""
    yield from make_cuda_cases(
        "report16",
        "vector_add",
        "1000-by-10x100",
        (10,),
        (100,),
        (Array(), Array(), Array(), 1000),
        expect_reads(2 * F32 * 1000, 2 * F32 * 1000),
        expect_writes(F32 * 1000),
        expect_by_opcode("requests", LDG=2 * 10 * 4, STG=10 * 4),
    )
    yield from make_cuda_cases(
        "report16",
        "naive_transpose",
        "50x33-by-5x7",
        (count_tiles(33, 5), count_tiles(50, 7)),
        (5, 7),
        (Array(), Array(), 50, 33),
        expect_reads(F32 * 50 * 33, F32 * 50 * 33),
        expect_writes(F32 * 50 * 33),
    )
    yield from make_cuda_cases(
        "exactness",
        "matmul_naive_rect",
        "10x20x30-by-7x3",
        (count_tiles(20, 7), count_tiles(10, 3)),
        (7, 3),
        (Array(), Array(), Array(), 10, 20, 30),
        expect_reads(2 * F32 * 10 * 20 * 30, F32 * 30 * (10 + 20)),
        expect_writes(F32 * 10 * 20),
        expect_by_opcode("lanes", FFMA=10 * 20 * 30),
    )
    yield from make_cuda_cases(
        "exactness",
        "stencil_3d",
        "4x11x13-by-5x3x1",
        (count_tiles(13, 5), count_tiles(11, 3), 4),
        (5, 3, 1),
        (Array(), Array(), 4, 11, 13),
        expect_writes(F32 * 2 * 9 * 11),
    )


def grid_stride() -> Iterator[Case]:
    """A warp takes 32 consecutive elements per step, so they are one request of each array.

    The loop of `saxpy_grid_stride` is unrolled: lanes with different trip counts diverge and make more
    requests.
    """
    for n, blocks, threads in (
        (1, 1, 32),
        (1000, 2, 64),
        (100_003, 7, 96),
        (65_536, 4, 256),
        (300_000, 2048, 128),
    ):
        shape = f"{n}-by-{blocks}x{threads}"
        truths = (
            expect_reads(2 * F32 * n, 2 * F32 * n),
            expect_writes(F32 * n),
            expect_by_opcode("touched", LDG=2 * n, STG=n),
        )
        requests = expect_by_opcode("requests", LDG=2 * warps_1d(n), STG=warps_1d(n))
        three = Array(), Array(), Array()
        for kernel, arguments, more in (
            ("vector_add_grid_stride", (*three, n), requests),
            ("saxpy_grid_stride", (2.0, *three, n), ()),
        ):
            yield from make_cuda_cases(
                "exactness", kernel, shape, (blocks,), (threads,), arguments, *truths, more
            )


def row_sums() -> Iterator[Case]:
    for rows, cols in ((1, 0), (1, 1), (33, 1000), (257, 17), (100_000, 5)):
        yield from make_cuda_cases(
            "exactness",
            "row_sums_64",
            format_shape(rows, cols),
            (count_tiles(rows, 128),),
            (128,),
            (Array(), Array(), rows, cols),
            expect_reads(F32 * rows * cols, F32 * rows * cols),
            expect_writes(F32 * rows),
            expect_by_opcode("requests", LDG=warps_1d(rows) * cols, STG=warps_1d(rows)),
        )
    for n in (1, 33, 300):
        steps = sum(min(WARP * (warp + 1), n) for warp in range(warps_1d(n)))  # its last row is the longest
        yield from make_cuda_cases(
            "exactness",
            "triangular_row_sums",
            f"{n}",
            (count_tiles(n, 64),),
            (64,),
            (Array(), Array(), n),
            expect_reads(F32 * n * (n + 1) // 2, F32 * n * (n + 1) // 2),
            expect_writes(F32 * n),
            expect_by_opcode("requests", LDG=steps, STG=warps_1d(n)),
            expect_by_opcode("lanes", FADD=n * (n + 1) // 2),
        )


def sparse_rows() -> Iterator[Case]:
    """Trip counts from memory: exact with the contents of the row pointers, else unknown."""
    rows = 1000
    first = np.concatenate([[0], np.cumsum(np.arange(rows) * 7919 % 13)]).astype(np.int32)
    nonzeros = int(first[-1])
    launch = "exactness", "csr_row_sums"
    sizes = (count_tiles(rows, 128),), (128,)
    yield from make_cuda_cases(
        *launch,
        f"{rows}-supplied",
        *sizes,
        (Array(first), Array(), Array(), rows),
        expect_writes(F32 * rows),
        (ExpectedCount("read_unique", F32 * (rows + 1 + nonzeros)),),
        expect_by_opcode("lanes", FADD=nonzeros),
    )
    unknown = (ExpectedCount("unknown_branches", 1),)
    yield from make_cuda_cases(
        *launch, f"{rows}-unknown", *sizes, (Array(), Array(), Array(), rows), unknown, is_exact=False
    )


def matmuls() -> Iterator[Case]:
    for n in (1, 17, 64, 100):
        yield from make_cuda_cases(
            "report16",
            "matmul_naive",
            f"{n}",
            (count_tiles(n, 16), count_tiles(n, 16)),
            (16, 16),
            (Array(), Array(), Array(), n),
            expect_reads(2 * F32 * n**3, 2 * F32 * n**2),
            expect_writes(F32 * n**2),
            expect_by_opcode("touched", LDG=2 * n**3),
        )
    for n in (1, 31, 64, 100):
        yield from make_cuda_cases("report16", "matmul_tiled", f"{n}", *tiled_matmul((n, n, n), 32))
    for m, n, k in ((1, 1, 1), (3, 5, 7), (33, 65, 129), (16, 16, 0), (48, 1000, 10)):
        yield from make_cuda_cases(
            "exactness",
            "matmul_naive_rect",
            format_shape(m, n, k),
            (count_tiles(n, 16), count_tiles(m, 16)),
            (16, 16),
            (Array(), Array(), Array(), m, n, k),
            expect_reads(2 * F32 * m * n * k, F32 * (m * k + k * n)),
            expect_writes(F32 * m * n),
            expect_by_opcode("lanes", FFMA=m * n * k),
        )
        arguments = tiled_matmul((m, n, k), 16)
        yield from make_cuda_cases("exactness", "matmul_tiled_rect", format_shape(m, n, k), *arguments)


def tiled_matmul(shape: tuple[int, int, int], tile: int) -> tuple[object, ...]:
    """Return grid, block, arguments and counts; an operand is loaded once per tile of the other side."""
    m, n, k = shape
    grid = count_tiles(n, tile), count_tiles(m, tile)
    steps = count_tiles(k, tile)
    threads = tile * tile
    three = Array(), Array(), Array()
    return (
        grid,
        (tile, tile),
        (*three, n) if tile == 32 else (*three, m, n, k),
        expect_reads(F32 * (m * k * grid[0] + k * n * grid[1]), F32 * (m * k + k * n)),
        expect_writes(F32 * m * n),
        expect_by_opcode("warps", BAR=prod(grid) * threads // WARP * steps * 2),
        expect_by_opcode("touched", STS=prod(grid) * threads * steps * 2),
        expect_by_opcode("lanes", FFMA=prod(grid) * threads * steps * tile),
    )


def reductions() -> Iterator[Case]:
    for n, threads in ((1, 64), (1000, 128), (100_003, 256), (1_000_000, 1024)):
        grid = count_tiles(n, 2 * threads)
        barriers = grid * threads // WARP * (1 + int(log2(threads)))
        for kernel, inputs in (("reduce_sum", 1), ("dot_product", 2)):
            yield from make_cuda_cases(
                "report16",
                kernel,
                f"{n}-by-{threads}",
                (grid,),
                (threads,),
                (*[Array()] * (inputs + 1), n),
                expect_reads(inputs * F32 * n, inputs * F32 * n),
                expect_writes(F32 * grid),
                expect_by_opcode("warps", BAR=barriers),
                shared=F32 * threads,
            )
    for n, grid, threads in ((1, 1, 64), (5000, 3, 128), (100_003, 16, 256), (77_777, 2, 1024)):
        barriers = grid * threads // WARP * (int(log2(threads)) - 5)
        tree = sum(2**level for level in range(6, int(log2(threads))))  # threads that add, down to 64
        yield from make_cuda_cases(
            "exactness",
            "block_sum",
            f"{n}-by-{grid}x{threads}",
            (grid,),
            (threads,),
            (Array(), Array(), n),
            expect_reads(F32 * n, F32 * n),
            expect_writes(F32 * grid),
            expect_by_opcode("requests", LDG=warps_1d(n), STG=grid),
            expect_by_opcode("touched", STS=grid * (threads + tree), LDS=grid * 2 * (tree + WARP)),
            expect_by_opcode("warps", BAR=barriers, SHFL=5 * grid),
            shared=F32 * threads,
        )


def transposes() -> Iterator[Case]:
    for rows, cols in ((1, 1), (64, 64), (33, 65), (1000, 513)):
        size = F32 * rows * cols
        moves = expect_reads(size, size), expect_writes(size)
        arguments = Array(), Array(), rows, cols
        shape = format_shape(rows, cols)
        grid = count_tiles(cols, 16), count_tiles(rows, 16)
        yield from make_cuda_cases("report16", "naive_transpose", shape, grid, (16, 16), arguments, *moves)
        grid = count_tiles(cols, 32), count_tiles(rows, 32)
        warps = prod(grid) * 32
        ways = (
            ("report16", "shared_transpose", (32, 32), 1, 1),
            ("exactness", "transpose_tiled", (32, 8), 4, 32),
        )
        for dump, kernel, block, times, conflicts in ways:
            truths = [
                *moves,
                expect_by_opcode("warps", BAR=warps // times),
                expect_by_opcode("touched", LDS=rows * cols, STS=rows * cols),
            ]
            if rows % 32 == cols % 32 == 0:
                truths.append(expect_by_opcode("wavefronts", LDS=warps * conflicts, STS=warps))
            yield from make_cuda_cases(dump, kernel, shape, grid, block, arguments, *truths)
    for n in (1, 64, 100):
        size = F32 * n * n
        grid = count_tiles(n, 32), count_tiles(n, 32)
        conflicts = expect_by_opcode("wavefronts", LDS=prod(grid) * 32 * 32) if n % 32 == 0 else ()
        yield from make_cuda_cases(
            "report16",
            "shared_bank_conflict",
            f"{n}",
            grid,
            (32, 32),
            (Array(), Array(), n),
            expect_writes(size),
            expect_reads(size, size),
            conflicts,
        )
    for shape in ((1, 1, 1, 1), (2, 7, 5, 3), (3, 16, 9, 32)):
        count = prod(shape)
        yield from make_cuda_cases(
            "exactness",
            "channels_first",
            format_shape(*shape),
            (count_tiles(count, 128),),
            (128,),
            (Array(), Array(), *shape),
            expect_reads(F32 * count, F32 * count),
            expect_writes(F32 * count),
            expect_by_opcode("requests", LDG=warps_1d(count), STG=warps_1d(count)),
        )


def convolutions() -> Iterator[Case]:
    for height, width in ((7, 7), (19, 40), (133, 65)):
        for kernel, taps in (("conv2d_3x3", 3), ("conv2d_7x7", 7)):
            outputs = (height - taps + 1) * (width - taps + 1)
            yield from make_cuda_cases(
                "report16",
                kernel,
                format_shape(height, width),
                (count_tiles(width, 16), count_tiles(height, 16)),
                (16, 16),
                (Array(), Array(), Array(), height, width),
                expect_reads(2 * F32 * taps**2 * outputs, F32 * (height * width + taps**2)),
                expect_writes(F32 * outputs),
                expect_by_opcode("lanes", FFMA=taps**2 * outputs),
            )
    for height, width in ((1, 1), (16, 16), (35, 50), (200, 333)):
        grid = count_tiles(width, 16), count_tiles(height, 16)
        inputs = loaded_with_halo(height) * loaded_with_halo(width)
        yield from make_cuda_cases(
            "exactness",
            "conv2d_halo",
            format_shape(height, width),
            grid,
            (16, 16),
            (Array(), Array(), Array(), height, width),
            expect_reads(F32 * (inputs + 25 * height * width), F32 * (height * width + 25)),
            expect_writes(F32 * height * width),
            expect_by_opcode("warps", BAR=prod(grid) * 8),
            expect_by_opcode("touched", STS=prod(grid) * 20 * 20),
            expect_by_opcode("lanes", FFMA=25 * height * width),
        )


def loaded_with_halo(size: int) -> int:
    """Count positions that tiles of 16 with a halo of 2 load along one side, those outside left out."""
    return sum(min(start + 18, size) - max(start - 2, 0) for start in range(0, size, 16))


def stencils() -> Iterator[Case]:
    for depth, height, width in ((2, 5, 5), (3, 3, 3), (6, 9, 40)):
        inner = depth - 2, height - 2, width - 2
        points = prod(inner)
        faces = 2 * (inner[0] * inner[1] + inner[1] * inner[2] + inner[0] * inner[2]) if points else 0
        touched = faces + (points if points > 1 else 0)
        yield from make_cuda_cases(
            "exactness",
            "stencil_3d",
            format_shape(depth, height, width),
            (count_tiles(width, 16), count_tiles(height, 4), count_tiles(depth, 2)),
            (16, 4, 2),
            (Array(), Array(), depth, height, width),
            expect_reads(6 * F32 * points, F32 * touched),
            expect_writes(F32 * points),
        )


def irregular() -> Iterator[Case]:
    """Kernels whose control depends on the launch alone, and some addresses on memory."""
    n = 1000
    index = (np.arange(n) * 37 % 501).astype(np.int32)
    distinct = F32 * (n + len(np.unique(index)))
    for shape, indices, truths in (
        ("supplied", Array(index), expect_reads(2 * F32 * n, distinct)),
        ("unknown", Array(), (ExpectedCount("read", 2 * F32 * n),)),
    ):
        yield from make_cuda_cases(
            "report16",
            "random_access",
            f"{n}-{shape}",
            (count_tiles(n, 256),),
            (256,),
            (Array(), indices, Array(), n),
            truths,
            expect_writes(F32 * n),
        )
    for n, grid, threads in ((1, 1, 256), (10_007, 5, 128)):
        yield from make_cuda_cases(
            "report16",
            "histogram",
            f"{n}-by-{grid}x{threads}",
            (grid,),
            (threads,),
            (Array(), n, Array()),
            expect_by_opcode("touched", LDG=n, RED=256 * grid, STS=256 * grid, LDS=256 * grid),
            expect_by_opcode("requests", LDG=warps_1d(n)),
            expect_by_opcode("lanes", BAR=grid * threads * 2),
            shared=1024,
        )
    for grid, threads, times in ((1, 32, 1), (3, 96, 10)):
        yield from make_cuda_cases(
            "report16",
            "atomic_hotspot",
            f"{times}-by-{grid}x{threads}",
            (grid,),
            (threads,),
            (Array(), times),
            expect_by_opcode("requests", RED=grid * threads // WARP * times),
        )


def generic_addresses() -> Iterator[Case]:
    """Generic loads count as global if their addresses are; each memory space is a request of its own."""
    threads, part, archs = 128, 8, (80, 90, 120)
    warps = threads // WARP
    for grid in (1, 12, 1000):
        words = grid * threads
        yield from make_cuda_cases(
            "generic",
            "three_memories",
            f"{grid}",
            (grid,),
            (threads,),
            (Array(), Array(), 3),
            expect_reads(F32 * words * part, F32 * words * part),
            expect_writes(F32 * words),
            expect_by_opcode("requests", LD=3 * part * warps * grid, STS=part * warps * grid),
            archs=archs,
        )
        yield from make_cuda_cases(
            "generic",
            "mixed_lanes",
            f"{grid}",
            (grid,),
            (threads,),
            (Array(), Array()),
            expect_reads(F32 * words // 2, F32 * words // 2),
            expect_writes(F32 * words),
            expect_by_opcode("touched", LD=words),
            expect_by_opcode("requests", LD=2 * warps * grid),
            archs=archs,
        )
    for grid in (4, 1000):
        words = grid * threads
        yield from make_cuda_cases(
            "generic",
            "cluster_sums",
            f"{grid}",
            (grid,),
            (threads,),
            (Array(), Array()),
            expect_reads(F32 * words, F32 * words),
            expect_writes(F32 * words),
            expect_by_opcode("touched", LD=4 * words, STS=words),
            expect_by_opcode("requests", LD=4 * warps * grid, LDG=warps * grid),
            cluster=(4,),
            archs=(90, 120),
        )


def specialized_sums() -> Iterator[Case]:
    """One producer thread loads each box; 128 threads sum all boxes of a tile, and each stores one sum.

    Each warp executes USETMAXREG once, to request registers or to release some.
    """
    group, box = 128, 2048
    for count, steps, grid in ((1, 1, 1), (1, 9, 3), (7, 4, 2), (131, 5, 132), (1000, 64, 132), (17, 0, 4)):
        for kernel, roles, opcode, source in (
            ("tile_sums", 2, "UTMALDG", Descriptor()),
            ("pingpong_sums", 3, "UBLKCP", Array()),
        ):
            yield from make_cuda_cases(
                "specialized",
                kernel,
                f"{count}x{steps}-by-{grid}",
                (grid,),
                (roles * group,),
                (source, Array(), count, steps),
                expect_writes(F32 * group * count),
                expect_by_opcode("requests", **{opcode: count * steps}, STG=count * group // WARP),
                expect_by_opcode(
                    "lanes", FADD=count * (steps * box + box - group)
                ),  # the second part reduces the partial sums of each thread to one
                expect_by_opcode("touched", LDS=count * steps * box),
                expect_by_opcode(
                    "warps", BAR=grid * roles * group // WARP, USETMAXREG=grid * roles * group // WARP
                ),
                archs=(90,),
            )


# ---- Triton --------------------------------------------------------------------------------------


def make_triton_cases(
    dump: str,
    kernel: str,
    arch: int,
    shape: str,
    grid: Dim,
    warps: int,
    arguments: Mapping[str, Value],
    *truths: tuple[ExpectedCount, ...],
    is_exact: bool = True,
    is_binary: bool = False,
) -> Case:
    """Return a launch of a Triton kernel; shared memory is in its metadata, pointers are added by default."""
    return Case(
        suite="triton",
        dump=dump,
        kernel=kernel,
        arch=arch,
        shape=shape,
        grid=grid,
        block=(WARP * warps,),
        arguments=dict(arguments),
        truths=sum(truths, expect_starts(grid, (WARP * warps,)) if is_exact else ()),
        is_exact=is_exact,
        is_binary=is_binary,
    )


def rowwise() -> Iterator[Case]:
    """Softmax reads a row once; RMSNorm reads it twice, and its weights once per row."""
    for arch in ARCHS:
        for rows, cols, gap in ((1, 16, 0), (7, 1008, 16), (1500, 1024, 0)):
            size = F16 * rows * cols
            stride = cols + gap
            yield make_triton_cases(
                "softmax",
                "softmax",
                arch,
                format_shape(rows, cols),
                (rows,),
                4,
                {"columns": cols, "x_stride": stride, "out_stride": stride},
                expect_reads(size, size),
                expect_writes(size),
            )
        for rows, cols in ((1, 16), (5, 1040), (300, 4096)):
            size = F16 * rows * cols
            yield make_triton_cases(
                "rmsnorm",
                "rmsnorm",
                arch,
                format_shape(rows, cols),
                (rows,),
                4,
                {"columns": cols, "stride": cols, "epsilon": 1e-5},
                expect_reads(3 * size, size + F16 * cols),
                expect_writes(size),
            )


# Name; tile rows, columns and depth of a step; architectures.
TRITON_MATMULS: tuple[tuple[str, tuple[int, int, int], tuple[int, ...]], ...] = (
    ("matmul", (128, 64, 32), ARCHS),
    ("matmul_one_stage", (64, 64, 32), (80, 90, 120)),
    ("matmul_two_stages", (32, 32, 32), (80, 89, 120)),
    ("matmul_two_stages", (64, 32, 32), (90,)),
    ("matmul_four_stages", (32, 32, 32), (80, 120)),
    ("matmul_four_stages", (64, 32, 32), (90,)),
    ("matmul_unaligned", (32, 32, 16), (80, 90, 120)),
)


def triton_matmuls() -> Iterator[Case]:
    """Rows and columns outside the matrix wrap around, so a tile loads all of its rows; only K is masked."""
    aligned = ((1, 16, 16), (128, 64, 32), (130, 80, 48), (257, 208, 1040), (2048, 1008, 96))
    ragged = ((1, 1, 1), (33, 31, 17), (100, 257, 75))
    for name, tile, archs in TRITON_MATMULS:
        for arch in archs:
            for shape in ragged if name == "matmul_unaligned" else aligned:
                yield triton_matmul(name, tile, arch, shape)


def triton_matmul(name: str, tile: tuple[int, int, int], arch: int, shape: tuple[int, int, int]) -> Case:
    m, n, k = shape
    rows, cols, depth = tile
    programs = count_tiles(m, rows) * count_tiles(n, cols)
    return make_triton_cases(
        name,
        "matmul",
        arch,
        format_shape(m, n, k),
        (programs,),
        4,
        {"m": m, "n": n, "k": k, "a_stride": k, "b_stride": n, "c_stride": n},
        expect_reads(F16 * programs * (rows + cols) * k, F16 * (m * k + k * n)),
        expect_writes(F16 * m * n),
        products(arch, programs * count_tiles(k, depth), tile),
    )


def products(arch: int, steps: int, tile: tuple[int, int, int], warps: int = 4) -> tuple[ExpectedCount, ...]:
    """Return the executions of the tensor instruction by warps, for `steps` products of tiles.

    One HMMA of a warp computes 16 x 8 x 16. One HGMMA of a warpgroup (four warps) computes 64 rows and all
    columns, 16 deep. One UTCHMMA, issued by one warp, computes up to 128 rows and all columns, 16 deep.
    """
    rows, cols, depth = tile
    if arch == 90 and rows >= 64:
        return expect_by_opcode("warps", HGMMA=steps * rows // 64 * 4 * depth // 16)
    if arch == 100 and rows >= 64:
        return expect_by_opcode("warps", UTCHMMA=steps * count_tiles(rows, 128) * depth // 16)
    return expect_by_opcode("warps", HMMA=steps * rows * cols * depth // (16 * 8 * 16))


def persistent_matmuls() -> Iterator[Case]:
    """132 programs share tiles of 128 x 128.

    TMA loads two boxes per step, and stores a tile as two boxes of 128-byte rows.
    """
    tile = 128, 128, 64
    for arch in (90, 100, 120):
        for m, n, k in ((128, 128, 64), (256, 1000, 200), (1, 16, 64), (2048, 1920, 128)):
            count = count_tiles(m, 128) * count_tiles(n, 128)
            steps = count * count_tiles(k, 64)
            yield make_triton_cases(
                "matmul_tma_persistent",
                "matmul_tma_persistent",
                arch,
                format_shape(m, n, k),
                (132,),
                8,
                {"m": m, "n": n, "k": k},
                expect_by_opcode("requests", UTMALDG=2 * steps, UTMASTG=2 * count),
                products(arch, steps, tile, warps=8),
            )


def specialized_matmuls() -> Iterator[Case]:
    """148 programs share the tiles; of eight warps, four keep the results and four have roles.

    These four find their role by a jump table (BRX), twice: for the loop over tiles, in which one loads, one
    multiplies and two are idle, and for the end of the kernel.
    """
    tile = 128, 128, 64
    for m, n, k in (
        (128, 128, 64),
        (1, 1, 1),
        (130, 130, 65),
        (256, 1000, 200),
        (20_000, 128, 64),
        (1, 37_889, 4096),
        (2048, 2048, 1024),
        (4096, 4001, 96),
    ):
        count = count_tiles(m, 128) * count_tiles(n, 128)
        steps = count * count_tiles(k, 64)
        yield make_triton_cases(
            "matmul_specialized",
            "matmul_specialized",
            100,
            format_shape(m, n, k),
            (148,),
            8,
            {"m": m, "n": n, "k": k},
            expect_by_opcode("requests", UTMALDG=2 * steps, UTMASTG=2 * count),
            expect_by_opcode("warps", BRX=148 * 4 * 2),
            products(100, steps, tile),
            is_binary=True,
        )


# By kernel and architecture: head size, rows (queries) of a program, keys of a step, warps.
ATTENTION = {
    **{("flash_attention", arch): (64, 128, 32, 8) for arch in (80, 90, 120)},
    ("flash_attention", 89): (32, 64, 32, 4),
    ("flash_attention", 100): (64, 64, 32, 4),
    **{("flash_attention_full", arch): (32, 64, 32, 4) for arch in ARCHS},
}


def attentions() -> Iterator[Case]:
    for (name, arch), sizes in ATTENTION.items():
        lengths = (32, 96, 512) if name.endswith("full") else (16, 128, 208, 1000)
        for length in lengths:
            for heads in (1, 3):
                if heads == 1 or length < 200:
                    yield attention(name, arch, length - length % 16, heads, sizes)


def attention(name: str, arch: int, length: int, heads: int, sizes: tuple[int, int, int, int]) -> Case:
    """Return a launch; with causal attention, a program reads keys up to its last row or the length."""
    dim, rows, keys, warps = sizes
    blocks = count_tiles(length, rows)
    is_causal = name == "flash_attention"
    steps = sum((first + rows if is_causal else length) // keys for first in range(0, blocks * rows, rows))
    seen = sum(min(first + rows, length) if is_causal else length for first in range(0, blocks * rows, rows))
    row_bytes = F16 * dim
    return make_triton_cases(
        name,
        "flash_attention",
        arch,
        format_shape(heads, length),
        (blocks, heads),
        warps,
        {"length": length, "stride": dim, "head_stride": length * dim, "log2_scale": 0.18},
        expect_reads(heads * row_bytes * (length + 2 * seen), heads * row_bytes * 3 * length),
        expect_writes(heads * row_bytes * length),
        attention_products(arch, heads * steps, sizes),
    )


def attention_products(arch: int, steps: int, sizes: tuple[int, int, int, int]) -> tuple[ExpectedCount, ...]:
    """Return tensor instructions: scores of rows x keys, `dim` deep, then rows x dim, `keys` deep."""
    dim, rows, keys, _ = sizes
    scores = products(arch, steps, (rows, keys, dim))[0]
    weighted = products(arch, steps, (rows, dim, keys))[0]
    return expect_by_opcode("warps", **{scores.opcode: scores.value + weighted.value})


GROUPED_PROGRAMS = 24


def grouped() -> Iterator[Case]:
    """Sizes and addresses are in buffers: exact with their contents, else unknown."""
    problems = (
        ((1, 8, 8),),
        ((64, 64, 64), (33, 40, 72), (0, 16, 16), (100, 200, 56)),
        ((512, 512, 64), (1, 1024, 32), (300, 96, 264)),
    )
    for arch in ARCHS:
        for groups in problems:
            yield grouped_case(arch, groups)
        yield make_triton_cases(
            "grouped_gemm",
            "grouped_gemm",
            arch,
            "1-unknown",
            (GROUPED_PROGRAMS,),
            4,
            {"groups": 1},
            (ExpectedCount("unknown_branches", 1),),
            is_exact=False,
        )


def grouped_case(arch: int, groups: Sequence[tuple[int, int, int]]) -> Case:
    steps = sum(count_tiles(m, 32) * count_tiles(n, 32) * count_tiles(k, 32) for m, n, k in groups)
    bases = [np.arange(len(groups)) * (1 << 24) + (matrix << 34) for matrix in (16, 17, 18)]
    sizes = [size for m, n, k in groups for size in (m, n // 8, k // 8)]
    output = F16 * sum(m * n for m, n, _ in groups)
    loaded = F16 * sum(m * k * count_tiles(n, 32) + k * n * count_tiles(m, 32) for m, n, k in groups)
    return make_triton_cases(
        "grouped_gemm",
        "grouped_gemm",
        arch,
        "+".join(format_shape(*group) for group in groups),
        (GROUPED_PROGRAMS,),
        4,
        {
            "a_ptrs": make_buffer(bases[0], np.int64),
            "b_ptrs": make_buffer(bases[1], np.int64),
            "c_ptrs": make_buffer(bases[2], np.int64),
            "sizes_ptr": make_buffer(sizes, np.int32),
            "groups": len(groups),
        },
        expect_writes(output),
        expect_by_opcode("touched", LDGSTS=loaded // 16, STG=output // 16),
        products(arch, steps, (32, 32, 32)),
    )


def mixtures() -> Iterator[Case]:
    """Mixture of experts: slots sorted by expert and padded to blocks of 32, in buffers.

    Programs visit tiles in groups of eight tile rows. Of the programs behind the last block, those of the
    last group that has blocks compute without storing; the others exit at once.
    """
    top_k, rows, cols, depth = 2, 32, 64, 64
    for arch in (80, 90, 100, 120):
        for tokens, n, k, experts in ((1, 64, 64, 2), (50, 160, 96, 4)):
            slots = tokens * top_k
            blocks, order = routed(slots, experts, rows)
            used = len(order)
            programs = count_tiles(slots + experts * (rows - 1), rows) * count_tiles(n, cols)
            working_programs = min(programs, count_tiles(len(blocks), 8) * 8 * count_tiles(n, cols))
            steps = working_programs * count_tiles(k, depth)
            yield make_triton_cases(
                "fused_moe",
                "fused_moe",
                arch,
                f"{tokens}-tokens-{format_shape(n, k)}",
                (programs,),
                4,
                {
                    "sorted_slot_ptr": make_buffer(order, np.int32),
                    "block_expert_ptr": make_buffer(blocks, np.int32),
                    "used_slots_ptr": make_buffer([used], np.int32),
                    **{"n": n, "k": k, "slots": slots, "x_stride": k},
                    **{"expert_stride": n * k, "weight_stride": k, "out_stride": n},
                },
                expect_writes(F16 * slots * n),
                products(80, steps, (rows, cols, depth)),
            )


def routed(slots: int, experts: int, rows: int) -> tuple[list[int], list[int]]:
    """Return the expert of each block, and the slots in order, padded with `slots`; expert 1 gets none."""
    blocks, order = [], []
    for expert in (e for e in range(experts) if e != 1):
        own = [slot for slot in range(slots) if slot * 5 // 3 % experts == expert or (
            expert == 0 and slot * 5 // 3 % experts == 1)]  # fmt: skip
        padded = count_tiles(len(own), rows) * rows
        order += own + [slots] * (padded - len(own))
        blocks += [expert] * (padded // rows)
    return blocks, order


FAMILIES: tuple[Callable[[], Iterator[Case]], ...] = (
    elementwise,
    partial_warps,
    grid_stride,
    row_sums,
    sparse_rows,
    matmuls,
    reductions,
    transposes,
    convolutions,
    stencils,
    irregular,
    generic_addresses,
    specialized_sums,
    rowwise,
    triton_matmuls,
    persistent_matmuls,
    specialized_matmuls,
    attentions,
    grouped,
    mixtures,
)
CASES = tuple(case for family in FAMILIES for case in family())
