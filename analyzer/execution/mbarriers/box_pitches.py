"""How far apart the boxes lie that copies bring from one tensor: as far as they are long, if side by side."""

from math import prod

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

AddressArray = NDArray[np.uint64]
CoordinateArray = NDArray[np.int64]


class BoxOrigins(Struct, eq=False):
    """Where copies were heard to begin in their tensors.

    tensors: the one of each instruction, by row: its descriptor's address, or of none that is known the row;
    places: of boxes, [box, axis], innermost axis first, by tensor.
    """

    tensors: dict[int, tuple[int, int]] = field(default_factory=dict)
    origins: dict[tuple[int, int], list[CoordinateArray]] = field(default_factory=dict)

    def add_copies(self, row: int, descriptors: AddressArray | None, coordinates: CoordinateArray) -> None:
        """Copies of one instruction by several warps: descriptor [warp], None where not known, and place."""
        tensor = (-coordinates.shape[1], row)
        if descriptors is not None and bool((descriptors == descriptors[0]).all()):
            tensor = (coordinates.shape[1], int(descriptors[0]))
        self.tensors[row] = tensor
        self.origins.setdefault(tensor, []).append(coordinates)

    def find_pitches(self) -> dict[int, tuple[int, ...]]:
        """Elements from box to box along each axis, by row; 0 along axes where no box lies beside another."""
        found = {
            tensor: _find_axis_pitches(np.concatenate(places)) for tensor, places in self.origins.items()
        }
        return {row: found[tensor] for row, tensor in self.tensors.items()}

    def find_volumes(self) -> dict[int, int]:
        """`compute_box_volume` by row, where it is told."""
        found = {row: compute_box_volume(pitches) for row, pitches in self.find_pitches().items()}
        return {row: volume for row, volume in found.items() if volume is not None}


def compute_box_volume(pitches: tuple[int, ...]) -> int | None:
    """Elements of a box, where the pitches along all outer axes tell them, else None; of one inner element
    where that is all that is told.
    """
    return prod(filter(None, pitches)) if all(pitches[1:]) else None


def _find_axis_pitches(places: CoordinateArray) -> tuple[int, ...]:
    return tuple(_find_axis_pitch(places, axis) for axis in range(places.shape[1]))


def _find_axis_pitch(places: CoordinateArray, axis: int) -> int:
    """The least distance of two boxes along an axis whose places are alike along all others."""
    others = np.delete(places, axis, axis=1)
    along = places[:, axis]
    order = np.lexsort((along, *others.T))
    steps = np.diff(along[order])
    is_beside = (np.diff(others[order], axis=0) == 0).all(axis=1) & (steps > 0)
    return int(steps[is_beside].min()) if is_beside.any() else 0
