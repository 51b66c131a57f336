// registers.cuh: register tiles and vectors: who holds which element.
//
// This file knows: the map from (row, column) to (lane, register) for rt, its row and column
// vectors, and the spread vector rv. It must not know memory or arithmetic.
//
// With g = lane / 4 and t = lane % 4, a lane holds 8 elements of every 16 x 16 base tile:
//
//     element i of a row-layout base tile      row g + 8 * ((i >> 1) & 1)   col 2t + (i & 1) + 8 * (i >> 2)
//     element i of a col-layout base tile      the same with row and col exchanged
//
// That is the order in which the tensor core wants its operands. Elements 2p and 2p + 1 are
// neighbours along a row (col layout: along a column); together they are "pair" p, and all code
// below works on pairs:
//
//     pair q of a base tile, row layout:   row g + 8 * (q & 1),   columns 2t, 2t + 1  (+ 8 * (q >> 1))
#pragma once

#include "lanes.cuh"

namespace tk {

// regs<T, N>: N elements of one lane, packed into 32-bit words. The index of every access must be
// a compile-time constant after unrolling, so that the array lives in registers.
template <class T, int N> struct regs {
    using type = T;
    using pair = typename num<T>::pair;
    static constexpr int COUNT = N;
    static constexpr int PAIRS = (N + 1) / 2;
    static constexpr int WORDS = num<T>::PER_WORD == 1 ? 2 * PAIRS
                               : num<T>::PER_WORD == 2 ? PAIRS : 2 * ((N + 7) / 8);
    typename num<T>::word d[WORDS];

    TK_DEVICE pair raw(int p) const {
        if constexpr (num<T>::PER_WORD == 1) return make_float2(d[2 * p], d[2 * p + 1]);
        else if constexpr (num<T>::PER_WORD == 2) return d[p];
        // 8-bit: a word holds the pairs q and q + 2 of a base tile, one row's four elements
        else return (pair)(d[(p >> 2) * 2 + (p & 1)] >> (16 * ((p >> 1) & 1)));
    }
    TK_DEVICE void set_raw(int p, pair x) {
        if constexpr (num<T>::PER_WORD == 1) {
            d[2 * p] = x.x;
            d[2 * p + 1] = x.y;
        } else if constexpr (num<T>::PER_WORD == 2) {
            d[p] = x;
        } else {
            u32& w = d[(p >> 2) * 2 + (p & 1)];
            w = ((p >> 1) & 1) ? (w & 0xffffu) | ((u32)x << 16) : (w & 0xffff0000u) | (u32)x;
        }
    }
    // Pairs and single elements as floats; writing rounds once.
    TK_DEVICE float2 get2(int p) const { return num<T>::unpack(raw(p)); }
    TK_DEVICE void set2(int p, float lo, float hi) { set_raw(p, num<T>::pack(lo, hi)); }
    TK_DEVICE float get(int i) const {
        if constexpr (num<T>::PER_WORD == 1) return d[i];
        else return num<T>::widen((i & 1) ? num<T>::hi(raw(i >> 1)) : num<T>::lo(raw(i >> 1)));
    }
    TK_DEVICE void set_bits(int i, typename num<T>::bits x) {
        if constexpr (num<T>::PER_WORD == 1) {
            d[i] = x;
        } else {
            pair old = raw(i >> 1);
            set_raw(i >> 1, (i & 1) ? num<T>::join(num<T>::lo(old), x)
                                    : num<T>::join(x, num<T>::hi(old)));
        }
    }
    // The learner's view: this lane's i-th element. A float& for float, else a value.
    TK_DEVICE decltype(auto) reg(int i) {
        if constexpr (num<T>::PER_WORD == 1) return (d[i]);
        else return get(i);
    }
    TK_DEVICE float reg(int i) const { return get(i); }
    TK_DEVICE void set_reg(int i, float x) { set_bits(i, num<T>::narrow(x)); }
};

// A register tile: R x C elements spread over one warp, base tiles in row-major order.
template <class T, int R, int C, layout L = layout::row> struct rt : regs<T, R * C / 32> {
    static_assert(R % 16 == 0 && C % 16 == 0, "rt: rows and columns are multiples of 16");
    static constexpr int ROWS = R, COLS = C;
    static constexpr int RB = R / 16, CB = C / 16;  // base tiles
    static constexpr layout LAYOUT = L;
};

// One value per row of a tile (col_vec) or per column (row_vec). How a lane holds them follows
// from the tile's layout, so a vector belongs to a layout:
//   across lane groups (col_vec of row, row_vec of col): values g, g + 8 of each 16, the same in all t
//   along pairs (row_vec of row, col_vec of col): values 2t, 2t + 1, 8 + 2t, 9 + 2t, the same in all g
template <class T, int N, layout L = layout::row>
struct col_vec : regs<T, (L == layout::row ? N / 8 : N / 4)> {
    static_assert(N % 16 == 0, "col_vec: the length is a multiple of 16");
    static constexpr int LENGTH = N, RUN = L == layout::row ? 1 : 2;
    static constexpr layout LAYOUT = L;
};
template <class T, int N, layout L = layout::row>
struct row_vec : regs<T, (L == layout::row ? N / 4 : N / 8)> {
    static_assert(N % 16 == 0, "row_vec: the length is a multiple of 16");
    static constexpr int LENGTH = N, RUN = L == layout::row ? 2 : 1;
    static constexpr layout LAYOUT = L;
};

// A vector spread over the 32 lanes in chunks of V neighbours (16 bytes where the length allows):
// element e is in lane (e / V) % 32, register (e / (32 V)) * V + e % V.
template <class T> TK_DEVICE constexpr int rv_width(int n) {
    int v = 16 / (int)sizeof(T);
    while (v > 1 && n % (32 * v) != 0) v /= 2;
    return v;
}
template <class T, int N, int V = rv_width<T>(N)>
struct rv : regs<T, V * ((N + 32 * V - 1) / (32 * V))> {
    static constexpr int LENGTH = N, RUN = V;
    static constexpr int CHUNKS = (N + 32 * V - 1) / (32 * V);
    static constexpr bool PARTIAL = N % (32 * V) != 0;  // the last chunk has lanes without an element
};

// What a type is, for the overloads of operators and memory operations.
enum class kind { scalar, tile, col_vec, row_vec, rv };
template <class X> struct kind_of { static constexpr kind value = kind::scalar; };
template <class T, int R, int C, layout L> struct kind_of<rt<T, R, C, L>> {
    static constexpr kind value = kind::tile;
};
template <class T, int N, layout L> struct kind_of<col_vec<T, N, L>> {
    static constexpr kind value = kind::col_vec;
};
template <class T, int N, layout L> struct kind_of<row_vec<T, N, L>> {
    static constexpr kind value = kind::row_vec;
};
template <class T, int N, int V> struct kind_of<rv<T, N, V>> {
    static constexpr kind value = kind::rv;
};
template <class X> constexpr bool is_scalar = kind_of<X>::value == kind::scalar;
template <class X> constexpr bool is_tile = kind_of<X>::value == kind::tile;
template <class X> constexpr bool is_vector = !is_scalar<X> && !is_tile<X>;
template <class X> using if_regs = typename enable_if<!is_scalar<X>>::type;
template <class X> using if_vector = typename enable_if<is_vector<X>>::type;
template <class X> using if_tile = typename enable_if<is_tile<X>>::type;

// The element of a vector that starts run k of this lane (a run: RUN neighbours in one lane), and
// whether this lane is the one that writes it when several hold the same value.
template <class X> TK_DEVICE int run_start(int k) {
    const int lane = laneid();
    if constexpr (kind_of<X>::value == kind::rv) return (k * 32 + lane) * X::RUN;
    else if constexpr (X::RUN == 1) return 8 * k + (lane >> 2);
    else return 8 * k + 2 * (lane & 3);
}
template <class X> TK_DEVICE bool run_writer() {
    if constexpr (kind_of<X>::value == kind::rv) return true;
    else if constexpr (X::RUN == 1) return (laneid() & 3) == 0;
    else return laneid() < 4;
}

// Row and column, inside the tile, of the first element of pair p: a part that depends on the lane
// plus a part that depends on p. The second element is one column (col layout: one row) further.
template <class X> TK_DEVICE int lane_row() {
    return X::LAYOUT == layout::row ? laneid() >> 2 : 2 * (laneid() & 3);
}
template <class X> TK_DEVICE int lane_col() {
    return X::LAYOUT == layout::row ? 2 * (laneid() & 3) : laneid() >> 2;
}
template <class X> TK_DEVICE constexpr int pair_row(int p) {
    return 16 * ((p >> 2) / X::CB) + 8 * (X::LAYOUT == layout::row ? p & 1 : (p >> 1) & 1);
}
template <class X> TK_DEVICE constexpr int pair_col(int p) {
    return 16 * ((p >> 2) % X::CB) + 8 * (X::LAYOUT == layout::row ? (p >> 1) & 1 : p & 1);
}

}  // namespace tk
