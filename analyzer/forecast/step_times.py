"""Times of the operators of one step, and of the whole step, on one GPU of a tensor-parallel group.

Kernels of a step run one after the other. Each takes the longer of its tensor time and its byte time, plus
the part of the shorter that is not hidden, plus a floor; the framework's own time is added once per step.

    product:    ((2 m n k / rate)^p + (bytes / stream)^p)^(1 / p) + floor
    decode:     KV bytes / stream, or the padded query rows of FlashAttention-3 on the tensor cores, + floor
    all-reduce: bytes * 2 (n - 1) / n / link + latency

Example: a decode step of 16 requests with weights of 28 GB on a memory that streams 1600 GB/s takes at least
17.5 ms, because every weight is read once whatever the batch is.
"""

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from msgspec import Struct

from analyzer.forecast.group_transfers import compute_collective_us
from analyzer.forecast.operator_calls import (
    ActivationCall,
    AttentionCall,
    CollectiveCall,
    ElementwiseCall,
    MoeCall,
    NormCall,
    OperatorCall,
    Phase,
    ProductCall,
    Step,
)
from analyzer.forecast.serving_rates import ServingRates, select_tflops
from analyzer.ir.scheduling import Basis
from analyzer.operators.names import DataType

_FLOPS_PER_US = 1e6  # of one TF
_BYTES_PER_US = 1e3  # of one GB/s
_ROWS_OF_STEP = 16  # products of more rows take other kernels, which stream a little slower
# Scales beside narrow weights, bytes per element.
_SCALE_BYTES = {DataType.FP8_BLOCK: 4.0 / 128**2, DataType.NVFP4: 1.0 / 16, DataType.INT4_WEIGHTS: 2.0 / 128}
_CACHE_ENTRIES = 1 << 14
_DECODE_QUERIES = 8  # up to so many new tokens, a request streams its cache as a decode does


class OperatorTime(NamedTuple):
    """Time of all launches of one operator in a step."""

    name: str
    us: float
    basis: Basis


class StepTime(Struct, frozen=True):
    """Time of a step; the operators, `host` among them, sum to the total."""

    total_us: float
    by_operator: tuple[OperatorTime, ...]


def time_step(step: Step, rates: ServingRates) -> StepTime:
    """Return the time of a step; pipeline stages follow each other, so their operators are all in `calls`."""
    times: dict[str, OperatorTime] = {}
    launches = 0
    total_us = 0.0
    for call in step.calls:
        name, basis = _identify(call, rates)
        us = call.count * time_call(call, rates)
        total_us += us
        launches += call.count
        known = times.get(name)
        times[name] = OperatorTime(name, us if known is None else known.us + us, basis)
    host = _time_host(step.phase, total_us, launches, rates)
    return StepTime(total_us + host.us, (*times.values(), host))


def _identify(call: OperatorCall, rates: ServingRates) -> tuple[str, Basis]:
    match call:
        case ProductCall():
            return call.name, rates.tensor_basis
        case AttentionCall():
            return "attention", Basis.CALIBRATED
        case NormCall() | ElementwiseCall():
            return call.name, Basis.CALIBRATED
        case ActivationCall():
            return "silu_and_mul", Basis.CALIBRATED
        case MoeCall():
            return "moe", Basis.CALIBRATED
        case CollectiveCall():
            return call.kind.value, Basis.CALIBRATED


def _time_host(phase: Phase, kernels_us: float, launches: int, rates: ServingRates) -> OperatorTime:
    """Return the framework's own time: a constant in CUDA graphs, else launches that kernels do not hide."""
    if phase is Phase.DECODE:
        return OperatorTime("host", rates.decode_host_us, Basis.CALIBRATED)
    exposed_us = max(0.0, launches * rates.launch_us - kernels_us)
    return OperatorTime("host", rates.prefill_host_us + exposed_us, Basis.ASSUMED)


def time_call(call: OperatorCall, rates: ServingRates) -> float:
    """Return the time of one launch of a call, us."""
    if isinstance(call, AttentionCall):  # lengths change with every step: nothing to keep
        return _time_attention(call, rates)
    return _time_constant_call(call, rates)


@lru_cache(maxsize=_CACHE_ENTRIES)
def _time_constant_call(call: OperatorCall, rates: ServingRates) -> float:
    match call:
        case ProductCall():
            return time_product(call.m, ceil(call.n / call.n_shards), call.k, call.dtype, rates)
        case NormCall():
            return _time_norm(call, rates)
        case ActivationCall():
            return _time_rows(3.0 * call.rows * call.dim, rates)  # 16-bit: reads both halves, writes one
        case ElementwiseCall():
            return _time_rows(call.bytes_moved, rates)
        case MoeCall():
            return _time_moe(call, rates)
        case CollectiveCall():
            return compute_collective_us(call, rates)
        case _:
            raise AssertionError(call)


def time_product(m: int, n: int, k: int, dtype: DataType, rates: ServingRates) -> float:
    """Return the time of a product [m, k] by weights [k, n], us."""
    padded = _round_up(m, rates.product_row_padding)
    tensor_us = 2.0 * padded * n * k / (select_tflops(rates, dtype) * _FLOPS_PER_US)
    step = rates.row_step if m > _ROWS_OF_STEP else 1.0
    weights = n * k * _weight_bytes(dtype) * step
    others = m * k * dtype.activation_bytes + m * n * dtype.output_bytes
    byte_us = (weights + others) / (rates.weight_share * rates.bandwidth_gbps * _BYTES_PER_US)
    return _join(tensor_us, byte_us, rates) + rates.product_floor_us


