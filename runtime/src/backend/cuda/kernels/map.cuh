// Functions of generated elementwise kernels, and their derivatives.

constexpr float SQRT_HALF = 0.70710678f, SQRT_2_OVER_PI = 0.7978846f, INV_SQRT_2_PI = 0.3989423f;

// No branch for subnormal divisors: the divisor is at least 1.
__device__ inline float sigmoid(float x) { return reciprocal_fast(1.0f + exp2_fast(-1.44269504f * x)); }

__device__ inline float silu(float x) { return x * sigmoid(x); }
__device__ inline float silu_slope(float x) {
    float s = sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

__device__ inline float gelu(float x) { return 0.5f * x * (1.0f + erff(x * SQRT_HALF)); }
__device__ inline float gelu_slope(float x) {
    return 0.5f * (1.0f + erff(x * SQRT_HALF)) + x * INV_SQRT_2_PI * expf(-0.5f * x * x);
}

// (1 + tanh(u)) / 2 is the sigmoid of 2 u, which is cheaper.
__device__ inline float gelu_tanh_gate(float x) { return sigmoid(2.0f * SQRT_2_OVER_PI * x * (1.0f + 0.044715f * x * x)); }
__device__ inline float gelu_tanh(float x) { return x * gelu_tanh_gate(x); }
__device__ inline float gelu_tanh_slope(float x) {
    float s = gelu_tanh_gate(x);
    return s + 2.0f * x * s * (1.0f - s) * SQRT_2_OVER_PI * (1.0f + 3.0f * 0.044715f * x * x);
}

// A comparison with NaN is false, so NaN passes through.
__device__ inline float relu(float x) { return x < 0.0f ? 0.0f : x; }

// Inverted dropout over a block of a global tensor, of D dims that are not contiguous there.
template <int D>
struct Dropout {
    uint64_t key;
    // In units of 2^-32; smaller draws are zeros.
    uint64_t threshold;
    // Global index of the block's first element; sizes and global strides of its dims.
    uint64_t first, sizes[D], strides[D];
    // Factor of the other elements.
    float keep;

    __device__ uint64_t global_index(uint64_t i) const {
        uint64_t index = first;
#pragma unroll
        for (int d = D - 1; d > 0; d--) {
            uint64_t rest = quotient(i, sizes[d]);
            index += (i - rest * sizes[d]) * strides[d];
            i = rest;
        }
        return index + i * strides[0];
    }

    // Returns the factors of the elements from i on.
    template <int N>
    __device__ void mask(uint64_t i, float (&factors)[N]) const {
        uint64_t index = global_index(i);
        bool together = D == 1 || modulo(i, sizes[D - 1]) + N <= sizes[D - 1];
#pragma unroll
        for (int n = 0; n < N; n++) {
            uint64_t drawn = random_bits(key, together ? index + n : global_index(i + n)) >> 32;
            factors[n] = drawn < threshold ? 0.0f : keep;
        }
    }
};
