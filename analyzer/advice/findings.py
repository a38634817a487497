"""Find the rules that apply to a launch, and what following each of them gains.

Each rule looks for its sites, which is cheap. For rules with sites the model is asked once more, with the
input that the rule makes of the launch's own: so the advice on a kernel costs one run of the model for each
rule that applies, and none where none does. Where a rule knows that it can gain no more than 3 % of the
cycles, that limit stands for the gain, and the model is not asked.
"""

from collections.abc import Callable, Sequence

from analyzer.advice.interface import Edit, Finding, Rule, Site, list_rows
from analyzer.advice.registry import load_rules
from analyzer.execution.profile.provenance import Provenance
from analyzer.models.composition import LAUNCH_BOUND
from analyzer.models.interface import Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import find_model

ProgressListener = Callable[[str], None]

MIN_ASKED_GAIN_SHARE = 0.03  # the model is not asked for gains that cannot be larger

_GAIN_DECIMALS = (
    3  # findings whose gains differ by less are sorted by name, so that any machine gives one order
)


def find_advice(
    result: ModelResult, rule_names: Sequence[str] = (), listener: ProgressListener | None = None
) -> tuple[Finding, ...]:
    """Return the findings of some rules, of all where none is named, the largest gain first, guesses last.

    result: of the launch as it is; its model is asked again.
    listener: is told each question before the model is asked.
    Raises UsageError for an unknown rule.
    """
    findings = []
    for rule in load_rules(rule_names or None):
        sites = rule.find_sites(result)
        if not sites:
            continue
        if sites[0].max_gain_share < MIN_ASKED_GAIN_SHARE:
            findings.append(_make_limited_finding(rule, result, sites))
            continue
        edit = rule.remove_cause(result, sites)
        if edit is None:
            continue
        if listener is not None:
            listener(f"advice: {result.prediction.model} without {rule.name}")
        findings.append(_make_finding(rule, result, sites, edit))
    return tuple(
        sorted(
            findings,
            key=lambda found: (found.is_guess, -round(found.gain_cycles, _GAIN_DECIMALS), found.rule),
        )
    )


def _make_finding(rule: Rule, result: ModelResult, sites: tuple[Site, ...], edit: Edit) -> Finding:
    gain = max(0.0, result.prediction.cycles - _predict_cycles(result, edit))
    notes = [
        f"{result.prediction.model} predicts the launch without the cause",
        edit.note,
        _note_hit_rates(result, edit),
    ]
    basis = "; ".join(note for note in notes if note)
    return _compose_finding(rule, result, sites, gain, basis, edit)


def _make_limited_finding(rule: Rule, result: ModelResult, sites: tuple[Site, ...]) -> Finding:
    limit = sites[0].max_gain_share * result.prediction.cycles
    basis = f"an upper limit, for which {result.prediction.model} was not run again"
    return _compose_finding(rule, result, sites, limit, basis)


def _compose_finding(
    rule: Rule,
    result: ModelResult,
    sites: tuple[Site, ...],
    gain_cycles: float,
    basis: str,
    edit: Edit | None = None,
) -> Finding:
    """Compose a finding; edit: that the model was asked with, None where the gain is a limit."""
    before = result.prediction.cycles
    return Finding(
        rule=rule.name,
        message=sites[0].message,
        action=rule.action if edit is None else edit.action or rule.action,
        row=sites[0].row,
        other_rows=list_rows(sites[1:]),
        gain_cycles=gain_cycles,
        gain_share=gain_cycles / before if before else 0.0,
        gain_is_limit=edit is None,
        is_guess=_has_unknown_addresses(result, sites),
        gain_basis=basis,
    )


def _has_unknown_addresses(result: ModelResult, sites: tuple[Site, ...]) -> bool:
    """Return whether some sites are accesses whose lanes' addresses nobody knows."""
    profile, rows = result.model_input.profile, list_rows(sites)
    return profile is not None and any(
        access.row in rows and access.address_provenance is Provenance.UNKNOWN for access in profile.accesses
    )


def _note_hit_rates(result: ModelResult, edit: Edit) -> str:
    """Return a remark where an SM holds other numbers of CTAs, since hit rates stay as they are."""
    before, after = result.model_input, edit.model_input
    if before.cache_rates is None or before.occupancy.ctas_per_sm == after.occupancy.ctas_per_sm:
        return ""
    return f"hit rates as with {before.occupancy.ctas_per_sm} CTAs per SM"


def _predict_cycles(result: ModelResult, edit: Edit) -> float:
    """Predict the cycles of the edited launch."""
    prediction = find_model(result.prediction.model)(edit.model_input).prediction
    launch = prediction.cpi_stack.get(Stall.LAUNCH, 0.0)
    remaining = 0.0 if prediction.bound == LAUNCH_BOUND else edit.remaining_cycles
    return launch + (prediction.cycles - launch) * edit.work_scale + remaining
