// math.cuh: functions of one float. They fix the arithmetic of the language.
//
// This file knows: which instruction each function is, and so its error and its behaviour on
// subnormals. It must not know tiles: maps.cuh lifts these same functions to tiles and vectors.
// Every operation rounds once (compile with -fmad=false; products that the source fuses are
// spelled fma and fms).
#pragma once

#include "types.cuh"

// NVRTC has no <math.h>.
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

namespace tk {

TK_DEVICE float exp2(float x) {  // ex2.approx: 2 ulp; subnormals in and out are zero
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TK_DEVICE float log2(float x) {  // lg2.approx
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TK_DEVICE float rsqrt(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TK_DEVICE float rcp(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TK_DEVICE float tanh(float x) {  // tanh.approx: relative error up to 1e-5 on an H200, PTX states 2^-11
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TK_DEVICE float exp(float x) { return exp2(__fmul_rn(x, 1.4426950408889634f)); }
TK_DEVICE float log(float x) { return __fmul_rn(log2(x), 0.6931471805599453f); }
TK_DEVICE float sqrt(float x) { return __fsqrt_rn(x); }
TK_DEVICE float sin(float x) { return ::sinf(x); }  // full range, 2 ulp
TK_DEVICE float cos(float x) { return ::cosf(x); }
TK_DEVICE float abs(float x) { return ::fabsf(x); }
TK_DEVICE int abs(int x) { return x < 0 ? -x : x; }
TK_DEVICE i64 abs(i64 x) { return x < 0 ? -x : x; }
TK_DEVICE float relu(float x) { return ::fmaxf(x, 0.f); }

// fmaxf and fminf drop a NaN if the other operand is a number.
TK_DEVICE float maximum(float a, float b) { return ::fmaxf(a, b); }
TK_DEVICE float minimum(float a, float b) { return ::fminf(a, b); }
TK_DEVICE float max(float a, float b) { return ::fmaxf(a, b); }
TK_DEVICE float min(float a, float b) { return ::fminf(a, b); }
TK_DEVICE constexpr int max(int a, int b) { return a > b ? a : b; }
TK_DEVICE constexpr int min(int a, int b) { return a < b ? a : b; }
TK_DEVICE constexpr u32 max(u32 a, u32 b) { return a > b ? a : b; }
TK_DEVICE constexpr u32 min(u32 a, u32 b) { return a < b ? a : b; }
TK_DEVICE constexpr i64 max(i64 a, i64 b) { return a > b ? a : b; }
TK_DEVICE constexpr i64 min(i64 a, i64 b) { return a < b ? a : b; }
TK_DEVICE float max(float a, int b) { return ::fmaxf(a, (float)b); }
TK_DEVICE float max(int a, float b) { return ::fmaxf((float)a, b); }
TK_DEVICE float min(float a, int b) { return ::fminf(a, (float)b); }
TK_DEVICE float min(int a, float b) { return ::fminf((float)a, b); }

// a * b + c and a * b - c with one rounding: what "a*b + c" in one expression means.
TK_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
TK_DEVICE float fms(float a, float b, float c) { return __fmaf_rn(a, b, -c); }

// Division is IEEE, rounded to nearest, on the scalar `/` of kernels as well.
TK_DEVICE float div(float a, float b) { return __fdiv_rn(a, b); }

}  // namespace tk
