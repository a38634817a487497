"""Draw random launches of the kernels of `kernels/control.cu`, the same ones each time.

They are small, because the oracle executes them lane by lane.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from struct import pack

import numpy as np

from analyzer.ir.launch import Argument, ArgumentValue, Buffer, Dim3, Launch, Pointer

Dim = tuple[int, int, int]
Value = int | np.ndarray

_BUFFER_SPACING_BYTES = 1 << 32
_FIRST_BUFFER_ADDRESS = 7 << 40


@dataclass(frozen=True, eq=False)
class RandomLaunch:
    """One launch of a kernel."""

    kernel: str
    formats: str  # a letter for each argument: p for a pointer, s for a struct, else as in `struct`
    values: tuple[Value, ...]  # arrays are the contents of buffers, or the bytes of a struct
    grid: Dim
    block: Dim
    shared: int = 0

    def to_launch(self, *, with_buffers: bool = True) -> Launch:
        """Convert to a launch of the analyzer; with_buffers: supply the contents of buffers."""
        arguments: list[Argument] = []
        for place, (letter, value) in enumerate(zip(self.formats, self.values, strict=True)):
            given: ArgumentValue
            if letter == "s":
                assert isinstance(value, np.ndarray)
                arguments += _split_struct(place, value.tobytes())
                continue
            if isinstance(value, np.ndarray):
                raw = np.frombuffer(value.tobytes(), np.uint8)
                given = Buffer(raw, "drawn.npy") if with_buffers else Pointer()
            else:
                given = Pointer() if letter == "p" else value
            arguments.append(Argument(place, given))
        return Launch(
            grid=Dim3(*self.grid),
            block=Dim3(*self.block),
            dynamic_shared_bytes=self.shared,
            arguments=tuple(arguments),
        )

    def pack_constants(self) -> tuple[bytes, list[tuple[int, bytes]]]:
        """Return the bytes of the arguments in the constant bank, and (address, contents) of buffers."""
        packed = b""
        buffers = []
        for place, (letter, value) in enumerate(zip(self.formats, self.values, strict=True)):
            if letter == "s":
                assert isinstance(value, np.ndarray)
                packed += bytes(-len(packed) % 8) + value.tobytes()
                continue
            if letter == "p":
                start = _FIRST_BUFFER_ADDRESS + place * _BUFFER_SPACING_BYTES
                if isinstance(value, np.ndarray):
                    buffers.append((start, value.tobytes()))
                value = start
            code = "Q" if letter == "p" else letter
            assert isinstance(value, int)
            size = len(pack(code, 0))
            packed += bytes(-len(packed) % size) + pack("<" + code, value)
        return packed, buffers

    def __str__(self) -> str:
        shown = ", ".join("array" if isinstance(v, np.ndarray) else str(v) for v in self.values)
        return f"{self.kernel}({shown}) <<<{self.grid}, {self.block}, {self.shared}>>>"


def _split_struct(place: int, raw: bytes) -> list[Argument]:
    """Return a struct word by word; it has a pointer at offset 16."""
    words = {offset: int.from_bytes(raw[offset : offset + 4], "little") for offset in range(0, len(raw), 4)}
    fields: list[Argument] = [Argument(f"{place}+{o}", v) for o, v in words.items() if o not in (16, 20)]
    return [*fields, Argument(f"{place}+16", Pointer())]


LaunchGenerator = Callable[[Random], tuple[Dim, Dim, tuple[Value, ...]]]


def _draw_block(r: Random, most: int = 100) -> Dim:
    return (r.choice([1, 7, 31, 32, 33, 48, 64, 65, most, r.randint(1, most)]), 1, 1)


def _one_cta(*ranges: tuple[int, int], most: int = 100) -> LaunchGenerator:
    """One one-dimensional CTA, with arguments from the ranges."""
    return lambda r: ((1, 1, 1), _draw_block(r, most), (0, *(r.randint(low, high) for low, high in ranges)))


def _few_ctas(*ranges: tuple[int, int], most: int = 70) -> LaunchGenerator:
    """A few one-dimensional CTAs, with arguments from the ranges."""
    return lambda r: (
        (r.randint(1, 4), 1, 1),
        _draw_block(r, most),
        (0, *(r.randint(*span) for span in ranges)),
    )


def _boxes(*ranges: tuple[int, int], grid: Dim = (3, 3, 2), block: Dim = (9, 5, 3)) -> LaunchGenerator:
    """Three-dimensional grids and blocks, up to these sizes, with arguments from the ranges."""

    def draw(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
        sizes = [(r.randint(1, x), r.randint(1, y), r.randint(1, z)) for x, y, z in (grid, block)]
        return sizes[0], sizes[1], (0, *(r.randint(*span) for span in ranges))

    return draw


def _full_warps(*ranges: tuple[int, int], blocks: tuple[int, ...] = (32, 64, 128)) -> LaunchGenerator:
    """One CTA of full warps, with arguments from the ranges."""
    return lambda r: ((1, 1, 1), (r.choice(blocks), 1, 1), (0, *(r.randint(*span) for span in ranges)))


def _signed(r: Random, low: int, high: int) -> int:
    return r.choice([-1, 1]) * r.randint(low, high)


def _divisions(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    a, b = _signed(r, 0, (1 << 31) - 200), _signed(r, 1, 1 << r.randint(1, 10))
    return (1, 1, 1), _draw_block(r), (0, a, b, r.getrandbits(32), r.getrandbits(r.randint(1, 32)) or 1)


def _divisions64(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    a, b = _signed(r, 0, 1 << r.randint(2, 62)), _signed(r, 1, 1 << r.randint(1, 62))
    return (
        (1, 1, 1),
        _draw_block(r),
        (0, a, b, r.getrandbits(r.randint(2, 64)), r.getrandbits(r.randint(2, 63)) + 1),
    )


def _counts64(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    first = r.choice([-5, 0, (1 << 32) - 40, (1 << 40) + 3, -(1 << 33)])
    return (1, 1, 1), _draw_block(r), (0, first, first + r.randint(0, 500), r.randint(5, 64))


def _csr(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    n = r.randint(1, 90)
    lengths = np.array([r.choice([0, 1, 2, 5, 9]) for _ in range(n)])
    rows = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    cols = np.array([r.choice([-1, *range(9)]) for _ in range(int(rows[-1]) + 1)], dtype=np.int32)
    return (2, 1, 1), (48, 1, 1), (0, rows, cols, n)


def _collatz(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    n = r.randint(1, 70)
    return (2, 1, 1), (40, 1, 1), (0, np.array([r.randint(0, 40) for _ in range(80)], np.uint32), n)


def _bytes(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    values = np.array([r.randint(-128, 127) for _ in range(128)], np.int8)
    limits = np.array([r.randint(0, 60) for _ in range(16)], np.uint16)
    return (1, 1, 1), _draw_block(r), (0, values, limits, r.randint(-100, 100))


def _doubtful(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    return (
        (1, 1, 1),
        (64, 1, 1),
        (np.array([r.randint(-2, 9) for _ in range(96)], np.int32), 0, r.randint(1, 5)),
    )


def _in_place(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    return (
        (1, 1, 1),
        (64, 1, 1),
        (np.array([r.randint(0, 99) for _ in range(1024)], np.int32), r.randint(2, 5)),
    )


def _reduce(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    return (r.randint(1, 3), 1, 1), (r.choice([32, 64, 128, 256]), 1, 1), (0, r.randint(0, 700))


def _roles(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    return (r.randint(1, 2), 1, 1), (32 * r.randint(2, 5), 1, 1), (0, r.randint(0, 12))


def _shared(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    return (1, 1, 1), _draw_block(r), (0, r.randint(0, 200))


def _early(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    block = _draw_block(r)
    return (1, 1, 1), block, (0, r.randint(1, block[0]), r.randint(0, 9))


def _structs(r: Random) -> tuple[Dim, Dim, tuple[Value, ...]]:
    box = r.randint(-3, 5), r.randint(0, 9), r.randint(-100, 100), _FIRST_BUFFER_ADDRESS
    more = r.randint(-9, 9), r.randint(-2, 2), r.randint(0, 255)
    raw = np.frombuffer(pack("<iiqQhhBxxx", *box, *more), np.uint8)
    return (1, 1, 1), _draw_block(r), (raw, r.randint(0, 99))


# By kernel: formats of its arguments, and the generator of grid, block and values.
LAUNCHES: dict[str, tuple[str, LaunchGenerator]] = {
    "nested_ifs": ("pii", _one_cta((-1, 9), (-5, 80))),
    "break_continue": ("piii", _few_ctas((0, 9), (0, 12), (-9, 60))),
    "early_return": ("pii", _few_ctas((0, 200), (0, 70))),
    "switches": ("pii", _few_ctas((1, 13), (0, 6))),
    "do_whiles": ("pii", _boxes((-20, 120), (1, 17), grid=(1, 1, 1), block=(13, 7, 1))),
    "counts64": ("pqqq", _counts64),
    "countsu64": ("pQ", _one_cta((0, 300), most=33)),
    "unsigned_down": ("pII", _one_cta((0, 60), (1, 9))),
    "geometric": ("piI", _one_cta((-3, 900), (0, 4_000_000_000))),
    "squares": ("pi", _one_cta((-9, 3000))),
    "triangles": ("pii", _few_ctas((0, 7), (0, 150))),
    "grid_stride_2d": ("piii", _boxes((0, 40), (0, 40), (40, 64), block=(9, 5, 1))),
    "grid_stride_3d": ("piii", _boxes((0, 20), (0, 12), (0, 7))),
    "stages3": ("pi", _full_warps((0, 20))),
    "stages5": ("pi", _full_warps((0, 24))),
    "stage_modulo": ("pii", _one_cta((0, 30), (1, 9))),
    "divide": ("piiII", _divisions),
    "divide64": ("pqqQQ", _divisions64),
    "calls": ("pii", _one_cta((0, 9), (0, 70), most=65)),
    "recursion": ("pi", _one_cta((-1, 5), most=40)),
    "recursion_linear": ("pi", _one_cta((-2, 9), most=65)),
    "shuffles": ("pi", _full_warps((0, 9))),
    "votes": ("pi", _full_warps((0, 40))),
    "reduce": ("pi", _reduce),
    "shared_indices": ("pi", _full_warps((0, 50), blocks=(128,))),
    "work_list": ("pi", _one_cta((0, 50))),
    "local_array": ("pii", _one_cta((-9, 9), (0, 99))),
    "local_lanes": ("pi", _one_cta((0, 20))),
    "dynamic_shared": ("pi", _shared),
    "structs": ("si", _structs),
    "ragged": ("ppi", lambda r: ((r.randint(1, 4), 1, 1), _draw_block(r), (0, 0, r.randint(0, 900)))),
    "early_exit_barrier": ("pii", _early),
    "shapes": ("pi", _boxes((0, 30))),
    "csr": ("pppi", _csr),
    "collatz": ("ppi", _collatz),
    "bytes": ("pppi", _bytes),
    "doubtful_call": ("ppi", _doubtful),
    "in_place": ("pi", _in_place),
    "sync_loop": ("pii", _one_cta((0, 14), (0, 7))),
    "warp_roles": ("pi", _roles),
    "gotos": ("pii", _one_cta((0, 5), (0, 19))),
    "constants": ("pii", _one_cta((0, 30), (0, 30))),
    "min_max": ("piI", _few_ctas((0, 60), (0, 60))),
    "bits": ("pI", _one_cta((0, 80))),
    "sync_exit": ("pi", _one_cta((0, 9))),
    "wraps": ("pII", _one_cta((0, 150), (0, 40))),
}


def make_random_launch(kernel: str, random: Random) -> RandomLaunch:
    """Draw a launch of a kernel."""
    formats, draw = LAUNCHES[kernel]
    grid, block, values = draw(random)
    shared = 4 * int(values[1]) if kernel == "dynamic_shared" else 0
    return RandomLaunch(kernel, formats, values, grid, block, shared)
