"""Read the records of traces/h100 and traces/h200: launches, counters, micro-benchmarks, sweeps, code.

The fields are described in README.md of both folders and in the README of the collector, shared/groundtruth.
"""

import hashlib
import json
import lzma
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from kernels.compiling import BUILT
from kernels.recipes import ROOT, TableError
from numpy.typing import NDArray

FOLDER = ROOT / "traces" / "h100"
CODE = BUILT / "h100"  # cubins, taken from the archive or compiled; with the tables of `validate`
GPU = "h100-sxm"
H200 = "h200-sxm"
_FOLDERS = {GPU: FOLDER, H200: ROOT / "traces" / "h200"}
_WORD_BYTES = 4
Record = Mapping[str, Any]  # one JSON object of the collector


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLaunch:
    """A kernel as it was launched, and its event times in microseconds."""

    case: str  # the collector's id
    family: str  # cuda002, triton, wavetune, sweep
    kernel: str
    shape: str  # launches of one shape differ in their configuration only
    gpu: str  # in hwdb
    cubin: Path
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    arguments: tuple[tuple[str, str | int | float], ...]  # name and value, as `--arg` takes it
    warm_us: float
    cold_us: float | None  # None for the sweep, which timed warm launches only
    work: Record


def read_lines(name: str, gpu: str = GPU) -> list[Record]:
    """Return the records of a `.jsonl.xz` file. Raises TableError if it is missing."""
    path = _FOLDERS[gpu] / f"{name}.jsonl.xz"
    if not path.exists():
        raise TableError(f"{path} is not there")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_document(name: str, gpu: str = GPU) -> Any:
    """Return the content of a `.json.xz` file."""
    with lzma.open(_FOLDERS[gpu] / f"{name}.json.xz", "rt", encoding="utf-8") as file:
        return json.load(file)


@cache
def read_measurements(gpu: str = GPU) -> tuple[Record, ...]:
    """Return the records of `measurements.jsonl.xz`, the first of which describes the device."""
    return tuple(read_lines("measurements", gpu))


def read_empty_event_us(gpu: str = GPU) -> tuple[float, float]:
    """Return what two events around an empty kernel say: warm, cold."""
    empty = read_measurements(gpu)[0]["empty_kernel"]
    return empty["time_us_warm_median"], empty["time_us_cold_median"]


@dataclass(frozen=True, slots=True)
class EventTimes:
    """What two events around a launch say, in microseconds."""

    warm_us: float
    cold_us: float

    def take_less(self, other: "EventTimes") -> "EventTimes":
        """Return the lesser times of both."""
        return EventTimes(min(self.warm_us, other.warm_us), min(self.cold_us, other.cold_us))


@cache
def read_event_times(gpu: str) -> dict[str, EventTimes]:
    """Return what events say of each launch of `measurements.jsonl.xz`, by its id.

    The least of the medians where a launch was measured several times (`again.jsonl.xz`): what disturbs a
    measurement makes it longer. On the H100 the first one has most short launches .45 us longer than
    the profiler's interface (CUPTI) does; those after it agree with that within .1 us.
    """
    found = {
        record["case_id"]: EventTimes(record["time_us_warm_median"], record["time_us_cold_median"])
        for record in read_measurements(gpu)
        if record["record"] == "measurement" and record["status"] == "ok"
    }
    if (_FOLDERS[gpu] / "again.jsonl.xz").exists():
        for record in read_lines("again", gpu):
            case = record["id"]
            if case in found and "warm" in record:
                warm, cold = (float(np.median(record.get(l2, np.inf))) for l2 in ("warm", "cold"))
                found[case] = found[case].take_less(EventTimes(warm, cold))
    return found


@cache
def unpack_code() -> Path:
    """Unpack the cubins of the archive once, and return their folder."""
    archive = FOLDER / "kernels.tar.xz"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    folder = CODE / f"code-{digest}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        with tarfile.open(archive) as tar:
            wanted = [m for m in tar.getmembers() if m.name.endswith((".cubin", ".py"))]
            tar.extractall(partial, members=wanted, filter="data")
        partial.rename(folder)
    return folder


