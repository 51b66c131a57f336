// debug.cuh: print and assert in a kernel. Only files whose kernel uses them include this one.
//
// This file knows: who speaks (block and thread), and that a failed assert stops the kernel.
#pragma once

#ifndef __CUDACC_RTC__  // NVRTC has printf built in
#include <cstdio>
#endif

#include "lanes.cuh"

// Every active lane prints its own line.
#define TK_PRINT(FORMAT, ...)                                                                      \
    printf("[block (%d,%d,%d) thread %d] " FORMAT "\n", int(::blockIdx.x), int(::blockIdx.y),      \
           int(::blockIdx.z), ::tk::thread_rank(), ##__VA_ARGS__)
// Values that a warp agrees on: its first active lane prints for all.
#define TK_PRINT_WARP(FORMAT, ...)                                                                 \
    {                                                                                              \
        if (::tk::laneid() == __ffs(__activemask()) - 1)                                           \
            printf("[block (%d,%d,%d) warp %d] " FORMAT "\n", int(::blockIdx.x),                   \
                   int(::blockIdx.y), int(::blockIdx.z), ::tk::warpid(), ##__VA_ARGS__);           \
    }
// CUDA's own assert, with the Python file and line; it says block and thread itself. The kernel stops
// and the CUDA context is lost.
#ifndef __CUDACC_RTC__  // NVRTC has it built in
extern "C" __device__ void __assertfail(const void*, const void*, unsigned int, const void*, size_t);
#endif
#define TK_ASSERT(CONDITION, TEXT, FILE, LINE)                                                     \
    {                                                                                              \
        if (!(CONDITION)) __assertfail(TEXT, FILE, LINE, __FUNCTION__, 1);                         \
    }