def _join(tensor_us: float, byte_us: float, rates: ServingRates) -> float:
    """Return the time of work on both: the longer, and what is not hidden of the shorter."""
    low, high = (tensor_us, byte_us) if tensor_us < byte_us else (byte_us, tensor_us)
    return high * (1.0 + (low / high) ** rates.sharpness) ** (1.0 / rates.sharpness) if high else 0.0


def _weight_bytes(dtype: DataType) -> float:
    return dtype.weight_bytes + _SCALE_BYTES.get(dtype, 0.0)


def _round_up(value: float, unit: float) -> float:
    return ceil(value / unit) * unit


def _time_norm(call: NormCall, rates: ServingRates) -> float:
    tensors = 4.0 if call.adds_residual else 2.0  # input and residual read and written, or input and output
    return _time_rows(2.0 * tensors * call.rows * call.dim, rates)


def _time_rows(bytes_moved: float, rates: ServingRates) -> float:
    """Return the time of a kernel that streams bytes; the floor is its time where there are few."""
    return rates.small_kernel_us + bytes_moved / (rates.row_share * rates.bandwidth_gbps * _BYTES_PER_US)


def _time_attention(call: AttentionCall, rates: ServingRates) -> float:
    """Return the time of one layer's attention: requests that prefill, then those that decode."""
    value_dim = call.value_dim or call.head_dim
    pairs = 0.0
    streamed = 0
    for queries, keys in zip(call.query_lengths, call.kv_lengths, strict=True):
        seen = min(keys, call.window) if call.window else keys
        if queries <= _DECODE_QUERIES:
            streamed += seen
        else:
            pairs += count_pairs(queries, keys, call.window)
    us = rates.attention_floor_us
    if pairs:
        flops = 2.0 * (call.head_dim + value_dim) * call.heads * pairs
        share = rates.prefill_attention_share_fa3 if _is_fa3(call) else rates.prefill_attention_share
        us += flops / (share * rates.tensor_tflops * _FLOPS_PER_US)
    if streamed:
        us += _time_decode_attention(call, streamed, rates)
    return us


def count_pairs(queries: int, keys: int, window: int = 0) -> float:
    """Return the pairs of query and key that causal attention computes; the queries are the last tokens.

    window: keys that a query sees, 0 for all.
    """
    first = keys - queries + 1  # keys that the first query sees
    if not window or keys <= window:
        return queries * (first + keys) / 2.0
    growing = max(0, window - first)  # queries that see fewer keys than the window
    return growing * (first + first + growing - 1) / 2.0 + (queries - growing) * float(window)


def _is_fa3(call: AttentionCall) -> bool:
    return call.implementation.startswith("fa3")


def _time_decode_attention(call: AttentionCall, keys: int, rates: ServingRates) -> float:
    """Return the time to stream the cache of all decoding requests, or to multiply it by padded query rows.

    A tile of query rows holds the heads that share a KV head; the rest of its rows is computed for nothing.
    FlashAttention-3 has tiles of 128 rows: on a GPU with a low tensor rate, H20, that is what limits.
    """
    value_dim = call.value_dim or call.head_dim
    is_latent = call.implementation.startswith("mla")
    # of MLA the values are part of the keys, and all heads share them
    row = call.head_dim if is_latent else call.kv_heads * (call.head_dim + value_dim)
    byte_us = (
        keys * row * rates.cache_element_bytes / (rates.cache_share * rates.bandwidth_gbps * _BYTES_PER_US)
    )
    groups = 1 if is_latent else call.kv_heads
    is_fa3 = _is_fa3(call)
    unit = rates.padded_rows_fa3 if is_fa3 else rates.padded_rows
    rows = groups * _round_up(max(1.0, call.heads / groups), unit)
    flops = 2.0 * (call.head_dim + value_dim) * rows * keys
    tensor_us = flops / (rates.decode_attention_share_fa3 * rates.tensor_tflops * _FLOPS_PER_US)
    return max(byte_us, tensor_us)


def _time_moe(call: MoeCall, rates: ServingRates) -> float:
    """Return the time of routing and both products: the weights of experts that got a token are read once.

    Tokens are spread evenly at random, so of E experts E (1 - (1 - topk / E)^tokens) are met.
    """
    rows = call.tokens * call.topk * call.share_of_routed
    chance = min(1.0, rows / max(1.0, float(call.tokens)) / call.experts)
    touched = call.experts * (1.0 - (1.0 - chance) ** call.tokens)
    padded = touched * _round_up(max(1.0, rows / max(touched, 1e-9)), rates.moe_row_padding)
    width = 3.0 * call.hidden * call.intermediate  # of gate, up and down
    rate = rates.moe_tensor_share * select_tflops(rates, call.dtype)
    tensor_us = 2.0 * padded * width / (rate * _FLOPS_PER_US)
    moved = rows * (2.0 * call.hidden * 2.0 + 3.0 * call.intermediate * 2.0)
    bytes_all = touched * width * _weight_bytes(call.dtype) + moved
    byte_us = bytes_all / (rates.moe_weight_share * rates.bandwidth_gbps * _BYTES_PER_US)
    return _join(tensor_us, byte_us, rates) + rates.moe_floor_us