def read_launches(gpu: str = GPU) -> tuple[MeasuredLaunch, ...]:
    """Return all launches of `measurements.jsonl.xz` that are kernels of ours.

    Both GPUs ran the same code.
    """
    code = unpack_code()
    return tuple(
        _make_launch(record, code, gpu)
        for record in read_measurements(gpu)
        if record["record"] == "measurement" and record["status"] == "ok"
    )


def _make_launch(record: Record, code: Path, gpu: str) -> MeasuredLaunch:
    stem = Path(record["artifact"]).name
    folder = code if record["family"] == "cuda002" else code / "triton"
    return MeasuredLaunch(
        case=record["case_id"],
        family=record["family"],
        kernel=record["kernel"],
        shape=_find_shape(record),
        gpu=gpu,
        cubin=folder / f"{stem}.cubin",
        grid=_make_dims(record["grid"]),
        block=_make_dims(record["block"]),
        dynamic_shared_bytes=record["smem_dynamic_bytes"],
        arguments=tuple(_make_argument(parameter) for parameter in record["params"]),
        warm_us=read_event_times(gpu)[record["case_id"]].warm_us,
        cold_us=read_event_times(gpu)[record["case_id"]].cold_us,
        work=record["work"],
    )


def _find_shape(record: Record) -> str:
    """Return the id without its configuration; the blocks of a CUDA launch are no configuration here."""
    case = str(record["case_id"])
    return case if record["family"] == "cuda002" else case.rsplit("/", 1)[0]


def _make_dims(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = sizes
    return x, y, z


def _make_argument(parameter: Record) -> tuple[str, str | int | float]:
    name = str(parameter["name"])
    if parameter["kind"] != "ptr":
        return name, parameter["value"]
    pool = parameter["pool"]
    if pool is None:
        return name, "null"
    if pool.startswith("HOST:"):
        key, place = pool.split(":")[1:]
        return name, f"@{write_array(pool, lambda: make_routing(key)[int(place)])}"
    if ":i32:" in pool:
        count = parameter["bytes"] // _WORD_BYTES
        return name, f"@{write_array(f'{pool}:{count}', lambda: make_random_words(pool, count))}"
    return name, "ptr"


# ---- contents of buffers that decide control flow or addresses ---------------------------------------


def write_array(name: str, make: Callable[[], NDArray[np.int32]]) -> Path:
    """Write an array as `.npy` unless it is there, and return its path."""
    path = CODE / "arrays" / f"{name.replace(':', '_')}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, make())
    return path


def make_random_words(pool: str, count: int) -> NDArray[np.int32]:
    """Return what the collector's kernel `fill` writes into a pool of integers, `NAME:i32:low:high`."""
    low, high = map(int, pool.split(":")[2:])
    index = np.arange(count, dtype=np.uint64)
    x = index * np.uint64(2654435761) + np.uint64(zlib.crc32(pool.encode()))
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x ^= x >> np.uint64(33)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(33)
    words = x.astype(np.uint32) % np.uint32(high - low)
    return (words.astype(np.int64) + low).astype(np.int32)


def make_routing(key: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the fused-MoE routing that the collector used.

    key: `moe_T_E_topk_BM` (T tokens to topk of E experts each, at random) or `bal_…` (in turn).
    Returns token slots sorted by expert, each expert's padded to multiples of BM with T topk; and the expert
    of each block of BM slots.
    """
    kind, *sizes = key.split("_")
    tokens, experts, topk, block = map(int, sizes)
    slots = tokens * topk
    if kind == "moe":
        rng = np.random.default_rng(sum(map(ord, f"{tokens}_{experts}_{topk}")))
        picked = np.stack([rng.permutation(experts)[:topk] for _ in range(tokens)]).reshape(-1)
    else:
        picked = np.arange(slots) % experts
    ids: list[NDArray[np.int64]] = []
    owners: list[int] = []
    for expert in range(experts):
        own = np.nonzero(picked == expert)[0]
        if len(own):
            padded = -(-len(own) // block) * block
            ids.append(np.concatenate([own, np.full(padded - len(own), slots)]))
            owners += [expert] * (padded // block)
    return np.concatenate(ids).astype(np.int32), np.array(owners, np.int32)
