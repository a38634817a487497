"""The analytic time of attention: what its CTAs compute, load and wait for, and how evenly they fill the SMs.

The reference of rows of attention or MLA, from the plan of their CTAs (`attention_plan`):

    total = launch + ((busy^b + chain^b)^(p/b) + dram^p + l2^p)^(1/p) + merge + append

busy: all KV-tile steps over all SMs. A step costs its two products at boost plus a softmax whose exponentials
it does not hide; power lets it be no faster than products at a share of what large ones sustain
(`sustained_rates`). chain: the longest task, which starts at once or, where there is more than a wave, late
(`tail_share`); power does not limit few tasks, but nothing hides a lone task's latencies. dram: queries,
keys, values and outputs once, less what stays in the L2 between launches. l2: the keys that every query tile
loads again. merge: the kernel that adds up split keys. append: the kernels that write new keys and values
into the cache before a framework's prefill.

Example: one decode of 126 keys for two heads is a chain of two steps: a launch and twice a step's latency.
"""

from enum import StrEnum

import numpy as np
from msgspec import Struct

from analyzer.operators.attention_plan import CTAS_PER_SM, KV_TILE, AttentionPlan, Requests
from analyzer.operators.batches import Column
from analyzer.operators.family import FittedParameter, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType

LATE_WAVES = 0.25  # of a wave beyond the first, from which the last tasks start late
_POWER_SHARPNESS = 4.0
_USUAL_FLOPS_PER_PAIR = 512.0  # of a head dimension of 128
WHOLE_CACHE_SHARE = 0.98  # of an undivided L2 that holds a working set (SGLang's decodes on L40S up to 96 MB)


class MatrixInstruction(StrEnum):
    """Which matrix instructions a kernel is written with."""

    WARP = "warp"  # mma.sync on every architecture
    WIDEST = "widest"  # wgmma on Hopper, tcgen05 on Blackwell


class AttentionWork(Struct, frozen=True):
    """The rows of a batch as the terms see them."""

    requests: Requests
    plan: AttentionPlan
    dtype: DataType
    instruction: MatrixInstruction
    heads: Column
    kv_heads: Column
    flops_per_pair: Column  # of one query-key pair of one head, both products
    key_bytes: Column  # of one key and its value, of one KV head
    query_bytes: Column  # of one query and its output, of one head
    appends: Column  # 1 where kernels before the attention write the new keys into the cache
    issue_share: Column  # of a task's fixed issue; 1 but for a framework's decodes of one head per task
    slow_steps: Column  # 1 where a task loads each tile of 128 elements only once the last one is done
    step_share: Column  # of the rate of products, that a step reaches, softmax included; 1: not known
    is_cold: bool  # the L2 has nothing of the keys and values


class AttentionTerms(ReferenceTerms, frozen=True, kw_only=True):
    """The analytic time of each row, with the plan of its CTAs."""

    work: AttentionWork


