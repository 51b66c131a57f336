// shared.cuh: shared memory: tiles, vectors, lane arrays, and where their bytes are.
//
// This file knows: the byte offset of element (r, c) of a shared tile, with its swizzle or
// padding, and how the one dynamic allocation of a block is cut into objects at offsets that the
// compiler front end chose. It must not know registers, lanes or global memory.
//
// Swizzle: a tile is cut into column blocks as wide as the swizzle (32, 64 or 128 bytes); inside a
// block row r follows row r - 1, and the 16-byte chunks of a row are permuted by address bits:
//
//     addr ^ (((addr >> 7) & (2^B - 1)) << 4)          B = 0, 1, 2, 3 for swizzle 0, 32, 64, 128
//
// Bases are aligned to the period of the swizzle (8 * SW bytes, as lang/types.py has it), so the same
// formula holds for offsets from the base.
#pragma once

#include "types.cuh"

namespace tk {

template <class T, int R, int C, int SW = 128, int PAD = 0>
struct alignas(SW > 0 ? 8 * SW : 128) st {
    static_assert(R % 16 == 0 && C % 16 == 0, "st: rows and columns are multiples of 16");
    static_assert(SW == 0 || SW == 32 || SW == 64 || SW == 128, "st: the swizzle is 0, 32, 64 or 128");
    static_assert(SW == 0 || PAD == 0, "st: padding and swizzle exclude each other");
    static_assert(SW == 0 || (C * (int)sizeof(T)) % SW == 0, "st: a row is a whole number of swizzle widths");
    using type = T;
    static constexpr int ROWS = R, COLS = C;
    static constexpr int PITCH = SW > 0 ? SW : (C + PAD) * (int)sizeof(T);  // bytes from row to row
    static constexpr int BLOCK = SW > 0 ? SW / (int)sizeof(T) : C;          // columns in a block
    static constexpr int MASK = SW / 16 > 0 ? SW / 16 - 1 : 0;
    // The widest piece of a row that is contiguous and aligned at its own size.
    static constexpr int CHUNK = PITCH % 16 == 0 ? 16 : PITCH % 8 == 0 ? 8 : PITCH % 4 == 0 ? 4 : (int)sizeof(T);

    unsigned char bytes[R * (C + PAD) * sizeof(T)];

    // Byte offset of element (r, c). low has the same low three bits as r: the swizzle needs no
    // more, and in a loop over rows r, r + 8, ... it is the same for all of them.
    TK_DEVICE static int offset(int r, int c, int low) {
        const int x = (((low & 7) * PITCH >> 7) & MASK) << 4;
        const int in_block = ((u32)c % BLOCK) * (int)sizeof(T);
        return ((u32)c / BLOCK) * (R * PITCH) + r * PITCH + (SW > 0 ? in_block ^ x : in_block);
    }
    TK_DEVICE static int offset(int r, int c) { return offset(r, c, r); }
    TK_DEVICE T* ptr(int r, int c) { return reinterpret_cast<T*>(bytes + offset(r, c)); }
    TK_DEVICE ref_t<T> operator[](coord i) { return ref_of<T>::make(ptr(i.r, i.c)); }
};

// A window of ROWS x COLS elements of a shared tile. Its corner is a multiple of 16 in both
// directions and may be known only at run time.
template <class ST, int R, int C> struct st_view {
    using tile = ST;
    using type = typename ST::type;
    static constexpr int ROWS = R, COLS = C;
    unsigned char* bytes;
    int r0, c0;
    TK_DEVICE int offset(int r, int c, int low) const { return ST::offset(r0 + r, c0 + c, low); }
};

template <int R, int C, class T, int SR, int SC, int SW, int PAD>
TK_DEVICE st_view<st<T, SR, SC, SW, PAD>, R, C> subtile(st<T, SR, SC, SW, PAD>& s, coord at) {
    static_assert(R % 16 == 0 && C % 16 == 0, "subtile: rows and columns are multiples of 16");
    static_assert(SR % R == 0 && SC % C == 0, "subtile: it must divide the tile");
    return {s.bytes, at.r * R, at.c * C};
}
template <class T, int R, int C, int SW, int PAD>
TK_DEVICE st_view<st<T, R, C, SW, PAD>, R, C> whole(st<T, R, C, SW, PAD>& s) {
    return {s.bytes, 0, 0};
}

// A shared vector.
template <class T, int N> struct alignas(16) sv {
    using type = T;
    static constexpr int LENGTH = N;
    T data[N];
    TK_DEVICE ref_t<T> operator[](int i) { return ref_of<T>::make(data + i); }
};

// A shared array indexed by lanes: row-major, no swizzle; a wider last dimension is the padding.
template <class T, int D0, int D1 = 0, int D2 = 0, int D3 = 0> struct alignas(16) arr {
    using type = T;
    T data[D0 * (D1 > 0 ? D1 : 1) * (D2 > 0 ? D2 : 1) * (D3 > 0 ? D3 : 1)];
    // The last given index is the last dimension: a[i], a[{i, j}], a[{i, j, k}], ...
    TK_DEVICE static int at(coord i) {
        if constexpr (D3 > 0) return ((i.b * D1 + i.d) * D2 + i.r) * D3 + i.c;
        else if constexpr (D2 > 0) return (i.d * D1 + i.r) * D2 + i.c;
        else if constexpr (D1 > 0) return i.r * D1 + i.c;
        else return i.c;
    }
    TK_DEVICE T* ptr(coord i) { return data + at(i); }
    TK_DEVICE ref_t<T> operator[](coord i) { return ref_of<T>::make(ptr(i)); }
    TK_DEVICE ref_t<T> operator[](int i) { return ref_of<T>::make(data + i); }
};

// The block's dynamic shared memory: shared_memory(smem) declares it, smem.at<X>(bytes) is the
// object of type X (an array type too) at a byte offset.
struct shared_block {
    unsigned char* base;
    template <class X> TK_DEVICE X& at(int offset) const {
        return *reinterpret_cast<X*>(base + offset);
    }
};
#define shared_memory(NAME)                                           \
    extern __shared__ __align__(1024) unsigned char tk_shared_bytes[]; \
    const ::tk::shared_block NAME{tk_shared_bytes}

}  // namespace tk
