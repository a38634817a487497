"""Rebuild every shipped dump: `python traces/build.py [--only 'triton/sm_90/*']`.

Needs nvcc 13.0 for the CUDA kernels and a Python with triton==3.9.0 for the others (this one, or
the one that `--triton-python` names); no GPU.  cuobjdump and nvdisasm are taken from PATH,
CUDA_HOME or Triton's wheel.  Sources are copied to one fixed folder and compiled there, so that the
paths inside line tables, and with them every byte, are the same from any checkout.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from variants import VARIANTS, Variant

TRACES = Path(__file__).resolve().parent
STAGE = Path("/tmp/warplens-traces")
OTHER_PTXAS_FROM = 90  # from this architecture on, Triton's wheel assembles with a newer ptxas
FIXED_DATE = 1_750_000_000
CUDA_ARCHS = {"report16": (75, 80, 86, 89, 90, 100, 120), "exactness": (80, 89, 90, 100, 120),
              "specialized": (90,), "textures": (80,), "generic": (80, 90, 120),
              "atomics": (75, 90), "pipelines": (80,), "arithmetic": (80, 90, 100)}  # fmt: skip
FEATURES_OF_ONE_ARCH = {"specialized"}  # compiled for sm_90a, not sm_90
BINARY_BESIDE = {"specialized"}  # a dump lacks the offsets of arguments after a tensor map
NVCC_FLAGS = ("-O3", "-lineinfo", "-cubin")


@dataclass(frozen=True)
class Unit:
    """One cubin: a source file, or a Triton variant, compiled for one architecture."""

    suite: str
    name: str
    arch: int
    variant: Variant | None = field(default=None, compare=False)

    @property
    def stem(self) -> str:
        """Path of its dumps under traces/, without a suffix."""
        return f"{self.suite}/sm_{self.arch}/{self.name}"

    @property
    def target(self) -> str:
        """Architecture that nvcc compiles it for."""
        return f"sm_{self.arch}" + ("a" if self.name in FEATURES_OF_ONE_ARCH else "")

    @property
    def cubin(self) -> Path:
        """Path of the compiled cubin."""
        return STAGE / "out" / f"{self.stem}.cubin"


@dataclass(frozen=True)
class Product:
    """One shipped file: the output of a tool for a unit's cubin, or a copied file."""

    path: str  # under traces/
    unit: Unit
    command: tuple[str, ...] = ()  # tool and flags; empty for a copied file


