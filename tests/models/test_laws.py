"""Laws of hardware that every model obeys: those of bench/laws.py, each kernel by one of the models.

`python bench/laws.py` tries every model on every launch of the table. Here every fourth launch is one of a
model of the papers, which take longest, and the others are those of our own.
"""

from functools import cache

import pytest
from laws import CHECKS, INTERVAL_MODELS, Law, LawCase, Subject, read_cases

from analyzer.models.registry import list_models

# Models whose simulation jumps where figures move a little: few of their cases are tried, and some fail.
ROUGH_MODELS = frozenset({"sm", "hybrid"})
ROUGH_CASES = frozenset({"ampere short add", "ampere saxpy", "ada product", "hopper in L2 add"})
BROKEN_LAWS = frozenset(("monotony", name) for name in ("ampere saxpy", "ada product", "hopper in L2 add"))
SLOW_CASES = frozenset(
    {
        "volta binomial",
        "volta sgemm_nt",
        "turing convolution",
        "ampere textures",
        "a4000 convolution",
        "hopper large tile",
        "hopper attention",
        "hopper persistent",
        "blackwell product",
        "blackwell report",
        "5090 histogram",
    }
)
CASES = [case for case in read_cases() if case.name not in SLOW_CASES]


def choose_cases(model: str) -> list[LawCase]:
    """Return the launches that a model is tried on."""
    if model in ROUGH_MODELS:
        return [case for case in CASES if case.name in ROUGH_CASES]
    paper = sorted(INTERVAL_MODELS)
    own = [name for name in list_models() if name not in ROUGH_MODELS | INTERVAL_MODELS]
    return [
        case
        for index, case in enumerate(CASES)
        if model == (paper[index // 4 % len(paper)] if index % 4 == 0 else own[index % len(own)])
    ]


@cache
def find_subject(case: LawCase, model: str) -> Subject:
    """Return a model and a launch, whose results all laws share."""
    return Subject(case, model)


def test_the_table_has_kernels_of_all_architectures() -> None:
    assert len(CASES) >= 30
    architectures = {case.dump.parent.name for case in CASES}
    assert architectures == {"sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}


@pytest.mark.parametrize(
    ("law", "model", "case"),
    [
        pytest.param(
            law,
            model,
            case,
            marks=[pytest.mark.xfail(strict=True)]
            if model in ROUGH_MODELS and (law.value, case.name) in BROKEN_LAWS
            else [],
            id=f"{law.value}-{model}-{case.name}",
        )
        for model in list_models()
        for case in choose_cases(model)
        for law in Law
    ],
)
def test_models_obey_the_laws(law: Law, model: str, case: LawCase) -> None:
    assert list(CHECKS[law](find_subject(case, model))) == []
