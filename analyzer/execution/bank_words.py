"""Constant banks in the making: bytes, why some are unknown, and the words that the driver writes."""

import struct
from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from analyzer.hardware.schema import Arch, Figure
from analyzer.ir.launch import Dim3, Launch

KNOWN = 0
WORD_BYTES = 4
# The driver's own values are not known; these are of the right kind, alike in every run, and clear of each
# other and of all allocations.
STACK_POINTER = 0x00FFFDC0  # top of the local memory of a thread, as debuggers show it
GLOBAL_DESCRIPTOR = 0
SHARED_WINDOW = 0x7000_0000_0000
LOCAL_WINDOW = 0x7100_0000_0000
ARGUMENT_WINDOW = 0x7200_0000_0000
USER_WINDOW = 0x7300_0000_0000
WORKSPACE = 0x7400_0000_0000


class Windows(Struct, frozen=True, kw_only=True):
    """Generic addresses at which the other spaces begin; `arguments` is that of offset 0 of constant bank 0.

    From sm_90 on code reads the upper half of `shared` from SR_SWINHI.
    """

    shared: int = SHARED_WINDOW
    local: int = LOCAL_WINDOW
    arguments: int = ARGUMENT_WINDOW
    user: int = USER_WINDOW

    def shared_lanes(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which generic addresses lie in shared memory of the CTA or its cluster."""
        return _upper_is(addresses, self.shared)

    def local_lanes(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which generic addresses lie in a thread's own local memory."""
        return _upper_is(addresses, self.local)


def _upper_is(addresses: NDArray[np.uint64], window: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = addresses >> np.uint64(32) == np.uint64(window >> 32)
    return found


class Reasons(Struct):
    """Texts of what is unknown, by number from 1."""

    texts: list[str] = field(default_factory=lambda: [""])
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        found = self.numbers.get(text)
        if found is None:
            found = self.numbers[text] = len(self.texts)
            self.texts.append(text)
        return found


class BankBuilder:
    """Bytes of one bank; what is never written is unknown for the reason given."""

    __slots__ = ("_contents", "_reasons", "_whys")

    def __init__(self, size_bytes: int, reasons: Reasons, why: str) -> None:
        size = -(-max(size_bytes, WORD_BYTES) // WORD_BYTES) * WORD_BYTES
        self._reasons = reasons
        self._contents = np.zeros(size, dtype=np.uint8)
        self._whys = np.full(size, reasons.number(why) if why else KNOWN, dtype=np.int32)

    def write(self, offset: int, contents: bytes) -> None:
        """Known bytes."""
        end = offset + len(contents)
        self._grow(end)
        self._contents[offset:end] = np.frombuffer(contents, dtype=np.uint8)
        self._whys[offset:end] = KNOWN

    def forget(self, offset: int, size: int, why: str) -> None:
        """Bytes that are not known."""
        self._grow(offset + size)
        self._whys[offset : offset + size] = self._reasons.number(why)

    def is_known(self, offset: int, size: int) -> bool:
        return not self._whys[offset : offset + size].any()

    def contents(self, offset: int, size: int) -> NDArray[np.uint8]:
        return self._contents[offset : offset + size].copy()

    def words(self) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """(values, origins), read-only: a word is unknown if one of its bytes is, and then 0."""
        origins = self._whys.reshape(-1, WORD_BYTES).max(axis=1)
        values = self._contents.view("<u4").astype(np.uint32)
        values[origins != KNOWN] = 0
        values.setflags(write=False)
        origins.setflags(write=False)
        return values, origins

    def _grow(self, end: int) -> None:
        if end > len(self._contents):
            more = -(-end // WORD_BYTES) * WORD_BYTES - len(self._contents)
            self._contents = np.append(self._contents, np.zeros(more, dtype=np.uint8))
            self._whys = np.append(self._whys, np.zeros(more, dtype=np.int32))


class DriverWord(Struct, frozen=True):
    """One word or more that the driver writes: `contents` None where not known, for the reason `why`."""

    offset: int
    size_bytes: int
    contents: bytes | None
    why: str


def driver_words(arch: Arch, launch: Launch, cluster: Dim3 | None) -> Iterator[DriverWord]:
    """Everything below the arguments that code is known to read; `cluster` None where not known."""
    bank = arch.constant_bank
    yield from _dims(bank.block_dim, launch.block, "blockDim", "--block")
    yield from _dims(bank.grid_dim, launch.grid, "gridDim", "--grid")
    yield from _cluster_words(arch, launch, cluster)
    windows = Windows()
    start = int(bank.argument_window_start.value)
    for figure, value in (
        (bank.global_descriptor, GLOBAL_DESCRIPTOR),
        (bank.shared_window, windows.shared),
        (bank.local_window, windows.local),
        (bank.argument_window, windows.arguments + start),
        (bank.user_window, windows.user),
    ):
        if figure is not None:
            yield _known(figure, value.to_bytes(8, "little"))
    yield _known(bank.stack_pointer, _word(STACK_POINTER))
    yield _known(bank.workspace_low, _word(WORKSPACE & 0xFFFFFFFF))
    yield _known(bank.workspace_high, _word(WORKSPACE >> 32))
    if bank.reserved_shared_bytes is not None:
        yield _known(bank.reserved_shared_bytes, _word(int(arch.limits.shared_reserved_bytes_per_cta.value)))
    dynamic = launch.dynamic_shared_bytes
    why = "the bytes of dynamic shared memory (--dynamic-shared gives them)"
    yield DriverWord(_at(bank.dynamic_shared_bytes), 4, None if dynamic is None else _word(dynamic), why)
    yield DriverWord(_at(bank.grid_id), 8, None, "the number of the launch (%gridid)")
    yield DriverWord(_at(bank.sm_count), 4, None, "the number of SMs (%nsmid)")


def _dims(figure: Figure, dims: Dim3 | None, name: str, option: str) -> Iterator[DriverWord]:
    for place, axis in enumerate("xyz"):
        contents = None if dims is None else _word(getattr(dims, axis))
        why = f"{name}.{axis} ({option} gives it)"
        yield DriverWord(_at(figure) + WORD_BYTES * place, WORD_BYTES, contents, why)


def _cluster_words(arch: Arch, launch: Launch, cluster: Dim3 | None) -> Iterator[DriverWord]:
    bank, grid = arch.constant_bank, launch.grid
    if bank.explicit_cluster is not None:
        contents = None if cluster is None else _word(int(cluster.count > 1))
        yield DriverWord(
            _at(bank.explicit_cluster), 4, contents, "whether there are clusters (--cluster says)"
        )
    if bank.cluster_ctas is not None:
        contents = None if cluster is None else _word(cluster.count)
        yield DriverWord(_at(bank.cluster_ctas), 4, contents, "the CTAs of a cluster (--cluster gives them)")
    if bank.cluster_dim is not None:
        yield from _dims(bank.cluster_dim, cluster, "the cluster's size", "--cluster")
    for place, axis in enumerate("xyz"):
        size = None if cluster is None else int(getattr(cluster, axis))
        if bank.cluster_reciprocals is not None:
            contents = None if size is None else _reciprocal(size)
            offset = _at(bank.cluster_reciprocals) + WORD_BYTES * place
            yield DriverWord(offset, 4, contents, f"1 / the cluster's size.{axis} (--cluster gives it)")
        if bank.cluster_counts is not None:
            number = None if size is None or grid is None else _word(getattr(grid, axis) // size)
            offset = _at(bank.cluster_counts) + WORD_BYTES * place
            yield DriverWord(
                offset, 4, number, f"the clusters of the grid.{axis} (--grid and --cluster give them)"
            )


def _reciprocal(size: int) -> bytes:
    """1 / size as a float that is not below it, so that id * (1 / size) cut off is id // size."""
    nearest = np.float32(1.0) / np.float32(size)
    if float(nearest) * size < 1.0:
        nearest = np.nextafter(nearest, np.float32(2.0))
    return struct.pack("<f", float(nearest))


def _at(figure: Figure) -> int:
    return int(figure.value)


def _word(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(WORD_BYTES, "little")


def _known(figure: Figure, contents: bytes) -> DriverWord:
    return DriverWord(_at(figure), len(contents), contents, "")
