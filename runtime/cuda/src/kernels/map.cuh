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


// Strides of a leaf along D merged dims of the result. INNER is the stride of the innermost dim: 0, 1, or 2 for others.
template <int D, int INNER>
struct Along {
    uint64_t sizes[D], strides[D];
    // Not 0 if an aligned vector of elements lies in one run, which is aligned in the leaf.
    uint64_t whole;

    __device__ uint64_t leaf_index(uint64_t i) const {
        uint64_t index = 0;
#pragma unroll
        for (int d = D - 1; d > 0; d--) {
            uint64_t rest = quotient(i, sizes[d]);
            index += (i - rest * sizes[d]) * strides[d];
            i = rest;
        }
        return index + i * strides[0];
    }

    template <int N, class T>
    __device__ void load(const T* leaf, uint64_t i, float (&x)[N]) const {
        if (N > 1 && INNER < 2 && whole) {
            const T* from = leaf + leaf_index(i);
            if constexpr (INNER == 1) {
                load_vector(from, x);
            } else {
                float one[1];
                load_vector(from, one);
#pragma unroll
                for (int n = 0; n < N; n++) x[n] = one[0];
            }
        } else {
#pragma unroll
            for (int n = 0; n < N; n++) {
                float one[1];
                load_vector(leaf + leaf_index(i + n), one);
                x[n] = one[0];
            }
        }
    }
};

// Global positions along a dim of `size` elements, of `inner` elements of the result each, with a gap from `gap_at` on.
struct Positions {
    uint64_t inner, size, offset, gap_at, gap;

    template <int N>
    __device__ void load(uint64_t i, float (&x)[N]) const {
#pragma unroll
        for (int n = 0; n < N; n++) {
            uint64_t along = modulo(quotient(i + n, inner), size);
            x[n] = (float)(offset + along + (along < gap_at ? 0 : gap));
        }
    }
};

// The elements of the result that read one element of a leaf: K kept dims select it, and R dims repeat it. The elements
// that repeat it are divided into parts.
template <int K, int R>
struct Repeats {
    // Sizes, strides in the result, and strides in the leaf.
    uint64_t kept_sizes[K], kept_strides[K], leaf_strides[K];
    uint64_t sizes[R], strides[R];
    // Elements of the leaf, and elements that repeat each.
    uint64_t leaf_len, repeats;
    uint64_t parts, part_len;

    // Returns the first element of the result that reads element q of the kept dims, and sets the element of the leaf.
    __device__ uint64_t first_element(uint64_t q, uint64_t& leaf) const {
        uint64_t first = 0;
        leaf = 0;
#pragma unroll
        for (int d = K - 1; d >= 0; d--) {
            uint64_t rest = d > 0 ? quotient(q, kept_sizes[d]) : 0, along = q - rest * kept_sizes[d];
            first += along * kept_strides[d];
            leaf += along * leaf_strides[d];
            q = rest;
        }
        return first;
    }

    __device__ uint64_t repeat(uint64_t m) const {
        uint64_t at = 0;
#pragma unroll
        for (int d = R - 1; d > 0; d--) {
            uint64_t rest = quotient(m, sizes[d]);
            at += (m - rest * sizes[d]) * strides[d];
            m = rest;
        }
        return at + m * strides[0];
    }

    __device__ uint64_t part_end(uint64_t part) const {
        uint64_t end = (part + 1) * part_len;
        return end < repeats ? end : repeats;
    }
};

// The derivatives of the larger and the smaller of x and y, times g: half if both are equal.
__device__ inline float gradient_of_larger(float g, float x, float y) {
    return x < y ? 0.0f : x == y ? 0.5f * g : g;
}
__device__ inline float gradient_of_smaller(float g, float x, float y) {
    return x > y ? 0.0f : x == y ? 0.5f * g : g;
}
__device__ inline float gradient_of_power(float g, float x, float exponent) {
    return exponent == 0.0f ? 0.0f : __fmul_rn(g, __fmul_rn(exponent, powf(x, exponent - 1.0f)));
}
