// Layernorm of x + residual over rows of 1024, f32 accumulation, one warp a row; also writes the sum.
#define TK_THREADS 128
#define TK_BLOCK_1D
#include "tk/tk.cuh"
namespace tk {
extern "C" __global__ void __launch_bounds__(128) layernorm(gl<bf16, 2> x, gl<bf16, 2> residual, gl<bf16, 1> w, gl<bf16, 1> b, gl<bf16, 2> total, gl<bf16, 2> y) {
    int row = blockIdx.x * 4 + warpid();
    rv<float, 1024> v;
    rv<float, 1024> u;
    warp::load(v, x, {row, 0});
    warp::load(u, residual, {row, 0});
    v += u;
    warp::store(total, v, {row, 0});
    v -= sum(v) * (1.f / 1024);
    v *= rsqrt(fma(sum(v * v), 1.f / 1024, 1e-5f));
    warp::load(u, w, {0});
    v *= u;
    warp::load(u, b, {0});
    v += u;
    warp::store(y, v, {row, 0});
}
extern "C" __global__ void __launch_bounds__(128) layernorm_wide(gl<bf16, 2> x, gl<bf16, 2> residual, gl<bf16, 1> w, gl<bf16, 1> b, gl<bf16, 2> total, gl<bf16, 2> y) {
    int row = blockIdx.x * 4 + warpid();
    rv<float, 1024, 8> v;
    rv<float, 1024, 8> u;
    warp::load(v, x, {row, 0});
    warp::load(u, residual, {row, 0});
    v += u;
    warp::store(total, v, {row, 0});
    v -= sum(v) * (1.f / 1024);
    v *= rsqrt(fma(sum(v * v), 1.f / 1024, 1e-5f));
    warp::load(u, w, {0});
    v *= u;
    warp::load(u, b, {0});
    v += u;
    warp::store(y, v, {row, 0});
}
}  // namespace tk
