// memory.cuh: loads and stores between registers and memory, by one warp.
//
// This file knows: which lane touches which address, and how wide, when a register tile or vector
// meets global memory (gl) or shared memory (st, subtile, sv); rows and columns past the end of a
// global array read zeros and store nothing. It must not know arithmetic, other warps or barriers.
//
//   rt row   global: pairs of neighbours in one access; shared: ldmatrix (16-bit), pairs otherwise
//   rt col   global: single elements; shared: ldmatrix.trans (16-bit), single elements otherwise
//   vectors  runs of neighbours (registers.cuh) in one access of up to 16 bytes
//
// Where the memory's number format differs from the register's, each value is rounded once.
#pragma once

#include "global.cuh"
#include "registers.cuh"
#include "shared.cuh"

namespace tk {

TK_DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l & 7 of matrix l >> 3
// and receives of each matrix row l / 4, columns 2 (l % 4) and the next; .trans exchanges the two.
template <bool TRANS>
TK_DEVICE void ldmatrix_x4(u32 address, u32& a, u32& b, u32& c, u32& d) {
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}
template <bool TRANS> TK_DEVICE void ldmatrix_x2(u32 address, u32& a, u32& b) {
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(a), "=r"(b) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(a), "=r"(b) : "r"(address) : "memory");
}
template <bool TRANS> TK_DEVICE void ldmatrix_x1(u32 address, u32& a) {
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(a) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(a) : "r"(address) : "memory");
}

// Two words in one access. (The compiler takes a struct of two words apart, and where the same place
// is also written by single elements it stores each half alone.)
template <class P> TK_DEVICE void put(void* to, P x) {
    if constexpr (sizeof(P) == 8) {
        const u32* w = reinterpret_cast<const u32*>(&x);
        *reinterpret_cast<u64*>(to) = (u64)w[1] << 32 | w[0];
    } else {
        *reinterpret_cast<P*>(to) = x;
    }
}

