"""Make docs/machine.md: the resources of the machine, their figures, and how each scales.

python bench/machine_page.py > docs/machine.md
"""

import re
from collections.abc import Iterator
from textwrap import fill

from markdown import render_table

from analyzer.hardware.derived_figures import DERIVATION_RULES
from analyzer.hardware.parameter_edits import PARAMETER_ALIASES
from analyzer.hardware.resources import RESOURCES, FigureRow, Resource, Scaling

_WIDTH = 118
_ENTRY_KEY = re.compile(r"(sched\.|tensor\.|energy\.tensor_pj\.)(\w+)(.*)")  # of a class or a type

_INTRODUCTION = """\
# The machine

<!-- made by bench/machine_page.py from analyzer/hardware/resources.py -->

A GPU is described by figures in `hwdb/`: of its architecture, its chip and its product. Each figure belongs
to one resource, and says what it does where the resource gets twice its rate:

- **rate**: twice as much, such as bytes per second;
- **time**: half as long: what one piece of work takes of the resource;
- **latency**, **size**, **nothing**: it stays. Nothing scales with ratios, counts and limits.

`warplens gpus NAME --explain` shows the figures of a GPU by resource, each with its value, basis and
source, or with the rule that derives it.

## Edits

`--set` and `--sweep` of `warplens whatif` (and `--set` of `predict`) name a figure, or a resource and what
changes of it. A resource takes a factor: `l1.rate=x2` (or `l1=x2`), `l2.latency=x0.5`, `l2.size=x2`.

- An edit of a rate moves all rates and times of its part of the resource: `l2.requests_per_us=x2` is twice
  the L2.
- A time, a latency, a size or a ratio is a base figure, which moves by itself and takes along what follows
  it.
- In parentheses stand the part of the resource, where it has several, and what else a figure scales with.
  One *times* or *over* others is their product too. More SMs (`sms=160`) share the same L2 and DRAM, so an
  SM's share of the L2 falls; printed peaks grow with SMs and clock, and an edited peak scales the rate by
  what these leave.
- Cycles are those of the SMs' clock. A faster clock leaves them, those of latencies too, so that times
  shrink. The L2 and the DRAM have clocks of their own: their bytes and requests per second stay, and so do
  the times for which the L2 works.
- What is set itself does not follow, and a report lists what did. The same holds for a GPU file of one's
  own that inherits from a product.

"""

_RULES = """
## Rules

Figures that files of a GPU leave to a rule; a figure that a file gives goes before its rule. What was
measured of them stands in the notes of their inputs, and tests hold the rules to it.

"""


def main() -> None:
    """Print the page."""
    print(make_machine_page(), end="")


def make_machine_page() -> str:
    """Return the text of docs/machine.md."""
    aliases = [(f"`{alias}`", f"`{key}`") for alias, key in PARAMETER_ALIASES.items()]
    rules = [(f"`{rule.key}`", str(rule)) for rule in DERIVATION_RULES]
    parts = [
        _INTRODUCTION,
        "Short names of figures:\n\n" + render_table(("name", "figure"), aliases),
        _RULES,
        render_table(("figure", "is the product of"), rules),
        "\n## Resources\n",
        *(text for resource in RESOURCES for text in _list_resource_texts(resource)),
    ]
    return "".join(parts)


def _list_resource_texts(resource: Resource) -> Iterator[str]:
    edits = ", ".join(f"`{resource.name}.{role}`" for role in resource.roles)
    yield f"\n### {resource.name}\n\n"
    bases = ", ".join(f"`{key}` (`{resource.name}.{role}`)" for role, key in resource.bases.items())
    moved = f" Bases of its rate, an edit of which moves all rates: {bases}." if bases else ""
    yield _wrap(f"{resource.title[0].upper()}{resource.title[1:]}. Edits: {edits}.{moved}") + "\n\n"
    for head, rows in _group_rows(resource).items():
        yield _wrap(f"- {head}: {_format_keys(rows)}") + "\n"


def _wrap(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _group_rows(resource: Resource) -> dict[str, list[FigureRow]]:
    """Return the figures by how they scale, as text."""
    groups: dict[str, list[FigureRow]] = {}
    for row in resource.rows:
        told = [row.part if row.part != "rate" else "", row.relation]
        if row.scaling is Scaling.RATE and not row.moves_part and row.key not in resource.bases.values():
            told.append("an edit moves it alone")
        if row.scaling is Scaling.TIME and row.moves_part:
            told.append("an edit moves its part")
        about = "; ".join(filter(None, told))
        groups.setdefault(f"**{row.scaling.value}**" + (f" ({about})" if about else ""), []).append(row)
    return groups


def _format_keys(rows: list[FigureRow]) -> str:
    """Return keys as text, those that differ by a class or a type together."""
    found: dict[str, list[str]] = {}
    for row in rows:
        match = _ENTRY_KEY.match(row.key)
        pattern = f"{match[1]}*{match[3]}" if match else row.key
        found.setdefault(pattern, []).extend([match[2]] if match else [])
    return ", ".join(
        f"`{pattern}` of {', '.join(names)}" if names else f"`{pattern}`" for pattern, names in found.items()
    )


if __name__ == "__main__":
    main()
