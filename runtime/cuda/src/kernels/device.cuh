// Common header of every kernel source. The host simulator defines MESHWRIGHT_HOST and provides the same names, so that
// kernels run on machines without a GPU.
#ifndef MESHWRIGHT_HOST

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;

#define KERNEL(name) extern "C" __global__ void name
#define KERNEL_BOUNDS(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name
#define KERNEL_OF(threads, name) extern "C" __global__ void __launch_bounds__(threads, 1) name
#define INFINITY __int_as_float(0x7f800000)

// Dynamic shared memory; all uses in one kernel refer to the same memory.
#define DYNAMIC_SHARED(T, name)                                   \
    extern __shared__ __align__(128) unsigned char dynamic_shared[]; \
    T* name = reinterpret_cast<T*>(dynamic_shared)

// Wrappers of PTX instructions. Addresses of shared memory are aligned to 16 bytes.

__device__ inline uint32_t shared_address(const void* at) { return (uint32_t)__cvta_generic_to_shared(at); }

// Starts an asynchronous copy of 16 bytes from global to shared memory.
__device__ inline void cp_async_16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// Copies only the first `bytes` bytes, and fills the rest with zeros.
__device__ inline void cp_async_16(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
// Copies 4 bytes.
__device__ inline void cp_async_4(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
// Commits the copies that this thread has started since the last group.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups of this thread except the last PENDING.
template <int PENDING>
__device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Loads 8x8 matrices of 16-bit elements. Lane `8 m + i` provides the address of row `i` of matrix `m`; lane `l`
// receives elements `2 (l % 4)` and the next of row `l / 4` of each (of its transpose: row and column exchanged).
__device__ inline void ldmatrix_x1(uint32_t (&r)[1], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void ldmatrix_x1_trans(uint32_t (&r)[1], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// c += a b with a[16, 16] and b[16, 8] of bf16 and c[16, 8] of f32, spread over a warp as the PTX manual shows for
// `mma.m16n8k16`: with `g = lane / 4` and `p = 2 (lane % 4)`, `a` holds pairs (g, p), (g + 8, p), (g, p + 8),
// (g + 8, p + 8), `b` pairs along k at (p, g), (p + 8, g), and `c` (g, p), (g, p + 1), (g + 8, p), (g + 8, p + 1).
__device__ inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#else

#define KERNEL_BOUNDS(name, threads, blocks) KERNEL(name)
#define KERNEL_OF(threads, name) KERNEL(name)

#endif

// KERNEL_OF declares the maximum threads per block, which sets the registers per thread. KERNEL_BOUNDS also declares
// the minimum blocks per multiprocessor.

// Numbers. Arithmetic is in f32: bf16 is widened when read, and rounded to nearest even when written; NaN stays NaN.

struct bf16 {
    uint16_t bits;
};

#ifdef MESHWRIGHT_HOST

__device__ inline uint32_t bf16_bits(float x) {
    uint32_t bits = __float_as_uint(x);
    // Adds half of the last place, minus one if that place is even, which rounds by carry. A NaN gets the quiet bit
    // instead, or it might become an infinity.
    return (x != x ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
__device__ inline uint32_t bf16_pair(float low, float high) {
    return bf16_bits(low) | bf16_bits(high) << 16;
}

__device__ inline void store_64(void* to, uint32_t a, uint32_t b) { *(uint2*)to = uint2{a, b}; }
__device__ inline void store_128(void* to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    *(uint4*)to = uint4{a, b, c, d};
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

// A single store to global memory; the compiler may split an assignment.
__device__ inline void store_64(void* to, uint32_t a, uint32_t b) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(a), "r"(b) : "memory");
}
__device__ inline void store_128(void* to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

#endif

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }

__device__ inline void store(float* at, float x) { *at = x; }
__device__ inline void store(bf16* at, float x) { at->bits = (uint16_t)bf16_bits(x); }

// Elements of T per 128-bit access.
template <class T>
constexpr int WIDE = 16 / (int)sizeof(T);

// Vectors of N elements (1, 4, or a multiple of 8), aligned to their size or to 16 bytes if they are longer.

// Load policy for memory that the kernel may also write.
struct Load {
    template <class V>
    __device__ V operator()(const V* from) const {
        return *from;
    }
};

// Load policy for read-only memory: such loads are not ordered after earlier stores.
struct LoadConstant {
    template <class V>
    __device__ V operator()(const V* from) const {
        return __ldg(from);
    }
};

template <int N, class L = Load>
__device__ inline void load_vector(const float* from, float (&x)[N], L load = L()) {
    if constexpr (N == 1) {
        x[0] = load(from);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 v = load((const float4*)(from + i));
            x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
        }
    }
}

__device__ inline void widen_pair(uint32_t pair, float& low, float& high) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
}

template <int N, class L = Load>
__device__ inline void load_vector(const bf16* from, float (&x)[N], L load = L()) {
    if constexpr (N == 1) {
        x[0] = widen(bf16{load(&from->bits)});
    } else if constexpr (N == 4) {
        uint2 v = load((const uint2*)from);
        widen_pair(v.x, x[0], x[1]);
        widen_pair(v.y, x[2], x[3]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 8) {
            uint4 v = load((const uint4*)(from + i));
            widen_pair(v.x, x[i], x[i + 1]);
            widen_pair(v.y, x[i + 2], x[i + 3]);
            widen_pair(v.z, x[i + 4], x[i + 5]);
            widen_pair(v.w, x[i + 6], x[i + 7]);
        }
    }
}

template <int N>
__device__ inline void store_vector(float* to, const float (&x)[N]) {
    if constexpr (N == 1) {
        *to = x[0];
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            store_128(to + i, __float_as_uint(x[i]), __float_as_uint(x[i + 1]), __float_as_uint(x[i + 2]),
                      __float_as_uint(x[i + 3]));
        }
    }
}

template <int N>
__device__ inline void store_vector(bf16* to, const float (&x)[N]) {
    if constexpr (N == 1) {
        store(to, x[0]);
    } else if constexpr (N == 4) {
        store_64(to, bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 8) {
            store_128(to + i, bf16_pair(x[i], x[i + 1]), bf16_pair(x[i + 2], x[i + 3]),
                      bf16_pair(x[i + 4], x[i + 5]), bf16_pair(x[i + 6], x[i + 7]));
        }
    }
}

// Grid-stride loop along x: `for (i = thread_index(); i < n; i += thread_count())`.

__device__ inline uint64_t thread_index() {
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline uint64_t thread_count() { return (uint64_t)gridDim.x * blockDim.x; }

// Of `n` elements, `head` come before the first that is aligned in all operands, and `vectors` vectors of N follow.
// Calls vector(i) for the first element i of each vector, and scalar(i) for each other element.
template <int N, class V, class S>
__device__ inline void each_element(uint64_t head, uint64_t vectors, uint64_t n, V vector, S scalar) {
    for (uint64_t i = thread_index(); i < vectors; i += thread_count()) vector(head + i * N);
    uint64_t others = n - vectors * N;
    for (uint64_t i = thread_index(); i < others; i += thread_count()) scalar(i < head ? i : i + vectors * N);
}

// Quotient of numbers that usually fit 32 bits: division of these is several times faster.
__device__ inline uint64_t quotient(uint64_t a, uint64_t b) {
    return (a | b) >> 32 ? a / b : (uint64_t)((uint32_t)a / (uint32_t)b);
}
__device__ inline uint64_t modulo(uint64_t a, uint64_t b) { return a - quotient(a, b) * b; }

// Calls f(first index, elements) for the part of `thread` among `threads` of a range of elements: vectors of N, at most
// 16 bytes, where aligned, and single elements before and after, fewer than there are threads.
template <int N, class T, class F>
__device__ inline void for_each_vector(const T* from, uint64_t len, uint64_t thread, uint64_t threads, F f) {
    constexpr uint64_t BYTES = N * sizeof(T);
    uint64_t head = (BYTES - (uint64_t)from % BYTES) % BYTES / sizeof(T);
    if (head > len) head = len;
    uint64_t vectors = (len - head) / N, tail = head + vectors * N;
    float one[1];
    if (thread < head) {
        load_vector(from + thread, one);
        f(thread, one);
    }
#pragma unroll 2
    for (uint64_t i = thread; i < vectors; i += threads) {
        float x[N];
        load_vector(from + head + i * N, x);
        f(head + i * N, x);
    }
    if (thread < len - tail) {
        load_vector(from + tail + thread, one);
        f(tail + thread, one);
    }
}

// Reductions. Every thread gets the result; the order depends on the number of threads only.

struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};

// Returns the larger number; NaN if one is NaN.
struct Max {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a > b || a != a ? a : b;
    }
#ifndef MESHWRIGHT_HOST
    __device__ float operator()(float a, float b) const {
        float larger;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
        return larger;
    }
#endif
};

// Reduces over groups of `lanes` consecutive lanes, a power of two; all lanes of the warp participate.
template <class T, class Op>
__device__ inline T warp_reduce(T x, Op op, int lanes = 32) {
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
        x = op(x, __shfl_xor_sync(0xffffffffu, x, offset));
    }
    return x;
}

// N reductions over a block of a power of two threads, at least 32; all participate. Successive reductions
// have alternate values of `turn`, 0 and 1: when a thread writes its warp's results, others may still read the results
// of the reduction before, which are elsewhere, but not those before that.
template <class T, int N, class Op>
__device__ inline void block_reduce(T (&x)[N], Op op, uint32_t turn) {
    __shared__ T of_warp[2][N][32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = warp_reduce(x[i], op);
    if (warps == 1) return;
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < N; i++) of_warp[turn][i][threadIdx.x / 32] = x[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = warp_reduce(of_warp[turn][i][lane % warps], op, warps);
}

// One reduction over a block, after and before any others.
template <class T, class Op>
__device__ inline T block_reduce(T x, Op op) {
    T one[1] = {x};
    __syncthreads();
    block_reduce(one, op, 0);
    return one[0];
}

constexpr float LOG2_E = 1.44269504f;

// 2^x and 1 / x within 2 units in the last place; subnormal results are 0.

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
