// wgmma.cuh: the tensor core of one warpgroup (wgmma), which runs while its warps go on.
//
// This file knows: how a shared tile is described to the instruction, and how a product of tiles is a
// row of m64nNkK steps. It must not know how tiles come to shared memory.
//
//     mma_AB    A 64 x K    B K x N          mma_ABt   A 64 x K    B N x K         acc += product
//     mma_AtB   A K x 64    B K x N          mma_AtBt  A K x 64    B N x K         (mm_: acc = product)
//
// A and B are shared tiles with a swizzle; in mma_AB and mma_ABt A may be a register tile of 16 x K a
// warp. The product runs from here on: nobody may touch accumulators, A registers or operands before
// mma_async_wait. fence (on by default) orders earlier register accesses before it, and commit (on by
// default) makes a group of it.
#pragma once

#include "barriers.cuh"
#include "memory.cuh"
#include "wgmma_step.cuh"

namespace tk {
namespace warpgroup {

TK_DEVICE void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TK_DEVICE void mma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most the newest N groups are still running.
template <int N = 0> TK_DEVICE void mma_async_wait() {
    static_assert(N >= 0 && N <= 7, "mma_async_wait: 0 to 7 groups");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// One operand, MAJOR rows or columns (of m or n) by the depth of the product. In shared memory a tile
// is column blocks of SW bytes, R rows each (shared.cuh). The instruction takes 8 rows of SW bytes at
// a time, so 8 SW bytes is the stride from one such group to the next.
//
// Along rows (k runs along a row, "K-major"): a step of 32 bytes inside a block, then the next block.
// Transposed (k runs down, "MN-major"): a step is 16 rows; the blocks side by side, R SW bytes apart,
// are the leading dimension.
template <class TILE, bool TRANSPOSED> struct operand {
    using T = typename TILE::type;
    static constexpr int SW = TILE::PITCH, R = TILE::ROWS, C = TILE::COLS;
    static constexpr int MAJOR = TRANSPOSED ? C : R, DEPTH = TRANSPOSED ? R : C;
    static constexpr int STEP = 32 / (int)sizeof(T), STEPS = DEPTH / STEP;
    static_assert(TILE::MASK != 0, "wgmma: an operand in shared memory needs a swizzle of 32, 64 or 128 bytes");
    static_assert(DEPTH % STEP == 0, "wgmma: the inner size is a multiple of 16 (8 for tf32, 32 for fp8)");
    static_assert(!TRANSPOSED || sizeof(T) == 2, "wgmma: tf32 and fp8 take A as 64 x K and B as N x K: write mma_ABt");

    TK_DEVICE static constexpr int offset(int k) {
        return TRANSPOSED ? k * 16 * SW : k * 32 / SW * (R * SW) + k * 32 % SW;
    }
    // Bits 0-13 the address, 16-29 the leading and 32-45 the stride byte offset, all in units of 16
    // bytes; 62-63 the swizzle: 1, 2, 3 for 128, 64, 32 bytes.
    static constexpr u64 FIELDS = (u64)(SW == 128 ? 1 : SW == 64 ? 2 : 3) << 62 | (u64)(8 * SW / 16) << 32 |
                                  (u64)(TRANSPOSED ? R * SW / 16 : 1) << 16;
    TK_DEVICE static u64 describe(const TILE& s) {
        return FIELDS | (u64)((shared_address(s.bytes) & 0x3ffff) >> 4);
    }
    TK_DEVICE static u64 at(u64 description, int k) { return description + (u64)(offset(k) / 16); }
};

template <bool KEEP, bool TA, bool TB, bool FENCE, bool COMMIT, class D, class A, class B>
TK_DEVICE void product(D& d, const A& a, const B& b) {
    using T = typename B::type;
    using Y = operand<B, !TB>;  // B is used as N x K: written K x N, it lies transposed
    constexpr int N = Y::MAJOR;
    static_assert(HOPPER && N > 0, "wgmma needs sm_90a (H100, H200): on other GPUs take warp::mma_");
    static_assert(same<T, typename A::type>::value, "wgmma: A and B have one dtype");
    static_assert(same<typename D::type, float>::value || (same<T, f16>::value && same<typename D::type, f16>::value),
                  "wgmma: the accumulator is float (or f16 for f16 products)");
    static_assert(D::ROWS == 16 && D::COLS == N && D::LAYOUT == layout::row && N <= 256,
                  "wgmma: each warp's accumulator is 16 x N in row layout, N the columns of the product, up to 256");
    const u64 y = Y::describe(b);
    if constexpr (FENCE) mma_fence();
    if constexpr (is_tile<A>) {
        static_assert(!TA && sizeof(T) == 2, "wgmma: A in registers is for 16-bit types and not transposed");
        static_assert(A::ROWS == 16 && A::LAYOUT == layout::row && A::COLS == Y::DEPTH,
                      "wgmma: each warp's A is 16 x K in row layout, K the inner size");
#pragma unroll
        for (int k = 0; k < Y::STEPS; k++) {
            if (KEEP || k > 0) wgmma_step<N>::template mixed<1, !TB>(T(), d.d, &a.d[4 * k], Y::at(y, k));
            else wgmma_step<N>::template mixed<0, !TB>(T(), d.d, &a.d[4 * k], Y::at(y, k));
        }
    } else {
        using X = operand<A, TA>;
        static_assert(X::MAJOR == 64 && X::DEPTH == Y::DEPTH, "wgmma: A has 64 rows and the inner size of B");
        const u64 x = X::describe(a);
#pragma unroll
        for (int k = 0; k < Y::STEPS; k++) {
            if (KEEP || k > 0) wgmma_step<N>::template shared<1, TA, !TB>(T(), d.d, X::at(x, k), Y::at(y, k));
            else wgmma_step<N>::template shared<0, TA, !TB>(T(), d.d, X::at(x, k), Y::at(y, k));
        }
    }
    if constexpr (COMMIT) mma_commit_group();
}

#define TK_PRODUCT(NAME, TA, TB)                                                \
    template <bool FENCE = true, bool COMMIT = true, class D, class A, class B> \
    TK_DEVICE void mma_##NAME(D& d, const A& a, const B& b) {                   \
        product<true, TA, TB, FENCE, COMMIT>(d, a, b);                          \
    }                                                                           \
    template <bool FENCE = true, bool COMMIT = true, class D, class A, class B> \
    TK_DEVICE void mm_##NAME(D& d, const A& a, const B& b) {                    \
        product<false, TA, TB, FENCE, COMMIT>(d, a, b);                         \
    }
TK_PRODUCT(AB, false, false)
TK_PRODUCT(ABt, false, true)
TK_PRODUCT(AtB, true, false)
TK_PRODUCT(AtBt, true, true)
#undef TK_PRODUCT

}  // namespace warpgroup
}  // namespace tk
