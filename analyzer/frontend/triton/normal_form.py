"""Makes what pretty and generic forms read to equal.

- Attributes are sorted by name. Numbers of enumerations become their names; those that say nothing, because
  they are the default, and sizes of groups of operands go.
- Branches have the operands of each block with the block, not among their own.
- `ttg.warp_specialize` has its partitions as regions of its own; empty regions at the end go.
- Loops and conditions end in `scf.yield`, which the pretty form leaves out if it yields nothing.
"""

from msgspec.structs import replace

from analyzer.frontend.triton.rules import Enumeration, OperationRule
from analyzer.ir.tile_operations import (
    Attribute,
    Block,
    DenseAttribute,
    IntegerAttribute,
    Operation,
    Region,
    ScalarType,
    StringAttribute,
    TypeAttribute,
    Value,
)

SEGMENTS = "operandSegmentSizes"
_DROPPED = {"resultSegmentSizes"}
_PARTITIONS = "ttg.warp_specialize.partitions"


def normalize_attributes(
    rule: OperationRule, found: list[tuple[str, Attribute]], segment_sizes: tuple[int, ...]
) -> tuple[tuple[str, Attribute], ...]:
    """Return the attributes of an operation in normal form."""
    if not found and not segment_sizes:
        return ()
    enumerations = {each.attribute: each for each in rule.enumerations}
    defaults = dict(rule.defaults)
    kept: dict[str, Attribute] = {}
    for name, value in found:
        if name in _DROPPED or (name == SEGMENTS and not rule.keeps_segments):
            continue
        normal = _name_number(enumerations[name], value) if name in enumerations else value
        if name not in defaults or _format_word(normal) != defaults[name]:
            kept[name] = normal
    if segment_sizes and rule.keeps_segments:
        kept[SEGMENTS] = DenseAttribute(tuple(IntegerAttribute(size, "i32") for size in segment_sizes))
    return tuple(sorted(kept.items()))


def _name_number(enumeration: Enumeration, value: Attribute) -> Attribute:
    if isinstance(value, TypeAttribute) and isinstance(value.type, ScalarType):
        return StringAttribute(value.type.name)  # `lhs = bf16`
    if not isinstance(value, IntegerAttribute):
        return value
    name = enumeration.find_name(value.value)
    return value if name is None else StringAttribute(name)


def _format_word(value: Attribute) -> str:
    match value:
        case IntegerAttribute(type_name="i1"):
            return "true" if value.value else "false"
        case IntegerAttribute():
            return str(value.value)
        case StringAttribute():
            return value.text
        case DenseAttribute(values=()):
            return "[]"
        case _:
            return ""


def split_branch_operands(
    name: str, operands: tuple[Value, ...], successors: int, attributes: list[tuple[str, Attribute]]
) -> tuple[tuple[Value, ...], tuple[tuple[Value, ...], ...]]:
    """Return the own operands of a branch in generic form, and those of each block that follows."""
    if name == "cf.br":
        return (), (operands,)
    sizes = next((value for key, value in attributes if key == SEGMENTS), None)
    numbers = (
        [each.value for each in sizes.values if isinstance(each, IntegerAttribute)]
        if isinstance(sizes, DenseAttribute)
        else []
    )
    if len(numbers) != successors + 1 or sum(numbers) != len(operands) or min(numbers) < 0:
        return operands, ((),) * successors
    groups, at = [], 0
    for number in numbers:
        groups.append(operands[at : at + number])
        at += number
    return groups[0], tuple(groups[1:])


def normalize_regions(operation: Operation, terminator: str) -> Operation:
    """Return an operation whose regions are in normal form; `terminator` is the one that may be left out."""
    regions = list(operation.regions)
    while len(regions) > bool(terminator) and not any(block.operations for block in regions[-1].blocks):
        regions.pop()
    operands, attributes = operation.operands, operation.attributes
    nested = regions[-1].blocks[0].operations[:1] if regions else ()
    if operation.name == "ttg.warp_specialize" and nested and nested[0].name == _PARTITIONS:
        regions = [*regions[:-1], *nested[0].regions]
        operands = (*operands, *nested[0].operands)
        attributes = tuple(sorted((dict(nested[0].attributes) | dict(attributes)).items()))
    if terminator:
        regions = [_end_region(region, operation, terminator) for region in regions]
    return replace(operation, regions=tuple(regions), operands=operands, attributes=attributes)


def _end_region(region: Region, operation: Operation, terminator: str) -> Region:
    """Return a region of one block with a terminator at its end."""
    block = region.blocks[-1]
    if len(region.blocks) > 1 or (block.operations and block.operations[-1].name == terminator):
        return region
    last = Operation(
        name=terminator,
        results=(),
        operands=(),
        attributes=(),
        regions=(),
        line=operation.line,
        source_line=operation.source_line,
    )
    return Region((Block(block.label, block.arguments, (*block.operations, last)),))
