// types.cuh: the number formats of the language and how they sit in 32-bit words.
//
// This file knows: the names bf16, f16, e4m3, e5m2, how one number becomes a float and back (one
// rounding, to nearest even), and how two neighbours are packed into one "pair", the unit in
// which every register tile is read and written. It must not know what a tile is, which lane it
// runs on, or where memory is.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifdef TK_FP8
#include <cuda_fp8.h>
#endif

#define TK_DEVICE __device__ __forceinline__

namespace tk {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
using f32 = float;
using f16 = __half;
using bf16 = __nv_bfloat16;
#ifdef TK_FP8
using e4m3 = __nv_fp8_e4m3;
using e5m2 = __nv_fp8_e5m2;
#endif

// Where the elements of a register tile sit: row = consecutive columns in a lane (the A and C
// operands of a tensor core), col = the transposed map (the B operand).
enum class layout { row, col };
constexpr layout row = layout::row;
constexpr layout col = layout::col;

template <class A, class B> struct same { static constexpr bool value = false; };
template <class A> struct same<A, A> { static constexpr bool value = true; };

template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };

template <bool B, class X, class Y> struct choose { using type = X; };
template <class X, class Y> struct choose<false, X, Y> { using type = Y; };

template <class T> struct itself { using type = T; };  // a parameter that deduces nothing

template <class T> struct base_of;  // what a pointer points to
template <class T> struct base_of<T*> { using type = T; };

// num<T>: everything the headers need to know about a number format.
//   bits            the raw element            pair     two raw elements, the first one low
//   WORD            what a register array is made of    PER_WORD  elements in one WORD
template <class T> struct num { static constexpr bool is_float = false; };

template <> struct num<float> {
    static constexpr bool is_float = true;
    static constexpr int PER_WORD = 1;
    using word = float;
    using bits = float;
    using pair = float2;
    TK_DEVICE static float widen(bits x) { return x; }
    TK_DEVICE static bits narrow(float x) { return x; }
    TK_DEVICE static pair join(bits lo, bits hi) { return make_float2(lo, hi); }
    TK_DEVICE static pair pack(float lo, float hi) { return make_float2(lo, hi); }
    TK_DEVICE static float2 unpack(pair p) { return p; }
    TK_DEVICE static bits lo(pair p) { return p.x; }
    TK_DEVICE static bits hi(pair p) { return p.y; }
    TK_DEVICE static pair of_words(const u32* w, int p) {
        return make_float2(__uint_as_float(w[2 * p]), __uint_as_float(w[2 * p + 1]));
    }
    TK_DEVICE static void to_words(u32* w, int p, pair x) {
        w[2 * p] = __float_as_uint(x.x);
        w[2 * p + 1] = __float_as_uint(x.y);
    }
};

// The parts that both 16-bit formats share: a pair is one 32-bit word.
struct num16 {
    static constexpr bool is_float = true;
    static constexpr int PER_WORD = 2;
    using word = u32;
    using bits = u16;
    using pair = u32;
    TK_DEVICE static pair join(bits lo, bits hi) { return (u32)lo | ((u32)hi << 16); }
    TK_DEVICE static bits lo(pair p) { return (bits)p; }
    TK_DEVICE static bits hi(pair p) { return (bits)(p >> 16); }
    TK_DEVICE static pair of_words(const u32* w, int p) { return w[p]; }
    TK_DEVICE static void to_words(u32* w, int p, pair x) { w[p] = x; }
};

template <> struct num<bf16> : num16 {
    TK_DEVICE static float widen(bits x) { return __uint_as_float((u32)x << 16); }
    TK_DEVICE static bits narrow(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
    TK_DEVICE static pair pack(float lo, float hi) {
        __nv_bfloat162 p = __floats2bfloat162_rn(lo, hi);
        return reinterpret_cast<u32&>(p);
    }
    TK_DEVICE static float2 unpack(pair p) {
        return make_float2(__uint_as_float(p << 16), __uint_as_float(p & 0xffff0000u));
    }
};

template <> struct num<f16> : num16 {
    TK_DEVICE static float widen(bits x) { return __half2float(__ushort_as_half(x)); }
    TK_DEVICE static bits narrow(float x) { return __half_as_ushort(__float2half_rn(x)); }
    TK_DEVICE static pair pack(float lo, float hi) {
        __half2 p = __floats2half2_rn(lo, hi);
        return reinterpret_cast<u32&>(p);
    }
    TK_DEVICE static float2 unpack(pair p) {
        return __half22float2(reinterpret_cast<__half2&>(p));
    }
};

#ifdef TK_FP8
// The parts that both 8-bit formats share: four elements in a word, values beyond the largest
// finite number saturate to it.
template <__nv_fp8_interpretation_t KIND> struct num8 {
    static constexpr bool is_float = true;
    static constexpr int PER_WORD = 4;
    using word = u32;
    using bits = u8;
    using pair = u16;
    TK_DEVICE static pair join(bits lo, bits hi) { return (u16)((u32)lo | ((u32)hi << 8)); }
    TK_DEVICE static bits lo(pair p) { return (bits)p; }
    TK_DEVICE static bits hi(pair p) { return (bits)(p >> 8); }
    TK_DEVICE static pair pack(float lo, float hi) {
        return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, KIND);
    }
    TK_DEVICE static float2 unpack(pair p) {
        __half2_raw h = __nv_cvt_fp8x2_to_halfraw2(p, KIND);
        return __half22float2(reinterpret_cast<__half2&>(h));
    }
    TK_DEVICE static float widen(bits x) { return unpack(x).x; }
    TK_DEVICE static bits narrow(float x) { return (bits)pack(x, 0.f); }
    TK_DEVICE static pair of_words(const u32* w, int p) { return (u16)(w[p >> 1] >> (16 * (p & 1))); }
    TK_DEVICE static void to_words(u32* w, int p, pair x) {
        w[p >> 1] = (p & 1) ? (w[p >> 1] & 0xffffu) | ((u32)x << 16) : (u32)x;
    }
};
template <> struct num<e4m3> : num8<__NV_E4M3> {};
template <> struct num<e5m2> : num8<__NV_E5M2> {};
#endif

