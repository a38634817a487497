"""A plugin of pytest: the fixture `warplens` holds compiled kernels to budgets and to a baseline.

    def test_gemm_keeps_its_occupancy(warplens):
        warplens.check("build/gemm.cubin", gpu="h100", max_registers=128, max_spill_bytes=0)

A test compares with `warplens-baseline.json` beside its own file, if that is there.
`pytest --warplens-update` writes it. Nothing is imported before a test asks for the fixture.
"""

import glob
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from analyzer.checking.configuration import CheckConfig
    from analyzer.checking.limits import LimitEntry
    from analyzer.report.check_schema import CheckReport

Limit = str | float | Sequence[str]

_UPDATE_OPTION = "--warplens-update"
_BASELINE_NAME = "warplens-baseline.json"
_SETTINGS_NAME = "warplens.toml"
_IMPROVED = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that accepts changes."""
    parser.getgroup("warplens").addoption(
        _UPDATE_OPTION,
        action="store_true",
        help="accept what changed in kernels: write the baselines of tests that use the fixture `warplens`",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to write one baseline from several processes. Raises pytest.UsageError."""
    if config.getoption(_UPDATE_OPTION) and config.getoption("numprocesses", None):
        raise pytest.UsageError(f"{_UPDATE_OPTION} writes baselines from one process: leave out -n")
    config.stash[_IMPROVED] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests whose kernels got better than their baselines."""
    improved = config.stash.get(_IMPROVED, [])
    if improved:
        terminalreporter.section("warplens")
        for line in improved:
            terminalreporter.line(line)
        terminalreporter.line(f"accept: pytest {_UPDATE_OPTION}")


@pytest.fixture
def warplens(request: pytest.FixtureRequest) -> "KernelGate":
    """Hold compiled kernels to budgets and to a baseline, with no GPU at hand."""
    return KernelGate(request.node.nodeid, request.path.parent, request.config)


class KernelGate:
    """What a test does with its kernels."""

    def __init__(self, test: str, folder: Path, config: pytest.Config) -> None:
        self._test, self._folder, self._config = test, folder, config

    def check(
        self,
        inputs: str | Path | Sequence[str | Path],
        *,
        gpu: str | Sequence[str] | None = None,
        baseline: str | Path | bool = True,
        launch: str | Path | None = None,
        match: str = "*",
        **limits: Limit,
    ) -> "CheckReport":
        """Fail the test where a kernel is beyond a limit; return the report.

        inputs: files, folders and globs, from the folder of the test, else from the current one.
        gpu: names, or files; those of the project's configuration for None.
        baseline: the file from the folder of the test; True: `warplens-baseline.json`, if it is there; False:
            budgets alone.
        launch: a launch file.
        match: glob of the kernels that the limits are for.
        limits: as in the configuration of `warplens check`: `max_registers=128`, `min_occupancy=0.5`,
            `forbid=["shared-bank-conflict"]`, `cycles="2%"`; they go before those of pyproject.toml.
        """
        __tracebackhide__ = True
        from analyzer.text.errors import WarplensError, format_diagnostic

        paths = (inputs,) if isinstance(inputs, str | Path) else tuple(inputs)
        message = ""
        try:
            config = self._make_config(gpu, baseline, launch, _read_limits(match, limits))
            report = self._run(config, paths)
            if not report.is_clean:
                message = _format_report(report)
        except WarplensError as error:
            message = format_diagnostic(error.diagnostic)
        if message:  # out of the handler, so that pytest shows no chain of exceptions
            pytest.fail(message, pytrace=False)
        if report.totals.improved:
            what = "kernel" if report.totals.improved == 1 else "kernels"
            self._config.stash[_IMPROVED].append(f"{self._test}: {report.totals.improved:,} {what} improved")
        return report

    @property
    def _updates(self) -> bool:
        return bool(self._config.getoption(_UPDATE_OPTION))

    def _make_config(
        self,
        gpu: str | Sequence[str] | None,
        baseline: str | Path | bool,
        launch: str | Path | None,
        limits: "tuple[LimitEntry, ...]",
    ) -> "CheckConfig":
        """Return the project's configuration with what the test says over it. Raises UsageError."""
        from msgspec.structs import replace

        from analyzer.checking.configuration import find_config
        from analyzer.checking.limits import LimitTable

        found = find_config(folder=self._folder)
        table = LimitTable(found.limits.common, (*found.limits.entries, *limits))
        path = self._folder / (_BASELINE_NAME if isinstance(baseline, bool) else baseline)
        is_there = path.exists() or self._updates
        # Without a file that was named, budgets are all that there is to hold.
        holds = baseline is not False and (is_there or baseline is not True)
        config = replace(found, limits=table, baseline=path, holds_baseline=holds, per_input=False)
        if gpu is not None:
            config = replace(config, gpus=(gpu,) if isinstance(gpu, str) else tuple(gpu))
        if launch is not None:
            config = replace(config, launch=self._find(launch))
        return config

    def _run(self, config: "CheckConfig", inputs: Sequence[str | Path]) -> "CheckReport":
        """Return the report of the check. Raises WarplensError."""
        from analyzer.checking.checking import CheckRequest, run_check
        from analyzer.text.errors import UsageError

        if config.holds_baseline and not config.baseline_path.exists() and not self._updates:
            raise UsageError(
                f"there is no baseline {config.baseline_path}", hint=f"write it: pytest {_UPDATE_OPTION}"
            )
        request = CheckRequest(
            config=config,
            inputs=tuple(str(self._find(path)) for path in inputs),
            updates=self._updates and config.holds_baseline,
            accept_command=f"pytest {_UPDATE_OPTION} {self._test}",
        )
        return run_check(request)

    def _find(self, path: str | Path) -> Path:
        """Return a path or glob from the folder of the test if that has it, else from the current folder."""
        beside = self._folder / path
        if beside.exists() or glob.glob(str(beside), recursive=True):
            return Path(os.path.relpath(beside))
        return Path(path)


def _read_limits(match: str, limits: Mapping[str, Limit]) -> "tuple[LimitEntry, ...]":
    """Return the limits that a test names. Raises UsageError as the configuration of `check` does."""
    from analyzer.checking.configuration import find_config
    from analyzer.text.errors import UsageError

    # The reader of configurations knows all limits, and the nearest name of one that is none. A value reads
    # the same in JSON and in TOML.
    lines = ["[[check.kernels]]", f"match = {json.dumps(match)}"]
    for name, value in limits.items():
        plain = value if isinstance(value, str | int | float) else list(value)
        lines.append(f"{json.dumps(name)} = {json.dumps(plain)}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _SETTINGS_NAME)
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        try:
            return find_config(path).limits.entries
        except UsageError as error:
            found = error.diagnostic
            line = "" if found.location is None else f": {found.location.text.strip()}"
            raise UsageError(f"warplens.check{line}: {found.message}", hint=found.hint) from None


def _format_report(report: "CheckReport") -> str:
    """Return the report as on a terminal, what trips the gate first."""
    from analyzer.render.registry import render_report

    return render_report(report, "text")
