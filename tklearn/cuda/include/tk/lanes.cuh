// lanes.cuh: the machine as one lane sees it.
//
// This file knows: who this lane is (threadIdx, laneid(), warpid()), the barriers, shuffles and
// votes of a warp, atomics, and small integer helpers. It must not know tiles or layouts.
//
// CUDA's own threadIdx and friends are unsigned; an index of the language is a signed i32, so
// they are shadowed here by objects whose .x .y .z read as int. Kernels live inside namespace tk,
// where these names are found first.
#pragma once

#include "types.cuh"

namespace tk {

#define TK_INDEX(NAME)                                                                     \
    struct NAME##_t {                                                                      \
        struct X { TK_DEVICE operator int() const { return (int)::NAME.x; } } x;           \
        struct Y { TK_DEVICE operator int() const { return (int)::NAME.y; } } y;           \
        struct Z { TK_DEVICE operator int() const { return (int)::NAME.z; } } z;           \
    };                                                                                     \
    static __device__ const NAME##_t NAME {}
TK_INDEX(threadIdx);
TK_INDEX(blockIdx);
TK_INDEX(blockDim);
TK_INDEX(gridDim);
#undef TK_INDEX

// Threads of a block are numbered x fastest; a warp is 32 consecutive ones.
// A kernel file may state its block size before it includes tk.cuh (#define TK_THREADS 128): then
// block operations unroll. TK_BLOCK_1D says that blocks extend along x only.
TK_DEVICE int thread_rank() {
#ifdef TK_BLOCK_1D
    return (int)::threadIdx.x;
#else
    return (int)(::threadIdx.x + ::blockDim.x * (::threadIdx.y + ::blockDim.y * ::threadIdx.z));
#endif
}
TK_DEVICE int laneid() { return thread_rank() & 31; }
TK_DEVICE int warpid() { return (u32)thread_rank() >> 5; }

// Integers as Python has them: // and % round towards minus infinity.
TK_DEVICE int floordiv(int a, int b) {
    int q = a / b;
    return q - ((a % b != 0) && ((a ^ b) < 0));
}
TK_DEVICE int floormod(int a, int b) {
    int r = a % b;
    return r + (((r != 0) && ((r ^ b) < 0)) ? b : 0);
}
TK_DEVICE i64 floordiv(i64 a, i64 b) {
    i64 q = a / b;
    return q - ((a % b != 0) && ((a ^ b) < 0));
}
TK_DEVICE i64 floormod(i64 a, i64 b) {
    i64 r = a % b;
    return r + (((r != 0) && ((r ^ b) < 0)) ? b : 0);
}
TK_DEVICE constexpr int cdiv(int a, int b) {
    int q = a / b;
    return q + (a % b != 0 && (a ^ b) >= 0);
}
TK_DEVICE constexpr i64 cdiv(i64 a, i64 b) {
    i64 q = a / b;
    return q + (a % b != 0 && (a ^ b) >= 0);
}

// Float to integer: towards zero, saturating, NaN gives 0.
TK_DEVICE int to_i32(float x) { return __float2int_rz(x); }
TK_DEVICE int to_i32(int x) { return x; }
TK_DEVICE u32 to_u32(float x) { return __float2uint_rz(x); }
TK_DEVICE i64 to_i64(float x) { return __float2ll_rz(x); }

namespace block {
TK_DEVICE void sync() { __syncthreads(); }
}  // namespace block

namespace warp {
constexpr u32 ALL = 0xffffffffu;

TK_DEVICE void sync() { __syncwarp(); }

// Every lane takes part: the language allows these in warp-uniform control flow only.
template <class T> TK_DEVICE T shfl(T x, int src) { return (T)__shfl_sync(ALL, x, src); }
template <class T> TK_DEVICE T shfl_up(T x, int n) { return (T)__shfl_up_sync(ALL, x, n); }
template <class T> TK_DEVICE T shfl_down(T x, int n) { return (T)__shfl_down_sync(ALL, x, n); }
template <class T> TK_DEVICE T shfl_xor(T x, int mask) { return (T)__shfl_xor_sync(ALL, x, mask); }
template <class T> TK_DEVICE T uniform(T x) { return (T)__shfl_sync(ALL, x, 0); }
// A 16- or 8-bit element in memory is read first: its value is a float.
template <narrow F> TK_DEVICE float shfl(elem<F> x, int src) { return shfl(x.get(), src); }
template <narrow F> TK_DEVICE float shfl_up(elem<F> x, int n) { return shfl_up(x.get(), n); }
template <narrow F> TK_DEVICE float shfl_down(elem<F> x, int n) { return shfl_down(x.get(), n); }
template <narrow F> TK_DEVICE float shfl_xor(elem<F> x, int mask) { return shfl_xor(x.get(), mask); }
template <narrow F> TK_DEVICE float uniform(elem<F> x) { return uniform(x.get()); }

TK_DEVICE bool any(bool p) { return __any_sync(ALL, p); }
TK_DEVICE bool all(bool p) { return __all_sync(ALL, p); }
TK_DEVICE u32 ballot(bool p) { return __ballot_sync(ALL, p); }
}  // namespace warp

