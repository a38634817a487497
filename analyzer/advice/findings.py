"""Find the rules that apply to a launch, and what following each of them gains.

Each rule looks for its sites, which is cheap. For rules with sites the model is asked once more, with the
input that the rule makes of the launch's own: so the advice on a kernel costs one run of the model for each
rule that applies, and none where none does.
"""

from collections.abc import Callable, Sequence

from analyzer.advice.interface import Edit, Finding, Rule, Site, list_rows
from analyzer.advice.registry import load_rules
from analyzer.models.interface import Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import find_model

ProgressListener = Callable[[str], None]

_GAIN_DECIMALS = (
    3  # findings whose gains differ by less are sorted by name, so that any machine gives one order
)


def find_advice(
    result: ModelResult, rule_names: Sequence[str] = (), listener: ProgressListener | None = None
) -> tuple[Finding, ...]:
    """Return the findings of some rules, of all where none is named, the largest gain first.

    result: of the launch as it is; its model is asked again.
    listener: is told each question before the model is asked.
    Raises UsageError for an unknown rule.
    """
    findings = []
    for rule in load_rules(rule_names or None):
        sites = rule.find_sites(result)
        if not sites:
            continue
        edit = rule.remove_cause(result, sites)
        if edit is None:
            continue
        if listener is not None:
            listener(f"advice: {result.prediction.model} without {rule.name}")
        findings.append(_make_finding(rule, result, sites, edit))
    return tuple(sorted(findings, key=lambda found: (-round(found.gain_cycles, _GAIN_DECIMALS), found.rule)))


def _make_finding(rule: Rule, result: ModelResult, sites: tuple[Site, ...], edit: Edit) -> Finding:
    before = result.prediction.cycles
    gain = max(0.0, before - _predict_cycles(result, edit))
    basis = f"{result.prediction.model} asked again without the cause"
    return Finding(
        rule=rule.name,
        message=sites[0].message,
        action=rule.action,
        row=sites[0].row,
        other_rows=list_rows(sites[1:]),
        gain_cycles=gain,
        gain_share=gain / before if before else 0.0,
        gain_basis=f"{basis}; {edit.note}" if edit.note else basis,
    )


def _predict_cycles(result: ModelResult, edit: Edit) -> float:
    """Predict the cycles of the edited launch."""
    prediction = find_model(result.prediction.model)(edit.model_input).prediction
    launch = prediction.cpi_stack.get(Stall.LAUNCH, 0.0)
    return launch + (prediction.cycles - launch) * edit.work_scale
