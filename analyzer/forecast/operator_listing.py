"""The operators of a step as lists that users of serving frameworks collect, and as PipeWeave's files hold.

    {"gemm": [{"name", "type", "M", "N", "K", "count"}, ...],
     "attention": {"attention_type", "bs", "q_lengths", "kv_lengths", "nh", "nkv", "hd", "count"},
     "rmsnorm": {"seq", "dim", "count"}, "siluandmul": {"seq", "dim", "count"},
     "communication": [{"name", "type", "volume_bytes", "count"}, ...]}

Conventions of those files, which are not what runs:

- Attention of decode steps is called fa2_paged on every GPU, although both frameworks run FlashAttention-3 on
  Hopper; `AttentionCall.kind` says what runs.
- The product with the vocabulary has the whole vocabulary as N, although tensor-parallel GPUs divide it.
- Norms of single heads (Qwen3's q and k norms) are either left out (`HeadNorms.LEFT_OUT`: 2 L + 1 norms for L
  layers) or counted as norms of full width, which they are far from (`HeadNorms.AS_FULL_WIDTH`: 4 L + 1).
  Of PipeWeave's files, those of the workloads arxiv_16 and splitwise_64 count them, arxiv_12 and splitwise_48
  leave them out: two versions of its collector.
- Operators at the ends (embedding, gather of logits, sampling), rotary embedding and KV write are left out.

Added for models beyond those files: "moe", with the sizes of each mixture of experts, and
"attention_windowed", for layers that see a window of keys.
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, TypeVar

from analyzer.forecast.operator_calls import (
    ActivationCall,
    AttentionCall,
    CollectiveCall,
    CollectiveKind,
    ElementwiseCall,
    LatentAttentionCall,
    MoeCall,
    NormCall,
    OperatorCall,
    Phase,
    ProductCall,
    Step,
)

_FULL_WIDTH_NORM = "rmsnorm"
_HEAD_NORMS = ("q_norm", "k_norm")
_LISTED_DECODE_KIND = "fa2_paged"
_LATENT_KIND, _LISTED_EXPANDED_KIND = "mla", "mla_expanded"
_CallT = TypeVar("_CallT", bound=OperatorCall)


class HeadNorms(Enum):
    """How a list counts the norms of single heads."""

    LEFT_OUT = auto()
    AS_FULL_WIDTH = auto()


def list_operators(step: Step, head_norms: HeadNorms = HeadNorms.LEFT_OUT) -> dict[str, Any]:
    """Return the operators of a step in the form of PipeWeave's files."""
    calls = _Calls(step.calls)
    listed: dict[str, Any] = {"gemm": [_list_product(call) for call in calls.find(ProductCall)]}
    for call in calls.find(AttentionCall):
        entry = _list_attention(call, step.phase)
        key = "attention_windowed" if call.window else "attention"
        listed[key if key not in listed else f"{key}_decode"] = entry
    for latent in calls.find(LatentAttentionCall):
        entry = _list_latent_attention(latent)
        listed["attention" if "attention" not in listed else f"attention_{_LATENT_KIND}"] = entry
    norms = _list_norms(calls.find(NormCall), head_norms)
    if norms is not None:
        listed["rmsnorm"] = norms
    # Of several widths (dense layers, shared experts) the lists have room for one: that of most layers.
    activations = calls.find(ActivationCall)
    if activations:
        most = max(activations, key=lambda call: call.count)
        listed["siluandmul"] = {"seq": most.rows, "dim": most.dim, "count": most.count}
    mixtures = calls.find(MoeCall)
    if mixtures:
        listed["moe"] = [_list_mixture(call) for call in mixtures]
    listed["communication"] = [_list_transfer(call) for call in calls.find(CollectiveCall) if call.is_listed]
    return listed


def list_unlisted_names(step: Step) -> list[str]:
    """Return the names of the calls that `list_operators` leaves out, each once, in order."""
    calls = _Calls(step.calls)
    names = [call.name for call in calls.find(ElementwiseCall) if not call.is_listed]
    names += [call.name for call in calls.find(NormCall) if call.name != _FULL_WIDTH_NORM]
    names += [call.kind.value for call in calls.find(CollectiveCall) if not call.is_listed]
    return list(dict.fromkeys(names))


class _Calls:
    """Calls of a step by their type."""

    __slots__ = ("_by_type",)

    def __init__(self, calls: Iterable[OperatorCall]) -> None:
        self._by_type: dict[type, list[Any]] = {}
        for call in calls:
            self._by_type.setdefault(type(call), []).append(call)

    def find(self, kind: type[_CallT]) -> list[_CallT]:
        """Return the calls of a type, in their order."""
        return self._by_type.get(kind, [])


def _list_product(call: ProductCall) -> dict[str, Any]:
    return {
        "name": call.name,
        "type": call.layer_type,
        "M": call.m,
        "N": call.n,
        "K": call.k,
        "count": call.count,
    }


def _list_attention(call: AttentionCall, phase: Phase) -> dict[str, Any]:
    entry = {
        "attention_type": _LISTED_DECODE_KIND if phase is Phase.DECODE else call.kind.value,
        "bs": len(call.query_lengths),
        "q_lengths": call.query_lengths,
        "kv_lengths": call.kv_lengths,
        "nh": call.heads,
        "nkv": call.kv_heads,
        "hd": call.head_dim,
        "count": call.count,
    }
    if call.window:
        entry["window"] = call.window
    return entry


def _list_latent_attention(call: LatentAttentionCall) -> dict[str, Any]:
    """Return attention on the latent keys, which are the values too, or on those expanded to heads."""
    is_decode = call.is_decode
    return {
        "attention_type": _LATENT_KIND if is_decode else _LISTED_EXPANDED_KIND,
        "bs": len(call.query_lengths),
        "q_lengths": call.query_lengths,
        "kv_lengths": call.kv_lengths,
        "nh": call.heads,
        "nkv": 1 if is_decode else call.heads,
        "hd": call.rope_dim + (call.latent_dim if is_decode else call.nope_dim),
        "count": call.count,
        "vd": call.latent_dim if is_decode else call.value_dim,
    }


def _list_norms(found: list[NormCall], head_norms: HeadNorms) -> dict[str, Any] | None:
    """Return the entry of the norms at full width, None if there are none."""
    full = [call for call in found if call.name == _FULL_WIDTH_NORM]
    if not full:
        return None
    count = sum(call.count for call in full)
    if head_norms is HeadNorms.AS_FULL_WIDTH:
        count += sum(call.count for call in found if call.name in _HEAD_NORMS)
    return {"seq": full[0].rows, "dim": full[0].dim, "count": count}


def _list_mixture(call: MoeCall) -> dict[str, Any]:
    return {
        "name": "fused_moe",
        "M": call.tokens,
        "E": call.experts,
        "topk": call.topk,
        "H": call.hidden,
        "N": call.intermediate,
        "count": call.count,
    }


def _list_transfer(call: CollectiveCall) -> dict[str, Any]:
    return {
        "name": call.kind.value,
        "type": "p2p" if call.kind is CollectiveKind.SEND_RECV else "collective",
        "volume_bytes": call.message_bytes,
        "count": call.count,
    }
