"""Numbers as the GPU rounds, adds and multiplies them, on float32 arrays.

`rounding`: storage types, fused multiply-add, reductions in the header library's order.
`tensor_core`: the bits of a tensor core, `dot` for rows and `product` for matrices.
`functions`: exp2, rsqrt and the like as the GPU's instructions give them (`MAPS`).

This package imports NumPy and ml_dtypes, and knows no tile, lane or machine.
"""

from tklearn.numerics.functions import BOUNDS, MAPS
from tklearn.numerics.rounding import (
    F32,
    STORAGE,
    decode,
    encode,
    fma32,
    fold_max,
    fold_min,
    fold_sum,
    round_to,
)
from tklearn.numerics.tensor_core import CORES, dot, mma_sync, product

__all__ = [
    "BOUNDS",
    "CORES",
    "F32",
    "MAPS",
    "STORAGE",
    "decode",
    "dot",
    "encode",
    "fma32",
    "fold_max",
    "fold_min",
    "fold_sum",
    "mma_sync",
    "product",
    "round_to",
]
