// debug.cuh: print and assert in a kernel. Only files whose kernel uses them include this one.
//
// This file knows: who speaks (block and thread), and that a failed assert stops the kernel.
#pragma once

#include "lanes.cuh"

// Every active lane prints its own line.
#define TK_PRINT(FORMAT, ...)                                                                      \
    printf("[block (%d,%d,%d) thread %d] " FORMAT "\n", int(::blockIdx.x), int(::blockIdx.y),      \
           int(::blockIdx.z), ::tk::thread_rank(), ##__VA_ARGS__)
// Values that a warp agrees on: its first active lane prints for all.
#define TK_PRINT_WARP(FORMAT, ...)                                                                 \
    do {                                                                                           \
        if (::tk::laneid() == __ffs(__activemask()) - 1)                                           \
            printf("[block (%d,%d,%d) warp %d] " FORMAT "\n", int(::blockIdx.x),                   \
                   int(::blockIdx.y), int(::blockIdx.z), ::tk::warpid(), ##__VA_ARGS__);           \
    } while (0)
// The text names the Python file and line. A trap loses the CUDA context: nothing runs after it.
#define TK_ASSERT(CONDITION, TEXT)                                                                 \
    do {                                                                                           \
        if (!(CONDITION)) {                                                                        \
            printf("assert failed [block (%d,%d,%d) thread %d] %s\n", int(::blockIdx.x),           \
                   int(::blockIdx.y), int(::blockIdx.z), ::tk::thread_rank(), TEXT);               \
            __trap();                                                                              \
        }                                                                                          \
    } while (0)
