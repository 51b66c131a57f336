// torch.h: torch tensors as arguments of an exported kernel. For the C++ compiler, without CUDA code.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "array.h"

namespace tk_torch {

// The array behind a tensor; it points into the tensor, which must outlive it.
inline tk_array array(const at::Tensor& t, const char* name, at::ScalarType dtype, int dims) {
    TORCH_CHECK(t.is_cuda(), name, " must be on a GPU, not on ", t.device());
    TORCH_CHECK(t.scalar_type() == dtype, name, " must be ", dtype, ", not ", t.scalar_type());
    TORCH_CHECK(t.dim() == dims, name, " must have ", dims, " dimensions, not ", t.dim());
    TORCH_CHECK(t.size(-1) <= 1 || t.stride(-1) == 1, name, " must be dense along its last dimension");
    return {t.data_ptr(), dims, t.sizes().data(), t.strides().data()};
}

// The number of blocks along x, y and z from one to three numbers.
struct blocks {
    int n[3] = {1, 1, 1};
    explicit blocks(at::IntArrayRef grid) {
        TORCH_CHECK(grid.size() >= 1 && grid.size() <= 3, "the grid is one to three numbers");
        for (size_t i = 0; i < grid.size(); i++) {
            TORCH_CHECK(grid[i] >= 0 && grid[i] <= (i ? 65535 : 2147483647), "the grid ", grid, " is not possible");
            n[i] = static_cast<int>(grid[i]);
        }
    }
};

inline void check(const char* name, const char* wrong) { TORCH_CHECK(wrong == nullptr, name, ": ", wrong); }

}  // namespace tk_torch
