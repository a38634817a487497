"""Configuration of a check: what is found where, which limit holds for whom, and each fault at its place."""

from pathlib import Path

import pytest

from analyzer.checking.configuration import CheckConfig, find_config, read_limits
from analyzer.checking.limits import BudgetSide, Threshold
from analyzer.report.check_schema import Level
from analyzer.text.errors import HardwareError, UsageError, format_diagnostic

HEAD = "[tool.warplens.check]\n"


def read(folder: Path, text: str, name: str = "pyproject.toml") -> CheckConfig:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return find_config(path)


def test_all_settings(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        HEAD
        + """
inputs = ["build/*.cubin", "cache"]
gpus = ["h100", "A100"]
launch = "launch.json"
baseline = "ci/base.json"
model = "steady"
assume_launch = false
per_input = true
new_kernels = "error"
removed_kernels = "ignore"
cycles = "2.5 %"
registers = 8
global_sectors = "ignore"
max_registers = 168
min_occupancy = "25%"
forbid = ["bank-conflicts", "register-spill"]
""",
    )
    assert config.inputs == ("build/*.cubin", "cache")
    assert config.gpus == ("h100", "A100")
    assert config.launch == tmp_path / "launch.json"
    assert config.baseline_path == tmp_path / "ci" / "base.json"
    assert (config.model, config.assumes_launch, config.per_input) == ("steady", False, True)
    assert (config.new_kernels, config.removed_kernels) == (Level.ERROR, None)
    limits = config.limits.find_limits("any", "any")
    assert limits.thresholds["cycles"] == Threshold(0.025, True)
    assert limits.thresholds["registers"] == Threshold(8.0, False)
    assert limits.thresholds["global_sectors"] is None
    assert limits.thresholds["spill_bytes"] == Threshold(0.0, False)  # the default stays
    budgets = {key: budget.amount for key, budget in limits.budgets.items() if budget}
    assert budgets == {("registers", BudgetSide.MAX): 168, ("occupancy", BudgetSide.MIN): 0.25}
    assert limits.forbidden == ("shared-bank-conflict", "register-spill")


def test_later_globs_override_earlier_ones_limit_by_limit(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        HEAD
        + """
cycles = "5%"
max_registers = 255
[[tool.warplens.check.kernels]]
match = "fmha*"
cycles = "2%"
max_registers = 168
[[tool.warplens.check.kernels]]
match = "*_bwd"
max_registers = "ignore"
forbid = []
""",
    )

    def find(name: str) -> tuple[object, object]:
        limits = config.limits.find_limits(name, name)
        budget = limits.budgets["registers", BudgetSide.MAX]
        return limits.thresholds["cycles"], budget and budget.amount

    assert find("gemm") == (Threshold(0.05, True), 255)
    assert find("fmha_fwd") == (Threshold(0.02, True), 168)
    assert find("fmha_bwd") == (Threshold(0.02, True), None)
    # A glob may be of the demangled name, or of what people call the function.
    demangled = "void fmha_fwd<float, 2>(float*)"
    limits = config.limits.find_limits("_Z8fmha_fwdIfLi2EEvPf", demangled)
    assert limits.thresholds["cycles"] == Threshold(0.02, True)
    assert config.limits.find_unused_globs([("gemm", "gemm")]) == ("fmha*", "*_bwd")


def test_the_nearest_file_with_a_table_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "warplens.toml").write_text('[check]\nmodel = "warp"\n')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\ncheck = 1\n")
    monkeypatch.chdir(inner)
    assert find_config().model == "warp"
    assert find_config().folder.resolve() == tmp_path
    (tmp_path / "a" / "pyproject.toml").write_text(HEAD + 'model = "steady"\n')
    assert find_config().model == "steady"
    (inner / "pyproject.toml").write_text("not toml = [ at all")  # not ours, so not our business
    assert find_config().model == "steady"


