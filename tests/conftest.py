"""Register Hypothesis profiles and compare golden files.

Golden files: a test takes the `golden` fixture and calls it with the text it made. The text must equal
`tests/golden/MODULE/TEST.txt`, where MODULE and TEST are the test's own names. A missing file fails;
`pytest --bless` writes what the test made. When the whole suite runs, a golden file that no test owns fails.

Hypothesis: `HYPOTHESIS_PROFILE=deep` draws many examples at random; the default `ci` is the same each time.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from analyzer.frontend import cuda_tools

TESTS = Path(__file__).resolve().parent
GOLDEN = TESTS / "golden"
_UNOWNED = pytest.StashKey[list[str]]()

_SLOW_OK = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", max_examples=50, derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW_OK
)
settings.register_profile("deep", max_examples=2000, deadline=None, suppress_health_check=_SLOW_OK)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite golden files with what the tests made")


def find_golden_stem(item: pytest.Item) -> Path:
    """Return the path of a test's golden file without its suffix; `test_x[a/b]` becomes `test_x-a-b`."""
    module = item.path.relative_to(TESTS).with_suffix("")
    name = re.sub(r"[^\w-]+", "-", item.name).strip("-")
    return GOLDEN / module / name


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a text with the golden file of this test."""

    def check(text: str, *, suffix: str = ".txt") -> None:
        path = find_golden_stem(request.node).with_suffix(suffix)
        shown = path.relative_to(TESTS.parent)
        if request.config.getoption("--bless"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.is_file():
            pytest.fail(f"no golden file {shown}: look at the output, then run pytest --bless")
        wanted = path.read_text(encoding="utf-8")
        if text != wanted:
            lines = difflib.unified_diff(
                wanted.splitlines(), text.splitlines(), str(shown), "made by the test", lineterm=""
            )
            pytest.fail("\n".join([*lines, "if this is meant: pytest --bless"]), pytrace=False)

    return check


def _is_whole_suite(config: pytest.Config) -> bool:
    options = config.option
    narrowed = (options.keyword, options.markexpr, options.deselect, options.ignore, options.ignore_glob)
    if any(narrowed) or getattr(options, "lf", False):
        return False
    places = {(config.invocation_params.dir / argument).resolve() for argument in config.args}
    return places <= {TESTS, TESTS.parent}


def _find_unowned_goldens(items: Iterable[pytest.Item]) -> list[str]:
    owned = {find_golden_stem(item) for item in items if "golden" in getattr(item, "fixturenames", ())}
    files = (path for path in GOLDEN.rglob("*") if path.is_file() and path.name != ".gitkeep")
    return sorted(str(path.relative_to(TESTS.parent)) for path in files if path.with_suffix("") not in owned)


def pytest_collection_finish(session: pytest.Session) -> None:
    if _is_whole_suite(session.config) and not session.testsfailed and session.items:
        session.config.stash[_UNOWNED] = _find_unowned_goldens(session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over the list of a pytest-xdist worker: workers collect tests, the controller does not."""
    unowned = getattr(node, "workeroutput", {}).get("unowned_goldens", [])
    if unowned:
        node.config.stash[_UNOWNED] = unowned


def pytest_sessionfinish(session: pytest.Session) -> None:
    unowned = session.config.stash.get(_UNOWNED, [])
    output: dict[str, list[str]] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["unowned_goldens"] = unowned
    elif unowned and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for path in config.stash.get(_UNOWNED, []):
        terminalreporter.write_line(f"golden file of no test: {path}", red=True)


@pytest.fixture
def no_installed_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the CUDA tools that wheels and toolkits of this machine bring: those on PATH alone are found."""

    def find_no_wheel(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(cuda_tools, "distribution", find_no_wheel)
    monkeypatch.setattr(cuda_tools, "find_spec", lambda _: None)
    monkeypatch.setattr(cuda_tools, "_CUDA_ROOT", Path("/absent"))
    for variable in ("CUDA_HOME", "CUDA_PATH", "WARPLENS_TOOLS"):
        monkeypatch.delenv(variable, raising=False)
