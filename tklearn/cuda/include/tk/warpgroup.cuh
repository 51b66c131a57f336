// warpgroup.cuh: what four warps do together with tiles of 64 rows: loads, stores and masks.
//
// This file knows: that of a tile of R rows warp w of the group holds rows w R/4 and after, in a
// register tile of R/4 rows. It must not know the tensor core (wgmma.cuh) or semaphores.
#pragma once

#include "barriers.cuh"
#include "copy.cuh"
#include "maps.cuh"

namespace tk {

struct warpgroup_group {
    static constexpr int SIZE = 128;
    TK_DEVICE static int size() { return 128; }
    TK_DEVICE static int rank() { return warpgroup::laneid(); }
};
TK_COPIES(warpgroup)

namespace warpgroup {

// ---- register tiles: each warp its rows

template <class T, int R, int C, layout L, class U, int SW, int PAD>
TK_DEVICE void load(rt<T, R, C, L>& t, st<U, 4 * R, C, SW, PAD>& s) {
    warp::load(t, subtile<R, C>(s, {warpid(), 0}));
}
template <class U, int SW, int PAD, class T, int R, int C, layout L>
TK_DEVICE void store(st<U, 4 * R, C, SW, PAD>& s, const rt<T, R, C, L>& t) {
    warp::store(subtile<R, C>(s, {warpid(), 0}), t);
}
// The coordinate counts tiles of four times the rows.
TK_DEVICE coord rows_of_warp(coord at) { return coord(at.b, at.d, at.r * 4 + warpid(), at.c); }
template <class T, int R, int C, layout L, class U, int N>
TK_DEVICE void load(rt<T, R, C, L>& t, const gl<U, N>& g, coord at) {
    warp::load(t, g, rows_of_warp(at));
}
template <class U, int N, class T, int R, int C, layout L>
TK_DEVICE void store(const gl<U, N>& g, const rt<T, R, C, L>& t, coord at) {
    warp::store(g, t, rows_of_warp(at));
}

// ---- masks: rows are those of the whole tile

template <class A, class = if_tile<A>> TK_DEVICE void tril(A& a, int diagonal = 0, float v = 0.f) {
    warp::tril(a, diagonal + warpid() * A::ROWS, v);
}
template <class A, class = if_tile<A>> TK_DEVICE void triu(A& a, int diagonal = 0, float v = 0.f) {
    warp::triu(a, diagonal + warpid() * A::ROWS, v);
}
template <class A, class = if_tile<A>>
TK_DEVICE void make_causal(A& a, float v = -INFINITY) { tril(a, 0, v); }

}  // namespace warpgroup
}  // namespace tk
