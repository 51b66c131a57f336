// barriers.cuh: named barriers, and registers that move between warpgroups.
//
// This file knows: the 16 barriers of a block (0 is the one of block::sync()), for a number of threads
// that is a multiple of 32, and setmaxnreg. It must not know memory.
#pragma once

#include "lanes.cuh"

namespace tk {

namespace block {
// Waits until `threads` threads have come to barrier `id`, by sync or by arrive.
TK_DEVICE void sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Comes to barrier `id` without waiting.
TK_DEVICE void arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
}  // namespace block

namespace warpgroup {
// Which warpgroup (four warps, aligned) this is, which warp in it, which thread in it.
TK_DEVICE int groupid() { return (u32)thread_rank() >> 7; }
TK_DEVICE int warpid() { return ((u32)thread_rank() >> 5) & 3; }
TK_DEVICE int laneid() { return thread_rank() & 127; }

// The 128 threads of this warpgroup meet at barrier `id`, 1 to 15: another one for each warpgroup.
TK_DEVICE void sync(int id) { block::sync(id, 128); }

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool HOPPER = true;  // sm_90a; plain sm_90 has neither setmaxnreg nor wgmma
#else
constexpr bool HOPPER = false;
#endif

// All warps of a warpgroup give registers back, or wait until the block's pool has them. The kernel
// needs __launch_bounds__(threads, 1), or ptxas ignores it.
template <int N> TK_DEVICE void increase_registers() {
    static_assert(HOPPER && N > 0, "increase_registers needs sm_90a");
    static_assert(N >= 24 && N <= 256 && N % 8 == 0, "increase_registers: 24 to 256 in steps of 8");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> TK_DEVICE void decrease_registers() {
    static_assert(HOPPER && N > 0, "decrease_registers needs sm_90a");
    static_assert(N >= 24 && N <= 256 && N % 8 == 0, "decrease_registers: 24 to 256 in steps of 8");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
}  // namespace warpgroup

}  // namespace tk
