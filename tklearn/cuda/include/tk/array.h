// array.h: an array as the caller of an exported kernel describes it. Plain C++, no CUDA.
#pragma once

#include <cstdint>

// `dims` sizes and strides, in elements; the stride of the last dimension is 1. Memory of the GPU.
struct tk_array {
    void* data;
    int dims;
    const std::int64_t* sizes;
    const std::int64_t* strides;
};
