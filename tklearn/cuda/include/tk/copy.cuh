// copy.cuh: copies between global and shared memory by all threads of a warp or a block.
//
// This file knows: how a group of threads shares out the 16-byte chunks of a tile, ordinary copies
// and cp.async, and what happens at the edge of an array. It must not know register tiles, and it
// synchronises nothing: a barrier after a load is the kernel's own line.
//
// Chunk q = thread + THREADS * i is row q / chunks_per_row, chunk q % chunks_per_row of that row.
// A tile that lies inside an array whose pitch and base are multiples of 16 bytes takes the
// unrolled fast path. Everything else goes through one rolled loop in chunks of 16, 8 or 4 bytes, or
// elements, as wide as base and pitch allow.
#pragma once

#include "memory.cuh"

namespace tk {

// Who copies. SIZE 0: known only at run time (a kernel file that defines no TK_THREADS).
struct warp_group {
    static constexpr int SIZE = 32;
    TK_DEVICE static int size() { return 32; }
    TK_DEVICE static int rank() { return laneid(); }
};
struct block_group {
#ifdef TK_THREADS
    static constexpr int SIZE = TK_THREADS;
    TK_DEVICE static int size() { return SIZE; }
#else
    static constexpr int SIZE = 0;
    TK_DEVICE static int size() { return (int)(::blockDim.x * ::blockDim.y * ::blockDim.z); }
#endif
    TK_DEVICE static int rank() { return thread_rank(); }
};

// An unsigned integer type of B bytes.
template <int B> struct chunk_of;
template <> struct chunk_of<16> { using type = uint4; };
template <> struct chunk_of<8> { using type = uint2; };
template <> struct chunk_of<4> { using type = u32; };
template <> struct chunk_of<2> { using type = u16; };
template <> struct chunk_of<1> { using type = u8; };

// The first `bytes` of B bytes to shared memory, the rest becomes zero. 16-byte copies go past L1
// (.cg), smaller ones through it (.ca). A copy of its own thread is complete after wait_group; other
// threads need a barrier after that.
template <int B> TK_DEVICE void cp_async(void* dst, const void* src, int bytes) {
    if constexpr (B == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(shared_address(dst)), "l"(__cvta_generic_to_global(src)), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :: "r"(shared_address(dst)), "l"(__cvta_generic_to_global(src)), "n"(B), "r"(bytes) : "memory");
}
template <int B> TK_DEVICE void cp_async(void* dst, const void* src) {
    if constexpr (B == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :: "r"(shared_address(dst)), "l"(__cvta_generic_to_global(src)) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                     :: "r"(shared_address(dst)), "l"(__cvta_generic_to_global(src)), "n"(B) : "memory");
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
constexpr bool HAS_CP_ASYNC = true;
TK_DEVICE void commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> TK_DEVICE void wait_group() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
#else  // before sm_80 load_async is an ordinary, finished copy
constexpr bool HAS_CP_ASYNC = false;
TK_DEVICE void commit_group() {}
template <int N> TK_DEVICE void wait_group() {}
#endif

// Shared things that can be copied, as rows of bytes.
template <class S> struct shared_rows;
template <class T, int R, int C, int SW, int PAD> struct shared_rows<st<T, R, C, SW, PAD>> {
    static constexpr int ROWS = R, COLS = C, CHUNK = st<T, R, C, SW, PAD>::CHUNK;
    static constexpr int PITCH = st<T, R, C, SW, PAD>::PITCH;
    TK_DEVICE static unsigned char* at(st<T, R, C, SW, PAD>& s, int r, int c, int low) {
        return s.bytes + s.offset(r, c, low);
    }
};
template <class T, int N> struct shared_rows<sv<T, N>> {
    static constexpr int BYTES = N * (int)sizeof(T);
    static constexpr int ROWS = 1, COLS = N, PITCH = BYTES;
    static constexpr int CHUNK = BYTES % 16 == 0 ? 16 : BYTES % 8 == 0 ? 8 : BYTES % 4 == 0 ? 4 : (int)sizeof(T);
    TK_DEVICE static unsigned char* at(sv<T, N>& s, int, int c, int) {
        return reinterpret_cast<unsigned char*>(s.data + c);
    }
};

// Where chunk (r + i * STEP, c) is, given that chunk (r, c) is at d: the swizzle repeats every 8 rows.
template <class rows, int STEP, class S>
TK_DEVICE unsigned char* shared_step(S& s, unsigned char* d, int i, int r, int c) {
    if constexpr (STEP % 8 == 0) return d + i * STEP * rows::PITCH;
    else return rows::at(s, r + i * STEP, c, r + i * STEP);
}

// Fast path: the whole tile is there and everything is aligned to B bytes.
template <class G, bool ASYNC, int B, class S, class T> TK_DEVICE void copy_in(S& s, const window<T>& w) {
    using rows = shared_rows<S>;
    using chunk = typename chunk_of<B>::type;
    constexpr int E = B / (int)sizeof(T), PER_ROW = rows::COLS / E, TOTAL = rows::ROWS * PER_ROW;
    constexpr int BATCH = 8;  // this many loads are in flight before the first store
    const int size = G::size(), rank = G::rank();
    if constexpr (G::SIZE > 0 && TOTAL % (G::SIZE > 0 ? G::SIZE : 1) == 0 && G::SIZE % PER_ROW == 0) {
        constexpr int STEP = G::SIZE / PER_ROW, STEPS = TOTAL / G::SIZE;
        const int r = (u32)rank / PER_ROW, c = (u32)rank % PER_ROW * E;
        const T* p = w.p + r * w.pitch + c;
        const i64 step = STEP * w.pitch;
        unsigned char* d = rows::at(s, r, c, r);
#pragma unroll
        for (int i0 = 0; i0 < STEPS; i0 += BATCH) {
            chunk x[BATCH];
#pragma unroll
            for (int i = i0; i < i0 + BATCH && i < STEPS; i++, p += step) {
                if constexpr (ASYNC) cp_async<B>(shared_step<rows, STEP>(s, d, i, r, c), p);
                else x[i - i0] = *reinterpret_cast<const chunk*>(p);
            }
            if constexpr (!ASYNC) {
#pragma unroll
                for (int i = i0; i < i0 + BATCH && i < STEPS; i++)
                    *reinterpret_cast<chunk*>(shared_step<rows, STEP>(s, d, i, r, c)) = x[i - i0];
            }
        }
    } else {
#pragma unroll 4
        for (int q = rank; q < TOTAL; q += size) {
            const int r = (u32)q / PER_ROW, c = (u32)q % PER_ROW * E;
            const T* p = w.p + r * w.pitch + c;
            if constexpr (ASYNC) cp_async<B>(rows::at(s, r, c, r), p);
            else *reinterpret_cast<chunk*>(rows::at(s, r, c, r)) = *reinterpret_cast<const chunk*>(p);
        }
    }
}

// Edge path: chunks of B bytes that may be partly or wholly past the end.
template <class G, bool ASYNC, int B, class S, class T> TK_DEVICE void copy_in_edge(S& s, const window<T>& w) {
    using rows = shared_rows<S>;
    using chunk = typename chunk_of<B>::type;
    constexpr int E = B / (int)sizeof(T), PER_ROW = rows::COLS / E, TOTAL = rows::ROWS * PER_ROW;
#pragma unroll 1
    for (int q = G::rank(); q < TOTAL; q += G::size()) {
        const int r = (u32)q / PER_ROW, c = (u32)q % PER_ROW * E;
        const int there = r < w.rows ? w.cols - c : 0;  // elements of this chunk and beyond
        const T* p = there > 0 ? w.p + r * w.pitch + c : w.p;
        unsigned char* d = rows::at(s, r, c, r);
        if constexpr (ASYNC && B >= 4) {
            cp_async<B>(d, p, there >= E ? B : there > 0 ? there * (int)sizeof(T) : 0);
        } else if (there >= E) {
            *reinterpret_cast<chunk*>(d) = *reinterpret_cast<const chunk*>(p);
        } else {
            using bits = typename num<T>::bits;
            for (int e = 0; e < E; e++)
                reinterpret_cast<access<bits>*>(d)[e] = e < there ? reinterpret_cast<const bits*>(p)[e] : (bits)0;
        }
    }
}

template <class G, class S, class T> TK_DEVICE void copy_out(const window<T>& w, S& s) {
    using rows = shared_rows<S>;
    constexpr int B = rows::CHUNK;
    using chunk = typename chunk_of<B>::type;
    constexpr int E = B / (int)sizeof(T), PER_ROW = rows::COLS / E, TOTAL = rows::ROWS * PER_ROW;
    constexpr int KNOWN = G::SIZE > 0 ? G::SIZE : 1;
    if (w.holds(rows::ROWS, rows::COLS) && w.aligned(B)) {
        if constexpr (G::SIZE > 0 && TOTAL % KNOWN == 0 && TOTAL / KNOWN <= 32) {
#pragma unroll
            for (int i = 0; i < TOTAL / KNOWN; i++) {
                const int q = G::rank() + i * KNOWN, r = (u32)q / PER_ROW, c = (u32)q % PER_ROW * E;
                *reinterpret_cast<chunk*>(w.p + r * w.pitch + c) = *reinterpret_cast<const chunk*>(rows::at(s, r, c, r));
            }
        } else {
#pragma unroll 4
            for (int q = G::rank(); q < TOTAL; q += G::size()) {
                const int r = (u32)q / PER_ROW, c = (u32)q % PER_ROW * E;
                *reinterpret_cast<chunk*>(w.p + r * w.pitch + c) = *reinterpret_cast<const chunk*>(rows::at(s, r, c, r));
            }
        }
    } else {
#pragma unroll 1
        for (int q = G::rank(); q < rows::ROWS * rows::COLS; q += G::size()) {
            const int r = (u32)q / rows::COLS, c = (u32)q % rows::COLS;
            using bits = typename num<T>::bits;
            if (r < w.rows && c < w.cols)
                reinterpret_cast<bits*>(w.p)[r * w.pitch + c] = *reinterpret_cast<const bits*>(rows::at(s, r, c, r));
        }
    }
}

// Different number formats on the two sides: element by element, never asynchronous.
template <class G, class U, class S, class T> TK_DEVICE void copy_in_convert(S& s, const window<T>& w) {
    using rows = shared_rows<S>;
#pragma unroll 1
    for (int q = G::rank(); q < rows::ROWS * rows::COLS; q += G::size()) {
        const int r = (u32)q / rows::COLS, c = (u32)q % rows::COLS;
        typename num<T>::bits x = 0;
        if (r < w.rows && c < w.cols) x = reinterpret_cast<const typename num<T>::bits*>(w.p)[r * w.pitch + c];
        *reinterpret_cast<typename num<U>::bits*>(rows::at(s, r, c, r)) = convert_bits<U, T>(x);
    }
}
template <class G, class U, class S, class T> TK_DEVICE void copy_out_convert(const window<T>& w, S& s) {
    using rows = shared_rows<S>;
#pragma unroll 1
    for (int q = G::rank(); q < rows::ROWS * rows::COLS; q += G::size()) {
        const int r = (u32)q / rows::COLS, c = (u32)q % rows::COLS;
        const auto x = *reinterpret_cast<const typename num<U>::bits*>(rows::at(s, r, c, r));
        if (r < w.rows && c < w.cols)
            reinterpret_cast<typename num<T>::bits*>(w.p)[r * w.pitch + c] = convert_bits<T, U>(x);
    }
}

template <class G, bool ASYNC, class S, class T, int N>
TK_DEVICE void group_load(S& s, const gl<T, N>& g, coord at) {
    using U = typename S::type;
    using rows = shared_rows<S>;
    constexpr int B = rows::CHUNK;
    constexpr bool CP = ASYNC && HAS_CP_ASYNC;
    const window<T> w = tile_window<rows::ROWS, rows::COLS>(g, at);
    if constexpr (!same<T, U>::value) {
        copy_in_convert<G, U>(s, w);
    } else {
        if (w.holds(rows::ROWS, rows::COLS) && w.aligned(B)) copy_in<G, CP && B >= 4, B>(s, w);
        else if (B >= 16 && w.aligned(16)) copy_in_edge<G, CP, B >= 16 ? 16 : B>(s, w);
        else if (B >= 8 && sizeof(T) <= 4 && w.aligned(8)) copy_in_edge<G, CP, B >= 8 ? 8 : B>(s, w);
        else if (B >= 4 && w.aligned(4)) copy_in_edge<G, CP, B >= 4 ? 4 : B>(s, w);
        else copy_in_edge<G, CP, (int)sizeof(T)>(s, w);
    }
}
template <class G, class S, class T, int N>
TK_DEVICE void group_store(const gl<T, N>& g, S& s, coord at) {
    using U = typename S::type;
    using rows = shared_rows<S>;
    const window<T> w = tile_window<rows::ROWS, rows::COLS>(g, at);
    if constexpr (same<T, U>::value) copy_out<G>(w, s);
    else copy_out_convert<G, U>(w, s);
}

// The statements of the language: tiles (st) and vectors (sv), by a warp or by the block.
#define TK_COPIES(SCOPE)                                                                          \
    namespace SCOPE {                                                                             \
    template <class T, int R, int C, int SW, int PAD, class U, int N>                             \
    TK_DEVICE void load(st<T, R, C, SW, PAD>& s, const gl<U, N>& g, coord at) {                   \
        group_load<SCOPE##_group, false>(s, g, at);                                               \
    }                                                                                             \
    template <class T, int R, int C, int SW, int PAD, class U, int N>                             \
    TK_DEVICE void load_async(st<T, R, C, SW, PAD>& s, const gl<U, N>& g, coord at) {             \
        group_load<SCOPE##_group, true>(s, g, at);                                                \
    }                                                                                             \
    template <class U, int N, class T, int R, int C, int SW, int PAD>                             \
    TK_DEVICE void store(const gl<U, N>& g, st<T, R, C, SW, PAD>& s, coord at) {                  \
        group_store<SCOPE##_group>(g, s, at);                                                     \
    }                                                                                             \
    template <class T, int L, class U, int N>                                                     \
    TK_DEVICE void load(sv<T, L>& s, const gl<U, N>& g, coord at) {                               \
        group_load<SCOPE##_group, false>(s, g, at);                                               \
    }                                                                                             \
    template <class T, int L, class U, int N>                                                     \
    TK_DEVICE void load_async(sv<T, L>& s, const gl<U, N>& g, coord at) {                         \
        group_load<SCOPE##_group, true>(s, g, at);                                                \
    }                                                                                             \
    template <class U, int N, class T, int L>                                                     \
    TK_DEVICE void store(const gl<U, N>& g, sv<T, L>& s, coord at) {                              \
        group_store<SCOPE##_group>(g, s, at);                                                     \
    }                                                                                             \
    using ::tk::commit_group;                                                                     \
    using ::tk::wait_group;                                                                       \
    }
TK_COPIES(warp)
TK_COPIES(block)  // and warpgroup: warpgroup.cuh

}  // namespace tk
