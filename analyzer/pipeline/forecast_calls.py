"""Calls of a step as entries of a report: sizes, launches, time of one launch and what it rests on."""

from analyzer.forecast.operator_calls import (
    ActivationCall,
    AttentionCall,
    CollectiveCall,
    ElementwiseCall,
    LatentAttentionCall,
    MoeCall,
    NormCall,
    OperatorCall,
    ProductCall,
    Step,
)
from analyzer.forecast.serving_rates import ServingRates
from analyzer.forecast.step_times import describe_call, name_call, time_call
from analyzer.report.forecast_schema import ForecastCallEntry


def make_call_entries(step: Step, rates: ServingRates) -> tuple[ForecastCallEntry, ...]:
    """Return one entry for each call of a step, in the order in which a layer makes them."""
    return tuple(_make_entry(call, step.phase.value, rates) for call in step.calls)


def _make_entry(call: OperatorCall, phase: str, rates: ServingRates) -> ForecastCallEntry:
    time = time_call(call, rates)
    low_us, high_us, basis = describe_call(call, time, rates)
    parts = {name: part for name, part in zip(time._fields, time, strict=True) if part}
    time_us = sum(time)
    return ForecastCallEntry(
        phase=phase,
        operator=name_call(call),
        sizes=_list_sizes(call),
        count=call.count,
        time_us=time_us,
        time_us_low=low_us,
        time_us_high=high_us,
        basis=basis,
        total_ms=call.count * time_us / 1e3,
        bound=max(parts, key=lambda name: parts[name]) if parts else "",
        parts_us=parts,
    )


def _list_sizes(call: OperatorCall) -> dict[str, float]:
    """Return what decides the time of a call, by name."""
    match call:
        case ProductCall():
            return {"m": call.m, "n": call.local_n, "k": call.k}
        case AttentionCall():
            return {
                "requests": len(call.query_lengths),
                "q_tokens": sum(call.query_lengths),
                "kv_tokens": sum(call.kv_lengths),
                "heads": call.heads,
                "kv_heads": call.kv_heads,
                "head_dim": call.head_dim,
                **({"window": call.window} if call.window else {}),
            }
        case LatentAttentionCall():
            return {
                "requests": len(call.query_lengths),
                "q_tokens": sum(call.query_lengths),
                "kv_tokens": sum(call.kv_lengths),
                "heads": call.heads,
                "latent_dim": call.latent_dim,
                "rope_dim": call.rope_dim,
                "expanded_dim": call.expanded_dim,
            }
        case NormCall() | ActivationCall():
            return {"rows": call.rows, "dim": call.dim}
        case MoeCall():
            return {
                "m": call.tokens,
                "experts": call.experts,
                "topk": call.topk,
                "hidden": call.hidden,
                "intermediate": call.intermediate,
            }
        case ElementwiseCall():
            return {"elements": call.elements, "inputs": 1}
        case CollectiveCall():
            return {"bytes": call.message_bytes, "gpus": call.gpus}
