"""Make a corpus of Triton kernels of public packages: fetched with pip, compiled with no GPU, not shipped.

    python bench/triton_corpus.py fetch /tmp/corpus45                # wheels to dl/, their Python to src/
    python bench/triton_corpus.py environment /tmp/corpus45 3.6.0    # env-3.6.0/
    python bench/triton_corpus.py compile /tmp/corpus45 3.6.0 --arch 90 100 --packages liger fla
    python bench/triton_corpus.py list /tmp/corpus45

Kernel K of package P compiled by Triton V for sm_A lies in triton-V/P/K/sm_A/: NAME.ttir, NAME.ttgir,
NAME.ptx, NAME.cubin, NAME.json as Triton writes them, and launch.json: grid and arguments as the package
launches it. K_v2 is another specialization of it. cache/V/sm_A/ is Triton's cache folder of the same run.
The torch of the environment is that of the project's development environment (--torch names another).

How the kernels are called stands in `triton_recipes.py`; how they are compiled, in `triton_recorder.py`.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

PACKAGES = (
    *("liger-kernel==0.8.5", "flash-linear-attention==0.6.0", "fla-core==0.6.0", "unsloth==2026.10.9"),
    *(
        "torchao==0.18.0",
        "bitsandbytes==0.50.2",
        "xformers==0.0.35",
        "vllm==0.33.0",
        "cut-cross-entropy==25.1.1",
    ),
    *("grouped-mm-bf16==0.1.7", "conch-triton-kernels==1.3", "jvp-flash-attention==0.14.0"),
)
SOURCE_PACKAGES = ("mamba-ssm==2.3.2.post1",)
RECIPES = (
    *("liger", "fla", "unsloth", "vllm", "triton_kernels", "mamba", "cut_cross_entropy"),
    *("grouped_mm", "jvp", "conch", "torchao", "bitsandbytes", "xformers"),
)
ARCHS = (80, 90, 100, 120)
_NEEDED = ("einops", "packaging", "transformers")
_HERE = Path(__file__).resolve().parent


def fetch(folder: Path) -> None:
    """Download the packages and unpack their Python code."""
    downloads, sources = folder / "dl", folder / "src"
    downloads.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(downloads)]
    subprocess.run([*pip, "--only-binary", ":all:", *PACKAGES], check=True)
    # Its setup asks for torch when pip reads its name and version.
    skip_build = {**os.environ, "MAMBA_SKIP_CUDA_BUILD": "TRUE"}
    subprocess.run([*pip, "--no-build-isolation", *SOURCE_PACKAGES], check=True, env=skip_build)
    for wheel in downloads.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(sources, [name for name in archive.namelist() if _is_wanted(name)])
    for archive_path in downloads.glob("*.tar.gz"):
        _unpack_source(archive_path, sources)


def _is_wanted(name: str) -> bool:
    return name.endswith(".py") or ".dist-info/" in name


def _unpack_source(archive_path: Path, sources: Path) -> None:
    with tarfile.open(archive_path) as archive:
        for member in archive.getmembers():
            inside = Path(*Path(member.name).parts[1:])
            if member.isfile() and member.name.endswith(".py") and ".." not in inside.parts:
                target = sources / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(member)
                if content is not None:
                    target.write_bytes(content.read())


def make_environment(folder: Path, version: str, torch_site: Path) -> None:
    """Make a virtual environment with a Triton, and the packages of another environment behind it."""
    environment = folder / f"env-{version}"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    site = next((environment / "lib").glob("python*")) / "site-packages"
    (site / "behind.pth").write_text(f"{torch_site}\n")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "--no-deps", f"triton=={version}"], check=True)
    subprocess.run([*pip, *_NEEDED], check=True)


def compile_packages(folder: Path, version: str, options: argparse.Namespace) -> None:
    """Run the recipes of packages, each package and architecture in a process of its own."""
    python = folder / f"env-{version}" / "bin" / "python"
    for arch in options.arch:
        environment = {
            **os.environ,
            "TRITON_CORPUS_SOURCES": str(folder / "src"),
            "TRITON_CACHE_DIR": str(folder / "cache" / version / f"sm_{arch}"),
            "OMP_NUM_THREADS": "1",
        }
        for package in options.packages:
            command = [str(python), str(_HERE / "triton_recorder.py"), package, str(arch)]
            command += [str(folder / f"triton-{version}"), options.only]
            try:
                subprocess.run(command, env=environment, timeout=options.seconds)
            except subprocess.TimeoutExpired:
                print(f"{package} for sm_{arch}: stopped after {options.seconds} s")


def list_kernels(folder: Path) -> None:
    """Print how many kernels there are by version, package and architecture."""
    for package in sorted(folder.glob("triton-*/*")):
        by_arch = {
            arch: sum(1 for _ in package.glob(f"*/{arch}/*.ptx"))
            for arch in sorted({path.parent.name for path in package.glob("*/sm_*/launch.json")})
        }
        print(f"{package.parent.name} {package.name}: {by_arch}")


def main() -> None:
    """Fetch, make an environment, compile or list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="action", required=True)
    for name in ("fetch", "environment", "compile", "list"):
        one = commands.add_parser(name)
        one.add_argument("folder", type=Path)
        if name in ("environment", "compile"):
            one.add_argument("version", help="of Triton")
        if name == "environment":
            one.add_argument(
                "--torch", type=Path, default=_find_torch(), help="site-packages that hold torch"
            )
        if name == "compile":
            one.add_argument("--arch", type=int, nargs="+", default=ARCHS)
            one.add_argument("--packages", nargs="+", default=RECIPES, choices=RECIPES)
            one.add_argument("--only", default="", help="part of a recipe's name")
            one.add_argument("--seconds", type=float, default=900.0, help="for one package and architecture")
    options = parser.parse_args()
    if options.action == "fetch":
        fetch(options.folder)
    elif options.action == "environment":
        make_environment(options.folder, options.version, options.torch)
    elif options.action == "compile":
        compile_packages(options.folder, options.version, options)
    else:
        list_kernels(options.folder)


def _find_torch() -> Path:
    return next(Path(sys.prefix, "lib").glob("python*")) / "site-packages"


if __name__ == "__main__":
    main()
