"""Print pip constraints that pin each dependency of pyproject.toml to the oldest version that it allows.

python .ci/oldest.py > constraints.txt
"""

import re
import tomllib
from pathlib import Path

EXTRAS = ("charts", "graph")


def main() -> None:
    """Print a line `name==version` for each lower bound of what users install."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    wanted = [
        *project["dependencies"],
        *(each for name in EXTRAS for each in project["optional-dependencies"][name]),
    ]
    for requirement in wanted:
        if match := re.match(r"([\w.-]+)>=([\w.]+)", requirement):
            print(f"{match[1]}=={match[2]}")


if __name__ == "__main__":
    main()
