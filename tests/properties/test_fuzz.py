"""A short run of bench/fuzz.py: two cases of each kind of input, and what the bench itself must do."""

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import run_case
from fuzz_inputs import KINDS, Case, list_seeds, make_case
from paths import ROOT

SEED = 63


def test_no_case_of_any_kind_has_a_fault() -> None:
    command = [sys.executable, str(ROOT / "bench" / "fuzz.py"), "--jobs", "1", "--seed", str(SEED)]
    done = subprocess.run(
        [*command, "--count", str(2 * len(KINDS))], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout.count(" cases, past the parser ")) == (0, len(KINDS)), done.stdout
    past = int(done.stdout.rpartition(" cases, ")[2].partition("%")[0])
    assert past >= 50


@pytest.mark.parametrize("kind", KINDS)
def test_cases_are_the_same_each_time_and_most_keep_their_form(kind: str) -> None:
    cases = [make_case(kind, f"{SEED}:{number}") for number in range(8)]
    assert cases == [make_case(kind, f"{SEED}:{number}") for number in range(8)]
    first = {next(iter(seed)) for seed in list_seeds(kind)}
    assert all(next(iter(case.files)) in first for case in cases)
    assert sum(case.change == "form" for case in cases) >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_that_nothing_changed_get_past_their_parser(kind: str) -> None:
    outcomes = [run_case(make_case(kind, f"{SEED}:{number}", "none")) for number in range(4)]
    assert not any(outcome.faults for outcome in outcomes)
    assert sum(outcome.exit_code in (0, 1) for outcome in outcomes) >= 2


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["analyze", "k.sass", "-o", "k.sass"], None),  # an output in place of an input is refused
        (["analyze", "k.sass", "--format", "json"], None),
        (["analyze", "half.sass", "--format", "json"], "half of the code is gone, in silence"),
    ],
)
def test_the_bench_sees_what_it_looks_for(words: list[str], fault: str | None) -> None:
    whole = (ROOT / "tests/wild/11-snippets/total_90.sass").read_bytes()
    change = "half" if fault else "form"  # a whole kernel that is said to be half of one
    case = Case("cuobjdump", {words[1]: whole}, tuple(words), change)
    outcome = run_case(case)
    assert outcome.faults == ((fault,) if fault else ())
    assert Path("k.sass").exists() is False
