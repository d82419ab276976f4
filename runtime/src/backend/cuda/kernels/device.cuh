// What every kernel source begins with. The host shim provides the same names for tests (MESHWRIGHT_HOST is defined
// there), so that each kernel runs on a machine without a GPU.
#ifndef MESHWRIGHT_HOST

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;

#define KERNEL(name) extern "C" __global__ void name
#define INFINITY __int_as_float(0x7f800000)

// Shared memory whose size the launch gives; all uses in one kernel are the same memory.
#define DYNAMIC_SHARED(T, name)                                   \
    extern __shared__ __align__(128) unsigned char dynamic_shared[]; \
    T* name = reinterpret_cast<T*>(dynamic_shared)

// Instructions that have no name in the language. Addresses of shared memory are aligned to 16 bytes.

__device__ inline uint32_t shared_address(const void* at) { return (uint32_t)__cvta_generic_to_shared(at); }

// Starts copying 16 bytes from global to shared memory.
__device__ inline void cp_async_16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// Of which only the first `bytes` are copied, and the rest are zeros.
__device__ inline void cp_async_16(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
// Makes a group of the copies that this thread has started since the last group.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups of this thread but the last PENDING.
template <int PENDING>
__device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Loads 8x8 matrices of 16-bit elements. Lane `8 m + i` gives the address of row `i` of matrix `m`; lane `l` gets elements
// `2 (l % 4)` and the next of row `l / 4` of each (of its transpose: row and column change places).
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

#endif
