"""Load aiconfigurator's rows of attention and MLA: kernels of serving frameworks, replayed in a graph.

Context rows are prefills without a prefix (q = kv = isl), generation rows decodes (q = 1, kv = isl + step) of
`batch_size` equal requests. Rows with a sliding window are left out, because an operator has none. `dtype` is
what the mathematics of a prefill uses; for a decode, whose mathematics the database always calls bfloat16, it
is the type of the KV cache. Times are intervals of launches replayed in a CUDA graph.
"""

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import AttentionBatch, Column, MlaBatch, RaggedLengths
from analyzer.operators.families.attention import choose_kernel, includes_cache_write
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import AttentionKind, Backend, DataType, Operator
from operator_data.gpu_keys import AICONFIGURATOR

# TensorRT-LLM covers every GPU, most layouts, and repeats best from version to version (1.5 to 6 %).
FRAMEWORK = "trtllm"
NEWEST = {"a100_sxm": "1.0.0"}
NEWEST_OTHERWISE = "1.3.0rc20"
MLA_NEWEST = {"a100_sxm": "1.0.0", "l40s": "1.0.0"}
DATA_TYPES = {DataType.BF16: "bfloat16", DataType.FP8: "fp8"}
LATENT_DIM, ROPE_DIM, EXPANDED_DIM = 512.0, 64.0, 128.0
# SGLang's shortest prefill on H100 takes 10 us between launches, FlashInfer's shortest kernel on H800 less
# than 6: the kernels that write the cache take the difference (assumed to be the same for all rows).
CACHE_WRITE_US = 4.0
LAUNCH_GAP_US = 1.0  # between kernels that a graph replays (assumed)


def load_attention(data: Path, dtype: DataType, *, seed: int = 0, limit: int = 0) -> list[MeasuredBatch]:
    """Return prefills and decodes of TensorRT-LLM as `generic` attention, a batch per GPU.

    data: the folder `aiconfigurator`; limit: as many rows of each GPU and phase at most, 0 for all.
    A shape key is one head layout (heads, KV heads, head_dim).
    """
    name = DATA_TYPES[dtype]
    context = _read(data / "context_attention_perf.parquet")
    context = _where(context, attn_dtype=name, kv_cache_dtype=name)
    context = context.filter(pc.greater(context["isl"], 1))  # an only token is no prefill
    generation = _read(data / "generation_attention_perf.parquet")
    generation = _where(generation, kv_cache_dtype=name)
    batches = []
    for gpu, key in AICONFIGURATOR.items():
        version = NEWEST.get(gpu, NEWEST_OTHERWISE)
        parts = [_sample(_choose(table, gpu, version), seed, limit) for table in (context, generation)]
        table = pa.concat_tables(parts)
        if table.num_rows:
            batches.append(_make_attention(key, dtype, AttentionKind.GENERIC, table))
    return batches


def load_named_kernels(
    data: Path, dtype: DataType = DataType.BF16, *, seed: int = 0, limit: int = 0
) -> list[MeasuredBatch]:
    """Return SGLang's rows of the named kinds: FlashInfer on L40S, FlashAttention-3 on H100.

    dtype: of the cache. Kept are rows of at least four query heads per KV head: FlashInfer's decode computes
    them on tensor cores, and the cache that a prefill also writes is small beside the attention. Of
    FlashAttention-3's prefills only those of 512 tokens and more are kept, less CACHE_WRITE_US. Times are
    made kernel durations, as SynPerf's rows have them, by taking off LAUNCH_GAP_US.
    """
    name = DATA_TYPES[dtype]
    context, generation = (
        _where(_read(data / f"{phase}_attention_perf.parquet"), fw="sglang", kv_cache_dtype=name)
        for phase in ("context", "generation")
    )
    fa2 = [
        _keep_grouped(_where(table, gpu="l40s", kernel_source="flashinfer"))
        for table in (context, generation)
    ]
    context = _where(context.filter(pc.greater_equal(context["isl"], 512)), attn_dtype=name)
    fa3 = [
        _keep_grouped(_where(table, gpu="h100_sxm", kernel_source="fa3")) for table in (context, generation)
    ]
    ada = pa.concat_tables([_sample(table, seed, limit) for table in fa2])
    prefills, decodes = (_sample(table, seed, limit) for table in fa3)
    kinds = (
        ("l40s", AttentionKind.FA2_PAGED, ada, LAUNCH_GAP_US),
        ("h100-sxm", AttentionKind.FA3_PAGED, prefills, LAUNCH_GAP_US + CACHE_WRITE_US),
        ("h100-sxm", AttentionKind.FA3_PAGED, decodes, LAUNCH_GAP_US),
    )
    found = []
    for gpu, kind, table, other_us in kinds:
        part = _make_attention(gpu, dtype, kind, table)
        found.append(msgspec.structs.replace(part, time_us=part.time_us - other_us, timing=Timing.KERNEL))
    return found


