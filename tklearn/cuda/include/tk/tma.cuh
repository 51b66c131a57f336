// tma.cuh: the copy engine (TMA): tiles between global and shared memory, started by one lane.
//
// This file knows: how a tile is cut into the boxes that one instruction moves, the coordinates of
// each, and the instructions. cuda/tma.py describes the arrays to the driver with these same boxes.
// It must not know registers. Nothing here waits for data: loads are waited for at their semaphore,
// stores with store_async_wait.
//
// A swizzled tile is stored as column blocks as wide as the swizzle (shared.cuh): one box is one such
// block. A tile without a swizzle is one box of whole rows. Rows and columns past
// the end of the array arrive as zeros (and count as bytes), and are not stored.
#pragma once

#include "global.cuh"
#include "semaphore.cuh"
#include "shared.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

namespace tk {
namespace tma {

// box<TILE>: ROWS x COLS elements move at once, ACROSS such boxes are a tile, PITCH bytes from one to
// the next in shared memory.
template <class TILE> struct box;
template <class T, int R, int C, int SW, int PAD> struct box<st<T, R, C, SW, PAD>> {
    using tile = st<T, R, C, SW, PAD>;
    static constexpr int ROWS = R, COLS = tile::BLOCK, ACROSS = C / COLS, PITCH = R * tile::PITCH;
    static constexpr int WIDTH = C, BYTES = R * C * (int)sizeof(T);
    static_assert(PAD == 0, "tma: a padded tile is no box: give it a swizzle instead");
    static_assert(ROWS <= 256 && COLS <= 256, "tma: a side of a tile is at most 256 elements (columns: without a swizzle)");
    TK_DEVICE static u32 address(const tile& s) { return shared_address(s.bytes); }
};
template <class T, int N> struct box<sv<T, N>> {
    static constexpr int ROWS = 1, COLS = N, ACROSS = 1, PITCH = 0, WIDTH = N, BYTES = N * (int)sizeof(T);
    static_assert(N <= 256 && BYTES % 16 == 0, "tma: a vector is at most 256 elements, and a multiple of 16 bytes");
    TK_DEVICE static u32 address(const sv<T, N>& s) { return shared_address(s.data); }
};

template <class X> struct bytes_of { static constexpr int value = box<X>::BYTES; };
template <class X> struct bytes_of<const X> : bytes_of<X> {};
template <class X, int N> struct bytes_of<X[N]> { static constexpr int value = N * bytes_of<X>::value; };
template <class X, int N> struct bytes_of<const X[N]> : bytes_of<X[N]> {};

// One box of an array with N dimensions (a vector is one row): the coordinates count elements, the last
// dimension first.
#define TK_RANKS(CALL, OPERANDS)                                                                   \
    if constexpr (N <= 2) asm volatile(CALL("2", "{%3, %4}") ::OPERANDS, "r"(c), "r"(r) : "memory"); \
    else if constexpr (N == 3)                                                                     \
        asm volatile(CALL("3", "{%3, %4, %5}") ::OPERANDS, "r"(c), "r"(r), "r"(d) : "memory");     \
    else asm volatile(CALL("4", "{%3, %4, %5, %6}") ::OPERANDS, "r"(c), "r"(r), "r"(d), "r"(b) : "memory");
#define TK_SOURCES "r"(shared), "l"(map), "r"(bar)

#define TK_LOAD(RANK, AT) \
    "cp.async.bulk.tensor." RANK "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, " AT "], [%2];"
#define TK_STORE(RANK, AT) "cp.async.bulk.tensor." RANK "d.global.shared::cta.tile.bulk_group [%1, " AT "], [%0];"
#define TK_ADD(RANK, AT) "cp.reduce.async.bulk.tensor." RANK "d.global.shared::cta.add.tile.bulk_group [%1, " AT "], [%0];"
#define TK_MIN(RANK, AT) "cp.reduce.async.bulk.tensor." RANK "d.global.shared::cta.min.tile.bulk_group [%1, " AT "], [%0];"
#define TK_MAX(RANK, AT) "cp.reduce.async.bulk.tensor." RANK "d.global.shared::cta.max.tile.bulk_group [%1, " AT "], [%0];"
#define TK_PREFETCH(RANK, AT) "cp.async.bulk.prefetch.tensor." RANK "d.L2.global.tile [%1, " AT "];"

enum class move { load, store, add, min, max, prefetch };
template <int N, move M>
TK_DEVICE void move_box(u32 shared, const void* map, u32 bar, int b, int d, int r, int c) {
    if constexpr (M == move::load) { TK_RANKS(TK_LOAD, TK_SOURCES) }
    else if constexpr (M == move::store) { TK_RANKS(TK_STORE, TK_SOURCES) }
    else if constexpr (M == move::add) { TK_RANKS(TK_ADD, TK_SOURCES) }
    else if constexpr (M == move::min) { TK_RANKS(TK_MIN, TK_SOURCES) }
    else if constexpr (M == move::max) { TK_RANKS(TK_MAX, TK_SOURCES) }
    else { TK_RANKS(TK_PREFETCH, TK_SOURCES) }
}
#undef TK_RANKS
#undef TK_SOURCES
#undef TK_LOAD
#undef TK_STORE
#undef TK_ADD
#undef TK_MIN
#undef TK_MAX
#undef TK_PREFETCH

// All boxes of one tile. The coordinate counts tiles along rows and columns, elements before that.
template <move M, class TILE, class G>
TK_DEVICE void move_tile(const TILE& s, const G& g, coord at, u32 bar) {
    using B = box<TILE>;
    static_assert(same<typename TILE::type, typename G::type>::value, "tma: the tile and the array have one dtype");
    const tensor_map<TILE>& map = g;
    const u32 base = B::address(s);
#pragma unroll
    for (int j = 0; j < B::ACROSS; j++)
        move_box<G::DIMS, M>(base + j * B::PITCH, &map, bar, at.b, at.d, at.r * B::ROWS, at.c * B::WIDTH + j * B::COLS);
}

// One arrival that also announces bytes: those of the tiles, vectors and arrays of them that are named.
TK_DEVICE void expect_bytes(semaphore& s, int bytes) {
    if (warp::elected())
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&s)), "r"(bytes) : "memory");
}
template <class... X> TK_DEVICE void expect(semaphore& s, const X&...) {
    expect_bytes(s, (0 + ... + bytes_of<X>::value));
}

