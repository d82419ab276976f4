// Header of generated elementwise kernels. The source of each elementwise function follows it.

// No branch for subnormal divisors: the divisor is at least 1.
__device__ inline float sigmoid(float x) { return reciprocal_fast(1.0f + exp2_fast(-LOG2_E * x)); }

// Where the elements of a block lie in its global tensor: the global index of the first; sizes and global strides of
// its dims, of D dims that are not contiguous there.
template <int D>
struct Block {
    uint64_t first, sizes[D], strides[D];

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

    // Returns true if the elements from i to i + n have consecutive global indices.
    __device__ bool is_run(uint64_t i, int n) const {
        return D == 1 || modulo(i, sizes[D - 1]) + n <= sizes[D - 1];
    }
};

// A block that leaves out a range of indices along some dims: elements from `gaps[d].at` on are `gaps[d].skip` further.
template <int D>
struct BlockWithGaps {
    uint64_t first, sizes[D], strides[D];
    struct {
        uint64_t at, skip;
    } gaps[D];

    __device__ uint64_t global_index(uint64_t i) const {
        uint64_t index = first;
#pragma unroll
        for (int d = D - 1; d >= 0; d--) {
            uint64_t rest = d > 0 ? quotient(i, sizes[d]) : 0;
            uint64_t along = i - rest * sizes[d];
            index += along * strides[d] + (along < gaps[d].at ? 0 : gaps[d].skip);
            i = rest;
        }
        return index;
    }

    __device__ bool is_run(uint64_t i, int n) const {
        uint64_t along = D == 1 ? i : modulo(i, sizes[D - 1]), end = along + n, at = gaps[D - 1].at;
        return (D == 1 || end <= sizes[D - 1]) && (along >= at || end <= at);
    }
};

// Inverted dropout over a block of a global tensor.
template <class B>
struct DropoutOver {
    uint64_t key;
    // In units of 2^-32; smaller draws are zeros.
    uint64_t threshold;
    B block;
    // Factor of the other elements.
    float keep;

    // Returns the factors of the elements from i on.
    template <int N>
    __device__ void mask(uint64_t i, float (&factors)[N]) const {
        uint32_t words[N];
        if (block.is_run(i, N)) {
            random_words(key, block.global_index(i), words);
        } else {
#pragma unroll
            for (int n = 0; n < N; n++) words[n] = random_word(key, block.global_index(i + n));
        }
#pragma unroll
        for (int n = 0; n < N; n++) factors[n] = words[n] < threshold ? 0.0f : keep;
    }
};

template <int D>
using Dropout = DropoutOver<Block<D>>;
template <int D>
using DropoutWithGaps = DropoutOver<BlockWithGaps<D>>;
