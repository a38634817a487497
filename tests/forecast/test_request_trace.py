"""Traces of requests, and one error with line and caret for each fault."""

import pytest

from analyzer.forecast.request_trace import Request, make_equal_requests, read_request_trace
from analyzer.text.errors import InputError, UsageError


def write(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_columns_of_the_runs_and_of_vidur(tmp_path):
    runs = read_request_trace(
        write(tmp_path, "num_prefill_tokens,num_decode_tokens,output_tokens\n5,6,7\n8,9,7\n")
    )
    assert runs.requests == (Request(5, 7), Request(8, 7))
    assert not runs.has_arrivals
    vidur = read_request_trace(write(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,5,6\n"))
    assert vidur.requests == (Request(5, 6, 0.5),)
    assert vidur.output_column == "num_decode_tokens"
    assert vidur.has_arrivals


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("", "the table is empty", None),
        ("num_prefill_tokens,output_tokens\n", "no requests", None),
        ("num_prefill_tokens,x\n1,2\n", "no column output_tokens", (1, 1)),
        ("output_tokens\n1\n", "no column num_prefill_tokens", (1, 1)),
        ("num_prefill_tokens,output_tokens\n5,6\n-4,5\n", "'-4' is no number of tokens", (3, 1)),
        ("num_prefill_tokens,output_tokens\n5,0\n", "'0' is no number of tokens", (2, 3)),
        ("num_prefill_tokens,output_tokens\n5,x\n", "'x' is no number of tokens", (2, 3)),
        ("num_prefill_tokens,output_tokens\n5\n", "'' is no number of tokens", (2, 1)),
        ("num_prefill_tokens,output_tokens\n5,1e3\n", "'1e3' is no number of tokens", (2, 3)),
        ("num_prefill_tokens,output_tokens\n5,99999999999\n", "'99999999999' is no number", (2, 3)),
        ("num_prefill_tokens,output_tokens\n5," + "9" * 5000 + "\n", "is no number|999", (2, 3)),
        ("num_prefill_tokens,output_tokens\n٣,4\n", "is no number of tokens", (2, 1)),
        ("num_prefill_tokens,output_tokens,arrival_s\n5,6,nan\n", "'nan' is no time", (2, 5)),
        ("num_prefill_tokens,output_tokens,arrival_s\n5,6,-1\n", "'-1' is no time", (2, 5)),
    ],
)
def test_faults(tmp_path, text, message, place):
    with pytest.raises(InputError, match=message) as raised:
        read_request_trace(write(tmp_path, text))
    assert raised.value.diagnostic.hint
    location = raised.value.diagnostic.location
    assert place == (location and (location.line, location.column))


def test_too_many_rows_are_refused(tmp_path):
    with pytest.raises(InputError, match="100,001 requests"):
        read_request_trace(write(tmp_path, "num_prefill_tokens,output_tokens\n" + "1,1\n" * 100_001))


def test_equal_requests():
    assert make_equal_requests(2, 10, 3).requests == (Request(10, 3), Request(10, 3))
    for sizes in ((0, 1, 1), (1, -1, 1), (1, 1, 10**9)):
        with pytest.raises(UsageError, match="out of range"):
            make_equal_requests(*sizes)
