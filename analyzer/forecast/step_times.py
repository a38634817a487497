"""Times of the operators of one step, and of the whole step, on one GPU of a tensor-parallel group.

Kernels of a step run one after the other. Each takes the longer of its tensor time and its byte time, plus
the part of the shorter that is not hidden, plus a floor; the framework's own time is added once per step.

    product:    ((2 m n k / rate)^p + (bytes / stream)^p)^(1 / p) + floor
    decode:     KV bytes / stream, or the padded query rows of FlashAttention-3 on the tensor cores, + floor
    transfers:  see `collective_times`

Example: a decode step of 16 requests with weights of 28 GB on a memory that streams 1600 GB/s takes at least
17.5 ms, because every weight is read once whatever the batch is.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil, exp, sqrt
from typing import NamedTuple

from msgspec import Struct

from analyzer.forecast.collective_times import time_transfer
from analyzer.forecast.data_types import count_weight_bytes
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
_ROW_BYTES = 2.0  # of an activation
# Types whose activations a kernel of its own makes of 16 bits.
_ROUNDED_TYPES = frozenset({DataType.FP8, DataType.FP8_BLOCK, DataType.INT8, DataType.NVFP4})
_KEPT_CALLS = 1 << 14
_KEPT_TIMERS = 64
_INTERVAL_SIGMAS = 1.2816  # 80 % of a normal distribution lie within
_DECODE_QUERIES = 8  # up to so many new tokens, a request streams its cache as a decode does


class OperatorTime(NamedTuple):
    """Time of all launches of one operator in a step."""

    name: str
    us: float
    basis: Basis


class StepTime(Struct, frozen=True):
    """Time of a step; the operators, `host` among them, sum to the total.

    80 % of measured times are expected between total_us * exp(-width) and total_us * exp(width).
    """

    total_us: float
    by_operator: tuple[OperatorTime, ...]
    width: float = 0.0

    @property
    def interval_us(self) -> tuple[float, float]:
        """Ends of the 80 % interval."""
        return spread_interval(self.total_us, self.width)


class CallTime(NamedTuple):
    """Time of one launch, us, by what it rests on; the parts sum to the time."""

    tensor: float = 0.0
    weights: float = 0.0
    cache: float = 0.0
    rows: float = 0.0
    experts: float = 0.0
    transfer: float = 0.0
    floors: float = 0.0


def time_step(step: Step, rates: ServingRates) -> StepTime:
    """Return the time of a step; pipeline stages follow each other, so their operators are all in `calls`."""
    return _find_timer(rates).time(step)


class _KeptCall(NamedTuple):
    """All launches of a call that comes again in other steps."""

    name: str
    basis: Basis
    us: float
    parts: tuple[tuple[int, float], ...]  # place in a `CallTime` and us, where there are any


class _StepTimer:
    """Timer of the steps at one set of rates; keeps calls, because those of decode steps repeat."""

    __slots__ = ("_kept", "_rates")

    def __init__(self, rates: ServingRates) -> None:
        self._rates = rates
        self._kept: dict[OperatorCall, _KeptCall] = {}

    def time(self, step: Step) -> StepTime:
        times: dict[str, OperatorTime] = {}
        sums = [0.0] * len(CallTime._fields)
        kernels_us, launches = 0.0, 0
        for call in step.calls:
            launches += call.count
            name, basis, us, parts = self._time_launches(call)
            kernels_us += us
            for place, part_us in parts:
                sums[place] += part_us
            known = times.get(name)
            times[name] = OperatorTime(name, us if known is None else known.us + us, basis)
        host = _time_host(step.phase, kernels_us, launches, self._rates)
        total_us = kernels_us + host.us
        width = _compute_width(sums, host.us, total_us, self._rates)
        return StepTime(total_us, (*times.values(), host), width)

    def _time_launches(self, call: OperatorCall) -> _KeptCall:
        if isinstance(call, AttentionCall):  # its lengths differ in every step
            return self._sum_launches(call)
        kept = self._kept.get(call)
        if kept is None:
            if len(self._kept) >= _KEPT_CALLS:
                self._kept.clear()
            kept = self._kept[call] = self._sum_launches(call)
        return kept

    def _sum_launches(self, call: OperatorCall) -> _KeptCall:
        parts = time_call(call, self._rates)
        places = tuple((place, call.count * part) for place, part in enumerate(parts) if part)
        return _KeptCall(*_identify(call, self._rates), call.count * sum(parts), places)


@lru_cache(maxsize=_KEPT_TIMERS)
def _find_timer(rates: ServingRates) -> _StepTimer:
    return _StepTimer(rates)


def _compute_width(parts: Sequence[float], host_us: float, total_us: float, rates: ServingRates) -> float:
    """Return the width of the 80 % interval: the parts err independently, each by its spread."""
    if total_us <= 0:
        return 0.0
    *spreads, host = rates.spreads
    squares = sum((part * spread) ** 2 for part, spread in zip(parts, spreads, strict=True))
    return _INTERVAL_SIGMAS * sqrt(squares + (host_us * host) ** 2) / total_us


def spread_interval(time: float, width: float) -> tuple[float, float]:
    """Return the ends of the interval of a time, in its unit."""
    return time * exp(-width), time * exp(width)


def combine_widths(times: Iterable[tuple[float, float]]) -> float:
    """Return the width of a sum of (time, width) that err together, as steps of one run do."""
    total = spread = 0.0
    for time, width in times:
        total += time
        spread += time * width
    return spread / total if total else 0.0


def _identify(call: OperatorCall, rates: ServingRates) -> tuple[str, Basis]:
    basis = Basis.CALIBRATED
    if isinstance(call, ProductCall):
        basis = rates.tensor_basis
    elif isinstance(call, CollectiveCall):
        basis = time_transfer(call.kind, call.message_bytes, call.gpus, rates.link).basis
    return name_call(call), basis


def name_call(call: OperatorCall) -> str:
    """Return the name of a call's operator, as steps and reports have it."""
    if isinstance(call, ProductCall | NormCall | ElementwiseCall):
        return call.name
    if isinstance(call, CollectiveCall):
        return call.kind.value
    return _CLASS_NAMES[type(call)]


