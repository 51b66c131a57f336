// reductions.cuh: sums, maxima and minima along rows, columns and vectors.
//
// This file knows: the order in which partial results are combined, which is part of the language
// (float addition is not associative, and the simulator gives the same bits). It must not know
// memory.
//
// The order is the fold by halves in the order of elements: of n values, value i takes in value
// i + (n + 1) / 2, until one is left. In registers it is done group by group:
//
//   along pairs        (row_* of a row tile)   groups of 8 columns, held as registers; then the 8
//                      columns 2t + j: column + 4 is lane xor 2, column + 2 is lane xor 1, then j
//   across lane groups (col_* of a row tile)   groups of 8 rows, held as registers; then the 8 rows
//                      g: row + 4 is lane xor 16, row + 2 is lane xor 8, row + 1 is lane xor 4
//   rv                 chunks of 32 V; then lanes xor 16, 8, 4, 2, 1; then the V of a lane
//
// Where the number of groups is a power of two this is the plain fold of all elements. In a shuffle
// both lanes add the same two numbers, so all lanes end with the same bits. Maxima and minima do
// not depend on the order.
#pragma once

#include "maps.cuh"

namespace tk {

struct add_op {
    TK_DEVICE float operator()(float a, float b) const { return __fadd_rn(a, b); }
    TK_DEVICE static float nothing() { return -0.f; }  // x + -0 is x, for x = -0 too
};
struct max_op {
    TK_DEVICE float operator()(float a, float b) const { return ::fmaxf(a, b); }
    TK_DEVICE static float nothing() { return __int_as_float(0x7fffffff); }  // max(x, NaN) is x
};
struct min_op {
    TK_DEVICE float operator()(float a, float b) const { return ::fminf(a, b); }
    TK_DEVICE static float nothing() { return __int_as_float(0x7fffffff); }
};

// Fold x[0..n) by halves into x[0].
template <int n, class F> TK_DEVICE void fold(float* x, F f) {
    if constexpr (n > 1) {
        constexpr int h = (n + 1) / 2;
#pragma unroll
        for (int i = 0; i < n - h; i++) x[i] = f(x[i], x[i + h]);
        fold<h>(x, f);
    }
}
// Fold across lanes: xor FROM, FROM / 2, ..., TO.
template <int FROM, int TO, class F> TK_DEVICE float fold_lanes(float x, F f) {
#pragma unroll
    for (int m = FROM; m >= TO; m /= 2) x = f(x, warp::shfl_xor(x, m));
    return x;
}

// Reduce the tile along its pairs: per line (row of a row tile, column of a col tile) one value.
// `base(i, k)` numbers the base tiles: i counts lines of base tiles, k goes along the reduction.
template <int LINES, int ALONG, class F, class A, class V, class B>
TK_DEVICE void reduce_along(V& out, const A& a, F f, B base) {
#pragma unroll
    for (int i = 0; i < 2 * LINES; i++) {
        float lo[2 * ALONG], hi[2 * ALONG];
#pragma unroll
        for (int k = 0; k < 2 * ALONG; k++) {
            const float2 x = a.get2(4 * base(i / 2, k / 2) + (i & 1) + 2 * (k & 1));
            lo[k] = x.x;
            hi[k] = x.y;
        }
        fold<2 * ALONG>(lo, f);
        fold<2 * ALONG>(hi, f);
        float x;
        if constexpr (same<F, add_op>::value) x = f(fold_lanes<2, 1>(lo[0], f), fold_lanes<2, 1>(hi[0], f));
        else x = fold_lanes<2, 1>(f(lo[0], hi[0]), f);  // any order is the same: fewer shuffles
        out.set_reg(i, x);
    }
}
// Reduce across lane groups: per line (column of a row tile, row of a col tile) one value.
template <int LINES, int ALONG, class F, class A, class V, class B>
TK_DEVICE void reduce_across(V& out, const A& a, F f, B base) {
#pragma unroll
    for (int i = 0; i < 2 * LINES; i++) {
        float lo[2 * ALONG], hi[2 * ALONG];
#pragma unroll
        for (int k = 0; k < 2 * ALONG; k++) {
            const float2 x = a.get2(4 * base(i / 2, k / 2) + 2 * (i & 1) + (k & 1));
            lo[k] = x.x;
            hi[k] = x.y;
        }
        fold<2 * ALONG>(lo, f);
        fold<2 * ALONG>(hi, f);
        out.set2(i, fold_lanes<16, 4>(lo[0], f), fold_lanes<16, 4>(hi[0], f));
    }
}

template <class F, class T, int R, int C, layout L>
TK_DEVICE col_vec<float, R, L> reduce_rows(const rt<T, R, C, L>& a, F f) {
    col_vec<float, R, L> out;
    const auto base = [](int i, int k) { return i * (C / 16) + k; };
    if constexpr (L == layout::row) reduce_along<R / 16, C / 16>(out, a, f, base);
    else reduce_across<R / 16, C / 16>(out, a, f, base);
    return out;
}
template <class F, class T, int R, int C, layout L>
TK_DEVICE row_vec<float, C, L> reduce_cols(const rt<T, R, C, L>& a, F f) {
    row_vec<float, C, L> out;
    const auto base = [](int i, int k) { return k * (C / 16) + i; };
    if constexpr (L == layout::col) reduce_along<C / 16, R / 16>(out, a, f, base);
    else reduce_across<C / 16, R / 16>(out, a, f, base);
    return out;
}

// row_max(t) is a col_vec; row_max(t, m) is the element-wise maximum of row_max(t) and m. The
// column forms give a row_vec. Results are float for every tile.
#define TK_REDUCTION(NAME, WAY, RESULT, LENGTH, OP)                                            \
    template <class T, int R, int C, layout L>                                                 \
    TK_DEVICE RESULT<float, LENGTH, L> NAME(const rt<T, R, C, L>& a) { return WAY(a, OP{}); }  \
    template <class T, int R, int C, layout L>                                                 \
    TK_DEVICE RESULT<float, LENGTH, L> NAME(const rt<T, R, C, L>& a,                           \
                                            const RESULT<float, LENGTH, L>& before) {          \
        return map2(OP{}, WAY(a, OP{}), before);                                               \
    }
TK_REDUCTION(row_sum, reduce_rows, col_vec, R, add_op)
TK_REDUCTION(row_max, reduce_rows, col_vec, R, max_op)
TK_REDUCTION(row_min, reduce_rows, col_vec, R, min_op)
TK_REDUCTION(col_sum, reduce_cols, row_vec, C, add_op)
TK_REDUCTION(col_max, reduce_cols, row_vec, C, max_op)
TK_REDUCTION(col_min, reduce_cols, row_vec, C, min_op)
#undef TK_REDUCTION

// All elements of a vector into one float, the same in every lane.
template <class F, class V> TK_DEVICE float reduce_vector(const V& v, F f) {
    if constexpr (kind_of<V>::value == kind::rv) {
        constexpr int W = V::RUN, N = V::CHUNKS;
        float part[W];
#pragma unroll
        for (int j = 0; j < W; j++) {
            float x[N];
#pragma unroll
            for (int k = 0; k < N; k++) {
                x[k] = v.get(k * W + j);
                // lanes past the end hold nothing
                if (V::PARTIAL && k == N - 1 && run_start<V>(k) >= V::LENGTH) x[k] = F::nothing();
            }
            fold<N>(x, f);
            part[j] = x[0];
        }
        if constexpr (same<F, add_op>::value) {
#pragma unroll
            for (int j = 0; j < W; j++) part[j] = fold_lanes<16, 1>(part[j], f);
            fold<W>(part, f);
            return part[0];
        } else {
            fold<W>(part, f);
            return fold_lanes<16, 1>(part[0], f);
        }
    } else if constexpr (V::RUN == 1) {
        float x[V::COUNT];
#pragma unroll
        for (int k = 0; k < V::COUNT; k++) x[k] = v.get(k);
        fold<V::COUNT>(x, f);
        return fold_lanes<16, 4>(x[0], f);
    } else {
        float lo[V::PAIRS], hi[V::PAIRS];
#pragma unroll
        for (int k = 0; k < V::PAIRS; k++) {
            const float2 x = v.get2(k);
            lo[k] = x.x;
            hi[k] = x.y;
        }
        fold<V::PAIRS>(lo, f);
        fold<V::PAIRS>(hi, f);
        return f(fold_lanes<2, 1>(lo[0], f), fold_lanes<2, 1>(hi[0], f));
    }
}
template <class V, class = if_vector<V>> TK_DEVICE float sum(const V& v) { return reduce_vector(v, add_op{}); }
template <class V, class = if_vector<V>> TK_DEVICE float max(const V& v) { return reduce_vector(v, max_op{}); }
template <class V, class = if_vector<V>> TK_DEVICE float min(const V& v) { return reduce_vector(v, min_op{}); }

}  // namespace tk
