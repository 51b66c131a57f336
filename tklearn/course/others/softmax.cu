// One warp for each row of 128 numbers: lane l holds columns 4l to 4l+3.
extern "C" __global__ void softmax(const float* x, float* y, int rows) {
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float4 v = reinterpret_cast<const float4*>(x + (size_t)row * 128)[lane];
    float m = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
    for (int d = 16; d > 0; d /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, d));
    v.x = __expf(v.x - m);
    v.y = __expf(v.y - m);
    v.z = __expf(v.z - m);
    v.w = __expf(v.w - m);
    float s = (v.x + v.y) + (v.z + v.w);
    for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffff, s, d);
    v.x /= s;
    v.y /= s;
    v.z /= s;
    v.w /= s;
    reinterpret_cast<float4*>(y + (size_t)row * 128)[lane] = v;
}