def load_framework(data: Path, backend: Backend, dtype: DataType, *, limit: int = 0) -> list[MeasuredBatch]:
    """Return prefills and decodes of SGLang or vLLM by the kernels that they take, a batch per GPU.

    data: the folder `aiconfigurator`; dtype: of the cache. Kept are rows of a GPU's newest version and of the
    kernels that most of them ran, prefills of a narrow cache by narrow mathematics where there are any.
    SGLang's own FA2 and FA3 are `load_named_kernels`.
    """
    name = DATA_TYPES[dtype]
    tables = [
        _where(_read(data / f"{phase}_attention_perf.parquet"), fw=backend.value, kv_cache_dtype=name)
        for phase in ("context", "generation")
    ]
    tables[0] = tables[0].filter(pc.greater(tables[0]["isl"], 1))
    batches = []
    for gpu, key in AICONFIGURATOR.items():
        kind = choose_kernel(read_operator_hardware(load_gpu(key)))
        table = pa.concat_tables(_sample(_choose_usual(_where(table, gpu=gpu)), 0, limit) for table in tables)
        if table.num_rows and includes_cache_write(kind, backend):
            found = _make_attention(key, dtype, kind, table)
            batch = msgspec.structs.replace(found.batch, backend=backend)
            batches.append(msgspec.structs.replace(found, batch=batch))
    return batches


def _choose_usual(table: pa.Table) -> pa.Table:
    """Return the rows of the newest version, of its most frequent kernel and narrowest mathematics."""
    if not table.num_rows:
        return table
    newest = max(set(table["ver"].to_pylist()), key=lambda text: [int(part) for part in text.split(".")])
    table = _where(table, ver=newest)
    table = _where(table, kernel_source=Counter(table["kernel_source"].to_pylist()).most_common(1)[0][0])
    narrow = _where(table, attn_dtype="fp8")
    return narrow if narrow.num_rows else table


def compare_sources(data: Path) -> list[tuple[str, ...]]:
    """Return how bf16 times of other frameworks and versions compare with those that teach, on equal rows.

    A row: GPU, phase, framework and version, equal rows, median, 10th and 90th percentile of the ratio.
    """
    found = []
    for phase in ("context", "generation"):
        table = _where(_read(data / f"{phase}_attention_perf.parquet"), kv_cache_dtype="bfloat16")
        table = _where(table, attn_dtype="bfloat16")
        for gpu in AICONFIGURATOR:
            of_gpu = _where(table, gpu=gpu)
            taught = _index_times(_choose(of_gpu, gpu, NEWEST.get(gpu, NEWEST_OTHERWISE)))
            sources = sorted(set(zip(of_gpu["fw"].to_pylist(), of_gpu["ver"].to_pylist(), strict=True)))
            for framework, version in sources:
                times = _index_times(_where(of_gpu, fw=framework, ver=version))
                ratios = [time_us / taught[key] for key, time_us in times.items() if key in taught]
                if ratios:
                    cells = (f"{value:.2f}" for value in np.quantile(ratios, (0.5, 0.1, 0.9)))
                    found.append((gpu, phase, f"{framework} {version}", str(len(ratios)), *cells))
    return found


def _index_times(table: pa.Table) -> dict[tuple[int, ...], float]:
    """Return latencies by batch, lengths and heads."""
    names = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim")
    keys = zip(*(table[name].to_pylist() for name in names), strict=True)
    return dict(zip(keys, table["latency"].to_pylist(), strict=True))


