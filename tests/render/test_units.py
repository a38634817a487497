"""Numbers as people read them."""

import pytest

from analyzer.render.number_format import (
    format_bytes,
    format_count,
    format_percent,
    format_provenance,
    format_ratio,
    format_waves,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3.5, "3.5"),
        (999, "999"),
        (999.6, "1.00k"),
        (1000, "1.00k"),
        (4194304, "4.19M"),
        (9996, "10.0k"),
        (99960, "100k"),
        (999_499, "999k"),
        (999_500, "1.00M"),
        (2e18, "2,000P"),
    ],
)
def test_counts_keep_three_digits(value: float, text: str) -> None:
    assert format_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (1 << 20, "1.00 MiB"), (1023 << 10, "1.00 MiB")],
)
def test_bytes_are_binary(value: float, text: str) -> None:
    assert format_bytes(value) == text


def test_shares_never_round_to_nothing_or_all() -> None:
    assert [format_percent(s) for s in (0.0, 1e-6, 0.125, 0.9999, 1.0)] == [
        "0%",
        "<1%",
        "12%",
        ">99%",
        "100%",
    ]


def test_ratios_have_no_empty_digits() -> None:
    assert [format_ratio(value) for value in (4, 3.5, 4.004, 10.0, 429681.2)] == [
        "4",
        "3.5",
        "4",
        "10",
        "429,681",
    ]


def test_marks() -> None:
    assert [format_provenance(name) for name in ("exact", "traced", "assumed", "unknown")] == [
        "",
        "",
        "~",
        "?",
    ]


def test_waves_show_that_they_are_no_whole_number() -> None:
    assert [format_waves(waves, None) for waves in (1.0, 3.88, 1057 / 1056, 2.5)] == [
        "1.00",
        "3.88",
        "1.0009",
        "2.50",
    ]
    assert format_waves(1057 / 1056, 0.47) == "1.0009 (tail 47 %)"
    assert format_waves(9.5, 0.004) == "9.50"
