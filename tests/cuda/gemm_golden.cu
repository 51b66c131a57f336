#define TK_THREADS 128
#define TK_BLOCK_1D
#include "tk/tk.cuh"
namespace tk {
extern "C" __global__ void __launch_bounds__(128) gemm(gl<bf16, 2> A, gl<bf16, 2> B, gl<bf16, 2> C) {
    shared_memory(smem);
    auto& a_s = smem.at<st<bf16, 128, 64, 128>[3]>(0);
    auto& b_s = smem.at<st<bf16, 64, 128, 128>[3]>(49152);
    rt<bf16, 64, 16> a;
    rt<bf16, 16, 64, col> b;
    rt<float, 64, 64> acc;
    warp::zero(acc);
    int rows = cdiv(C.rows(), 128), cols = cdiv(C.cols(), 128), ks = cdiv(A.cols(), 64);
    int group = blockIdx.x / (8 * cols), first = group * 8, height = min(rows - first, 8);
    int by = first + blockIdx.x % (8 * cols) % height, bx = blockIdx.x % (8 * cols) / height;
    int wr = warpid() / 2, wc = warpid() % 2;
    for (int s = 0; s < 2; s++) {
        block::load_async(a_s[s], A, {by, s});
        block::load_async(b_s[s], B, {s, bx});
        commit_group();
    }
    int read = 0, write = 2;
    for (int k = 0; k < ks; k++) {
        wait_group<1>();
        block::sync();
        if (k + 2 < ks) {
            block::load_async(a_s[write], A, {by, k + 2});
            block::load_async(b_s[write], B, {k + 2, bx});
        }
        commit_group();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            warp::load(a, subtile<64, 16>(a_s[read], {wr, i}));
            warp::load(b, subtile<16, 64>(b_s[read], {i, wc}));
            warp::mma_AB(acc, a, b);
        }
        read = read == 2 ? 0 : read + 1;
        write = write == 2 ? 0 : write + 1;
    }
    warp::store(C, acc, {by * 2 + wr, bx * 2 + wc});
}
}  // namespace tk