_CLASS_NAMES: Mapping[type, str] = {
    AttentionCall: "attention",
    ActivationCall: "silu_and_mul",
    MoeCall: "moe",
}


def _time_host(phase: Phase, kernels_us: float, launches: int, rates: ServingRates) -> OperatorTime:
    """Return the framework's own time: a constant in CUDA graphs, else launches that kernels do not hide."""
    if phase is Phase.DECODE:
        return OperatorTime("host", rates.decode_host_us, Basis.CALIBRATED)
    exposed_us = max(0.0, launches * rates.launch_us - kernels_us)
    return OperatorTime("host", rates.prefill_host_us + exposed_us, Basis.ASSUMED)


def time_call(call: OperatorCall, rates: ServingRates) -> CallTime:
    """Return the time of one launch of a call."""
    match call:
        case ProductCall():
            return time_product(call.m, ceil(call.n / call.n_shards), call.k, call.dtype, rates)
        case NormCall():
            tensors = 4.0 if call.adds_residual else 2.0  # input and residual, or input; read and written
            return _time_rows(_ROW_BYTES * tensors * call.rows * call.dim, rates)
        case ActivationCall():  # reads both halves and writes one
            return _time_rows(_ROW_BYTES * 1.5 * call.rows * call.dim, rates)
        case ElementwiseCall():
            return _time_rows(call.bytes_moved, rates)
        case AttentionCall():
            return _time_attention(call, rates)
        case MoeCall():
            return _time_moe(call, rates)
        case CollectiveCall():
            return CallTime(transfer=time_transfer(call.kind, call.message_bytes, call.gpus, rates.link).us)


def time_product(m: int, n: int, k: int, dtype: DataType, rates: ServingRates) -> CallTime:
    """Return the time of a product [m, k] by weights [k, n], with the rounding of narrow activations."""
    is_scaled = dtype is DataType.FP8_BLOCK
    padded = _round_up(m, rates.scaled_row_padding if is_scaled else rates.product_row_padding)
    tensor_us = 2.0 * padded * n * k / (select_tflops(rates, dtype) * _FLOPS_PER_US)
    step = rates.row_step if m > _ROWS_OF_STEP else 1.0
    weights = n * k * count_weight_bytes(dtype) * step
    others = m * k * dtype.activation_bytes + m * n * dtype.output_bytes
    byte_us = (weights + others) / (rates.weight_share * rates.bandwidth_gbps * _BYTES_PER_US)
    joined = _join(tensor_us, byte_us, rates.sharpness, rates.product_floor_us)
    if dtype not in _ROUNDED_TYPES:
        return joined
    rounding = _time_rows(m * k * (_ROW_BYTES + dtype.activation_bytes), rates)
    return joined._replace(rows=rounding.rows, floors=joined.floors + rounding.floors)


