// What every kernel source begins with. The host shim provides the same names for tests (MESHWRIGHT_HOST is defined
// there), so that each kernel runs on a machine without a GPU.
#ifndef MESHWRIGHT_HOST

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;

#define KERNEL(name) extern "C" __global__ void name
// For blocks of at most this many threads, so many of which fit a multiprocessor at a time.
#define KERNEL_BOUNDS(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name
#define INFINITY __int_as_float(0x7f800000)

#else

#define KERNEL_BOUNDS(name, threads, blocks) KERNEL(name)

#endif

// Numbers. Arithmetic is in f32: bf16 is widened where it is read, and rounded to the nearest where it is written, ties
// to even; NaN stays NaN.

struct bf16 {
    uint16_t bits;
};

#ifdef MESHWRIGHT_HOST

__device__ inline uint32_t bf16_bits(float x) {
    uint32_t bits = __float_as_uint(x);
    // Half of the last place, less one if that place is even: what carries into the place rounds it up. A NaN gets the
    // quiet bit instead, or it might become an infinity.
    return (x != x ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
__device__ inline uint32_t bf16_pair(float low, float high) {
    return bf16_bits(low) | bf16_bits(high) << 16;
}

#else

__device__ inline uint32_t bf16_bits(float x) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ inline uint32_t bf16_pair(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#endif

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }

__device__ inline void store(float* at, float x) { *at = x; }
__device__ inline void store(bf16* at, float x) { at->bits = (uint16_t)bf16_bits(x); }

// Elements of T that one access of 128 bits moves.
template <class T>
constexpr int WIDE = 16 / (int)sizeof(T);

// Vectors of N elements (4, or a multiple of 8) at addresses aligned to their size, or to 16 bytes where they are longer.

template <int N>
__device__ inline void load_vector(const float* from, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        float4 v = *(const float4*)(from + i);
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
    }
}

__device__ inline void widen_pair(uint32_t pair, float& low, float& high) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
}

template <int N>
__device__ inline void load_vector(const bf16* from, float (&x)[N]) {
    if constexpr (N == 4) {
        uint2 v = *(const uint2*)from;
        widen_pair(v.x, x[0], x[1]);
        widen_pair(v.y, x[2], x[3]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 8) {
            uint4 v = *(const uint4*)(from + i);
            widen_pair(v.x, x[i], x[i + 1]);
            widen_pair(v.y, x[i + 2], x[i + 3]);
            widen_pair(v.z, x[i + 4], x[i + 5]);
            widen_pair(v.w, x[i + 6], x[i + 7]);
        }
    }
}

template <int N>
__device__ inline void store_vector(float* to, const float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        *(float4*)(to + i) = float4{x[i], x[i + 1], x[i + 2], x[i + 3]};
    }
}

template <int N>
__device__ inline void store_vector(bf16* to, const float (&x)[N]) {
    if constexpr (N == 4) {
        *(uint2*)to = uint2{bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3])};
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 8) {
            *(uint4*)(to + i) = uint4{bf16_pair(x[i], x[i + 1]), bf16_pair(x[i + 2], x[i + 3]),
                                      bf16_pair(x[i + 4], x[i + 5]), bf16_pair(x[i + 6], x[i + 7])};
        }
    }
}

// Loops over a grid along x alone: `for (i = thread_index(); i < n; i += thread_count())`.

__device__ inline uint64_t thread_index() {
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline uint64_t thread_count() { return (uint64_t)gridDim.x * blockDim.x; }

// Reductions. Every thread gets the result; the order depends on the number of threads alone.

struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};

// The larger of two numbers; NaN if one is NaN.
struct Max {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a > b || a != a ? a : b;
    }
};

// Over groups of `lanes` neighbouring lanes, a power of two; all lanes of the warp take part.
template <class T, class Op>
__device__ inline T warp_reduce(T x, Op op, int lanes = 32) {
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
        x = op(x, __shfl_xor_sync(0xffffffffu, x, offset));
    }
    return x;
}

// N reductions over a block, whose threads are a power of two from 32 on, all of which take part.
template <class T, int N, class Op>
__device__ inline void block_reduce(T (&x)[N], Op op) {
    __shared__ T of_warp[N][32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = warp_reduce(x[i], op);
    if (warps == 1) return;
    // Others may still read the results of an earlier reduction.
    __syncthreads();
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < N; i++) of_warp[i][threadIdx.x / 32] = x[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = warp_reduce(of_warp[i][lane % warps], op, warps);
}

template <class T, class Op>
__device__ inline T block_reduce(T x, Op op) {
    T one[1] = {x};
    block_reduce(one, op);
    return one[0];
}

// Tensor cores, and copies that do not wait. The host shim has twins of the same names.

#ifndef MESHWRIGHT_HOST

// The dynamic shared memory of the block as elements of T.
#define DYNAMIC_SHARED(T, name)                                    \
    extern __shared__ __align__(128) unsigned char name##_bytes[]; \
    T* name = (T*)name##_bytes

__device__ inline uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Starts to copy `bytes` bytes from global to shared memory, and zeros behind them up to 16; both are aligned to 16.
__device__ inline void cp_async_16(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
// The same up to 4 bytes.
__device__ inline void cp_async_4(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
// Ends a group of copies.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING groups of this thread are under way; other threads see the rest after the next barrier.
template <int PENDING>
__device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane 8 i + r gives the address of row r of matrix i. Of each the lane gets
// elements 2 (lane % 4) and the next of row lane / 4.
__device__ inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// The same of the transposed matrices.
__device__ inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// c[16, 8] += a[16, 16] * b[16, 8] of bf16 with f32 sums.
__device__ inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

// 2^x and 1 / x within 2 units of the last place; what would be subnormal is 0.

#ifdef MESHWRIGHT_HOST

__device__ inline float exp2_fast(float x) { return exp2f(x); }
__device__ inline float reciprocal_fast(float x) { return 1 / x; }

#else

__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
