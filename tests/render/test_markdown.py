"""Markdown: tables that stay tables, folded details, and GitHub's limit kept."""

import re

import pytest
from finding_reports import (
    HOSTILE,
    make_check_report,
    make_diff_report,
    make_hostile_check_report,
    make_kernel_diff,
    make_tripped_report,
)
from hypothesis import given
from hypothesis import strategies as st
from paths import TRACES

import analyzer
from analyzer.render.markdown_text import escape_prose, shorten
from analyzer.render.registry import render_report
from analyzer.report.diff_schema import Verdict

LIMIT = 65_536
TAGS = {"<code>", "</code>", "<details>", "</details>", "<summary>", "</summary>"}


def test_of_check(golden) -> None:  # type: ignore[no-untyped-def]
    golden(render_report(make_tripped_report(), "markdown"))


def test_of_diff(golden) -> None:  # type: ignore[no-untyped-def]
    golden(render_report(make_diff_report(), "markdown"))


def test_of_analyze(golden, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(TRACES)
    report = analyzer.analyze("triton/sm_90/softmax.sass", ["h100", "h20", "a100"])
    golden(render_report(report, "markdown"))


def test_a_clean_check_says_so_in_two_lines() -> None:
    text = render_report(make_check_report(), "markdown")
    assert text.splitlines()[0] == "### warplens check: passed: 0 of 0 kernels as before"


def test_hostile_names_open_nothing() -> None:
    text = render_report(make_hostile_check_report(), "markdown")
    assert set(re.findall(r"<[^>]*>", text)) <= TAGS
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {9}
    assert "`x`" not in text
    assert "@octocat" not in text
    assert "www." not in text


@pytest.mark.parametrize("n", [1, 100, 3000])
def test_the_limit_is_kept_and_what_is_left_out_is_counted(n: int) -> None:
    text = render_report(make_hostile_check_report(n), "markdown")
    assert len(text) < LIMIT
    rows = text.count("| **regressed** |")
    details = text.count("<details>")
    assert text.count("</details>") == details
    left_out = [int(found.replace(",", "")) for found in re.findall(r"([\d,]+) more (?:rows|details)", text)]
    assert rows + details + sum(left_out) == 2 * n
    assert text.rstrip().endswith("Accept: <code>warplens check --update</code>")


def test_one_kernel_with_endless_evidence_does_not_hide_the_others() -> None:
    kernels = tuple(
        make_kernel_diff(f"k{i}", Verdict.SIGNIFICANT, 0.1, evidence=(HOSTILE * 30,) * 60) for i in range(9)
    )
    text = render_report(make_diff_report(kernels), "markdown")
    assert len(text) < LIMIT
    assert all(f"<code>k{i}</code>" in text for i in range(9))


LETTERS = st.sampled_from([*map(chr, range(32, 127)), *"\n\t\u2028éλw.", "www."])


@given(st.lists(LETTERS, max_size=200).map("".join))
def test_prose_has_no_markup_and_one_line(text: str) -> None:
    escaped = escape_prose(text)
    assert "\n" not in escaped
    assert not set(re.sub(r"&#\d+;", "", escaped)) & set("\\`*_{}[]<>#+!|~&$:@=")
    assert "www." not in escaped.lower()


@given(st.lists(LETTERS, max_size=300).map("".join), st.integers(10, 100))
def test_shortened_texts_keep_their_ends(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= limit
    head, _, tail = short.partition("…")
    assert text.startswith(head)
    assert text.endswith(tail)
