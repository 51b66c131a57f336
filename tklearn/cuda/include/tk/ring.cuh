// ring.cuh: a position in a ring of N stages.
//
// This file knows: how stage and phase go on together. It must not know semaphores or tiles.
//
// A consumer waits for wait(full[r.stage], r.phase), a producer for wait(empty[r.stage], r.phase ^ 1):
// on a fresh semaphore the producer passes, since the ring starts with all its stages empty.
#pragma once

#include "types.cuh"

namespace tk {

template <int N> struct ring {
    static_assert(N > 0, "ring: at least one stage");
    static constexpr int STAGES = N;
    int stage = 0, phase = 0;
    TK_DEVICE void advance() {
        stage++;
        if (stage == N) {
            stage = 0;
            phase ^= 1;
        }
    }
};

}  // namespace tk
