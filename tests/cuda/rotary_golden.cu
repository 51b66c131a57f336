// Rotary embedding of x (batch, heads, rows, 128) with cos and sin (rows, 64): each lane turns eight
// pairs (x[i], x[i + 64]), in 16-byte accesses.
#define TK_THREADS 128
#define TK_BLOCK_1D
#include "tk/tk.cuh"
namespace tk {
extern "C" __global__ void __launch_bounds__(128) rotary(gl<bf16, 4> x, gl<bf16, 2> c, gl<bf16, 2> s, gl<bf16, 4> y) {
    int i = threadIdx.x % 8;
    int r = blockIdx.x * 16 + threadIdx.x / 8;
    if (r < x.rows()) {
        auto a = vec_load<8>(x, {blockIdx.z, blockIdx.y, r, i});
        auto b = vec_load<8>(x, {blockIdx.z, blockIdx.y, r, i + 8});
        auto cs = vec_load<8>(c, {r, i});
        auto sn = vec_load<8>(s, {r, i});
        for (int k = 0; k < 8; k++) {
            float p = a[k];
            float q = b[k];
            a[k] = fms(p, cs[k], q * sn[k]);
            b[k] = fma(q, cs[k], p * sn[k]);
        }
        vec_store<8>(y, {blockIdx.z, blockIdx.y, r, i}, a);
        vec_store<8>(y, {blockIdx.z, blockIdx.y, r, i + 8}, b);
    }
}
// The vector form: one warp a row.
extern "C" __global__ void __launch_bounds__(128) rotary_rv(gl<bf16, 4> x, gl<bf16, 2> c, gl<bf16, 2> s, gl<bf16, 4> y) {
    int r = blockIdx.x * 4 + warpid();
    rv<float, 64> p;
    rv<float, 64> q;
    rv<float, 64> cs;
    rv<float, 64> sn;
    warp::load(p, x, {blockIdx.z, blockIdx.y, r, 0});
    warp::load(q, x, {blockIdx.z, blockIdx.y, r, 1});
    warp::load(cs, c, {r, 0});
    warp::load(sn, s, {r, 0});
    warp::store(y, fms(p, cs, q * sn), {blockIdx.z, blockIdx.y, r, 0});
    warp::store(y, fma(q, cs, p * sn), {blockIdx.z, blockIdx.y, r, 1});
}
}  // namespace tk