def run(command: Sequence[str | Path], **extra: str) -> str:
    """Run a command and return its standard output; on failure, exit with its messages."""
    environment = os.environ | extra
    done = subprocess.run(command, env=environment, cwd=STAGE, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- units and products --------------------------------------------------------------------------


def cuda_units() -> list[Unit]:
    """Return every CUDA source on each of its architectures."""
    return [Unit("cuda", name, arch) for name, archs in CUDA_ARCHS.items() for arch in archs]


def triton_units() -> list[Unit]:
    """Return every Triton variant on each of its architectures."""
    return [Unit("triton", variant.name, arch, variant) for variant in VARIANTS for arch in variant.archs]


def dumps_of(unit: Unit) -> list[Product]:
    """Return the dumps of a unit, and its cubin if they lack information.

    A unit with jump tables, which are in a constant bank of the cubin, gets no dump but its cubin.
    """
    if unit.variant and unit.variant.is_binary:
        folder = f"cubin/sm_{unit.arch}"
        return [Product(f"{folder}/{unit.name}.{kind}", unit) for kind in ("cubin", "json")]
    products = [
        Product(f"{unit.stem}.sass", unit, ("cuobjdump", "-sass")),
        Product(f"{unit.stem}.res", unit, ("cuobjdump", "-res-usage")),
    ]
    if unit.name in BINARY_BESIDE:
        products.append(Product(f"{unit.stem}.cubin", unit))
    return products + ([Product(f"{unit.stem}.json", unit)] if unit.variant else [])


def samples(units: Iterable[Unit]) -> list[Product]:
    """Return a few nvdisasm texts and small cubins, for tests of the other readers."""
    by_stem = {unit.stem: unit for unit in units}

    def text(stem: str, kind: str, *flags: str) -> Product:
        name = "_".join(reversed(stem.split("/")[1:]))
        return Product(f"nvdisasm/{name}.{kind}", by_stem[stem], ("nvdisasm", *flags))

    def binary(stem: str) -> Product:
        name = "_".join(reversed(stem.split("/")[1:]))
        return Product(f"cubin/{name}.cubin", by_stem[stem])

    return [
        text("triton/sm_90/softmax", "hex_g.txt", "-c", "-hex", "-g"),
        text("triton/sm_100/softmax", "hex_g.txt", "-c", "-hex", "-g"),
        text("triton/sm_90/softmax", "gi.txt", "-c", "-gi"),
        text("triton/sm_90/softmax", "txt", "-c"),
        text("triton/sm_100/matmul", "txt", "-c"),
        text("triton/sm_120/softmax", "plr.txt", "-c", "-plr"),
        text("triton/sm_100/matmul", "dot", "-bbcfg"),
        text("triton/sm_120/fused_moe", "dot", "-bbcfg"),
        text("cuda/sm_80/report16", "dot", "-bbcfg"),
        *(binary(f"triton/sm_{arch}/softmax") for arch in (80, 90, 100, 120)),
        *(binary(f"triton/sm_{arch}/matmul_one_stage") for arch in (80, 90)),
        Product("library/report16_sm_80.cubin", by_stem["cuda/sm_80/report16"]),
    ]


LEVELS = (
    "softmax",
    "matmul",
    "matmul_unaligned",
    "matmul_tma_persistent",
    "flash_attention",
    "grouped_gemm",
    "fused_moe",
)


def levels(units: Iterable[Unit]) -> list[Product]:
    """Return some kernels at all levels: Triton IR before and after layouts, PTX, cubin and metadata."""
    return [
        Product(f"levels/sm_{unit.arch}/{unit.name}.{kind}", unit)
        for unit in units
        if (unit.name in LEVELS and unit.arch == 90)
        or (unit.name in ("matmul", "matmul_tma_persistent") and unit.arch in (80, 100))
        for kind in ("ttir", "ttgir", "ptx", "cubin", "json")
    ]


def all_products() -> list[Product]:
    """Return every file that this script writes, except origin.toml."""
    units = cuda_units() + triton_units()
    return [product for unit in units for product in dumps_of(unit)] + samples(units) + levels(units)


# ---- tools ---------------------------------------------------------------------------------------


class Tools:
    """Compilers and disassemblers with their versions."""

    def __init__(self, triton_python: str) -> None:
        """Use Triton and its tools from the environment of this Python."""
        self.triton_python = triton_python
        self.find = cache(self._find)
        self.version = cache(self._version)
        self.triton_package = cache(self._triton_package)

    def _triton_package(self) -> Path | None:
        """Return the folder of the Triton package, None if that Python has none."""
        code = "import importlib.util as u; print((u.find_spec('triton') or u).origin or '')"
        command = [self.triton_python, "-P", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        origin = Path(done.stdout.strip())
        return origin.parent if origin.name == "__init__.py" else None

    def _folders(self) -> list[str]:
        """Return folders to search for tools, best first."""
        triton = self.triton_package()
        homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
        folders = [os.environ.get("PATH", "")] + [f"{home}/bin" for home in homes if home]
        return folders + ([str(triton / "backends/nvidia/bin")] if triton else [])

    def _find(self, name: str) -> str:
        """Return the path of a tool; exit if it is missing."""
        found = shutil.which(name, path=os.pathsep.join(self._folders()))
        return found or sys.exit(f"{name} not found: install CUDA, or triton==3.9.0 (see README)")

    def _version(self, name: str) -> str:
        """Return name and version, such as `nvcc 13.0.88`."""
        return version_of(self.find(name), name)

    def wheel_version(self, name: str) -> str:
        """Return name and version of an assembler in Triton's wheel."""
        folder = self.triton_package() or TRACES
        return version_of(str(folder / "backends/nvidia/bin" / name), name)

    def dump(self, command: Sequence[str], cubin: Path) -> str:
        """Return the output of a tool for a cubin (cuobjdump calls nvdisasm through PATH)."""
        name, *flags = command
        path = os.pathsep.join([str(Path(self.find("nvdisasm")).parent), os.environ["PATH"]])
        return run([self.find(name), *flags, cubin], PATH=path)


def version_of(path: str, name: str) -> str:
    """Return a CUDA tool's name and version, from its output for --version."""
    match = re.search(r"V(\d+(?:\.\d+)+)", run([path, "--version"]))
    return f"{name} {match.group(1) if match else 'unknown'}"


# ---- compiling -----------------------------------------------------------------------------------


def stage_sources() -> None:
    """Copy the sources to the fixed folder."""
    shutil.rmtree(STAGE, ignore_errors=True)
    for pattern in ("cuda/*.cu", "triton/*.py", "variants.py"):
        for source in TRACES.glob(pattern):
            target = STAGE / "traces" / source.relative_to(TRACES)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_undated(str(source), str(target))


def copy_undated(source: str, target: str) -> None:
    """Copy a file with a fixed date: ptxas writes dates of sources into line tables."""
    shutil.copy(source, target)
    os.utime(target, (FIXED_DATE, FIXED_DATE))


def stage_triton(package: Path) -> Path:
    """Build a folder to import Triton from: links to its parts, and an undated copy of its kernel library."""
    site = STAGE / "site"
    (site / "triton").mkdir(parents=True)
    for part in package.iterdir():
        if part.name == "language":
            shutil.copytree(part, site / "triton/language", copy_function=copy_undated)
        else:
            (site / "triton" / part.name).symlink_to(part)
    return site


def compile_cuda(unit: Unit, tools: Tools) -> None:
    """Compile a CUDA unit with nvcc."""
    print(f"  {tools.version('nvcc')}: {unit.name} for {unit.target}", flush=True)
    unit.cubin.parent.mkdir(parents=True, exist_ok=True)
    source = f"traces/{source_file(unit)}"
    run([tools.find("nvcc"), *NVCC_FLAGS, f"-arch={unit.target}", source, "-o", unit.cubin])


def compile_triton(units: Sequence[Unit], tools: Tools) -> None:
    """Compile all Triton units in one process, through a fixed path to the Triton package."""
    package = tools.triton_package()
    if package is None:
        sys.exit("Triton not found: pip install triton==3.9.0, or name a --triton-python")
    settings = {
        "PYTHONPATH": f"{stage_triton(package)}:{STAGE / 'traces'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_CACHE_DIR": str(STAGE / "cache"),
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    script = STAGE / "traces/triton/emit.py"
    command = [tools.triton_python, str(script), str(STAGE / "out/triton")]
    command += [f"{unit.name}:{unit.arch}" for unit in units]
    subprocess.run(command, env=os.environ | settings, cwd=STAGE, check=True)


def compile_units(units: Sequence[Unit], tools: Tools) -> None:
    """Compile all units that the chosen products need."""
    for unit in units:
        if unit.suite == "cuda":
            compile_cuda(unit, tools)
    if chosen := [unit for unit in units if unit.suite == "triton"]:
        compile_triton(chosen, tools)


# ---- writing -------------------------------------------------------------------------------------


def write_product(product: Product, tools: Tools) -> None:
    """Dump or copy one file into traces/."""
    target = TRACES / product.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if product.command:
        target.write_text(tools.dump(product.command, product.unit.cubin))
    else:
        shutil.copy(product.unit.cubin.with_suffix(target.suffix), target)
    print(f"  {product.path} ({target.stat().st_size} bytes)", flush=True)


def source_file(unit: Unit) -> str:
    """Return the path of a unit's source, under traces/."""
    return f"triton/{unit.variant.source}.py" if unit.variant else f"cuda/{unit.name}.cu"


def compiler_of(unit: Unit, tools: Tools) -> tuple[str, str]:
    """Return the compiler with its version, and the flags, as text."""
    if unit.variant is None:
        return tools.version("nvcc"), " ".join([*NVCC_FLAGS, f"-arch={unit.target}"])
    variant = unit.variant
    version = run([tools.triton_python, "-P", "-c", "import triton; print(triton.__version__)"])
    options = {"num_warps": variant.num_warps, "num_stages": variant.num_stages}
    flags = " ".join(f"{key}={value}" for key, value in {**options, **variant.constexprs}.items())
    assembler = tools.wheel_version("ptxas" if unit.arch < OTHER_PTXAS_FROM else "ptxas-blackwell")
    return f"triton {version.strip()} with {assembler}", flags


def sha256(path: str) -> str:
    """Return the checksum of a file under traces/."""
    return hashlib.sha256((TRACES / path).read_bytes()).hexdigest()


def origin_of(product: Product, tools: Tools, compiler: tuple[str, str]) -> dict[str, str]:
    """Return the entry of a file in origin.toml."""
    name, *flags = product.command or ("",)
    source = source_file(product.unit)
    return {
        "compiler": compiler[0],
        "flags": compiler[1],
        "target": product.unit.target,
        "dumped_with": " ".join([tools.version(name), *flags]) if name else "copied",
        "source": source,
        "source_sha256": sha256(source),
        "sha256": sha256(product.path),
    }


def write_origin(folder: str, entries: dict[str, dict[str, str]]) -> None:
    """Merge entries into a folder's origin.toml and remove those whose file does not exist."""
    path = TRACES / folder / "origin.toml"
    known = tomllib.loads(path.read_text()) if path.exists() else {}
    merged = {
        name: entry for name, entry in sorted((known | entries).items()) if (TRACES / folder / name).exists()
    }
    lines = ["# Written by traces/build.py: where each file of this folder comes from."]
    for name, entry in merged.items():
        lines += ["", f"[{json.dumps(name)}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
    path.write_text("\n".join(lines) + "\n")


def write_origins(products: Iterable[Product], tools: Tools) -> None:
    """Write the origin of each product to its top folder's origin.toml."""
    compiler: Callable[[Unit], tuple[str, str]] = cache(lambda unit: compiler_of(unit, tools))
    folders: dict[str, dict[str, dict[str, str]]] = {}
    for product in products:
        folder, name = product.path.split("/", 1)
        entry = origin_of(product, tools, compiler(product.unit))
        folders.setdefault(folder, {})[name] = entry
    for folder, entries in folders.items():
        write_origin(folder, entries)


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", metavar="GLOB", default="*", help="files under traces/ to build")
    parser.add_argument("--triton-python", metavar="PYTHON", default=sys.executable)
    options = parser.parse_args()
    products = [product for product in all_products() if fnmatch(product.path, options.only)]
    if not products:
        sys.exit(f"nothing matches {options.only}")
    tools = Tools(options.triton_python)
    stage_sources()
    units = {product.unit.stem: product.unit for product in products}
    print(f"compiling {len(units)} cubins in {STAGE}", flush=True)
    compile_units(list(units.values()), tools)
    print(f"writing {len(products)} files to {TRACES}", flush=True)
    for product in products:
        write_product(product, tools)
    write_origins(products, tools)


if __name__ == "__main__":
    main()