def test_no_file_is_the_default(tmp_path: Path) -> None:
    assert find_config(None, tmp_path) == CheckConfig()


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('cycels = "5%"', "2:1", ("unknown key 'cycels'", "did you mean cycles?")),
        ('cycles = "5"', "2:10", ("cycles must be a share", '"5%"')),
        ("cycles = true", "2:10", ("cycles must be a share",)),
        ("cycles = -1", "2:10", ("not negative",)),
        ('cycles = "nan%"', "2:10", ("cycles must be a share",)),
        ('cycles = "1.2.3%"', "2:10", ("not a number",)),
        ("cycles = nan", "2:10", ("finite number",)),
        ("x = 1", "2:1", ("unknown key 'x'", "settings: inputs", "thresholds")),
        ("flops = 3", "2:1", ("unknown key 'flops'",)),
        ("max_registesr = 3", "2:1", ("did you mean max_registers?",)),
        ('max_registers = "12"', "2:17", ("max_registers must be a number",)),
        ("min_occupancy = 50", "2:17", ("share from 0 to 1", '"50%"')),
        ('inputs = ["a", 3]', "2:16", ("inputs must be a text",)),
        ("inputs = 3", "2:10", ("inputs must be an array of texts",)),
        ('gpus = ["h100", "h1000"]', "2:17", ("no GPU is called 'h1000'", "nearest: ")),
        ('model = "sn"', "2:9", ("unknown model 'sn'", "one of: sm")),
        ('forbid = [\n  "register-spill",\n  "bank-conflitc",\n]', "4:3", ("shared-bank-conflict",)),
        ('new_kernels = "fail"', "2:15", ("unknown policy", "one of: ignore, error, warning, note")),
        ("baseline = true", "2:12", ("must be a path, or false",)),
        ('per_input = "yes"', "2:13", ("must be true or false",)),
        ("kernels = 3", "2:11", ("kernels must be an array of tables",)),
        (
            '[[tool.warplens.check.kernels]]\nmatch = "a"\n[[tool.warplens.check.kernels]]\nmatch = "b"\n'
            'cycle = "1%"',
            "6:1",
            ("did you mean cycles?",),
        ),
        ("[[tool.warplens.check.kernels]]\ncycles = 1", "2:3", ("no `match` in this table",)),
        ('[[tool.warplens.check.kernels]]\nmatch = "a"\ninputs = "x"', "4:1", ("unknown key 'inputs'",)),
        ('cycles = "5%', "2:13", ("not TOML",)),
    ],
)
def test_each_fault_has_its_place(text: str, place: str, said: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, HEAD + text + "\n")
    message = format_diagnostic(caught.value.diagnostic)
    assert message.startswith(f"{tmp_path / 'pyproject.toml'}:{place}: error: "), message
    assert "\n    " in message
    assert "^" in message
    for piece in said:
        assert piece in message


def test_faults_of_files(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'[check]\nmodel = "\xff"\n')
    (tmp_path / "deep.toml").write_text("check = " + "[" * 100_000)
    (tmp_path / "big.toml").write_bytes(b"#" * (2 << 20))
    for name in ("gone.toml", "latin.toml", "deep.toml", "big.toml"):
        with pytest.raises(UsageError, match=name):
            find_config(tmp_path / name)
    with pytest.raises(UsageError, match="unknown table 'chekc'"):
        read(tmp_path, "[chekc]\n", "warplens.toml")


def test_a_fault_in_a_hardware_file_is_shown_there(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('inherits = "h100"\nboost = \n')
    with pytest.raises(HardwareError) as caught:
        read(tmp_path, HEAD + 'gpus = ["mine.toml"]\n')
    assert "mine.toml:2:9" in format_diagnostic(caught.value.diagnostic)


def test_limits_of_a_program() -> None:
    limits = read_limits({"cycles": "2%", "max_registers": 168, "forbid": ("bank-conflicts",)})
    assert limits.thresholds == {"cycles": Threshold(0.02, True)}
    assert limits.forbidden == ("shared-bank-conflict",)
    with pytest.raises(UsageError) as caught:
        read_limits({"cycels": 3})
    assert format_diagnostic(caught.value.diagnostic).startswith("error: unknown key 'cycels'\n")
    with pytest.raises(UsageError, match="forbid must be"):
        read_limits({"forbid": 3})
