// Functions of the kernel language that need no header: arithmetic, bit operations, memory access with hints, atomics.

static inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
static inline int __float_as_int(float x) { int y; memcpy(&y, &x, 4); return y; }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
static inline long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }

// The kernel language has these functions for float too; C's are for double.
#define MESHWRIGHT_OF_FLOAT(name) \
    static inline float name(float x) { return name##f(x); }
MESHWRIGHT_OF_FLOAT(exp)
MESHWRIGHT_OF_FLOAT(exp2)
MESHWRIGHT_OF_FLOAT(expm1)
MESHWRIGHT_OF_FLOAT(log)
MESHWRIGHT_OF_FLOAT(log2)
MESHWRIGHT_OF_FLOAT(log10)
MESHWRIGHT_OF_FLOAT(log1p)
MESHWRIGHT_OF_FLOAT(sqrt)
MESHWRIGHT_OF_FLOAT(cbrt)
MESHWRIGHT_OF_FLOAT(sin)
MESHWRIGHT_OF_FLOAT(cos)
MESHWRIGHT_OF_FLOAT(tan)
MESHWRIGHT_OF_FLOAT(asin)
MESHWRIGHT_OF_FLOAT(acos)
MESHWRIGHT_OF_FLOAT(atan)
MESHWRIGHT_OF_FLOAT(sinh)
MESHWRIGHT_OF_FLOAT(cosh)
MESHWRIGHT_OF_FLOAT(tanh)
MESHWRIGHT_OF_FLOAT(erf)
MESHWRIGHT_OF_FLOAT(erfc)
MESHWRIGHT_OF_FLOAT(floor)
MESHWRIGHT_OF_FLOAT(ceil)
MESHWRIGHT_OF_FLOAT(trunc)
MESHWRIGHT_OF_FLOAT(round)
MESHWRIGHT_OF_FLOAT(rint)
MESHWRIGHT_OF_FLOAT(fabs)
#undef MESHWRIGHT_OF_FLOAT
static inline float abs(float x) { return fabsf(x); }
static inline double abs(double x) { return fabs(x); }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline float pow(float x, float y) { return powf(x, y); }
static inline float atan2(float y, float x) { return atan2f(y, x); }
static inline float fma(float x, float y, float z) { return fmaf(x, y, z); }

// The C library reserves these names, so they cannot be declared.
#define __expf expf
#define __exp2f exp2f
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanhf tanhf
#define __sincosf sincosf

static inline float sinpif(float x) { return static_cast<float>(sin(3.14159265358979323846 * x)); }
static inline float cospif(float x) { return static_cast<float>(cos(3.14159265358979323846 * x)); }
static inline void sincospif(float x, float* sine, float* cosine) { *sine = sinpif(x), *cosine = cospif(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752440f); }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
static inline int __float2int_rz(float x) { return static_cast<int>(x); }
static inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
static inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
static inline float __int2float_rn(int x) { return static_cast<float>(x); }
static inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

template <class A, class B>
static inline constexpr decltype(false ? A() : B()) min(A a, B b) { return a < b ? a : b; }
template <class A, class B>
static inline constexpr decltype(false ? A() : B()) max(A a, B b) { return a < b ? b : a; }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<unsigned long long>(x) * y) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(x) * y) >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((((static_cast<uint64_t>(high) << 32) | low) << (by & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32) | low) >> (by & 31));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    uint64_t bytes = (static_cast<uint64_t>(y) << 32) | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned byte = static_cast<unsigned>(bytes >> (8 * (selector >> (4 * i) & 7))) & 0xff;
        result |= byte << (8 * i);
    }
    return result;
}

#define MESHWRIGHT_LOAD(name) \
    template <class T> static inline T name(const T* from) { return *from; }
MESHWRIGHT_LOAD(__ldg)
MESHWRIGHT_LOAD(__ldca)
MESHWRIGHT_LOAD(__ldcg)
MESHWRIGHT_LOAD(__ldcs)
MESHWRIGHT_LOAD(__ldcv)
MESHWRIGHT_LOAD(__ldlu)
#undef MESHWRIGHT_LOAD
#define MESHWRIGHT_STORE(name) \
    template <class T> static inline void name(T* to, T value) { *to = value; }
MESHWRIGHT_STORE(__stwb)
MESHWRIGHT_STORE(__stcg)
MESHWRIGHT_STORE(__stcs)
MESHWRIGHT_STORE(__stwt)
#undef MESHWRIGHT_STORE

// Threads switch only at barriers, so plain memory operations are atomic.
template <class T, class Update>
__attribute__((no_sanitize("thread"), no_sanitize("undefined")))
static inline T meshwright_atomic(T* at, Update update) {
    T before = *at;
    *at = update(before);
    return before;
}
#define MESHWRIGHT_ATOMIC(name, expression)                                             \
    template <class T, class V>                                                         \
    static inline T name(T* at, V value) {                                              \
        T y = static_cast<T>(value);                                                    \
        return meshwright_atomic(at, [y](T x) { return static_cast<T>(expression); });  \
    }
MESHWRIGHT_ATOMIC(atomicAdd, x + y)
MESHWRIGHT_ATOMIC(atomicSub, x - y)
MESHWRIGHT_ATOMIC(atomicExch, (static_cast<void>(x), y))
MESHWRIGHT_ATOMIC(atomicMax, x < y ? y : x)
MESHWRIGHT_ATOMIC(atomicMin, x < y ? x : y)
MESHWRIGHT_ATOMIC(atomicAnd, x & y)
MESHWRIGHT_ATOMIC(atomicOr, x | y)
MESHWRIGHT_ATOMIC(atomicXor, x ^ y)
MESHWRIGHT_ATOMIC(atomicInc, x >= y ? 0 : x + 1)
#undef MESHWRIGHT_ATOMIC
template <class T, class C, class V>
static inline T atomicCAS(T* at, C expected, V value) {
    T wanted = static_cast<T>(expected), y = static_cast<T>(value);
    return meshwright_atomic(at, [=](T x) { return x == wanted ? y : x; });
}