PARAMETERS = (
    FittedParameter("launch_cycles", 6000.0, 2000.0, 30000.0),
    FittedParameter("task_cycles", 4000.0, 1000.0, 8000.0),  # before and after a task's first and last step
    # cycles of its SM that each task occupies beside its steps, at 128 elements of a head:
    FittedParameter("issue_cycles", 4500.0, 500.0, 20000.0),  # tiles of 128 rows
    FittedParameter("packed_issue_cycles", 4500.0, 500.0, 16000.0),  # packed tiles of 16 or 64 rows
    FittedParameter("tensor_memory_issue_cycles", 4500.0, 500.0, 16000.0),  # the same, by tcgen05
    # latency of a step:
    FittedParameter("small_step_cycles", 1000.0, 300.0, 3000.0),  # of 16 rows
    FittedParameter("wide_step_cycles", 100.0, 20.0, 1500.0),  # of 64 rows and more
    FittedParameter("slow_step_cycles", 6000.0, 500.0, 20000.0),  # on top, without prefetch
    FittedParameter("lone_factor", 1.7, 0.6, 2.2),  # a lone task's step over its share of a full SM's
    FittedParameter("tail_share", 0.35, 0.0, 0.7),  # of the longest task, for which SMs wait at the end
    FittedParameter("balance_exponent", 5.0, 2.0, 8.0),
    FittedParameter("overlap_exponent", 2.2, 1.2, 5.0),
    FittedParameter("tensor_share", 0.95, 0.5, 1.0),
    FittedParameter("sustained_share", 1.0, 0.7, 1.3),  # of what large products sustain under power
    FittedParameter("softmax_factor", 0.7, 0.2, 3.0),
    FittedParameter("dram_share", 0.83, 0.7, 0.97),
    FittedParameter("l2_share", 0.9, 0.4, 1.3),
    # of an L2 in two halves, that holds a working set from launch to launch
    FittedParameter("cache_share", 0.75, 0.5, 1.1),
    FittedParameter("cache_sharpness", 10.0, 2.0, 16.0),
    FittedParameter("merge_cycles", 5500.0, 1000.0, 12000.0),
    FittedParameter("merge_chunk_cycles", 30.0, 2.0, 100.0),
    FittedParameter("merge_row_cycles", 150.0, 10.0, 400.0),  # of its SM, for each partial row
    FittedParameter("append_cycles", 4000.0, 200.0, 20000.0),
    FittedParameter("append_passes", 1.5, 0.2, 6.0),  # over the new queries, keys and values
)
TERM_NAMES = ("launch", "busy", "chain", "dram", "l2", "merge", "append")


def compute_reference(
    work: AttentionWork, hardware: OperatorHardware, parameters: Parameters
) -> AttentionTerms:
    """Return the analytic time of each row, in microseconds."""
    plan, requests = work.plan, work.requests
    us_per_cycle = 1.0 / hardware.boost_mhz
    busy, powered, chain = _compute_math_us(work, hardware, parameters)
    unique = _sum_unique_bytes(work)
    missed = 1.0 if work.is_cold else _find_missed_share(unique, hardware, parameters)
    dram = unique * missed / (hardware.dram_gbps * 1e3 * parameters["dram_share"])
    queries = requests.sum_rows(requests.q) * work.heads * work.query_bytes
    partial = (
        2.0 * plan.partial_rows * work.query_bytes
    )  # float32 rows of half a query's and output's elements
    l2_gbps = hardware.l2_gbps * parameters["l2_share"]
    l2 = (plan.loaded_keys * work.key_bytes + queries + partial) / (l2_gbps * 1e3)
    merges = plan.partial_rows > 0.0
    merge_cycles = (
        parameters["merge_cycles"]
        + parameters["merge_chunk_cycles"] * plan.chunks
        + parameters["merge_row_cycles"] * plan.partial_rows / hardware.sm_count
    )
    merge = np.where(merges, merge_cycles * us_per_cycle, 0.0)
    append = _compute_append_us(work, hardware, parameters)
    launch = np.full(len(work.heads), parameters["launch_cycles"] * us_per_cycle)
    p, b = parameters["overlap_exponent"], parameters["balance_exponent"]
    late = np.clip((plan.tasks / (CTAS_PER_SM * hardware.sm_count) - 1.0) / LATE_WAVES, 0.0, 1.0)
    even = busy + parameters["tail_share"] * late * chain
    math = (even**b + chain**b) ** (1.0 / b)
    core = (math**p + dram**p + l2**p) ** (1.0 / p)
    total = launch + core + merge + append
    return AttentionTerms(
        work=work,
        names=TERM_NAMES,
        terms_us=np.stack([launch, busy, chain, dram, l2, merge, append], axis=1),
        total_us=total,
        sm_share=powered / even * (even / math) ** b * (math / core) ** p * core / total,
        flops=plan.pairs * work.flops_per_pair,
        dram_bytes=unique,
    )


