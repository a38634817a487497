"""A stranger's repository gets a gate from docs/ci.md: `python tests/integration/stranger.py [cuda] [triton]`.

Makes a repository with a CUDA file and a Triton kernel in a temporary folder, takes the workflows from the
page as they are, and runs the steps of the action as GitHub does, in a fresh clone of this checkout's HEAD. The
gate must pass what is unchanged, trip on a regression with an annotation at its line, and pass again once it
is accepted. Packages come from PyPI (100 to 200 MB); no GPU is needed.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from composite_actions import ActionRun, make_environment, run_action  # noqa: E402

INSTALLING = ("Install warplens", "Install packages for the build")
CUDA_SOURCE = """\
extern "C" __global__ void scale(float *values, float factor, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        values[i] *= factor;
    }
}
"""
TRITON_SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)
"""


class Story(Struct, frozen=True):
    """One kernel of the stranger, and the edit that makes it slower."""

    name: str
    source: str  # path in the repository
    old: str
    new: str
    line: int  # where the annotation belongs


STORIES = {
    "cuda": Story("cuda", "kernels/scale.cu", "values[i] *= factor;", "values[(i * 32LL) % n] *= factor;", 3),
    "triton": Story("triton", "kernels/add.py", "tl.load(y + at,", "tl.load(y + at * 32,", 8),
}


def read_page() -> tuple[list[dict[str, Any]], str]:
    """Return the workflows of docs/ci.md, and the script that compiles Triton's kernel."""
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    script = next(text for text in re.findall(r"^```py\n(.*?)^```", page, re.M | re.S) if "ASTSource" in text)
    return [yaml.safe_load(text) for text in blocks if "jobs:" in text], script


def find_step(workflows: list[dict[str, Any]], word: str) -> dict[str, str]:
    """Return the inputs of the action in the workflow that has a word in its build."""
    steps = [step for workflow in workflows for step in workflow["jobs"]["kernels"]["steps"]]
    return next(step["with"] for step in steps if word in step.get("with", {}).get("build", ""))


def make_repository(folder: Path, script: str) -> None:
    """Write the stranger's files and commit them."""
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "scale.cu").write_text(CUDA_SOURCE)
    (folder / "kernels" / "add.py").write_text(TRITON_SOURCE)
    (folder / "kernels" / "compile.py").write_text(script)
    run(folder, "git", "init", "-q")
    commit(folder, "Add kernels")


def commit(folder: Path, message: str) -> None:
    """Commit everything."""
    run(folder, "git", "add", "-A")
    run(folder, "git", "-c", "user.name=s", "-c", "user.email=s@example.invalid", "commit", "-qm", message)


def run(folder: Path, *command: str) -> None:
    """Run a command in a folder. Raises CalledProcessError."""
    subprocess.run(command, cwd=folder, check=True)


def tell(story: Story, folder: Path, clone: Path, inputs: dict[str, str]) -> None:
    """Go through one kernel's life in CI. Raises AssertionError where the gate does not do what it should."""
    workspace, temp = folder / "repository", folder / f"temp-{story.name}"
    temp.mkdir()
    used = {"python": {"python-path": sys.executable}}

    def check(title: str, code: int, **more: str) -> ActionRun:
        given = {**inputs, "baseline": f"{story.name}-baseline.json", **more}
        run(workspace, "git", "clean", "-fdxq")  # a job starts from what is committed
        # A runner installs anew for each job; here the first one's environments are kept.
        skipped = INSTALLING if (temp / "warplens").exists() else ()
        done = run_action(
            clone, workspace, temp, given, used=used, environment=make_environment(), skipped=skipped
        )
        print(f"== {story.name}: {title}: exit code {done.code}")
        print("".join(f"   {line}\n" for line in done.log.splitlines() if line.strip()))
        assert done.code == code, f"exit code {done.code} instead of {code}"
        return done

    first = check("no baseline yet", 0)
    assert "::warning" in first.log
    assert "nothing was compared" in first.log
    check("the baseline is written, as on the stranger's machine", 0, arguments="--update")
    commit(workspace, "Add the baseline")
    same = check("nothing changed", 0)
    assert "::error" not in same.log
    source = workspace / story.source
    text = source.read_text()
    assert text.count(story.old) == 1
    source.write_text(text.replace(story.old, story.new))
    slower = check("an access is no longer coalesced", 1)
    assert f"::error file={story.source},line={story.line}," in slower.log
    assert "regress" in slower.summary
    check("the change is accepted", 0, arguments="--update")
    commit(workspace, "Accept it")
    check("and is the baseline from now on", 0)


def main() -> None:
    """Tell the stories that are named, all of them if none is."""
    names = sys.argv[1:] or list(STORIES)
    workflows, script = read_page()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(folder, "git", "clone", "-q", "--depth=1", f"file://{ROOT}", "clone")
        make_repository(folder / "repository", script)
        for each in names:
            word = "nvcc" if each == "cuda" else "TRITON_CACHE_DIR"
            tell(STORIES[each], folder, folder / "clone", find_step(workflows, word))
    print("the gate works for:", ", ".join(names))


if __name__ == "__main__":
    main()
