"""Whatever is done to a dump, `analyze` reports or explains; it never fails in a way of its own."""

from pathlib import Path

import pytest
from fuzz_inputs import ODD_CODE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paths import TRACES

from analyzer.cli.app import run

DUMPS = [
    TRACES / "cuda" / "sm_80" / "report16.sass",
    TRACES / "triton" / "sm_90" / "softmax.sass",
    TRACES / "triton" / "sm_100" / "matmul.sass",
    TRACES / "nvdisasm" / "softmax_sm_90.txt",
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(DUMPS)).read_bytes())
    for _ in range(draw(st.integers(1, 8))):
        place = draw(st.integers(0, len(data) - 1))
        blank = data.find(b" ", place)
        following = data.find(b" ", blank + 1)
        match draw(st.sampled_from(["odd", "word", "cut", "copy", "byte"])):
            case "odd":
                data[place:place] = draw(st.sampled_from(ODD_CODE)).encode()
            case "word" if 0 < blank < following:
                data[blank + 1 : following] = draw(st.sampled_from(ODD_CODE)).encode()
            case "cut":
                del data[place : place + draw(st.integers(1, 200))]
            case "copy":
                source = draw(st.integers(0, len(data) - 1))
                data[place:place] = data[source : source + draw(st.integers(1, 300))]
            case _:
                data[place] = draw(st.integers(1, 255))
        if not data:
            break
    return bytes(data)


@settings(suppress_health_check=[*HealthCheck])
@given(data=damaged(), gpu=st.sampled_from(["a100", "h100", "b200", "rtx 5090"]))
def test_a_damaged_dump_is_reported_or_explained(
    data: bytes, gpu: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "damaged.sass"
    dump.write_bytes(data)
    code = run(["analyze", str(dump), "--all", "--gpu", gpu])
    captured = capsys.readouterr()
    assert code in (0, 2)
    assert (code == 0) == (captured.err == "")
    assert code == 0 or captured.err.partition("error: ")[2]
