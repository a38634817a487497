"""Brings the operands of pretty forms into the order of the operations' definitions.

    ttng.tmem_store %source, %buffer[%token], %predicate      defined as buffer, token, source, predicate

Where groups of operands may be empty, their sizes are an attribute, as in the generic form.
"""

from typing import NamedTuple

from analyzer.frontend.triton.rules import OperandOrder


class Operand(NamedTuple):
    """An operand of the pretty form: its slot, and `[` in brackets, else the keyword before it."""

    slot: int
    role: str = ""


Order = tuple[tuple[int, ...], tuple[int, ...]]  # slots, sizes of groups


def order_operands(order: OperandOrder, operands: list[Operand]) -> Order:
    """Return the slots of the operands in the order of the definition, and the sizes of their groups."""
    slots = tuple(each.slot for each in operands)
    match order:
        case OperandOrder.BARRIER_FIRST if len(slots) > 3:
            return (*slots[:-3], slots[-2], slots[-3], slots[-1]), ()
        case OperandOrder.STORE if len(slots) > 2:
            return (*slots[1:-1], slots[0], slots[-1]), ()
        case OperandOrder.DESCRIPTOR_STORE:
            return (*slots[:1], *slots[1:][-1:], *slots[1:-1]), ()
        case OperandOrder.SCALED:
            return _order_scaled(operands)
        case OperandOrder.MMA:
            return _order_mma(operands, 0)
        case OperandOrder.SCALED_MMA:
            return _order_mma(operands, 2)
        case _:
            return slots, ()


def _order_scaled(operands: list[Operand]) -> Order:
    """Return a, b, c and the scales of a and b; `%a scale %x, %b scale %y, %c` has them in another order."""
    factors: list[int] = []
    scales: list[list[int]] = [[], []]
    for each in operands:
        if each.role == "scale" and 1 <= len(factors) <= 2:
            scales[len(factors) - 1].append(each.slot)
        else:
            factors.append(each.slot)
    sizes = (1,) * len(factors) + (len(scales[0]), len(scales[1]))
    return (*factors, *scales[0], *scales[1]), sizes


def _order_mma(operands: list[Operand], n_scales: int) -> Order:
    """Return a, b, d, its token, scales, two predicates, barriers, and the predicates of the barriers."""
    first = operands[:3]
    at = 3 + (len(operands) > 3 and operands[3].role == "[")
    token = operands[3:at]
    middle = operands[at : at + n_scales + 2]
    rest = operands[at + n_scales + 2 :]
    barriers = [each for each in rest if each.role != "["]
    predicates = [each for each in rest if each.role == "["]
    ordered = (*first, *token, *middle, *barriers, *predicates)
    sizes = (
        *(1,) * len(first),
        len(token),
        *(1,) * len(middle),
        len(barriers),
        len(predicates),
    )
    return tuple(each.slot for each in ordered), sizes
