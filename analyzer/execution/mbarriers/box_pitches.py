"""Distances between the boxes that bulk tensor copies take from one tensor.

Boxes that lie side by side are as far apart along an axis as they are long, so distances give box sizes where
the tensor map is unknown.

Example: copies at (0, 0), (64, 0) and (0, 128) have the pitches (64, 128), so boxes have 64 x 128 elements.
"""

from math import prod

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

AddressArray = NDArray[np.uint64]
CoordinateArray = NDArray[np.int64]


class BoxOrigins(Struct, eq=False):
    """Coordinates at which copies begin in their tensors.

    A tensor's key is its rank and the address of its descriptor; if that address is unknown, the negated rank
    and the row of the copy.
    """

    tensors: dict[int, tuple[int, int]] = field(default_factory=dict)  # the tensor of each copy, by row
    # Origins of boxes, [box, axis], innermost axis first, by tensor.
    origins: dict[tuple[int, int], list[CoordinateArray]] = field(default_factory=dict)

    def add_copies(self, row: int, descriptors: AddressArray | None, coordinates: CoordinateArray) -> None:
        """Add copies of one instruction by several warps.

        descriptors: [warp], addresses of tensor maps, None if unknown.
        coordinates: [warp, axis].
        """
        tensor = (-coordinates.shape[1], row)
        if descriptors is not None and bool((descriptors == descriptors[0]).all()):
            tensor = (coordinates.shape[1], int(descriptors[0]))
        self.tensors[row] = tensor
        self.origins.setdefault(tensor, []).append(coordinates)

    def find_pitches(self) -> dict[int, tuple[int, ...]]:
        """Return the elements from box to box along each axis, by row; 0 along axes with one box only."""
        found = {
            tensor: _find_axis_pitches(np.concatenate(places)) for tensor, places in self.origins.items()
        }
        return {row: found[tensor] for row, tensor in self.tensors.items()}

    def find_volumes(self) -> dict[int, int]:
        """Return `compute_box_volume` by row, where it is known."""
        found = {row: compute_box_volume(pitches) for row, pitches in self.find_pitches().items()}
        return {row: volume for row, volume in found.items() if volume is not None}


def compute_box_volume(pitches: tuple[int, ...]) -> int | None:
    """Return the elements of a box, None unless pitches along all outer axes are known.

    If the pitch along the innermost axis is unknown, the box counts as one element long there.
    """
    return prod(filter(None, pitches)) if all(pitches[1:]) else None


def _find_axis_pitches(places: CoordinateArray) -> tuple[int, ...]:
    return tuple(_find_axis_pitch(places, axis) for axis in range(places.shape[1]))


def _find_axis_pitch(places: CoordinateArray, axis: int) -> int:
    """Return the least distance along an axis between two boxes that are equal along all other axes."""
    other_axes = np.delete(places, axis, axis=1)
    along = places[:, axis]
    order = np.lexsort((along, *other_axes.T))
    steps = np.diff(along[order])
    is_beside = (np.diff(other_axes[order], axis=0) == 0).all(axis=1) & (steps > 0)
    return int(steps[is_beside].min()) if is_beside.any() else 0