namespace warp {

// ---- register tile and global memory

template <class T, int R, int C, layout L, class U, int N>
TK_DEVICE void load(rt<T, R, C, L>& t, const gl<U, N>& g, coord at) {
    using X = rt<T, R, C, L>;
    using M = num<U>;
    using bits = typename M::bits;
    const window<U> w = tile_window<R, C>(g, at);
    const int r0 = lane_row<X>(), c0 = lane_col<X>();
    const bits* p = reinterpret_cast<const bits*>(w.p) + r0 * w.pitch + c0;
    if (w.holds(R, C) && (L == layout::col || w.aligned(2 * sizeof(U)))) {
#pragma unroll
        for (int i = 0; i < X::PAIRS; i++) {
            const bits* q = p + pair_row<X>(i) * w.pitch + pair_col<X>(i);
            typename M::pair x;
            if constexpr (L == layout::row) x = *reinterpret_cast<const typename M::pair*>(q);
            else x = M::join(q[0], q[w.pitch]);
            t.set_raw(i, convert_pair<T, U>(x));
        }
    } else {
        constexpr int DR = L == layout::col, DC = L == layout::row;
#pragma unroll
        for (int i = 0; i < X::PAIRS; i++) {
            const int r = r0 + pair_row<X>(i), c = c0 + pair_col<X>(i);
            const bits* q = p + pair_row<X>(i) * w.pitch + pair_col<X>(i);
            bits lo = 0, hi = 0;
            if (r < w.rows && c < w.cols) lo = q[0];
            if (r + DR < w.rows && c + DC < w.cols) hi = q[DR * w.pitch + DC];
            t.set_raw(i, convert_pair<T, U>(M::join(lo, hi)));
        }
    }
}

template <class U, int N, class T, int R, int C, layout L>
TK_DEVICE void store(const gl<U, N>& g, const rt<T, R, C, L>& t, coord at) {
    using X = rt<T, R, C, L>;
    using M = num<U>;
    using bits = typename M::bits;
    const window<U> w = tile_window<R, C>(g, at);
    const int r0 = lane_row<X>(), c0 = lane_col<X>();
    bits* p = reinterpret_cast<bits*>(w.p) + r0 * w.pitch + c0;
    if (w.holds(R, C) && (L == layout::col || w.aligned(2 * sizeof(U)))) {
#pragma unroll
        for (int i = 0; i < X::PAIRS; i++) {
            bits* q = p + pair_row<X>(i) * w.pitch + pair_col<X>(i);
            const typename M::pair x = convert_pair<U, T>(t.raw(i));
            if constexpr (L == layout::row) {
                put(q, x);
            } else {
                q[0] = M::lo(x);
                q[w.pitch] = M::hi(x);
            }
        }
    } else {
        constexpr int DR = L == layout::col, DC = L == layout::row;
#pragma unroll
        for (int i = 0; i < X::PAIRS; i++) {
            const int r = r0 + pair_row<X>(i), c = c0 + pair_col<X>(i);
            bits* q = p + pair_row<X>(i) * w.pitch + pair_col<X>(i);
            const typename M::pair x = convert_pair<U, T>(t.raw(i));
            if (r < w.rows && c < w.cols) q[0] = M::lo(x);
            if (r + DR < w.rows && c + DC < w.cols) q[DR * w.pitch + DC] = M::hi(x);
        }
    }
}

// ---- register tile and shared tile (a whole one or a subtile)

template <class T, int R, int C, layout L, class ST>
TK_DEVICE void load(rt<T, R, C, L>& t, const st_view<ST, R, C>& s) {
    using X = rt<T, R, C, L>;
    using U = typename ST::type;
    using M = num<U>;
    if constexpr (sizeof(U) == 2 && ST::CHUNK == 16) {
        // Matrices in the order (rows 0, col 0) (rows 8, col 0) (rows 0, col 8) (rows 8, col 8). The
        // registers an instruction fills are consecutive: pairs 0 1 2 3 for row, which is operand A;
        // with .trans pairs 0 2 1 3 for col, which is the two operands B side by side.
        const int l = laneid();
        const u32 address = shared_address(s.bytes);
#pragma unroll
        for (int j = 0; j < X::CB; j++) {
            const u32 column = address + s.offset(l & 15, 16 * j + 8 * (l >> 4), l);
#pragma unroll
            for (int i = 0; i < X::RB; i++) {
                u32 q[4];
                ldmatrix_x4<L == layout::col>(column + i * 16 * ST::PITCH, q[0], q[1], q[2], q[3]);
                const int p = 4 * (i * X::CB + j);
                constexpr int S = L == layout::row ? 1 : 2;  // register 1 is pair 1 or 2
                t.set_raw(p, convert_pair<T, U>(q[0]));
                t.set_raw(p + S, convert_pair<T, U>(q[1]));
                t.set_raw(p + 3 - S, convert_pair<T, U>(q[2]));
                t.set_raw(p + 3, convert_pair<T, U>(q[3]));
            }
        }
    } else {
        constexpr int DR = L == layout::col, DC = L == layout::row;
        constexpr bool PAIRED = ST::CHUNK >= 2 * (int)sizeof(U);  // an odd padding leaves pairs unaligned
        const int r0 = lane_row<X>(), c0 = lane_col<X>();
#pragma unroll
        for (int i = 0; i < X::PAIRS; i++) {
            const int r = r0 + pair_row<X>(i), c = c0 + pair_col<X>(i);
            typename M::pair x;
            if constexpr (L == layout::row && PAIRED) {
                x = *reinterpret_cast<const typename M::pair*>(s.bytes + s.offset(r, c, r0));
            } else {
                using bits = const typename M::bits;
                x = M::join(*reinterpret_cast<bits*>(s.bytes + s.offset(r, c, r0)),
                            *reinterpret_cast<bits*>(s.bytes + s.offset(r + DR, c + DC, r0 + DR)));
            }
            t.set_raw(i, convert_pair<T, U>(x));
        }
    }
}

template <class ST, class T, int R, int C, layout L>
TK_DEVICE void store(const st_view<ST, R, C>& s, const rt<T, R, C, L>& t) {
    using X = rt<T, R, C, L>;
    using U = typename ST::type;
    using M = num<U>;
    constexpr int DR = L == layout::col, DC = L == layout::row;
    constexpr bool PAIRED = ST::CHUNK >= 2 * (int)sizeof(U);
    const int r0 = lane_row<X>(), c0 = lane_col<X>();
#pragma unroll
    for (int i = 0; i < X::PAIRS; i++) {
        const int r = r0 + pair_row<X>(i), c = c0 + pair_col<X>(i);
        const typename M::pair x = convert_pair<U, T>(t.raw(i));
        if constexpr (L == layout::row && PAIRED) {
            put(s.bytes + s.offset(r, c, r0), x);
        } else {
            using bits = typename M::bits;
            *reinterpret_cast<bits*>(s.bytes + s.offset(r, c, r0)) = M::lo(x);
            *reinterpret_cast<bits*>(s.bytes + s.offset(r + DR, c + DC, r0 + DR)) = M::hi(x);
        }
    }
}

template <class T, int R, int C, layout L, int SW, int PAD, class U>
TK_DEVICE void load(rt<T, R, C, L>& t, st<U, R, C, SW, PAD>& s) { load(t, whole(s)); }
template <class U, int R, int C, int SW, int PAD, class T, layout L>
TK_DEVICE void store(st<U, R, C, SW, PAD>& s, const rt<T, R, C, L>& t) { store(whole(s), t); }

// ---- vectors: element e of the vector is at p[e]

// Run of RUN neighbours of format U, one access of at most 16 bytes at a time. `access` to 8 bytes:
// ptxas otherwise moves a load into the branch of the lanes that use it.
template <class V, class U> TK_DEVICE void load_run(V& v, int k, const typename num<U>::bits* p) {
    using T = typename V::type;
    constexpr int RUN = V::RUN, BYTES = RUN * (int)sizeof(U);
    if constexpr (RUN == 1) {
        const typename num<U>::bits x = *reinterpret_cast<const access<typename num<U>::bits>*>(p);
        v.set_bits(k, convert_bits<T, U>(x));
    } else {
        u32 w[BYTES >= 4 ? BYTES / 4 : 1];
        if constexpr (BYTES >= 16) {
#pragma unroll
            for (int i = 0; i < BYTES / 16; i++) {
                const uint4 x = reinterpret_cast<const uint4*>(p)[i];
                w[4 * i] = x.x, w[4 * i + 1] = x.y, w[4 * i + 2] = x.z, w[4 * i + 3] = x.w;
            }
        } else if constexpr (BYTES == 8) {
            const u64 x = *reinterpret_cast<const access<u64>*>(p);
            w[0] = (u32)x, w[1] = (u32)(x >> 32);
        } else if constexpr (BYTES == 4) {
            w[0] = *reinterpret_cast<const access<u32>*>(p);
        } else {
            w[0] = *reinterpret_cast<const access<u16>*>(p);
        }
#pragma unroll
        for (int i = 0; i < RUN / 2; i++)
            v.set_raw(k * RUN / 2 + i, convert_pair<T, U>(num<U>::of_words(w, i)));
    }
}
template <class V, class U> TK_DEVICE void store_run(const V& v, int k, typename num<U>::bits* p) {
    using T = typename V::type;
    constexpr int RUN = V::RUN, BYTES = RUN * (int)sizeof(U);
    if constexpr (RUN == 1) {
        const auto pair = convert_pair<U, T>(v.raw(k >> 1));
        *p = (k & 1) ? num<U>::hi(pair) : num<U>::lo(pair);
    } else {
        u32 w[BYTES >= 4 ? BYTES / 4 : 1];
#pragma unroll
        for (int i = 0; i < RUN / 2; i++)
            num<U>::to_words(w, i, convert_pair<U, T>(v.raw(k * RUN / 2 + i)));
        if constexpr (BYTES >= 16) {
#pragma unroll
            for (int i = 0; i < BYTES / 16; i++)
                reinterpret_cast<uint4*>(p)[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
        } else if constexpr (BYTES == 8) {
            put(p, make_uint2(w[0], w[1]));
        } else if constexpr (BYTES == 4) {
            *reinterpret_cast<u32*>(p) = w[0];
        } else {
            *reinterpret_cast<u16*>(p) = (u16)w[0];
        }
    }
}
template <class V, class U> TK_DEVICE constexpr int run_bytes() {  // alignment that a run needs
    return V::RUN * (int)sizeof(U) < 16 ? V::RUN * (int)sizeof(U) : 16;
}

// A vector meets `there` elements at p (the rest reads zero, stores nothing).
template <class U, class V>
TK_DEVICE void load_vector(V& v, const typename num<U>::bits* p, int there, bool aligned) {
    using T = typename V::type;
    if (there >= V::LENGTH && aligned) {
#pragma unroll
        for (int k = 0; k < V::COUNT / V::RUN; k++) {
            const int e = run_start<V>(k);
            if constexpr (kind_of<V>::value == kind::rv) {
                if (V::PARTIAL && k == V::CHUNKS - 1 && e >= V::LENGTH) {
                    v.set_bits(k, 0);
                    continue;
                }
            }
            load_run<V, U>(v, k, p + e);
        }
    } else {
#pragma unroll
        for (int i = 0; i < V::COUNT; i++) {
            const int e = run_start<V>(i / V::RUN) + i % V::RUN;
            v.set_bits(i, convert_bits<T, U>(e < V::LENGTH && e < there ? p[e] : (typename num<U>::bits)0));
        }
    }
}
template <class U, class V>
TK_DEVICE void store_vector(typename num<U>::bits* p, const V& v, int there, bool aligned) {
    using T = typename V::type;
    if (!run_writer<V>()) return;
    if (there >= V::LENGTH && aligned) {
#pragma unroll
        for (int k = 0; k < V::COUNT / V::RUN; k++) {
            const int e = run_start<V>(k);
            if (e < V::LENGTH) store_run<V, U>(v, k, p + e);
        }
    } else {
#pragma unroll
        for (int i = 0; i < V::COUNT; i++) {
            const int e = run_start<V>(i / V::RUN) + i % V::RUN;
            if (e < V::LENGTH && e < there) {
                const auto pair = convert_pair<U, T>(v.raw(i >> 1));
                p[e] = (i & 1) ? num<U>::hi(pair) : num<U>::lo(pair);
            }
        }
    }
}

// The coordinate counts vectors along the last dimension and rows before it.
template <class V, class U, int N, class = if_vector<V>>
TK_DEVICE void load(V& v, const gl<U, N>& g, coord at) {
    const window<U> w = tile_window<1, V::LENGTH>(g, at);
    load_vector<U>(v, reinterpret_cast<const typename num<U>::bits*>(w.p),
                   w.rows > 0 ? w.cols : 0, ((u64)w.p & (run_bytes<V, U>() - 1)) == 0);
}
template <class U, int N, class V, class = if_vector<V>>
TK_DEVICE void store(const gl<U, N>& g, const V& v, coord at) {
    const window<U> w = tile_window<1, V::LENGTH>(g, at);
    store_vector<U>(reinterpret_cast<typename num<U>::bits*>(w.p), v,
                    w.rows > 0 ? w.cols : 0, ((u64)w.p & (run_bytes<V, U>() - 1)) == 0);
}
template <class V, class U, int N, class = if_vector<V>>
TK_DEVICE void load(V& v, sv<U, N>& s) {
    static_assert(V::LENGTH == N, "load: the vectors differ in length");
    load_vector<U>(v, reinterpret_cast<const typename num<U>::bits*>(s.data), N, true);
}
template <class U, int N, class V, class = if_vector<V>>
TK_DEVICE void store(sv<U, N>& s, const V& v) {
    static_assert(V::LENGTH == N, "store: the vectors differ in length");
    store_vector<U>(reinterpret_cast<typename num<U>::bits*>(s.data), v, N, true);
}

// ---- single lanes: ldmatrix of 2, 4 or 8 elements a lane (1, 2 or 4 matrices)

struct trans_tag {};
template <bool TRANS, class T, int N> TK_DEVICE void ldmatrix_at(reg_array<T, N>& a, const T* p) {
    static_assert(sizeof(T) == 2 && (N == 2 || N == 4 || N == 8), "ldmatrix: 2, 4 or 8 elements of 16 bits");
    const u32 address = shared_address(p);
    if constexpr (N == 8) ldmatrix_x4<TRANS>(address, a.d[0], a.d[1], a.d[2], a.d[3]);
    else if constexpr (N == 4) ldmatrix_x2<TRANS>(address, a.d[0], a.d[1]);
    else ldmatrix_x1<TRANS>(address, a.d[0]);
}
template <class T, int N, narrow F> TK_DEVICE void ldmatrix(reg_array<T, N>& a, const elem<F>& x) {
    ldmatrix_at<false>(a, x.ptr);
}
template <class T, int N, narrow F> TK_DEVICE void ldmatrix(reg_array<T, N>& a, const elem<F>& x, trans_tag) {
    ldmatrix_at<true>(a, x.ptr);
}

}  // namespace warp

constexpr warp::trans_tag trans{};

// vec_load<4>(x, i) is the i-th group of 4 elements along the last dimension, in one access.
template <int N, class T, int D> TK_DEVICE T* group_ptr(const gl<T, D>& g, coord i) {
    return g.at(coord(i.b, i.d, i.r, i.c * N));
}
template <int N, class T, int... D> TK_DEVICE T* group_ptr(arr<T, D...>& a, coord i) {
    return a.ptr(coord(i.b, i.d, i.r, i.c * N));
}
template <int N, class T, int R, int C, int SW, int PAD>
TK_DEVICE T* group_ptr(st<T, R, C, SW, PAD>& s, coord i) { return s.ptr(i.r, i.c * N); }
template <int N, class T, int L> TK_DEVICE T* group_ptr(sv<T, L>& s, coord i) { return s.data + i.c * N; }

template <class T, int N> TK_DEVICE vec<T, N> vec_read(const T* p) {
    vec<T, N> v;
    using W = typename choose<sizeof(v) == 16, uint4, typename choose<sizeof(v) == 8, uint2,
              typename choose<sizeof(v) == 4, u32, u16>::type>::type>::type;
    reinterpret_cast<W&>(v) = *reinterpret_cast<const W*>(p);
    return v;
}
template <class T, int N> TK_DEVICE void vec_write(T* p, const vec<T, N>& v) {
    using W = typename choose<sizeof(v) == 16, uint4, typename choose<sizeof(v) == 8, uint2,
              typename choose<sizeof(v) == 4, u32, u16>::type>::type>::type;
    *reinterpret_cast<W*>(p) = reinterpret_cast<const W&>(v);
}
template <int N, class X> TK_DEVICE auto vec_load(X&& x, coord i) {
    auto* p = group_ptr<N>(x, i);
    return vec_read<typename base_of<decltype(p)>::type, N>(p);
}
template <int N, class X, class T> TK_DEVICE void vec_store(X&& x, coord i, const vec<T, N>& v) {
    vec_write(group_ptr<N>(x, i), v);
}
template <int N, class X> TK_DEVICE auto vec_load(X&& x, int i) { return vec_load<N>(x, coord(i)); }
template <int N, class X, class T> TK_DEVICE void vec_store(X&& x, int i, const vec<T, N>& v) {
    vec_store<N>(x, coord(i), v);
}

}  // namespace tk
