// wgmma_step.cuh: the instruction wgmma for every width and number format, as functions.
//
// This file knows: how the registers and operands of one m64nNkK step are written down. wgmma.cuh
// knows which they are. wgmma exists on sm_90a only.
//
// wgmma_step<N>::shared<KEEP, TA, TB>(T(), d, a, b) is D += A B (KEEP 0: D = A B) of one warpgroup
// with both operands in shared memory, described by 64 bits each; ::mixed has A in registers, 4 words
// a lane. d are this lane's registers of D: N / 2 floats, or N / 4 words of two f16. 16-bit operands
// may lie transposed (TA, TB).
#pragma once

#include "types.cuh"

namespace tk {

template <int N> struct wgmma_step;

// The first n registers, as text and as operands.
#define TK_L4 "%0, %1, %2, %3"
#define TK_L8 TK_L4 ", %4, %5, %6, %7"
#define TK_L12 TK_L8 ", %8, %9, %10, %11"
#define TK_L16 TK_L12 ", %12, %13, %14, %15"
#define TK_L20 TK_L16 ", %16, %17, %18, %19"
#define TK_L24 TK_L20 ", %20, %21, %22, %23"
#define TK_L28 TK_L24 ", %24, %25, %26, %27"
#define TK_L32 TK_L28 ", %28, %29, %30, %31"
#define TK_L36 TK_L32 ", %32, %33, %34, %35"
#define TK_L40 TK_L36 ", %36, %37, %38, %39"
#define TK_L44 TK_L40 ", %40, %41, %42, %43"
#define TK_L48 TK_L44 ", %44, %45, %46, %47"
#define TK_L52 TK_L48 ", %48, %49, %50, %51"
#define TK_L56 TK_L52 ", %52, %53, %54, %55"
#define TK_L60 TK_L56 ", %56, %57, %58, %59"
#define TK_L64 TK_L60 ", %60, %61, %62, %63"
#define TK_L68 TK_L64 ", %64, %65, %66, %67"
#define TK_L72 TK_L68 ", %68, %69, %70, %71"
#define TK_L76 TK_L72 ", %72, %73, %74, %75"
#define TK_L80 TK_L76 ", %76, %77, %78, %79"
#define TK_L84 TK_L80 ", %80, %81, %82, %83"
#define TK_L88 TK_L84 ", %84, %85, %86, %87"
#define TK_L92 TK_L88 ", %88, %89, %90, %91"
#define TK_L96 TK_L92 ", %92, %93, %94, %95"
#define TK_L100 TK_L96 ", %96, %97, %98, %99"
#define TK_L104 TK_L100 ", %100, %101, %102, %103"
#define TK_L108 TK_L104 ", %104, %105, %106, %107"
#define TK_L112 TK_L108 ", %108, %109, %110, %111"
#define TK_L116 TK_L112 ", %112, %113, %114, %115"
#define TK_L120 TK_L116 ", %116, %117, %118, %119"
#define TK_L124 TK_L120 ", %120, %121, %122, %123"
#define TK_L128 TK_L124 ", %124, %125, %126, %127"
#define TK_O4(C) C(d[0]), C(d[1]), C(d[2]), C(d[3])
#define TK_O8(C) TK_O4(C), C(d[4]), C(d[5]), C(d[6]), C(d[7])
#define TK_O12(C) TK_O8(C), C(d[8]), C(d[9]), C(d[10]), C(d[11])
#define TK_O16(C) TK_O12(C), C(d[12]), C(d[13]), C(d[14]), C(d[15])
#define TK_O20(C) TK_O16(C), C(d[16]), C(d[17]), C(d[18]), C(d[19])
#define TK_O24(C) TK_O20(C), C(d[20]), C(d[21]), C(d[22]), C(d[23])
#define TK_O28(C) TK_O24(C), C(d[24]), C(d[25]), C(d[26]), C(d[27])
#define TK_O32(C) TK_O28(C), C(d[28]), C(d[29]), C(d[30]), C(d[31])
#define TK_O36(C) TK_O32(C), C(d[32]), C(d[33]), C(d[34]), C(d[35])
#define TK_O40(C) TK_O36(C), C(d[36]), C(d[37]), C(d[38]), C(d[39])
#define TK_O44(C) TK_O40(C), C(d[40]), C(d[41]), C(d[42]), C(d[43])
#define TK_O48(C) TK_O44(C), C(d[44]), C(d[45]), C(d[46]), C(d[47])
#define TK_O52(C) TK_O48(C), C(d[48]), C(d[49]), C(d[50]), C(d[51])
#define TK_O56(C) TK_O52(C), C(d[52]), C(d[53]), C(d[54]), C(d[55])
#define TK_O60(C) TK_O56(C), C(d[56]), C(d[57]), C(d[58]), C(d[59])
#define TK_O64(C) TK_O60(C), C(d[60]), C(d[61]), C(d[62]), C(d[63])
#define TK_O68(C) TK_O64(C), C(d[64]), C(d[65]), C(d[66]), C(d[67])
#define TK_O72(C) TK_O68(C), C(d[68]), C(d[69]), C(d[70]), C(d[71])
#define TK_O76(C) TK_O72(C), C(d[72]), C(d[73]), C(d[74]), C(d[75])
#define TK_O80(C) TK_O76(C), C(d[76]), C(d[77]), C(d[78]), C(d[79])
#define TK_O84(C) TK_O80(C), C(d[80]), C(d[81]), C(d[82]), C(d[83])
#define TK_O88(C) TK_O84(C), C(d[84]), C(d[85]), C(d[86]), C(d[87])
#define TK_O92(C) TK_O88(C), C(d[88]), C(d[89]), C(d[90]), C(d[91])
#define TK_O96(C) TK_O92(C), C(d[92]), C(d[93]), C(d[94]), C(d[95])
#define TK_O100(C) TK_O96(C), C(d[96]), C(d[97]), C(d[98]), C(d[99])
#define TK_O104(C) TK_O100(C), C(d[100]), C(d[101]), C(d[102]), C(d[103])
#define TK_O108(C) TK_O104(C), C(d[104]), C(d[105]), C(d[106]), C(d[107])
#define TK_O112(C) TK_O108(C), C(d[108]), C(d[109]), C(d[110]), C(d[111])
#define TK_O116(C) TK_O112(C), C(d[112]), C(d[113]), C(d[114]), C(d[115])
#define TK_O120(C) TK_O116(C), C(d[116]), C(d[117]), C(d[118]), C(d[119])
#define TK_O124(C) TK_O120(C), C(d[120]), C(d[121]), C(d[122]), C(d[123])
#define TK_O128(C) TK_O124(C), C(d[124]), C(d[125]), C(d[126]), C(d[127])
#define TK_FLOAT(X) "+f"(X)
#define TK_WORD(X) "+r"(X)

// N: the width; K: depth; TYPES as the instruction names them; D, C, n: type, constraint and number of
// this lane's registers; P0, P1, ...: the numbers of the operands that follow them.
#define TK_SHARED(N, K, TYPES, TAG, D, C, n, P0, P1, P2, P3, P4)                                       \
    template <int KEEP, int TA, int TB> TK_DEVICE static void shared(TAG, D* d, u64 a, u64 b) {         \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " P2 ", 0;\n\t"                            \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k" #K "." TYPES " {" TK_L##n "}, "         \
                     P0 ", " P1 ", p, 1, 1, " P3 ", " P4 ";\n\t}"                                       \
                     : TK_O##n(C) : "l"(a), "l"(b), "n"(KEEP), "n"(TA), "n"(TB));                       \
    }
#define TK_SHARED_PLAIN(N, K, TYPES, TAG, D, C, n, P0, P1, P2)                                         \
    template <int KEEP, int TA, int TB> TK_DEVICE static void shared(TAG, D* d, u64 a, u64 b) {         \
        static_assert(TA == 0 && TB == 0, "wgmma: tf32 and fp8 operands cannot be transposed");        \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " P2 ", 0;\n\t"                            \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k" #K "." TYPES " {" TK_L##n "}, "         \
                     P0 ", " P1 ", p, 1, 1;\n\t}"                                                       \
                     : TK_O##n(C) : "l"(a), "l"(b), "n"(KEEP));                                         \
    }
#define TK_MIXED(N, K, TYPES, TAG, D, C, n, P0, P1, P2, P3, P4, P5, P6)                                 \
    template <int KEEP, int TB> TK_DEVICE static void mixed(TAG, D* d, const u32* a, u64 b) {           \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " P5 ", 0;\n\t"                            \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k" #K "." TYPES " {" TK_L##n "}, "         \
                     "{" P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", p, 1, 1, " P6 ";\n\t}"                  \
                     : TK_O##n(C) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(KEEP), "n"(TB)); \
    }
#ifdef TK_FP8
#define TK_SHARED_FP8(...) TK_SHARED_PLAIN(__VA_ARGS__)
#else
#define TK_SHARED_FP8(...)
#endif
#define TK_WIDTH(N, n, P0, P1, P2, P3, P4, P5, P6, m, Q0, Q1, Q2, Q3, Q4, Q5, Q6)                        \
    template <> struct wgmma_step<N> {                                                                  \
        TK_SHARED(N, 16, "f32.bf16.bf16", bf16, float, TK_FLOAT, n, P0, P1, P2, P3, P4)                 \
        TK_SHARED(N, 16, "f32.f16.f16", f16, float, TK_FLOAT, n, P0, P1, P2, P3, P4)                    \
        TK_SHARED(N, 16, "f16.f16.f16", f16, u32, TK_WORD, m, Q0, Q1, Q2, Q3, Q4)                       \
        TK_SHARED_PLAIN(N, 8, "f32.tf32.tf32", float, float, TK_FLOAT, n, P0, P1, P2)                   \
        TK_SHARED_FP8(N, 32, "f32.e4m3.e4m3", e4m3, float, TK_FLOAT, n, P0, P1, P2)                     \
        TK_SHARED_FP8(N, 32, "f32.e5m2.e5m2", e5m2, float, TK_FLOAT, n, P0, P1, P2)                     \
        TK_MIXED(N, 16, "f32.bf16.bf16", bf16, float, TK_FLOAT, n, P0, P1, P2, P3, P4, P5, P6)          \
        TK_MIXED(N, 16, "f32.f16.f16", f16, float, TK_FLOAT, n, P0, P1, P2, P3, P4, P5, P6)             \
        TK_MIXED(N, 16, "f16.f16.f16", f16, u32, TK_WORD, m, Q0, Q1, Q2, Q3, Q4, Q5, Q6)                \
    };
TK_WIDTH(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14", 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
TK_WIDTH(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22", 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
TK_WIDTH(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30", 12, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
TK_WIDTH(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38", 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
TK_WIDTH(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46", 20, "%20", "%21", "%22", "%23", "%24", "%25", "%26")
TK_WIDTH(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54", 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
TK_WIDTH(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62", 28, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
TK_WIDTH(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70", 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
TK_WIDTH(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78", 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
TK_WIDTH(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86", 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
TK_WIDTH(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94", 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
TK_WIDTH(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102", 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
TK_WIDTH(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110", 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
TK_WIDTH(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118", 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
TK_WIDTH(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126", 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
TK_WIDTH(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134", 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
#undef TK_WIDTH
#undef TK_SHARED_FP8
#undef TK_MIXED
#undef TK_SHARED_PLAIN
#undef TK_SHARED
#undef TK_FLOAT
#undef TK_WORD

}  // namespace tk
