"""CTAs that stand for a grid of which nothing is proven."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzer.execution.sampling.cta_samples import make_scattered_sample
from analyzer.ir.launch import Dim3

EXTENTS = st.integers(1, 300)


@given(x=EXTENTS, y=EXTENTS, z=EXTENTS)
def test_what_grows_evenly_along_axes_comes_out_as_it_is(x: int, y: int, z: int) -> None:
    """Rows of a causal attention take the longer the further down they lie."""
    grid = Dim3(x, y, z)
    sample = make_scattered_sample(grid)
    numbers, weights = sample.cta_numbers, sample.weights
    assert np.isclose(weights.sum(), grid.count)
    for extent, places in ((x, numbers % x), (y, numbers // x % y), (z, numbers // (x * y))):
        assert np.isclose(np.average(places, weights=weights), (extent - 1) / 2)
