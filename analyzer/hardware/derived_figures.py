"""Figures that follow from others by a rule, where the files of a GPU do not give them.

A rule is a product of figures. What was measured of a derived figure is a check of the rule, in its inputs'
notes and in tests/hardware/test_resources.py:

    l2.slice_gbps = 80 slices x 64 bytes x 1,705 MHz x .965 = 8,424 GB/s (8,300 measured on an H100)
"""

import math

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_paths import collect_parameters, with_parameter
from analyzer.hardware.schema import HardwareParameter
from analyzer.ir.scheduling import find_weakest_basis


class DerivationRule(Struct, frozen=True, kw_only=True):
    """A figure as a product of others and a constant."""

    key: str
    inputs: tuple[str, ...]
    constant: float = 1.0
    unit_note: str = ""  # what the constant stands for

    def __str__(self) -> str:
        constant = f"{self.constant:g} ({self.unit_note})" if self.unit_note else ""
        return " x ".join([*self.inputs, *([constant] if constant else [])])

    def derive(self, known: dict[str, HardwareParameter]) -> HardwareParameter | None:
        """Return the figure, as reliable as its least reliable input; None where one is not known."""
        inputs = [known[key] for key in self.inputs if key in known]
        if len(inputs) < len(self.inputs):
            return None
        return HardwareParameter(
            value=self.constant * math.prod(one.value for one in inputs),
            basis=find_weakest_basis(*(one.basis for one in inputs)),
            source=f"derived: {self}",
        )


_SLICE_CYCLES = ("l2.slices", "l2.clock_mhz", "l2.slice_efficiency")
DERIVATION_RULES = (
    DerivationRule(
        key="l2.slice_gbps",
        inputs=_SLICE_CYCLES,
        constant=0.064,
        unit_note="two sectors a cycle, in GB/s",
    ),
    DerivationRule(key="l2.requests_per_us", inputs=_SLICE_CYCLES),
)


def with_derived_figures(gpu: Gpu) -> Gpu:
    """Return a GPU with the figures that its files leave to a rule."""
    known = collect_parameters(gpu)
    for rule in DERIVATION_RULES:
        found = None if rule.key in known else rule.derive(known)
        if found is not None:
            gpu = with_parameter(gpu, rule.key, found)
    return gpu