def _join(tensor_us: float, byte_us: float, sharpness: float, floor_us: float) -> CallTime:
    """Return the time of work on both: the longer, and what is not hidden of the shorter.

    The time is shared between the two as the derivatives of its logarithm are.
    """
    longer = max(tensor_us, byte_us)
    if longer <= 0.0:
        return CallTime(floors=floor_us)
    tensor, byte = (tensor_us / longer) ** sharpness, (byte_us / longer) ** sharpness
    us = longer * (tensor + byte) ** (1.0 / sharpness)
    return CallTime(
        tensor=us * tensor / (tensor + byte), weights=us * byte / (tensor + byte), floors=floor_us
    )


def _round_up(value: float, unit: float) -> float:
    return ceil(value / unit) * unit


def _time_rows(bytes_moved: float, rates: ServingRates) -> CallTime:
    """Return the time of a kernel that streams bytes; the floor is its time where there are few."""
    return CallTime(
        rows=bytes_moved / (rates.row_share * rates.bandwidth_gbps * _BYTES_PER_US),
        floors=rates.small_kernel_us,
    )


def _time_attention(call: AttentionCall, rates: ServingRates) -> CallTime:
    """Return the time of one layer's attention: requests that prefill, then those that decode."""
    pairs, decoding, streamed = _count_work(call)
    tensor_us = 0.0
    if pairs:
        flops = 2.0 * (call.head_dim + (call.value_dim or call.head_dim)) * call.heads * pairs
        tensor_us = flops / (rates.prefill_attention_share * rates.tensor_tflops * _FLOPS_PER_US)
        tensor_us += call.heads * pairs / rates.exponentials_per_us
    cache_us = _time_decode_attention(call, decoding, streamed, rates) if streamed else 0.0
    floor_us = rates.attention_floor_us + (rates.latent_attention_us if _is_latent(call) else 0.0)
    return CallTime(tensor=tensor_us, cache=cache_us, floors=floor_us)


def _count_work(call: AttentionCall) -> tuple[float, int, int]:
    """Return pairs of query and key of requests that prefill, requests that decode, and their keys."""
    queries, keys, window = call.query_lengths, call.kv_lengths, call.window
    if not window and max(queries, default=0) <= _DECODE_QUERIES:
        return 0.0, len(keys), sum(keys)
    pairs, decoding, streamed = 0.0, 0, 0
    for query, kv in zip(queries, keys, strict=True):
        if query <= _DECODE_QUERIES:
            decoding += 1
            streamed += min(kv, window) if window else kv
        else:
            pairs += count_pairs(query, kv, window)
    return pairs, decoding, streamed


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


def _is_latent(call: AttentionCall) -> bool:
    return call.implementation.startswith("mla")


def _time_decode_attention(call: AttentionCall, requests: int, keys: int, rates: ServingRates) -> float:
    """Return the time to stream the cache of all decoding requests, or to multiply it by padded query rows.

    A tile of query rows holds the heads that share a KV head; the rest of its rows is computed for nothing.
    FlashAttention-3 has tiles of 128 rows: on a GPU with a low tensor rate, H20, that is what limits.
    """
    value_dim = call.value_dim or call.head_dim
    is_latent = _is_latent(call)
    # of MLA the values are part of the keys, and all heads share them
    row = call.head_dim if is_latent else call.kv_heads * (call.head_dim + value_dim)
    stream = rates.cache_share * rates.bandwidth_gbps * _BYTES_PER_US
    byte_us = keys * row * rates.cache_element_bytes / stream
    groups = 1 if is_latent else call.kv_heads
    unit = rates.padded_rows_fa3 if _is_fa3(call) else rates.padded_rows
    rows = groups * _round_up(max(1.0, call.heads / groups), unit)
    flops = 2.0 * (call.head_dim + value_dim) * rows * keys
    tensor_us = flops / (rates.decode_attention_share_fa3 * rates.tensor_tflops * _FLOPS_PER_US)
    return max(byte_us, tensor_us, requests * groups * rates.attention_tile_us)


def _time_moe(call: MoeCall, rates: ServingRates) -> CallTime:
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
    moved = rows * (2.0 * call.hidden + 3.0 * call.intermediate) * _ROW_BYTES
    bytes_all = touched * width * count_weight_bytes(call.dtype) + moved
    byte_us = bytes_all / (rates.moe_weight_share * rates.bandwidth_gbps * _BYTES_PER_US)
    joined = _join(tensor_us, byte_us, rates.moe_sharpness, rates.moe_floor_us)
    return CallTime(experts=sum(joined))
