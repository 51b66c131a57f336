// host.cuh: what the CPU does before a launch of an exported kernel. nvcc only.
//
// This file knows: how an array becomes the kernel's gl, and how the driver is asked to describe it to
// the copy engine (TMA) in the boxes of tma.cuh. cuda/launch.py and cuda/tma.py do the same for launches
// from Python. Functions that can fail return what is wrong, or nullptr.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "array.h"
#include "tk.cuh"

namespace tk_host {

using namespace tk;

inline const char* text(cudaError_t e) { return e == cudaSuccess ? nullptr : cudaGetErrorString(e); }

template <class T> struct map_type;
template <> struct map_type<u8> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_UINT8; };
template <> struct map_type<bool> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_UINT8; };
template <> struct map_type<u32> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_UINT32; };
template <> struct map_type<i32> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_INT32; };
template <> struct map_type<i64> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_INT64; };
template <> struct map_type<f16> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_FLOAT16; };
template <> struct map_type<bf16> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; };
template <> struct map_type<float> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_FLOAT32; };
#ifdef TK_FP8
template <> struct map_type<e4m3> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_UINT8; };
template <> struct map_type<e5m2> { static constexpr auto value = CU_TENSOR_MAP_DATA_TYPE_UINT8; };
#endif

template <class TILE> struct map_swizzle { static constexpr auto value = CU_TENSOR_MAP_SWIZZLE_NONE; };
template <class T, int R, int C, int PAD> struct map_swizzle<st<T, R, C, 32, PAD>> { static constexpr auto value = CU_TENSOR_MAP_SWIZZLE_32B; };
template <class T, int R, int C, int PAD> struct map_swizzle<st<T, R, C, 64, PAD>> { static constexpr auto value = CU_TENSOR_MAP_SWIZZLE_64B; };
template <class T, int R, int C, int PAD> struct map_swizzle<st<T, R, C, 128, PAD>> { static constexpr auto value = CU_TENSOR_MAP_SWIZZLE_128B; };

// The driver's cuTensorMapEncodeTiled, without linking against the driver; nullptr without one.
inline auto encode() {
    static void* found = [] {
        void* f = nullptr;
        cudaDriverEntryPointQueryResult status;
#if CUDART_VERSION >= 12050
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &status);
#else
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &status);
#endif
        return status == cudaDriverEntryPointSuccess ? f : nullptr;
    }();
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

// 16 bytes that stand for an empty array.
static __device__ __align__(16) unsigned char nothing[16];

// The description of an array for tiles of one type. A vector is a row; a dimension of one element has
// no stride of its own, and an empty array is one element that is read or written in vain.
template <class TILE, class T, int N>
const char* describe(tensor_map<TILE>& map, const gl<T, N>& g, bool written) {
    constexpr int RANK = N < 2 ? 2 : N;
    constexpr u64 GRANULE = 16;  // bytes: bases and strides are multiples of it
    using box = tma::box<TILE>;
    bool empty = false;
    for (int n : g.dim) empty |= n == 0;
    void* data = g.ptr;
    if (empty) {
        if (auto e = text(cudaGetSymbolAddress(&data, nothing))) return e;
    }
    if (reinterpret_cast<u64>(data) % GRANULE) return "TMA needs a first element at a multiple of 16 bytes";
    if (written && g.dim[3] * sizeof(T) % GRANULE) return "TMA stores need rows of a multiple of 16 bytes";
    cuuint64_t dims[RANK], strides[RANK - 1];
    cuuint32_t boxes[RANK], ones[RANK];
    for (int i = 0; i < RANK; i++) {
        dims[i] = empty ? 1 : g.dim[3 - i];
        boxes[i] = i == 0 ? box::COLS : i == 1 ? box::ROWS : 1;
        ones[i] = 1;
    }
    u64 extent = dims[0] * sizeof(T);
    for (int i = 1; i < RANK; i++) {
        const u64 step = dims[i] > 1 ? g.stride[3 - i] * sizeof(T) : (extent + GRANULE - 1) / GRANULE * GRANULE;
        if (step % GRANULE || step == 0) return "TMA needs strides of a positive multiple of 16 bytes: pad the rows";
        strides[i - 1] = step;
        extent = dims[i] * step;
    }
    if (!encode()) return "TMA needs a driver for CUDA 12 or newer";
    const CUresult status = encode()(
        reinterpret_cast<CUtensorMap*>(map.words), map_type<T>::value, RANK, data, dims, strides, boxes, ones,
        CU_TENSOR_MAP_INTERLEAVE_NONE, map_swizzle<TILE>::value, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return status == CUDA_SUCCESS ? nullptr : "the driver refuses the array for TMA";
}

// Fills in what a kernel takes for an array.
template <class T, int N, class... TILES>
const char* set(gl<T, N, TILES...>& out, const tk_array& a, bool written) {
    if (a.dims != N) return "an array has another number of dimensions than the kernel was made for";
    gl<T, N>& g = out;
    g.ptr = static_cast<T*>(a.data);
    for (int i = 0; i < 4; i++) {
        const int from = i - (4 - N);
        if (from >= 0 && (a.sizes[from] < 0 || a.sizes[from] >= i64(1) << 31)) return "an array has a size of 2**31 or more";
        g.dim[i] = from < 0 ? 1 : (int)a.sizes[from];
        if (i < 3) g.stride[i] = from < 0 ? 0 : a.strides[from];
        else if (a.sizes[from] > 1 && a.strides[from] != 1) return "the last dimension of an array must be dense";
    }
    const char* wrong = nullptr;
    ((wrong = wrong ? wrong : describe<TILES>(static_cast<tensor_map<TILES>&>(out), g, written)), ...);
    return wrong;
}

// Launches, with as much shared memory as the kernel was made for.
template <class... P, class... A>
const char* launch(void (*kernel)(P...), const int (&grid)[3], dim3 block, int shared, void* stream, const A&... args) {
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return nullptr;
    if (shared > 48 * 1024) {  // more has to be asked for
        if (auto e = text(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared))) return e;
    }
    kernel<<<dim3(grid[0], grid[1], grid[2]), block, shared, static_cast<cudaStream_t>(stream)>>>(args...);
    return text(cudaGetLastError());
}

}  // namespace tk_host
