// The kernel language for a host C++ compiler: qualifiers, vector types and entry points.
//
// Of the standard library only C's headers, since C++ headers take longer to compile than most kernels. This macro
// makes libstdc++ pass them on as they are; other libraries ignore it.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#define MESHWRIGHT_HOST 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __constant__ static
#define __align__(n) __attribute__((aligned(n)))
// One block runs at a time, so shared variables are static; they are in a section of their own, to be filled with NaN
// before each block.
#define __shared__ static __attribute__((section("meshwright_shared")))
#define __builtin_assume(condition)

// The driver searches the preprocessed source for this prefix, and adds an entry point for every name after it.
#define MESHWRIGHT_KERNEL(name) extern "C" void meshwright_kernel_##name
#define KERNEL(name) MESHWRIGHT_KERNEL(name)

#define DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(meshwright_host::launch->dynamic_shared)

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;

#define MESHWRIGHT_VECTORS(T, name, two, four)                                     \
    struct alignas(two) name##2 { T x, y; };                                       \
    struct name##3 { T x, y, z; };                                                 \
    struct alignas(four) name##4 { T x, y, z, w; };                                \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }              \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }      \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

MESHWRIGHT_VECTORS(char, char, 2, 4)
MESHWRIGHT_VECTORS(unsigned char, uchar, 2, 4)
MESHWRIGHT_VECTORS(short, short, 4, 8)
MESHWRIGHT_VECTORS(unsigned short, ushort, 4, 8)
MESHWRIGHT_VECTORS(int, int, 8, 16)
MESHWRIGHT_VECTORS(unsigned int, uint, 8, 16)
MESHWRIGHT_VECTORS(float, float, 8, 16)
MESHWRIGHT_VECTORS(long long, longlong, 16, 16)
MESHWRIGHT_VECTORS(unsigned long long, ulonglong, 16, 16)
MESHWRIGHT_VECTORS(double, double, 16, 16)
#undef MESHWRIGHT_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};
