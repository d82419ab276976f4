// Normal deviates and uniformly distributed numbers, each a function of a key and its global index. Every operation is
// rounded on its own, and the logarithm and the cosine are the same polynomials as on the host, so the results have the
// same bits.

__device__ inline float polynomial(float x, const float* coefficients, int count) {
    float sum = coefficients[count - 1];
#pragma unroll
    for (int i = count - 2; i >= 0; i--) sum = __fadd_rn(__fmul_rn(sum, x), coefficients[i]);
    return sum;
}

// Natural logarithm of a positive normal number.
__device__ inline float natural_log(float x) {
    constexpr float TAIL[] = {0.3333331673f, -0.250008104f, 0.200022862f, -0.1662455406f,
                              0.1418119329f, -0.1312875664f, 0.1288164093f, -0.0785959891f};
    // Mantissa in [sqrt 1/2, sqrt 2).
    uint32_t bits = __float_as_uint(x) - 0x3f3504f3u;
    float n = (float)((int)bits >> 23);
    float f = __fsub_rn(__uint_as_float((bits & 0x007fffffu) + 0x3f3504f3u), 1.0f);
    float tail = polynomial(f, TAIL, 8);
    float s = __fmul_rn(f, f);
    float curve = __fsub_rn(__fmul_rn(__fmul_rn(s, f), tail), __fmul_rn(0.5f, s));
    float low = __fadd_rn(__fadd_rn(__fmul_rn(n, -2.1219444e-4f), curve), f);
    return __fadd_rn(low, __fmul_rn(n, 0.693359375f));
}

// cos(2 pi u) for |u| <= 1/2.
__device__ inline float cosine_of_turns(float u) {
    constexpr float TERMS[] = {0.9999999999f, -19.73920874f, 64.9393891f, -85.45665887f,
                               60.24213775f,  -26.40470581f, 7.800240975f, -1.453237582f};
    return polynomial(__fmul_rn(u, u), TERMS, 8);
}

// Normal deviate of element `index`, by Box and Muller 1958: elements 2 i and 2 i + 1 have the cosine and the sine of
// one turn.
__device__ inline float deviate(uint64_t key, uint64_t index) {
    const float UNIT = 1.0f / 4294967296.0f;
    uint4 words = philox4x32(key, index / 4);
    // Within (0, 1]: the logarithm is finite.
    float radius = __fmul_rn(__fadd_rn((float)(index & 2 ? words.z : words.x), 0.5f), UNIT);
    // The sine is the cosine a quarter turn earlier.
    uint32_t turns = (index & 2 ? words.w : words.y) - (index & 1 ? 1u << 30 : 0u);
    float turn = __fmul_rn((float)(int)turns, UNIT);
    float square = __fmul_rn(-2.0f, natural_log(radius));
    return __fmul_rn(__fsqrt_rn(square > 0.0f ? square : 0.0f), cosine_of_turns(turn));
}

// Where the elements of a block lie in its global tensor: the global index of the first, and of each dim its size and
// the distance of neighbors.
struct BlockStrides {
    uint64_t first;
    uint64_t dims;
    uint64_t sizes[16];
    uint64_t strides[16];

    __device__ uint64_t global_index(uint64_t i) const {
        uint64_t index = first;
        for (uint64_t dim = dims - 1; dim > 0; dim--) {
            uint64_t rest = quotient(i, sizes[dim]);
            index += (i - rest * sizes[dim]) * strides[dim];
            i = rest;
        }
        return index + i * strides[0];
    }
};

#define NORMAL(name, T)                                                                                                \
    KERNEL(normal_##name)(uint64_t key, float deviation, BlockStrides block, T* out, uint64_t n) {                     \
        for (uint64_t i = thread_index(); i < n; i += thread_count()) {                                                \
            store(out + i, __fmul_rn(deviation, deviate(key, block.global_index(i))));                                 \
        }                                                                                                              \
    }

NORMAL(f32, float)
NORMAL(bf16, bf16)

// Uniformly distributed number between -1 and 1 of element `index`, which has one word of a draw.
__device__ inline float uniform(uint64_t key, uint64_t index) {
    const float UNIT = 1.0f / 2147483648.0f;
    uint4 words = philox4x32(key, index / 4);
    uint32_t word = index & 2 ? (index & 1 ? words.w : words.z) : (index & 1 ? words.y : words.x);
    return __fmul_rn(__fadd_rn((float)(int)word, 0.5f), UNIT);
}

#define UNIFORM(name, T)                                                                                               \
    KERNEL(uniform_##name)(uint64_t key, float bound, BlockStrides block, T* out, uint64_t n) {                        \
        for (uint64_t i = thread_index(); i < n; i += thread_count()) {                                                \
            store(out + i, __fmul_rn(bound, uniform(key, block.global_index(i))));                                     \
        }                                                                                                              \
    }

UNIFORM(f32, float)
UNIFORM(bf16, bf16)