def _keep_grouped(table: pa.Table) -> pa.Table:
    """Return rows of at least four query heads per KV head, and head dimensions that SynPerf measured."""
    grouped = pc.greater_equal(table["num_heads"], pc.multiply(table["num_key_value_heads"], 4))
    return table.filter(pc.and_(grouped, pc.less_equal(table["head_dim"], 128)))


def load_mla(data: Path, *, seed: int = 0, limit: int = 0) -> list[MeasuredBatch]:
    """Return TensorRT-LLM's MLA rows, context and generation, bf16 with a bf16 cache, a batch per GPU.

    A shape key is one head count.
    """
    tables = [_read(data / f"{name}.parquet") for name in ("context_mla_perf", "generation_mla_perf")]
    batches = []
    for gpu, key in AICONFIGURATOR.items():
        version = MLA_NEWEST.get(gpu, NEWEST_OTHERWISE)
        parts = []
        for table in tables:
            rows = _choose(table, gpu, version)
            parts.append(_sample(_where(rows, kv_cache_dtype="bfloat16"), seed, limit))
        table = pa.concat_tables(parts, promote_options="permissive")
        if table.num_rows:
            batches.append(_make_mla(key, table))
    return batches


def _read(path: Path) -> pa.Table:
    """Return a table without rows of a sliding window."""
    table = pq.read_table(path)
    if "window_size" not in table.column_names:
        return table
    return table.filter(pc.fill_null(pc.equal(table["window_size"], 0.0), fill_value=True))


def _choose(table: pa.Table, gpu: str, version: str) -> pa.Table:
    return _where(table, gpu=gpu, fw=FRAMEWORK, ver=version)


def _where(table: pa.Table, **values: str) -> pa.Table:
    """Return the rows whose columns have these values."""
    for name, value in values.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def _sample(table: pa.Table, seed: int, limit: int) -> pa.Table:
    if not limit or table.num_rows <= limit:
        return table
    rows = np.random.default_rng(seed).choice(table.num_rows, limit, replace=False)
    return table.take(np.sort(rows))


def _make_attention(gpu: str, dtype: DataType, kind: AttentionKind, table: pa.Table) -> MeasuredBatch:
    heads, kv_heads, head_dim = (
        _column(table, name) for name in ("num_heads", "num_key_value_heads", "head_dim")
    )
    q_lengths, kv_lengths = _repeat_lengths(table)
    return MeasuredBatch(
        dataset="aiconfigurator",
        gpu=gpu,
        batch=AttentionBatch(
            operator=Operator.ATTENTION,
            dtype=dtype,
            kind=kind,
            q_lengths=q_lengths,
            kv_lengths=kv_lengths,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
        ),
        time_us=_column(table, "latency") * 1e3,
        shape_keys=(heads * 1e6 + kv_heads * 1e3 + head_dim).astype(np.int64),
        timing=Timing.INTERVAL,
    )


def _make_mla(gpu: str, table: pa.Table) -> MeasuredBatch:
    heads = _column(table, "num_heads")
    q_lengths, kv_lengths = _repeat_lengths(table)
    return MeasuredBatch(
        dataset="aiconfigurator",
        gpu=gpu,
        batch=MlaBatch(
            operator=Operator.MLA,
            dtype=DataType.BF16,
            q_lengths=q_lengths,
            kv_lengths=kv_lengths,
            heads=heads,
            latent_dim=np.full(len(heads), LATENT_DIM),
            rope_dim=np.full(len(heads), ROPE_DIM),
            expanded_dim=np.full(len(heads), EXPANDED_DIM),
        ),
        time_us=_column(table, "latency") * 1e3,
        shape_keys=heads.astype(np.int64),
        timing=Timing.INTERVAL,
    )


def _repeat_lengths(table: pa.Table) -> tuple[RaggedLengths, RaggedLengths]:
    """Return query and KV lengths of `batch_size` equal requests per row."""
    counts = _column(table, "batch_size").astype(np.int64)
    isl, step = _column(table, "isl"), _column(table, "step")
    is_decode = np.array(["generation" in name for name in table["op_name"].to_pylist()])
    q = np.where(is_decode, 1.0, isl)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return RaggedLengths(np.repeat(q, counts), offsets), RaggedLengths(np.repeat(isl + step, counts), offsets)


def _column(table: pa.Table, name: str) -> Column:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)