// Atomics on an element (A[i], a[{i, j}]): each returns the old value.
#ifdef TK_COUNTING
template <class T> TK_DEVICE T* plain(volatile T& x) { return const_cast<T*>(&x); }
#else
template <class T> TK_DEVICE T* plain(T& x) { return &x; }
#endif
template <class T> struct atomic_word { using type = T; };
template <> struct atomic_word<i64> { using type = u64; };

template <class T> TK_DEVICE T atomic_add(access<T>& x, typename itself<T>::type v) {
    using W = typename atomic_word<T>::type;
    return (T)atomicAdd(reinterpret_cast<W*>(plain<T>(x)), (W)v);
}
template <narrow F> TK_DEVICE float atomic_add(const elem<F>& x, float v) {
    return (float)atomicAdd(x.ptr, (typename elem<F>::T)v);
}
TK_DEVICE int atomic_max(access<int>& x, int v) { return atomicMax(plain<int>(x), v); }
TK_DEVICE u32 atomic_max(access<u32>& x, u32 v) { return atomicMax(plain<u32>(x), v); }
TK_DEVICE int atomic_min(access<int>& x, int v) { return atomicMin(plain<int>(x), v); }
TK_DEVICE u32 atomic_min(access<u32>& x, u32 v) { return atomicMin(plain<u32>(x), v); }

// There is no float maximum in memory. Floats of one sign order like their bits: non-negative
// ones as signed integers, negative ones the other way round as unsigned integers.
TK_DEVICE float atomic_max(access<float>& x, float v) {
    float* p = plain<float>(x);
    return (__float_as_int(v) >= 0)
        ? __int_as_float(atomicMax(reinterpret_cast<int*>(p), __float_as_int(v)))
        : __uint_as_float(atomicMin(reinterpret_cast<u32*>(p), __float_as_uint(v)));
}
TK_DEVICE float atomic_min(access<float>& x, float v) {
    float* p = plain<float>(x);
    return (__float_as_int(v) >= 0)
        ? __int_as_float(atomicMin(reinterpret_cast<int*>(p), __float_as_int(v)))
        : __uint_as_float(atomicMax(reinterpret_cast<u32*>(p), __float_as_uint(v)));
}
TK_DEVICE int atomic_exch(access<int>& x, int v) { return atomicExch(plain<int>(x), v); }
TK_DEVICE u32 atomic_exch(access<u32>& x, u32 v) { return atomicExch(plain<u32>(x), v); }
TK_DEVICE float atomic_exch(access<float>& x, float v) { return atomicExch(plain<float>(x), v); }
TK_DEVICE int atomic_cas(access<int>& x, int old, int v) { return atomicCAS(plain<int>(x), old, v); }
TK_DEVICE u32 atomic_cas(access<u32>& x, u32 old, u32 v) { return atomicCAS(plain<u32>(x), old, v); }

// reg_array<T, N>: N registers of this lane. Indices must be known when compiled; an index
// computed at run time would send the array to local memory.
template <class T, int N> struct reg_array {
    T v[N];
    TK_DEVICE T& operator[](int i) { return v[i]; }
    TK_DEVICE const T& operator[](int i) const { return v[i]; }
};
// 16- and 8-bit floats are packed into words, ready for ldmatrix and mma.
template <class T, int N> struct packed_array {
    static constexpr int PER = 4 / sizeof(T);
    u32 d[(N + PER - 1) / PER];
    struct ref {
        u32& word;
        int shift;
        TK_DEVICE operator float() const {
            return num<T>::widen((typename num<T>::bits)(word >> shift));
        }
        TK_DEVICE const ref& operator=(float x) const {
            constexpr u32 MASK = (u32)((1ull << (8 * sizeof(T))) - 1);
            word = (word & ~(MASK << shift)) | ((u32)num<T>::narrow(x) << shift);
            return *this;
        }
    };
    TK_DEVICE ref operator[](int i) { return ref{d[i / PER], 8 * (int)sizeof(T) * (i % PER)}; }
    TK_DEVICE float operator[](int i) const {
        return num<T>::widen((typename num<T>::bits)(d[i / PER] >> (8 * (int)sizeof(T) * (i % PER))));
    }
};
template <int N> struct reg_array<bf16, N> : packed_array<bf16, N> {};
template <int N> struct reg_array<f16, N> : packed_array<f16, N> {};
#ifdef TK_FP8
template <int N> struct reg_array<e4m3, N> : packed_array<e4m3, N> {};
template <int N> struct reg_array<e5m2, N> : packed_array<e5m2, N> {};
#endif

// vec<T, N>: N neighbours that move in one access of N * sizeof(T) = 4, 8 or 16 bytes.
template <class T, int N> struct alignas(N * sizeof(T)) vec {
    T v[N];
    TK_DEVICE ref_t<T> operator[](int i) { return ref_of<T>::make(v + i); }
};

}  // namespace tk
