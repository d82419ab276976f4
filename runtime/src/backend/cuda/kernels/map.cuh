// Header of generated elementwise kernels. The source of each elementwise function follows it.

// No branch for subnormal divisors: the divisor is at least 1.
__device__ inline float sigmoid(float x) { return reciprocal_fast(1.0f + exp2_fast(-1.44269504f * x)); }

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
        uint32_t words[N];
        if (D == 1 || modulo(i, sizes[D - 1]) + N <= sizes[D - 1]) {
            random_words(key, index, words);
        } else {
#pragma unroll
            for (int n = 0; n < N; n++) words[n] = random_word(key, global_index(i + n));
        }
#pragma unroll
        for (int n = 0; n < N; n++) factors[n] = words[n] < threshold ? 0.0f : keep;
    }
};
