// tk.cuh: the whole header library of tklearn, level by level.
//
// This file knows: the order of the layers; each includes only those above it.
//
//     types        number formats, pairs, coordinates
//     lanes        thread indices, shuffles, atomics, per-lane registers
//     math         functions of one float
//     registers    register tiles and vectors: who holds what
//     maps         arithmetic on them         reductions   sums and maxima, and their order
//     shared       shared tiles: where the bytes are          global   arrays in global memory
//     memory       registers <-> memory       copy         global <-> shared, cp.async
//     exchange     layout changes, transposes   mma        tensor cores of a warp
//     barriers     named barriers, setmaxnreg   warpgroup  what four warps do together
//     semaphore    mbarrier (sm_80)             ring       a place in a ring of stages
//     tma          the copy engine (sm_90)
//
//     wgmma        tensor cores of a warpgroup (sm_90a), with TK_WGMMA only: it takes the compiler a while
//
// Kernels are written inside namespace tk, so that these names are found before CUDA's own.
// Options, defined before the include: TK_THREADS n (the block size, lets block copies unroll),
// TK_BLOCK_1D (blocks extend along x only), TK_FP8 (e4m3, e5m2), TK_WGMMA, TK_COUNTING (element accesses
// volatile, loops of the kernel as written). Compile with -std=c++17 -fmad=false.
#pragma once

#include "types.cuh"
#include "lanes.cuh"
#include "math.cuh"
#include "registers.cuh"
#include "maps.cuh"
#include "reductions.cuh"
#include "shared.cuh"
#include "global.cuh"
#include "memory.cuh"
#include "copy.cuh"
#include "exchange.cuh"
#include "mma.cuh"
#include "barriers.cuh"
#include "warpgroup.cuh"
#include "semaphore.cuh"
#include "ring.cuh"
#include "tma.cuh"
#ifdef TK_WGMMA
#include "wgmma.cuh"
#endif

// Lanes whose loops end at different times stay together as long as they can only if a loop is not
// unrolled: the copies for the remainder would issue their accesses once more.
#ifdef TK_COUNTING
#define for _Pragma("unroll 1") for
#define while _Pragma("unroll 1") while
#endif