template <class TILE, class G>
TK_DEVICE void load_async(TILE& s, const G& g, coord at, semaphore& arrived) {
    if (warp::elected()) move_tile<move::load>(s, g, at, shared_address(&arrived));
}
template <class TILE, class G> TK_DEVICE void prefetch(const TILE& s, const G& g, coord at) {
    if (warp::elected()) move_tile<move::prefetch>(s, g, at, 0);
}

// A store reads shared memory as the copy engine sees it: after ordinary stores to the tile,
// tma::fence() by the lanes that stored. Each store is a group of its own.
TK_DEVICE void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
#define TK_STORE(NAME, MOVE)                                                 \
    template <class TILE, class G>                                          \
    TK_DEVICE void NAME(const G& g, const TILE& s, coord at) {              \
        if (warp::elected()) {                                                     \
            move_tile<MOVE>(s, g, at, 0);                                    \
            commit();                                                        \
        }                                                                    \
    }
TK_STORE(store_async, move::store)
TK_STORE(store_add_async, move::add)
TK_STORE(store_min_async, move::min)
TK_STORE(store_max_async, move::max)
#undef TK_STORE

TK_DEVICE void store_commit_group() {
    if (warp::elected()) commit();
}
// Until at most the newest N stores of this warp have not yet been written, or not yet been read.
template <int N = 0> TK_DEVICE void store_async_wait() {
    if (warp::elected()) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
    __syncwarp();
}
template <int N = 0> TK_DEVICE void store_async_read_wait() {
    if (warp::elected()) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
    __syncwarp();
}

// This lane's ordinary accesses to shared memory come before those of TMA and wgmma that a barrier,
// or the same warp's next operation, orders after it.
TK_DEVICE void fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace tma
}  // namespace tk

#endif
