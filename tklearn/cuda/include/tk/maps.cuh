// maps.cuh: arithmetic on register tiles and vectors, element by element.
//
// This file knows: the operators, the maps (exp2, relu, ...), fma, broadcasting of a scalar or of a
// tile's own vectors, masks and fills. It must not know memory, other lanes or the tensor core:
// nothing here communicates.
//
// Every function takes values and returns a value; the compiler keeps them all in registers.
// 16- and 8-bit elements are computed in float and rounded once per operation.
#pragma once

#include "math.cuh"
#include "registers.cuh"

namespace tk {

// The type of a result: a tile if there is one among the operands, else the first vector.
template <class A, class B> struct shape2 {
    using type = typename choose<is_tile<A>, A,
                 typename choose<is_tile<B>, B, typename choose<!is_scalar<A>, A, B>::type>::type>::type;
};
template <class A, class B> using shape_t = typename shape2<A, B>::type;
template <class A, class B> using if_regs2 = typename enable_if<!is_scalar<A> || !is_scalar<B>>::type;
template <class A, class B, class C>
using if_regs3 = typename enable_if<!is_scalar<A> || !is_scalar<B> || !is_scalar<C>>::type;

// Pair p of operand x as it meets pair p of a result of type S: broadcasting by type.
template <class S, class X> TK_DEVICE float2 fetch(const X& x, int p) {
    if constexpr (is_scalar<X>) {
        const float f = (float)x;
        return make_float2(f, f);
    } else if constexpr (kind_of<X>::value == kind_of<S>::value) {
        static_assert(same<S, X>::value, "operands differ in dtype, shape or layout: convert with warp::copy, swap_layout or transpose first");
        return x.get2(p);
    } else {
        static_assert(is_tile<S> && kind_of<X>::value != kind::rv, "only col_vec and row_vec broadcast, and only over a tile (rv is for row-wise kernels)");
        static_assert(S::LAYOUT == X::LAYOUT, "this vector belongs to a tile of the other layout: col_vec and row_vec are held by other lanes in row and col tiles");
        constexpr bool COLV = kind_of<X>::value == kind::col_vec;
        static_assert(X::LENGTH == (COLV ? S::ROWS : S::COLS), "the vector's length is not the tile's number of rows (col_vec) or columns (row_vec)");
        const int b = p >> 2, q = p & 3;
        const int i = COLV ? b / S::CB : b % S::CB;  // base tile along the vector
        if constexpr (X::RUN == 1) {
            const float f = x.get(2 * i + (q & 1));
            return make_float2(f, f);
        } else {
            return x.get2(2 * i + (q >> 1));
        }
    }
}

template <class F, class A> TK_DEVICE A map1(F f, const A& a) {
    A out;
#pragma unroll
    for (int p = 0; p < A::PAIRS; p++) {
        const float2 x = a.get2(p);
        out.set2(p, f(x.x), f(x.y));
    }
    return out;
}
template <class F, class A, class B> TK_DEVICE shape_t<A, B> map2(F f, const A& a, const B& b) {
    using S = shape_t<A, B>;
    S out;
#pragma unroll
    for (int p = 0; p < S::PAIRS; p++) {
        const float2 x = fetch<S>(a, p), y = fetch<S>(b, p);
        out.set2(p, f(x.x, y.x), f(x.y, y.y));
    }
    return out;
}
template <class F, class A, class B, class C>
TK_DEVICE shape_t<shape_t<A, B>, C> map3(F f, const A& a, const B& b, const C& c) {
    using S = shape_t<shape_t<A, B>, C>;
    S out;
#pragma unroll
    for (int p = 0; p < S::PAIRS; p++) {
        const float2 x = fetch<S>(a, p), y = fetch<S>(b, p), z = fetch<S>(c, p);
        out.set2(p, f(x.x, y.x, z.x), f(x.y, y.y, z.y));
    }
    return out;
}

// Operators: tile with tile, tile with its col_vec or row_vec, vector with vector, and any of
// them with a scalar on either side.
#define TK_OPERATOR(OP, EXPR)                                                                \
    template <class A, class B, class = if_regs2<A, B>>                                      \
    TK_DEVICE shape_t<A, B> operator OP(const A& a, const B& b) {                            \
        return map2([](float x, float y) { return EXPR; }, a, b);                            \
    }                                                                                        \
    template <class A, class B, class = if_regs<A>>                                          \
    TK_DEVICE A& operator OP##=(A& a, const B& b) { return a = a OP b; }
TK_OPERATOR(+, __fadd_rn(x, y))
TK_OPERATOR(-, __fsub_rn(x, y))
TK_OPERATOR(*, __fmul_rn(x, y))
TK_OPERATOR(/, __fdiv_rn(x, y))
#undef TK_OPERATOR

template <class A, class = if_regs<A>> TK_DEVICE A operator-(const A& a) {
    return map1([](float x) { return -x; }, a);
}

// Maps of one operand: the functions of math.cuh, on every element.
#define TK_MAP(NAME)                                                     \
    template <class A, class = if_regs<A>> TK_DEVICE A NAME(const A& a) { \
        return map1([](float x) { return NAME(x); }, a);                 \
    }
TK_MAP(exp) TK_MAP(exp2) TK_MAP(log) TK_MAP(log2) TK_MAP(sqrt) TK_MAP(rsqrt) TK_MAP(rcp)
TK_MAP(tanh) TK_MAP(sin) TK_MAP(cos) TK_MAP(abs) TK_MAP(relu)
#undef TK_MAP

template <class A, class B, class = if_regs2<A, B>>
TK_DEVICE shape_t<A, B> maximum(const A& a, const B& b) {
    return map2([](float x, float y) { return ::fmaxf(x, y); }, a, b);
}
template <class A, class B, class = if_regs2<A, B>>
TK_DEVICE shape_t<A, B> minimum(const A& a, const B& b) {
    return map2([](float x, float y) { return ::fminf(x, y); }, a, b);
}

// The same under the names of the language (max(v) of one vector is in reductions.cuh).
template <class A, class B, class = if_regs2<A, B>>
TK_DEVICE shape_t<A, B> max(const A& a, const B& b) { return maximum(a, b); }
template <class A, class B, class = if_regs2<A, B>>
TK_DEVICE shape_t<A, B> min(const A& a, const B& b) { return minimum(a, b); }

// a * b + c and a * b - c, one rounding per element.
template <class A, class B, class C, class = if_regs3<A, B, C>>
TK_DEVICE shape_t<shape_t<A, B>, C> fma(const A& a, const B& b, const C& c) {
    return map3([](float x, float y, float z) { return __fmaf_rn(x, y, z); }, a, b, c);
}
template <class A, class B, class C, class = if_regs3<A, B, C>>
TK_DEVICE shape_t<shape_t<A, B>, C> fms(const A& a, const B& b, const C& c) {
    return map3([](float x, float y, float z) { return __fmaf_rn(x, y, -z); }, a, b, c);
}

namespace warp {

// Statements that fill or convert, destination first.
template <class A, class = if_regs<A>> TK_DEVICE void fill(A& a, float v) {
    const auto pair = num<typename A::type>::pack(v, v);
#pragma unroll
    for (int p = 0; p < A::PAIRS; p++) a.set_raw(p, pair);
}
template <class A, class = if_regs<A>> TK_DEVICE void zero(A& a) { fill(a, 0.f); }
template <class A, class = if_regs<A>> TK_DEVICE void one(A& a) { fill(a, 1.f); }
template <class A, class = if_regs<A>> TK_DEVICE void neg_infty(A& a) {
    fill(a, __int_as_float(0xff800000));
}
template <class A, class = if_regs<A>> TK_DEVICE void pos_infty(A& a) {
    fill(a, __int_as_float(0x7f800000));
}

template <class To, class From> TK_DEVICE void convert(To& dst, const From& src) {
#pragma unroll
    for (int p = 0; p < To::PAIRS; p++)
        dst.set_raw(p, convert_pair<typename To::type, typename From::type>(src.raw(p)));
}
// Copies between tiles or vectors of one shape and layout, with conversion of the number format.
template <class T, class U, int R, int C, layout L>
TK_DEVICE void copy(rt<T, R, C, L>& dst, const rt<U, R, C, L>& src) { convert(dst, src); }
template <class T, class U, int N, layout L>
TK_DEVICE void copy(col_vec<T, N, L>& dst, const col_vec<U, N, L>& src) { convert(dst, src); }
template <class T, class U, int N, layout L>
TK_DEVICE void copy(row_vec<T, N, L>& dst, const row_vec<U, N, L>& src) { convert(dst, src); }
template <class T, class U, int N, int V>
TK_DEVICE void copy(rv<T, N, V>& dst, const rv<U, N, V>& src) { convert(dst, src); }
template <class T, class U, int N, int V, int W>  // of another width: exchange.cuh
TK_DEVICE void copy(rv<T, N, V>& dst, const rv<U, N, W>& src);

// Masks: where keep(row, column) is false the element becomes v.
template <class A, class F> TK_DEVICE void mask(A& a, float v, F keep) {
    constexpr int DR = A::LAYOUT == layout::col, DC = A::LAYOUT == layout::row;
    const int r0 = lane_row<A>(), c0 = lane_col<A>();
#pragma unroll
    for (int p = 0; p < A::PAIRS; p++) {
        const int r = r0 + pair_row<A>(p), c = c0 + pair_col<A>(p);
        const float2 x = a.get2(p);
        a.set2(p, keep(r, c) ? x.x : v, keep(r + DR, c + DC) ? x.y : v);
    }
}
// Keep the triangle on and below (tril) or on and above (triu) the diagonal col = row + diagonal.
template <class A, class = if_tile<A>> TK_DEVICE void tril(A& a, int diagonal = 0, float v = 0.f) {
    mask(a, v, [=](int r, int c) { return c <= r + diagonal; });
}
template <class A, class = if_tile<A>> TK_DEVICE void triu(A& a, int diagonal = 0, float v = 0.f) {
    mask(a, v, [=](int r, int c) { return c >= r + diagonal; });
}
template <class A, class = if_tile<A>>
TK_DEVICE void make_causal(A& a, float v = -INFINITY) { tril(a, 0, v); }
// Fill the columns from index on (right), before index (left), the rows before (upper) or from
// index on (lower).
template <class A, class = if_tile<A>> TK_DEVICE void right_fill(A& a, int index, float v) {
    mask(a, v, [=](int, int c) { return c < index; });
}
template <class A, class = if_tile<A>> TK_DEVICE void left_fill(A& a, int index, float v) {
    mask(a, v, [=](int, int c) { return c >= index; });
}
template <class A, class = if_tile<A>> TK_DEVICE void upper_fill(A& a, int index, float v) {
    mask(a, v, [=](int r, int) { return r >= index; });
}
template <class A, class = if_tile<A>> TK_DEVICE void lower_fill(A& a, int index, float v) {
    mask(a, v, [=](int r, int) { return r < index; });
}

}  // namespace warp

// Values: a copy, and a copy in another number format (convert<bf16>(x)).
template <class A, class = if_regs<A>> TK_DEVICE A copy(const A& a) { return a; }
template <class T, class U, int R, int C, layout L> TK_DEVICE rt<T, R, C, L> convert(const rt<U, R, C, L>& a) {
    rt<T, R, C, L> out;
    warp::copy(out, a);
    return out;
}
template <class T, class U, int N, layout L> TK_DEVICE col_vec<T, N, L> convert(const col_vec<U, N, L>& a) {
    col_vec<T, N, L> out;
    warp::copy(out, a);
    return out;
}
template <class T, class U, int N, layout L> TK_DEVICE row_vec<T, N, L> convert(const row_vec<U, N, L>& a) {
    row_vec<T, N, L> out;
    warp::copy(out, a);
    return out;
}
template <class T, class U, int N, int V> TK_DEVICE rv<T, N> convert(const rv<U, N, V>& a) {
    rv<T, N> out;
    warp::copy(out, a);
    return out;
}

}  // namespace tk
