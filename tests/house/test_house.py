"""Rules of the house that a reader would not find broken by reading one file."""

import ast
import json
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest

from analyzer.render.json import (
    PUBLISHED_TYPES,
    format_schema,
    make_json_schema,
    make_schema_file_name,
    render_json,
)

ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT / "traces" / "triton" / "sm_90" / "matmul.sass"
MODULES = sorted((ROOT / "analyzer").rglob("*.py"))
# What a reader still holds in mind; the largest of today, which should fall.
MAX_IMPORTED_MODULES = 26
MAX_METHODS = 37
MAX_ATTRIBUTES = 24
MAX_METHODS_OF_RECORD = 2  # records of data have as many fields as what they record
HEAVY = {"torch", "sklearn", "matplotlib", "pandas", "scipy", "networkx", "pydantic", "hypothesis"}


def modules_after(*arguments: str) -> set[str]:
    """Top-level modules that a run of the command has loaded."""
    code = (
        "import sys\n"
        "from analyzer.cli.app import run\n"
        "code = run(sys.argv[1:])\n"
        "print(' '.join(sorted({n.partition('.')[0] for n in sys.modules})), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


def test_import_of_the_package_loads_almost_nothing() -> None:
    code = "import analyzer, sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "lark", "rich", "click", *HEAVY} & set(done.stdout.split())


def test_version_loads_no_numbers_and_no_grammar() -> None:
    assert not {"numpy", "lark", "rich", *HEAVY} & modules_after("--version")


def test_analyze_loads_no_heavy_package() -> None:
    assert not HEAVY & modules_after("analyze", str(DUMP), "--gpu", "h100")


@pytest.mark.parametrize("schema", PUBLISHED_TYPES)
def test_published_schema_is_the_generated_one(schema: str) -> None:
    published = ROOT / "hwdb" / "schema" / make_schema_file_name(schema)
    assert published.read_text(encoding="utf-8") == format_schema(make_json_schema(schema)), (
        "write them with: python -m analyzer.render.json hwdb/schema"
    )


@cache
def list_nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a module's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def find_house_imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports."""
    modules = (node.module or "" for node in list_nodes(path) if isinstance(node, ast.ImportFrom))
    return {module for module in modules if module.startswith("analyzer.")}


def find_large_classes(path: Path) -> dict[str, tuple[int, int]]:
    """Return methods and attributes of the classes of a file that have too many of either."""
    found: dict[str, tuple[int, int]] = {}
    for node in list_nodes(path):
        if isinstance(node, ast.ClassDef):
            n_methods = sum(isinstance(item, ast.FunctionDef) for item in node.body)
            fields = {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)}
            stores = (item for item in ast.walk(node) if isinstance(item, ast.Attribute))
            own = {i.attr for i in stores if isinstance(i.ctx, ast.Store) and ast.unparse(i.value) == "self"}
            n_attributes = len(fields | own) if n_methods > MAX_METHODS_OF_RECORD else 0
            if n_methods > MAX_METHODS or n_attributes > MAX_ATTRIBUTES:
                found[node.name] = n_methods, len(fields | own)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_classes_stay_cohesive(path: Path) -> None:
    assert len(find_house_imports(path)) <= MAX_IMPORTED_MODULES
    assert not find_large_classes(path)


def test_one_module_starts_processes() -> None:
    starters = {"joblib", "multiprocessing", "concurrent"}
    found = set()
    for path in MODULES:
        for node in list_nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            is_cache = isinstance(node, ast.ImportFrom) and [a.name for a in node.names] == ["Memory"]
            if starters & {name.partition(".")[0] for name in names} and not is_cache:
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"analyzer/worker_pool.py"}


def test_wheel_holds_package_and_data_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.partition("/")[0] for name in names}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tops == {"analyzer", f"warplens-{version}.dist-info"}
    for kind in ("grammars", "hwdb"):
        shipped = {
            f"analyzer/_shipped/{path.relative_to(ROOT)}"
            for path in (ROOT / kind).rglob("*")
            if path.is_file() and "cases" not in path.parts
        }
        assert shipped <= names
    assert not [name for name in names if "/cases/" in name]


def test_schema_describes_a_real_report() -> None:
    import jsonschema

    import analyzer

    report = analyzer.analyze(str(DUMP), gpu=["h100", "a100"])
    jsonschema.validate(json.loads(render_json(report)), make_json_schema(report.schema))
