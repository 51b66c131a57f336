// mma.cuh: the tensor core of one warp (mma.sync).
//
// This file knows: which registers of which base tiles form the operands of one instruction, for
// bf16, f16, float (as tf32) and fp8. It must not know memory.
//
// D += A B with D of M x N, in base tiles of 16 x 16. Because a row-layout base tile holds A (and D)
// as the instruction wants it, and a col-layout one holds B, the four forms differ only in which
// base tile is taken:
//
//     mma_AB    A row  M x K    B col  K x N         mma_ABt   A row  M x K    B row  N x K
//     mma_AtB   A col  K x M    B col  K x N         mma_AtBt  A col  K x M    B row  N x K
#pragma once

#include "registers.cuh"

namespace tk {

// One 16 x 8 x K step: C (4 floats) += A B. a and b are this lane's registers.
TK_DEVICE void mma_step(bf16, float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
TK_DEVICE void mma_step(f16, float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
TK_DEVICE void mma_step(f16, u32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(c[0]), "+r"(c[1]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#else  // Turing has k = 8 only: two instructions, first the lower k
TK_DEVICE void mma_step(f16, float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%8}, {%0, %1, %2, %3};\n\t"
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%6, %7}, {%9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
TK_DEVICE void mma_step(f16, u32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%6}, {%0, %1};\n\t"
        "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%4, %5}, {%7}, {%0, %1};"
        : "+r"(c[0]), "+r"(c[1]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif
// tf32: k = 8. The float bits are rounded to tf32's 10-bit mantissa (nearest, ties away from zero).
TK_DEVICE u32 to_tf32(float x) {
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
TK_DEVICE void mma_step(float, float* c, float a0, float a1, float a2, float a3, float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(to_tf32(a0)), "r"(to_tf32(a1)), "r"(to_tf32(a2)), "r"(to_tf32(a3)), "r"(to_tf32(b0)), "r"(to_tf32(b1)));
}
#ifdef TK_FP8
#define TK_MMA_FP8(T)                                                                                            \
    TK_DEVICE void mma_step(T, float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {                       \
        asm("mma.sync.aligned.m16n8k32.row.col.f32." #T "." #T ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                     \
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                             \
    }
TK_MMA_FP8(e4m3)
TK_MMA_FP8(e5m2)
#undef TK_MMA_FP8
#endif

// D (one base tile) += A (one base tile) * B (one base tile). da, ab, bb: indices of base tiles.
template <class T, class D, class A, class B>
TK_DEVICE void mma_base(D& d, const A& a, const B& b, int db, int ab, int bb) {
    constexpr int DW = 8 / num<typename D::type>::PER_WORD;
    auto* c = &d.d[DW * db];
    if constexpr (sizeof(T) == 2) {
        const u32 *x = &a.d[4 * ab], *y = &b.d[4 * bb];
        mma_step(T(), c, x[0], x[1], x[2], x[3], y[0], y[2]);           // columns 0..7
        mma_step(T(), c + DW / 2, x[0], x[1], x[2], x[3], y[1], y[3]);  // columns 8..15
    } else {
        // tf32 wants k = t and t + 4 in a lane, a tile holds k = 2t and 2t + 1. The sum over k has no
        // preferred order, so both operands call 2t "t" and 2t + 1 "t + 4", in each half of 8.
        const float *x = &a.d[8 * ab], *y = &b.d[8 * bb];
#pragma unroll
        for (int h = 0; h < 8; h += 4) {
            mma_step(T(), c, x[h], x[h + 2], x[h + 1], x[h + 3], y[h], y[h + 1]);
            mma_step(T(), c + DW / 2, x[h], x[h + 2], x[h + 1], x[h + 3], y[h + 2], y[h + 3]);
        }
    }
}
// fp8: k = 32 takes two base tiles along k. A word of a tile holds one row's four elements, columns
// 2t, 2t + 1, 2t + 8, 2t + 9; as for tf32, A and B rename k alike.
template <class T, class D, class A, class B>
TK_DEVICE void mma_base_fp8(D& d, const A& a, const B& b, int db, int ab0, int ab1, int bb0, int bb1) {
    float* c = &d.d[8 * db];
    const u32 *x = &a.d[2 * ab0], *y = &a.d[2 * ab1], *u = &b.d[2 * bb0], *v = &b.d[2 * bb1];
    mma_step(T(), c, x[0], x[1], y[0], y[1], u[0], v[0]);
    mma_step(T(), c + 4, x[0], x[1], y[0], y[1], u[1], v[1]);
}

// All base tiles. ASK(m, k) and BSK(k, n) give the index of a base tile in its operand.
template <int M, int N, int K, class D, class A, class B, class FA, class FB>
TK_DEVICE void mma_tiles(D& d, const A& a, const B& b, FA fa, FB fb) {
    using T = typename A::type;
    static_assert(same<T, typename B::type>::value, "mma: A and B have one number format");
    static_assert(same<typename D::type, float>::value || (same<T, f16>::value && same<typename D::type, f16>::value),
                  "mma: the accumulator is float (or f16 for f16 products)");
    static_assert(D::LAYOUT == layout::row, "mma: the accumulator has row layout");
    static_assert(D::RB == M && D::CB == N, "mma: the accumulator's shape is not that of the product");
#ifdef __CUDA_ARCH__
    static_assert(__CUDA_ARCH__ >= 800 || same<T, f16>::value, "mma: before sm_80 the tensor core takes f16 only");
    static_assert(__CUDA_ARCH__ >= 890 || sizeof(T) > 1, "mma: fp8 needs sm_89");
#endif
    if constexpr (sizeof(T) == 1) {
        static_assert(K % 2 == 0, "mma: fp8 needs an inner size that is a multiple of 32");
#pragma unroll
        for (int k = 0; k < K; k += 2)
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
                    mma_base_fp8<T>(d, a, b, m * N + n, fa(m, k), fa(m, k + 1), fb(k, n), fb(k + 1, n));
    } else {
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++) mma_base<T>(d, a, b, m * N + n, fa(m, k), fb(k, n));
    }
}

namespace warp {

#define TK_MMA(NAME, AL, AR, AC, BL, BR, BC, MB, NB, KB, KB2, FA, FB)                                     \
    template <class D, class A, class B, class = if_tile<D>>                                              \
    TK_DEVICE void NAME(D& d, const A& a, const B& b) {                                                   \
        static_assert(A::LAYOUT == layout::AL, #NAME ": A must have " #AL " layout (swap_layout changes it)"); \
        static_assert(B::LAYOUT == layout::BL, #NAME ": B must have " #BL " layout (swap_layout changes it)"); \
        static_assert(A::KB == B::KB2, #NAME ": the inner sizes of A and B differ");                      \
        mma_tiles<A::MB, B::NB, A::KB>(d, a, b, [](int m, int k) { return FA; }, [](int k, int n) { return FB; }); \
    }
TK_MMA(mma_AB, row, M, K, col, K, N, RB, CB, CB, RB, m * A::CB + k, k * B::CB + n)
TK_MMA(mma_ABt, row, M, K, row, N, K, RB, RB, CB, CB, m * A::CB + k, n * B::CB + k)
TK_MMA(mma_AtB, col, K, M, col, K, N, CB, CB, RB, RB, k * A::CB + m, k * B::CB + n)
TK_MMA(mma_AtBt, col, K, M, row, N, K, CB, RB, RB, CB, k * A::CB + m, n * B::CB + k)
#undef TK_MMA

// The bare instructions, on this lane's registers.
template <class T> TK_DEVICE void mma_m16n8k16(reg_array<float, 4>& c, const reg_array<T, 8>& a, const reg_array<T, 4>& b) {
    mma_step(T(), c.v, a.d[0], a.d[1], a.d[2], a.d[3], b.d[0], b.d[1]);
}
TK_DEVICE void mma_m16n8k8(reg_array<float, 4>& c, const reg_array<float, 4>& a, const reg_array<float, 2>& b) {
    mma_step(float(), c.v, a[0], a[1], a[2], a[3], b[0], b[1]);
}

}  // namespace warp

}  // namespace tk
