// Softmax over rows of 1024 by one warp a row, in the emitted style: 16-byte loads (V = 8).
#define TK_THREADS 128
#define TK_BLOCK_1D
#include "tk/tk.cuh"
namespace tk {
extern "C" __global__ void __launch_bounds__(128) softmax(gl<bf16, 2> x, gl<bf16, 2> y) {
    int row = blockIdx.x * 4 + warpid();
    rv<float, 1024> v;
    warp::load(v, x, {row, 0});
    v = exp(v - max(v));
    v /= sum(v);
    warp::store(y, v, {row, 0});
}
extern "C" __global__ void __launch_bounds__(128) softmax_wide(gl<bf16, 2> x, gl<bf16, 2> y) {
    int row = blockIdx.x * 4 + warpid();
    rv<float, 1024, 8> v;
    warp::load(v, x, {row, 0});
    v = exp2(fms(v, 1.4426950408889634f, max(v) * 1.4426950408889634f));
    v *= 1.f / sum(v);
    warp::store(y, v, {row, 0});
}
extern "C" __global__ void __launch_bounds__(128) softmax_f32(gl<float, 2> x, gl<float, 2> y) {
    int row = blockIdx.x * 4 + warpid();
    rv<float, 1024> v;
    warp::load(v, x, {row, 0});
    v = exp(v - max(v));
    v /= sum(v);
    warp::store(y, v, {row, 0});
}
// The tile form: a warp takes 16 rows of 128.
extern "C" __global__ void __launch_bounds__(128) softmax_tile(gl<bf16, 2> x, gl<bf16, 2> y) {
    rt<float, 16, 128> t;
    warp::load(t, x, {blockIdx.x * 4 + warpid(), 0});
    t = exp(t - row_max(t));
    t /= row_sum(t);
    warp::store(y, t, {blockIdx.x * 4 + warpid(), 0});
}
}  // namespace tk
