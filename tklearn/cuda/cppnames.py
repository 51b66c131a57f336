"""Which C++ name a learner's Python name gets.

Names stay as they are, unless C++, CUDA or our headers use them: those get a trailing underscore.
This file knows words only; scopes are the same in both languages, so one Python name is one C++
name in a whole function.
"""

from __future__ import annotations

from collections.abc import Iterable

_CPP = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
extern false final float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq override private protected public register reinterpret_cast
requires restrict return short signed sizeof static static_assert static_cast struct switch
template this thread_local throw true try typedef typeid typename union unsigned using virtual
void volatile wchar_t while xor xor_eq main linux unix std printf assert malloc free memcpy memset
abort exit NULL INFINITY NAN size_t ptrdiff_t
"""
# Macros of the C headers that nvcc includes by itself.
_MACROS = """
BUFSIZ EOF MAXFLOAT NFDBITS NZERO SNAN SNANF SNANF32 SNANF32X SNANF64 SNANF64X SNANL WCONTINUED
WEXITED WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WNOHANG WNOWAIT WSTOPPED
WSTOPSIG WTERMSIG WUNTRACED alloca be16toh be32toh be64toh htobe16 htobe32 htobe64 htole16 htole32
htole64 le16toh le32toh le64toh isascii issubnormal offsetof stderr stdin stdout strdupa strndupa
toascii
BIG_ENDIAN BYTE_ORDER LITTLE_ENDIAN CHAR_BIT CHAR_MAX CHAR_MIN INT_MAX INT_MIN LONG_MAX LONG_MIN
UINT_MAX SIZE_MAX HUGE_VAL RAND_MAX LINE_MAX NAME_MAX PATH_MAX WORD_BIT LONG_BIT M_E M_PI
EXIT_SUCCESS EXIT_FAILURE SEEK_SET SEEK_CUR SEEK_END
"""
_CUDA = """
threadIdx blockIdx blockDim gridDim warpSize dim3 half half2 float2 float3 float4 int2 int3 int4
uint2 uint3 uint4 double2 char4 uchar4 short2 clock clock64 nanosleep acos asin atan atan2 ceil
cos cosh erf erfc exp exp2 expm1 fabs floor fma fmax fmin fmod frexp hypot ldexp lgamma log
log10 log1p log2 modf pow rint round rsqrt sin sinh sqrt tan tanh tgamma trunc y0 y1 yn j0 j1 jn
abs labs llabs min max div norm isnan isinf signbit copysign nan logb ilogb remainder
"""
_TK = """
tk smem shared_memory subtile vec vec_load vec_store reg_array gl rt rv st sv arr col_vec
row_vec coord row col layout elem num access ref_t ref_of narrow_ref num16 num8 same enable_if
choose packed_array plain bf16 f16 f32 e4m3 e5m2 i32 i64 u8 u16 u32 u64 warp block warpgroup tma
laneid warpid thread_rank floordiv floormod cdiv fms rcp relu maximum minimum sum copy convert
convert_pair convert_bits swap_layout transpose row_max row_min row_sum col_max col_min col_sum
commit_group wait_group atomic_add atomic_max atomic_min atomic_exch atomic_cas atomic_word
to_i32 to_u32 to_i64 to_u8 semaphore wait arrive trans trans_tag whole window regs kind st_view
group_ptr vec_read vec_write ring tensor_map init_semaphore invalidate_semaphore wgmma_step
warp_group block_group warpgroup_group tk_array tk_host tk_torch
"""
RESERVED = frozenset(f"{_CPP} {_MACROS} {_CUDA} {_TK}".split())


def legal(name: str) -> str:
    """`name` as a C++ identifier that nothing else uses."""
    if not name.isascii():
        name = "".join(c if c.isascii() else f"u{ord(c):04x}" for c in name)
    if name in RESERVED or name.startswith(("__", "TK_")):
        return name.lstrip("_") + "_" if name.startswith("__") else name + "_"
    return name


class Names:
    """The names of one C++ function: different Python names never meet."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._cpp: dict[str, str] = {}
        self._used: set[str] = set(taken)

    def reserve(self, names: Iterable[str]) -> None:
        """First choice for these names, in order: those that may stay as they are come first."""
        todo = list(dict.fromkeys(names))
        for n in sorted(todo, key=lambda n: legal(n) != n):
            self(n)

    def __call__(self, name: str) -> str:
        if name not in self._cpp:
            cpp = legal(name)
            while cpp in self._used:
                cpp += "_"
            self._cpp[name] = cpp
            self._used.add(cpp)
        return self._cpp[name]

    def fresh(self, stem: str) -> str:
        """A name for something that the learner did not name."""
        name, n = stem, 1
        while name in self._used or name in RESERVED:
            n += 1
            name = f"{stem}{n}"
        self._used.add(name)
        return name