def _find_missed_share(unique: Column, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return which share of the bytes the L2 does not keep from launch to launch."""
    cache_share = parameters["cache_share"] if hardware.l2_partitions > 1.0 else WHOLE_CACHE_SHARE
    kept = hardware.l2_bytes * cache_share
    return 1.0 / (1.0 + (kept / unique) ** parameters["cache_sharpness"])


def _find_products_rate(work: AttentionWork, hardware: OperatorHardware, parameters: Parameters) -> float:
    """Return the rate of matrix products at boost in FLOP per microsecond, as power does not limit it."""
    share = hardware.attention_mma_share if work.instruction is MatrixInstruction.WARP else 1.0
    return hardware.find_peak_tflops(work.dtype) * 1e6 * share * parameters["tensor_share"]


def _compute_math_us(
    work: AttentionWork, hardware: OperatorHardware, parameters: Parameters
) -> tuple[Column, Column, Column]:
    """Return the time of all steps over all SMs, the part of it that power decides, and the longest task's.

    The part that power decides: of the time, d log(time) / d log(sustained rate of large products).
    """
    plan = work.plan
    pairs = plan.tile_q * KV_TILE
    exponentials = pairs / hardware.exponentials_per_cycle * parameters["softmax_factor"]
    softmax = np.where(work.step_share < 1.0, 0.0, exponentials)
    all_sm_cycles = pairs * work.flops_per_pair * hardware.sm_count * hardware.boost_mhz / work.step_share
    free = all_sm_cycles / _find_products_rate(work, hardware, parameters) + softmax
    limit = parameters["sustained_share"] * hardware.sustained.find(work.dtype) * 1e6
    step = (free**_POWER_SHARPNESS + (all_sm_cycles / limit) ** _POWER_SHARPNESS) ** (1.0 / _POWER_SHARPNESS)
    latency = np.where(plan.tile_q <= 16.0, parameters["small_step_cycles"], parameters["wide_step_cycles"])
    issue = _find_issue_cycles(work, hardware, parameters)
    latency = latency + work.slow_steps * parameters["slow_step_cycles"]
    busy = (plan.steps * step + plan.tasks * issue) / hardware.sm_count
    powered = plan.steps * step * (all_sm_cycles / limit / step) ** _POWER_SHARPNESS / hardware.sm_count
    chain = plan.longest_steps * (free * parameters["lone_factor"] + latency) + parameters["task_cycles"]
    us_per_cycle = 1.0 / hardware.boost_mhz
    return busy * us_per_cycle, powered * us_per_cycle, chain * us_per_cycle


def _find_issue_cycles(work: AttentionWork, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the cycles of its SM that each task takes beside its steps, at its beginning and end."""
    uses_tensor_memory = work.instruction is MatrixInstruction.WIDEST and hardware.has_tensor_memory
    packed = parameters["tensor_memory_issue_cycles" if uses_tensor_memory else "packed_issue_cycles"]
    tile_share = np.where(work.appends > 0.0, (work.plan.tile_q / 128.0) ** 1.5, 1.0)
    is_packed = (work.plan.tile_q <= 64.0) & (work.appends == 0.0)
    cycles = np.where(is_packed, packed, parameters["issue_cycles"] * tile_share)
    dimension_share = 0.5 + 0.5 * work.flops_per_pair / _USUAL_FLOPS_PER_PAIR
    return np.asarray(cycles * work.issue_share * dimension_share)


def _sum_unique_bytes(work: AttentionWork) -> Column:
    """Return the bytes of queries, keys, values and outputs, each once."""
    requests = work.requests
    keys = requests.sum_rows(requests.kv) * work.kv_heads * work.key_bytes
    return keys + requests.sum_rows(requests.q) * work.heads * work.query_bytes


def _compute_append_us(work: AttentionWork, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the time of the kernels that write the new keys, 0 where there are none."""
    requests = work.requests
    new = requests.sum_rows(requests.q) * (
        work.heads * work.query_bytes / 2.0 + work.kv_heads * work.key_bytes
    )
    moved = 2.0 * parameters["append_passes"] * new
    missed = moved / (moved + hardware.l2_bytes)
    rate = missed / hardware.dram_gbps + (1.0 - missed) / hardware.l2_gbps
    return work.appends * (parameters["append_cycles"] / hardware.boost_mhz + moved * rate * 1e-3)
