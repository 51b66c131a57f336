// global.cuh: arrays in global memory.
//
// This file knows: the kernel argument gl (pointer, sizes, strides; the launcher writes these same
// bytes) and how an index or a tile coordinate becomes an address. Offsets are 64-bit. It must not
// know registers, lanes or what the copy engine's descriptions mean.
#pragma once

#include "types.cuh"

namespace tk {

// How the copy engine (TMA) sees an array when it moves tiles of type TILE: 128 bytes that the driver
// wrote. tma.cuh hands their address on.
template <class TILE> struct alignas(64) tensor_map {
    u64 words[16];
};

// dim is (batch, depth, rows, cols) and missing leading dimensions are 1; stride counts elements
// (batch, depth, row), the last dimension is contiguous. N is the number of dimensions of the array.
// TILES: the types of the shared tiles and vectors that TMA moves to or from it.
template <class T, int N, class... TILES> struct gl;
template <class T, int N> struct gl<T, N> {
    using type = T;
    static constexpr int DIMS = N;
    T* ptr;
    int dim[4];
    i64 stride[3];

    TK_DEVICE int batch() const { return dim[0]; }
    TK_DEVICE int depth() const { return dim[1]; }
    TK_DEVICE int rows() const { return dim[2]; }
    TK_DEVICE int cols() const { return dim[3]; }

    TK_DEVICE T* at(coord i) const {
        T* p = ptr + i.c;
        if constexpr (N >= 2) p += (i64)i.r * stride[2];
        if constexpr (N >= 3) p += (i64)i.d * stride[1];
        if constexpr (N >= 4) p += (i64)i.b * stride[0];
        return p;
    }
    TK_DEVICE ref_t<T> operator[](coord i) const { return ref_of<T>::make(at(i)); }
    TK_DEVICE ref_t<T> operator[](int i) const { return ref_of<T>::make(ptr + i); }
};

// An array that TMA works on: all the above, then a description for each type of tile. A kernel takes
// it as const __grid_constant__, since the descriptions are used where they lie.
template <class T, int N, class... TILES> struct gl : gl<T, N>, tensor_map<TILES>... {};

// The part of an array that a tile operation touches: where it starts, the pitch between rows in
// elements, and how many rows and columns are there (fewer than the tile has, or negative, at the
// far edge).
template <class T> struct window {
    T* p;
    i64 pitch;
    int rows, cols;
    TK_DEVICE bool holds(int r, int c) const { return r <= rows && c <= cols; }
    // Are all accesses of n bytes aligned that start a multiple of n bytes into a row?
    TK_DEVICE bool aligned(int n) const {
        return (((u64)p | ((u64)pitch * sizeof(T))) & (u64)(n - 1)) == 0;
    }
};

// Tiles of R x C: the coordinate counts tiles along rows and columns, elements before that.
template <int R, int C, class T, int N>
TK_DEVICE window<T> tile_window(const gl<T, N>& g, coord i) {
    const int r = i.r * R, c = i.c * C;
    return {g.at(coord(i.b, i.d, r, c)), g.stride[2], g.dim[2] - r, g.dim[3] - c};
}

}  // namespace tk
