// semaphore.cuh: semaphores (mbarrier) in shared memory, and who acts for a warp.
//
// This file knows: how a warp elects the one lane that performs an asynchronous operation, and the
// four things that are done with a semaphore. It must not know tiles or copies.
//
// A semaphore counts down arrivals and missing bytes; when both are 0 its phase (a parity, 0 or 1)
// is complete and the next one begins. wait(s, P) returns when the phase of parity P is complete:
// a fresh semaphore lets wait(s, 1) pass and holds wait(s, 0).
//
// init_semaphore, invalidate_semaphore and arrive act once per warp: all lanes come first (__syncwarp,
// which orders their earlier accesses before it), then one lane acts. wait is done by every lane.
#pragma once

#include "memory.cuh"

namespace tk {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

struct alignas(8) semaphore {
    u64 state;
};

// One lane of a warp whose 32 lanes all are here; of the same warp always the same lane, so that
// the one that commits and waits for a group is the one that issued it.
namespace warp {
TK_DEVICE bool elected() {
    __syncwarp();
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    u32 mine;
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "elect.sync _|p, 0xffffffff;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(mine)::"memory");
    return mine != 0;
#else
    return laneid() == 0;
#endif
}
}  // namespace warp

// The number of arrivals that complete a phase: 1 to 1,048,575. Other warps may use it after a
// barrier; the fences make it visible to the copy engine too.
TK_DEVICE void init_semaphore(semaphore& s, int count) {
    if (warp::elected()) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&s)), "r"(count) : "memory");
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    }
}
TK_DEVICE void invalidate_semaphore(semaphore& s) {
    if (warp::elected()) asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(&s)) : "memory");
}

// Until the phase of this parity is complete. What was done before the arrivals is then visible.
TK_DEVICE void wait(semaphore& s, int phase) {
    const u32 address = shared_address(&s);
    u32 done;
    do {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        // suspends the warp for a while before it answers no
        asm volatile(
            "{\n\t.reg .pred p;\n\t"
            "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(done) : "r"(address), "r"(phase) : "memory");
#else
        asm volatile(
            "{\n\t.reg .pred p;\n\t"
            "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(done) : "r"(address), "r"(phase) : "memory");
#endif
    } while (!done);
    __syncwarp();
}

// `count` arrivals of this warp: they release what all its lanes did before.
TK_DEVICE void arrive(semaphore& s, int count = 1) {
    if (warp::elected()) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(shared_address(&s)), "r"(count) : "memory");
#else
        for (int i = 0; i < count; i++) {
            [[maybe_unused]] u64 state;
            asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(&s)) : "memory");
        }
#endif
    }
}

#endif

}  // namespace tk
