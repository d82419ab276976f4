// Stochastic rounding of optimizer state to bf16, as `StateRounding` of the backend defines it.

// Rounds to bf16 by the lower 16 bits of `random`; NaN stays NaN.
__device__ inline float round_state(float x, uint32_t random) {
    uint32_t cut = (__float_as_uint(x) + (random & 0xffffu)) & 0xffff0000u;
    return x != x ? x : __uint_as_float(cut);
}

// Elements of one parameter: element i of the launch has index i + offset in the block of this rank, whose rows of
// `row` contiguous elements are `stride` apart in the parameter, where the block begins at `first`.
struct StateRounding {
    uint64_t key, first, offset, row, stride;

    // Rounds state 2 * pair of the N elements from i on.
    template <int N>
    __device__ void round(uint64_t i, uint32_t pair, float (&even)[N]) const {
        uint32_t random[N];
        words(i, pair, random);
#pragma unroll
        for (int n = 0; n < N; n++) even[n] = round_state(even[n], random[n]);
    }

    // Rounds states 2 * pair and 2 * pair + 1.
    template <int N>
    __device__ void round(uint64_t i, uint32_t pair, float (&even)[N], float (&odd)[N]) const {
        uint32_t random[N];
        words(i, pair, random);
#pragma unroll
        for (int n = 0; n < N; n++) {
            even[n] = round_state(even[n], random[n]);
            odd[n] = round_state(odd[n], random[n] >> 16);
        }
    }

    // Random words of N elements from i on.
    template <int N>
    __device__ void words(uint64_t i, uint32_t pair, uint32_t (&words)[N]) const {
        if constexpr (N == 4) {
            uint64_t index = global_index(i);
            bool is_run = row == stride || modulo(i + offset, row) + 4 <= row;
            if (is_run && index % 4 == 0) {
                uint4 four = draw(index, pair);
                words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
                return;
            }
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            uint64_t index = global_index(i + n);
            uint4 four = draw(index, pair);
            uint32_t low = index & 1 ? four.y : four.x, high = index & 1 ? four.w : four.z;
            words[n] = index & 2 ? high : low;
        }
    }

    __device__ uint64_t global_index(uint64_t i) const {
        uint64_t index = i + offset;
        if (row == stride) return first + index;
        uint64_t rows = quotient(index, row);
        return first + rows * stride + (index - rows * row);
    }

    __device__ uint4 draw(uint64_t index, uint32_t pair) const {
        return philox4x32(key, uint4{(uint32_t)(index / 4), (uint32_t)(index >> 34), pair, 0});
    }
};
