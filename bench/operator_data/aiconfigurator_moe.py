"""Load NVIDIA's aiconfigurator rows of whole mixtures of experts: both products and what is around them.

Times are intervals of CUDA graph replays, so a working set below the L2 stays in it. Taken are rows with
balanced routing and without expert parallelism: a prediction names neither, and with expert parallelism the
kernels also walk the rows of experts that other GPUs hold. Of a data type one kernel source teaches, so that
one set of weights describes one kernel; of other backends it is the one that most rows of a GPU's newest
version ran.

Models whose time lies below what reading all busy experts at the datasheet's bandwidth takes are left out on
that GPU: they have no gate (one product less before the activation: hidden 2688, topk 22 in SGLang 0.5.14) or
route to half of the experts (DeepSeek's groups in FP8).
"""

import re
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import MoeBatch
from analyzer.operators.families.moe import FAMILY
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import Backend, DataType, MoeProduct, Operator
from operator_data.gpu_keys import AICONFIGURATOR
from operator_data.pipeweave_moe import make_shape_keys

DATASET = "aiconfigurator moe"
# name of the data type in the table, and the kernel source that teaches
SOURCES = {
    DataType.BF16: ("bfloat16", "sglang_fused_moe_triton"),
    DataType.FP8_BLOCK: ("fp8_block", "sglang_fused_moe_triton"),
    DataType.FP8: ("fp8", "moe_torch_flow_cutlass"),
    DataType.NVFP4: ("nvfp4", "sglang_flashinfer_trtllm_moe"),
    DataType.INT4_WEIGHTS: ("int4_wo", "sglang_marlin_moe"),
}
_VERSIONS = ("0.5.14", "1.3.0rc20", "0.5.10")  # newest first; of each GPU one teaches
# no gate, another gate, and one that takes five times what reading all weights does, whatever the tokens
_LEFT_OUT = "nongated|situ_as_silu|modeloptfp8moe_flashinfer_cutlass"
_MOST_RATIO = 100.0  # beyond it something stood still: 128 experts of hidden 2816 in FP8 on an L40S
_LEAST_RATIO = 0.9  # of the time that DRAM's datasheet allows
_MANY_TOKENS = 512.0
_STREAMING_FOOTPRINT = 4.0  # bytes over the L2, from which weights come from DRAM


def load_teaching(data: Path) -> list[MeasuredBatch]:
    """Return the rows of all data types, of the usual backend and of others."""
    usual = [batch for dtype in SOURCES for batch in load(data, dtype)]
    others = [
        batch
        for backend in (Backend.TRTLLM, Backend.VLLM)
        for dtype in SOURCES
        for batch in load_other_backend(data, backend, dtype)
    ]
    return usual + others


def load_other_backend(data: Path, backend: Backend, dtype: DataType) -> list[MeasuredBatch]:
    """Return the rows of a backend that is not the usual one of a data type, a batch per GPU."""
    table = _read(data, SOURCES[dtype][0], pc.field("fw") == backend.value)
    result = []
    for system, gpu in AICONFIGURATOR.items():
        rows = _choose_usual(table.filter(pc.equal(table["gpu"].cast(pa.string()), system)))
        if rows.num_rows:
            measured = _make_measured(rows, gpu, dtype)
            batch = msgspec.structs.replace(measured.batch, backend=backend)
            if FAMILY.find_backend(batch) is not backend:
                result.append(_drop_other_models(msgspec.structs.replace(measured, batch=batch)))
    return result


def _choose_usual(rows: pa.Table) -> pa.Table:
    """Return the rows of the newest version and of its most frequent kernel with a gate of SiLU."""
    sources = rows["kernel_source"].cast(pa.string())
    rows = rows.filter(pc.invert(pc.match_substring_regex(sources, _LEFT_OUT)))
    if not rows.num_rows:
        return rows
    versions = rows["ver"].cast(pa.string())
    newest = max(set(versions.to_pylist()), key=lambda text: [int(n) for n in re.findall(r"\d+", text)])
    rows = rows.filter(pc.equal(versions, newest))
    sources = rows["kernel_source"].cast(pa.string())
    return rows.filter(pc.equal(sources, Counter(sources.to_pylist()).most_common(1)[0][0]))


def _read(data: Path, dtype: str, where: pc.Expression) -> pa.Table:
    balanced = (pc.field("distribution") == "balanced") & (pc.field("moe_ep_size") == 1)
    filters = (pc.field("moe_dtype") == dtype) & balanced & where
    return pq.read_table(data / "aiconfigurator" / "moe_perf.parquet", filters=filters)


def load(data: Path, dtype: DataType) -> list[MeasuredBatch]:
    """Return the rows of a data type under `data` (the folder `shared/data`), a batch per GPU."""
    name, source = SOURCES[dtype]
    table = _read(data, name, pc.field("kernel_source") == source)
    result = []
    for system, gpu in AICONFIGURATOR.items():
        rows = table.filter(pc.equal(table["gpu"].cast(pa.string()), system))
        if rows.num_rows:
            result.append(_drop_other_models(_make_measured(_pick_version(rows), gpu, dtype)))
    return result


def _pick_version(rows: pa.Table) -> pa.Table:
    versions = rows["ver"].cast(pa.string())
    found = set(pc.unique(versions).to_pylist())
    return rows.filter(pc.equal(versions, next(version for version in _VERSIONS if version in found)))


def _make_measured(rows: pa.Table, gpu: str, dtype: DataType) -> MeasuredBatch:
    names = ("num_tokens", "num_experts", "topk", "hidden_size", "inter_size", "moe_tp_size", "latency")
    m, experts, topk, hidden, intermediate, tensor_parallel, latency_ms = (
        rows[name].to_numpy().astype(np.float64) for name in names
    )
    batch = MoeBatch(
        Operator.MOE, dtype, MoeProduct.BOTH, m, experts, topk, hidden, intermediate / tensor_parallel
    )
    return MeasuredBatch(DATASET, gpu, batch, latency_ms * 1e3, make_shape_keys(batch), Timing.INTERVAL)


def _drop_other_models(measured: MeasuredBatch) -> MeasuredBatch:
    """Return the rows of models whose every streaming row takes as long as reading all busy experts must."""
    batch = measured.batch
    assert isinstance(batch, MoeBatch)
    hardware = read_operator_hardware(load_gpu(measured.gpu))
    busy = np.minimum(batch.experts, batch.m * batch.topk)
    weights = busy * 3.0 * batch.hidden * batch.intermediate * batch.dtype.weight_bytes
    ratio = measured.time_us / (weights / (hardware.dram_gbps * 1e3))
    impossible = (weights > _STREAMING_FOOTPRINT * hardware.l2_bytes) & (ratio < _LEAST_RATIO)
    models = _number_models(batch)
    flops = 6.0 * batch.m * batch.topk * batch.hidden * batch.intermediate
    math_us = flops / (hardware.find_peak_tflops(batch.dtype) * 1e6)
    stuck = (batch.m >= _MANY_TOKENS) & (np.minimum(ratio, measured.time_us / math_us) > _MOST_RATIO)
    return measured.select(np.flatnonzero(~np.isin(models, models[impossible | stuck])))


def _number_models(batch: MoeBatch) -> NDArray[np.int64]:
    columns = np.stack([batch.experts, batch.topk, batch.hidden], axis=1)
    return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)
