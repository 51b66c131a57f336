// exchange.cuh: the same values held by other lanes: transposes, layout changes, re-spread vectors.
//
// This file knows: which lane must receive which register when a map changes. It must not know
// memory or arithmetic.
#pragma once

#include "maps.cuh"

namespace tk {

// Transpose one 8 x 8 block: this lane's pair of row g becomes its pair of column g.
template <class T> TK_DEVICE typename num<T>::pair transpose_pair(typename num<T>::pair x) {
    if constexpr (sizeof(T) == 2) {
        u32 y;
        asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
        return y;
    } else {
        // Element (row 2t + j, column g) is with lane 4 (2t + j) + g / 2, in its half g % 2.
        const int lane = laneid(), g = lane >> 2, t = lane & 3;
        typename num<T>::bits out[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int src = 4 * (2 * t + j) + (g >> 1);
            const auto lo = num<T>::lo(x), hi = num<T>::hi(x);
            if constexpr (sizeof(T) == 4) {
                const float a = warp::shfl(lo, src), b = warp::shfl(hi, src);
                out[j] = (g & 1) ? b : a;
            } else {
                const int both = warp::shfl((int)x, src);
                out[j] = (g & 1) ? num<T>::hi((typename num<T>::pair)both) : num<T>::lo((typename num<T>::pair)both);
            }
        }
        return num<T>::join(out[0], out[1]);
    }
}

// The same matrix in the other layout. Pair q covers the 8 x 8 block at row half q & 1, column half
// q >> 1 in row layout, and the other way round in col layout.
template <class T, int R, int C, layout L>
TK_DEVICE rt<T, R, C, L == layout::row ? layout::col : layout::row> swap_layout(const rt<T, R, C, L>& a) {
    rt<T, R, C, L == layout::row ? layout::col : layout::row> out;
#pragma unroll
    for (int p = 0; p < out.PAIRS; p++) {
        const int q = p & 3, from = (p & ~3) + (q >> 1) + 2 * (q & 1);
        out.set_raw(p, transpose_pair<T>(a.raw(from)));
    }
    return out;
}
// The transposed matrix, C x R, in the same layout.
template <class T, int R, int C, layout L> TK_DEVICE rt<T, C, R, L> transpose(const rt<T, R, C, L>& a) {
    rt<T, C, R, L> out;
#pragma unroll
    for (int p = 0; p < out.PAIRS; p++) {
        const int q = p & 3, b = p >> 2, i = b / (R / 16), j = b % (R / 16);
        const int from = 4 * (j * (C / 16) + i) + (q >> 1) + 2 * (q & 1);
        out.set_raw(p, transpose_pair<T>(a.raw(from)));
    }
    return out;
}

namespace warp {

// Between spread vectors whose lanes hold a different number of neighbours (rv<float, 1024> has 4,
// rv<bf16, 1024> has 8): every element travels by a shuffle. Of the RATIO registers that could hold
// it in its lane, the one that does is selected.
template <class T, class U, int N, int V, int W>
TK_DEVICE void copy(rv<T, N, V>& dst, const rv<U, N, W>& src) {
    static_assert(V != W && N % (32 * V) == 0 && N % (32 * W) == 0, "copy: whole chunks on both sides");
    constexpr int RATIO = V > W ? V / W : W / V;
#pragma unroll
    for (int i = 0; i < N / 32; i++) {
        const int chunk = i / V, j = i % V;
        const int e = run_start<rv<T, N, V>>(chunk) + j;  // which element is wanted
        const int lane = e / W % 32, held = e / (32 * W) * W + e % W;
        float x = 0.f;
#pragma unroll
        for (int k = 0; k < RATIO; k++) {
            const int reg = V > W ? (chunk * RATIO + k) * W + j % W : chunk / RATIO * W + k * V + j;
            const float y = shfl(src.get(reg), lane);
            if (held == reg || k == 0) x = y;
        }
        dst.set_reg(i, x);
    }
}

}  // namespace warp
}  // namespace tk
