"""Load measured collectives: PipeWeave's (SynPerf's own) and NCCL's as NVIDIA's aiconfigurator measured it.

PipeWeave: durations of the NCCL kernel by the profiler, median of the repetitions, 2 KiB to 1 GiB in steps of
8 KiB and more. Below 1 MiB they scatter by a factor of two from one size to the next: a kernel waits for the
last GPU to arrive. aiconfigurator:
NCCL 2.27 and 2.29 in CUDA graphs, powers of two up to 512 MiB; all its systems teach what ships, four of them
(`JUDGING_SYSTEMS`) stay apart where they judge. Four and eight L40S reach 5 and 1.4 GB/s, which the source of
the facts calls the host's doing: they are left out.
"""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from analyzer.operators.batches import CollectiveBatch, Column
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, Operator
from operator_data.gpu_keys import AICONFIGURATOR, PIPEWEAVE

SYSTEM_KEYS = {
    **AICONFIGURATOR,
    "h200_sxm": "h200-sxm",
    "b300_sxm": "b300",
    "gb300": "gb300",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}
_MOST_GPUS = {"l40s": 2}  # beyond these the host's topology decides
JUDGING_SYSTEMS = frozenset({"h200_sxm", "b300_sxm", "gb300", "rtx_pro_6000_server"})


def load_teaching(data: Path, operator: Operator, *, with_judging: bool = True) -> list[MeasuredBatch]:
    """Return the rows that teach an operator: PipeWeave's, and NCCL's of GPUs that those lack.

    with_judging: also those of `JUDGING_SYSTEMS`, as for the weights that ship.
    """
    batches = load_pipeweave(data, operator)
    if operator is Operator.SEND_RECV:
        return batches
    measured = {batch.gpu for batch in batches}
    systems = load_nccl(data.parent / "facts")
    if with_judging:
        systems += load_nccl(data.parent / "facts", judging=True)
    return batches + [batch for batch in systems if batch.gpu not in measured]


def load_pipeweave(data: Path, operator: Operator) -> list[MeasuredBatch]:
    """Return PipeWeave's all-reduces or sends under `data` (the folder `shared/data`), a batch per GPU."""
    result = []
    for path in sorted((data / "pipeweave" / "collectives").glob(f"{operator}_*.parquet")):
        table = pq.read_table(path)
        message_bytes, gpus = (table[name].to_numpy().astype(np.float64) for name in ("bytes", "num_workers"))
        gpu = PIPEWEAVE[table["gpu"][0].as_py()]
        time_us = table["median_ms"].to_numpy() * 1e3
        result.append(
            _make("pipeweave collectives", gpu, operator, message_bytes, gpus, time_us, Timing.KERNEL)
        )
    return result


def load_nccl(facts: Path, *, judging: bool = False) -> list[MeasuredBatch]:
    """Return all-reduces of `nccl_measured.csv` under `facts`, a batch per system (judging ones or not)."""
    judges = {SYSTEM_KEYS[system] for system in JUDGING_SYSTEMS}
    return [batch for batch in load_nccl_rows(facts, "all_reduce") if (batch.gpu in judges) is judging]


def load_nccl_rows(facts: Path, name: str) -> list[MeasuredBatch]:
    """Return the rows of one collective of NCCL, a batch per system, as if they were all-reduces."""
    groups: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
    with (facts / "nccl_measured.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            system, gpus = row["system"], int(row["num_gpus"])
            if row["op"] == name and gpus <= _MOST_GPUS.get(system, gpus):
                groups[system].append((float(row["bytes"]), float(gpus), float(row["latency_us"])))
    result = []
    for system, rows in sorted(groups.items()):
        message_bytes, gpus_of_row, time_us = np.array(rows).T
        gpu = SYSTEM_KEYS[system]
        operator, timing = Operator.ALL_REDUCE, Timing.INTERVAL
        result.append(
            _make("aiconfigurator nccl", gpu, operator, message_bytes, gpus_of_row, time_us, timing)
        )
    return result


def _make(
    dataset: str,
    gpu: str,
    operator: Operator,
    message_bytes: Column,
    gpus: Column,
    time_us: Column,
    timing: Timing,
) -> MeasuredBatch:
    batch = CollectiveBatch(operator, DataType.BF16, message_bytes, gpus)
    return MeasuredBatch(dataset, gpu, batch, time_us, _make_keys(batch), timing)


def _make_keys(batch: CollectiveBatch) -> NDArray[np.int64]:
    """Return one key per number of GPUs and half octave of bytes: neighbours in size stay together."""
    half_octave = np.floor(2.0 * np.log2(batch.message_bytes)).astype(np.int64)
    return half_octave * 1000 + batch.gpus.astype(np.int64)