// One pair of From as a pair of To: nothing if they are the same format, else one rounding.
template <class To, class From>
TK_DEVICE typename num<To>::pair convert_pair(typename num<From>::pair p) {
    if constexpr (same<To, From>::value) {
        return p;
    } else {
        float2 f = num<From>::unpack(p);
        return num<To>::pack(f.x, f.y);
    }
}

template <class To, class From>
TK_DEVICE typename num<To>::bits convert_bits(typename num<From>::bits x) {
    if constexpr (same<To, From>::value) return x;
    else return num<To>::narrow(num<From>::widen(x));
}

// A place in a tile or an array. Missing leading indices are 0. For elements it counts elements,
// for tile loads and stores it counts tiles of the operation's type.
struct coord {
    int b, d, r, c;
    TK_DEVICE coord(int c) : b(0), d(0), r(0), c(c) {}
    TK_DEVICE coord(int r, int c) : b(0), d(0), r(r), c(c) {}
    TK_DEVICE coord(int d, int r, int c) : b(0), d(d), r(r), c(c) {}
    TK_DEVICE coord(int b, int d, int r, int c) : b(b), d(d), r(r), c(c) {}
};

// Element accesses of gl, st and arr go through these types. The counting build makes them
// volatile, so that the compiler neither merges nor drops one and a profiler counts what is
// written in the source.
#ifdef TK_COUNTING
template <class T> using access = volatile T;
#else
template <class T> using access = T;
#endif

// elem<F>: a reference to a 16- or 8-bit float in memory. Reading gives a float, writing rounds. It
// is named by an enumerator and not by the type, because C++ would otherwise also look for functions
// of it (fma, exp, ...) where the type was declared, that is among CUDA's own.
enum class narrow { bf16, f16, e4m3, e5m2 };
template <narrow F> struct narrow_type;
template <> struct narrow_type<narrow::bf16> { using type = bf16; };
template <> struct narrow_type<narrow::f16> { using type = f16; };
#ifdef TK_FP8
template <> struct narrow_type<narrow::e4m3> { using type = e4m3; };
template <> struct narrow_type<narrow::e5m2> { using type = e5m2; };
#endif
template <narrow F> struct elem {
    using T = typename narrow_type<F>::type;
    using bits = typename num<T>::bits;
    T* ptr;
    TK_DEVICE float get() const {
        return num<T>::widen(*reinterpret_cast<access<bits>*>(ptr));
    }
    TK_DEVICE operator float() const { return get(); }
    TK_DEVICE const elem& operator=(float x) const {
        *reinterpret_cast<access<bits>*>(ptr) = num<T>::narrow(x);
        return *this;
    }
    TK_DEVICE const elem& operator=(const elem& x) const { return *this = x.get(); }
    TK_DEVICE const elem& operator+=(float x) const { return *this = __fadd_rn(get(), x); }
    TK_DEVICE const elem& operator-=(float x) const { return *this = __fsub_rn(get(), x); }
    TK_DEVICE const elem& operator*=(float x) const { return *this = __fmul_rn(get(), x); }
    TK_DEVICE const elem& operator/=(float x) const { return *this = __fdiv_rn(get(), x); }
};

// ref_t<T>: what indexing an array of T gives: T& for float and integers, elem<F> for the rest.
template <class T> struct ref_of {
    using type = access<T>&;
    TK_DEVICE static type make(T* p) { return *p; }
};
template <narrow F> struct narrow_ref {
    using type = elem<F>;
    TK_DEVICE static type make(typename elem<F>::T* p) { return elem<F>{p}; }
};
template <> struct ref_of<bf16> : narrow_ref<narrow::bf16> {};
template <> struct ref_of<f16> : narrow_ref<narrow::f16> {};
#ifdef TK_FP8
template <> struct ref_of<e4m3> : narrow_ref<narrow::e4m3> {};
template <> struct ref_of<e5m2> : narrow_ref<narrow::e5m2> {};
#endif
template <class T> using ref_t = typename ref_of<T>::type;

}  // namespace tk
