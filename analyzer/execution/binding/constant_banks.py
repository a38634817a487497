"""Builder of constant banks: bytes, reasons why some are unknown, and the words that the driver writes."""

import struct
from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from analyzer.execution.profile.missing_inputs import MissingInput
from analyzer.hardware.schema import Arch, HardwareParameter
from analyzer.ir.arrays import make_read_only
from analyzer.ir.launch import Dim3, Launch

KNOWN_ORIGIN = 0
WORD_BYTES = 4
# The driver chooses these addresses. Ours are plausible, the same in every run, and overlap neither each
# other nor an allocation.
INITIAL_STACK_POINTER = 0x00FFFDC0  # top of the local memory of a thread, as debuggers show it
GLOBAL_DESCRIPTOR = 0
SHARED_WINDOW_BASE = 0x7000_0000_0000
LOCAL_WINDOW_BASE = 0x7100_0000_0000
ARGUMENT_WINDOW_BASE = 0x7200_0000_0000
USER_WINDOW_BASE = 0x7300_0000_0000
WORKSPACE_BASE = 0x7400_0000_0000


class AddressWindows(Struct, frozen=True, kw_only=True):
    """Generic addresses at which the windows of other address spaces start."""

    shared: int = SHARED_WINDOW_BASE  # from sm_90 on, code reads its upper half from SR_SWINHI
    local: int = LOCAL_WINDOW_BASE
    arguments: int = ARGUMENT_WINDOW_BASE  # of offset 0 of constant bank 0
    user: int = USER_WINDOW_BASE

    def find_shared_lanes(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return the mask of generic addresses in shared memory of the CTA or its cluster."""
        return _is_in_window(addresses, self.shared)

    def find_local_lanes(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return the mask of generic addresses in local memory."""
        return _is_in_window(addresses, self.local)


def _is_in_window(addresses: NDArray[np.uint64], window: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = addresses >> np.uint64(32) == np.uint64(window >> 32)
    return found


class UnknownReasons(Struct):
    """Descriptions of unknown words, numbered from 1."""

    texts: list[str] = field(default_factory=lambda: [""])
    numbers: dict[str, int] = field(default_factory=dict)
    missing: list[MissingInput | None] = field(
        default_factory=lambda: [None]
    )  # by number; what would give it

    def intern(self, text: str, missing: MissingInput | None = None) -> int:
        """Return the number of a description, added if it is new."""
        found = self.numbers.get(text)
        if found is None:
            found = self.numbers[text] = len(self.texts)
            self.texts.append(text)
            self.missing.append(missing)
        return found


class ConstantBankBuilder:
    """Bytes of one bank.

    reason: why bytes that are never written are unknown; if empty, they are known zeros
    """

    __slots__ = ("_contents", "_reason_ids", "_reasons")

    def __init__(self, size_bytes: int, reasons: UnknownReasons, reason: str) -> None:
        size = -(-max(size_bytes, WORD_BYTES) // WORD_BYTES) * WORD_BYTES
        self._reasons = reasons
        self._contents = np.zeros(size, dtype=np.uint8)
        self._reason_ids = np.full(size, reasons.intern(reason) if reason else KNOWN_ORIGIN, dtype=np.int32)

    def write(self, offset: int, contents: bytes) -> None:
        """Write known bytes."""
        end = offset + len(contents)
        self._grow(end)
        self._contents[offset:end] = np.frombuffer(contents, dtype=np.uint8)
        self._reason_ids[offset:end] = KNOWN_ORIGIN

    def forget(self, offset: int, size: int, reason: str, missing: MissingInput | None = None) -> None:
        """Mark bytes as unknown; `missing` would give them."""
        self._grow(offset + size)
        self._reason_ids[offset : offset + size] = self._reasons.intern(reason, missing)

    def is_known(self, offset: int, size: int) -> bool:
        """Return whether all these bytes are known."""
        return not self._reason_ids[offset : offset + size].any()

    def read_bytes(self, offset: int, size: int) -> NDArray[np.uint8]:
        """Return a copy of bytes, known or not."""
        return self._contents[offset : offset + size].copy()

    def build_words(self) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Return (values, origins) of all words, read-only; a word with an unknown byte is unknown and 0."""
        origins = self._reason_ids.reshape(-1, WORD_BYTES).max(axis=1)
        values = self._contents.view("<u4").astype(np.uint32)
        values[origins != KNOWN_ORIGIN] = 0
        make_read_only(values, origins)
        return values, origins

    def _grow(self, end: int) -> None:
        if end > len(self._contents):
            more = -(-end // WORD_BYTES) * WORD_BYTES - len(self._contents)
            self._contents = np.append(self._contents, np.zeros(more, dtype=np.uint8))
            self._reason_ids = np.append(self._reason_ids, np.zeros(more, dtype=np.int32))


class DriverWord(Struct, frozen=True):
    """One or more words that the driver writes to constant bank 0."""

    offset: int
    size_bytes: int
    contents: bytes | None  # None if unknown
    reason: str  # why they are unknown


def build_driver_words(arch: Arch, launch: Launch, cluster: Dim3 | None) -> Iterator[DriverWord]:
    """Yield the words below the arguments that code is known to read.

    cluster: None if unknown
    """
    bank = arch.constant_bank
    yield from _build_dim_words(bank.block_dim, launch.block, "blockDim", "--block")
    yield from _build_dim_words(bank.grid_dim, launch.grid, "gridDim", "--grid")
    yield from _build_cluster_words(arch, launch, cluster)
    windows = AddressWindows()
    start = int(bank.argument_window_start.value)
    for figure, value in (
        (bank.global_descriptor, GLOBAL_DESCRIPTOR),
        (bank.shared_window, windows.shared),
        (bank.local_window, windows.local),
        (bank.argument_window, windows.arguments + start),
        (bank.user_window, windows.user),
    ):
        if figure is not None:
            yield _make_known_word(figure, value.to_bytes(8, "little"))
    yield _make_known_word(bank.stack_pointer, _encode_word(INITIAL_STACK_POINTER))
    yield _make_known_word(bank.workspace_low, _encode_word(WORKSPACE_BASE & 0xFFFFFFFF))
    yield _make_known_word(bank.workspace_high, _encode_word(WORKSPACE_BASE >> 32))
    if bank.reserved_shared_bytes is not None:
        yield _make_known_word(
            bank.reserved_shared_bytes, _encode_word(int(arch.limits.shared_reserved_bytes_per_cta.value))
        )
    dynamic = launch.dynamic_shared_bytes
    reason = "the bytes of dynamic shared memory (--dynamic-shared gives them)"
    yield DriverWord(
        _find_offset(bank.dynamic_shared_bytes), 4, None if dynamic is None else _encode_word(dynamic), reason
    )
    yield DriverWord(_find_offset(bank.grid_id), 8, None, "the number of the launch (%gridid)")
    yield DriverWord(_find_offset(bank.sm_count), 4, None, "the number of SMs (%nsmid)")


def _build_dim_words(
    figure: HardwareParameter, dims: Dim3 | None, name: str, option: str
) -> Iterator[DriverWord]:
    for position, axis in enumerate("xyz"):
        contents = None if dims is None else _encode_word(getattr(dims, axis))
        reason = f"{name}.{axis} ({option} gives it)"
        yield DriverWord(_find_offset(figure) + WORD_BYTES * position, WORD_BYTES, contents, reason)


def _build_cluster_words(arch: Arch, launch: Launch, cluster: Dim3 | None) -> Iterator[DriverWord]:
    bank, grid = arch.constant_bank, launch.grid
    if bank.explicit_cluster is not None:
        contents = None if cluster is None else _encode_word(int(cluster.count > 1))
        yield DriverWord(
            _find_offset(bank.explicit_cluster), 4, contents, "whether there are clusters (--cluster says)"
        )
    if bank.cluster_ctas is not None:
        contents = None if cluster is None else _encode_word(cluster.count)
        yield DriverWord(
            _find_offset(bank.cluster_ctas), 4, contents, "the CTAs of a cluster (--cluster gives them)"
        )
    if bank.cluster_dim is not None:
        yield from _build_dim_words(bank.cluster_dim, cluster, "the cluster's size", "--cluster")
    for position, axis in enumerate("xyz"):
        size = None if cluster is None else int(getattr(cluster, axis))
        if bank.cluster_reciprocals is not None:
            contents = None if size is None else _encode_reciprocal(size)
            offset = _find_offset(bank.cluster_reciprocals) + WORD_BYTES * position
            yield DriverWord(offset, 4, contents, f"1 / the cluster's size.{axis} (--cluster gives it)")
        if bank.cluster_counts is not None:
            number = None if size is None or grid is None else _encode_word(getattr(grid, axis) // size)
            offset = _find_offset(bank.cluster_counts) + WORD_BYTES * position
            yield DriverWord(
                offset, 4, number, f"the clusters of the grid.{axis} (--grid and --cluster give them)"
            )


def _encode_reciprocal(size: int) -> bytes:
    """Encode 1 / size as a float rounded up, so that id * (1 / size) truncates to id // size."""
    nearest = np.float32(1.0) / np.float32(size)
    if float(nearest) * size < 1.0:
        nearest = np.nextafter(nearest, np.float32(2.0))
    return struct.pack("<f", float(nearest))


def _find_offset(figure: HardwareParameter) -> int:
    return int(figure.value)


def _encode_word(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(WORD_BYTES, "little")


def _make_known_word(figure: HardwareParameter, contents: bytes) -> DriverWord:
    return DriverWord(_find_offset(figure), len(contents), contents, "")
