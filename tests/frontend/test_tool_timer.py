"""A tool is stopped by what it does, not by the clock on the wall: other programs may have the processor."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paths import TRACES

from analyzer.child_processes import ToolLimitError, ToolRun
from analyzer.cli.app import run
from analyzer.frontend.cuda_tools import find_tool

# Works for some 40 ms at a time; in all much longer by the clock than the limit, in processor time less.
SLOW = """
import time
for _ in range(10):
    end = time.process_time() + 0.04
    while time.process_time() < end:
        pass
    time.sleep(0.25)
print("done")
"""
BUSY = "while True: pass"
# The work is done by a process of its own, as nvdisasm does it for cuobjdump.
BY_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"


def run_python(code: str, max_silence_s: float) -> bytes:
    tool = ToolRun((sys.executable, "-c", code), max_silence_s=max_silence_s, max_output_bytes=1 << 20)
    return b"".join(tool.read_output())


@contextmanager
def keep_cores_busy(n_processes: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(n_processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.mark.parametrize("code", [SLOW, BY_CHILD.format(code=SLOW)], ids=["itself", "child"])
def test_a_tool_that_works_slowly_is_not_stopped(code: str) -> None:
    assert run_python(code, 1.5) == b"done\n"


@pytest.mark.parametrize("code", [BUSY, BY_CHILD.format(code=BUSY)], ids=["itself", "child"])
def test_a_tool_that_works_for_ever_is_stopped_by_its_own_time(code: str) -> None:
    with pytest.raises(ToolLimitError, match=r"it printed nothing in 0\.5 s of processor time"):
        run_python(code, 0.5)


def test_a_tool_that_does_nothing_is_stopped_by_the_clock() -> None:
    with pytest.raises(ToolLimitError, match=r"it neither printed anything nor worked for 1 s"):
        run_python("import time; time.sleep(60)", 0.1)


def test_output_begins_the_silence_anew() -> None:
    code = "for _ in range(4):\n    n = sum(range(4_000_000))\n    print(flush=True)"
    assert run_python(code, 0.5) == b"\n" * 4


@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="nvdisasm is not installed here")
def test_a_cubin_is_read_while_other_processes_have_all_cores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tools get so little that the clock runs much faster than their own time."""
    monkeypatch.setenv("WARPLENS_CACHE", str(tmp_path))
    monkeypatch.setenv("WARPLENS_TOOL_TIMEOUT", "2")
    cubin = TRACES / "levels" / "sm_90" / "softmax.cubin"
    with keep_cores_busy(os.cpu_count() or 1):
        assert run(["analyze", str(cubin), "-g", "h100", "--grid", "4"]) == 0
    assert "softmax" in capsys.readouterr().out
