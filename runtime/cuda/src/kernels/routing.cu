// Routing of tokens to experts (MoE). Each token has `k` choices; choice `c` is of token `c / k`. Choices are grouped
// by expert: `order[p]` is the choice at position p, and `positions[c]` the position of choice c.

// The k largest of each row, the largest first: a warp for each row, which looks for the next lower one k times.
template <class T>
__device__ inline void top_k(const T* x, uint64_t rows, uint32_t cols, uint32_t k, float* values, uint32_t* indices) {
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t row = thread_index() / 32; row < rows; row += thread_count() / 32) {
        const T* here = x + row * cols;
        uint64_t last = ~0ull;
        for (uint32_t i = 0; i < k; i++) {
            // Below every rank.
            uint64_t best = 0;
            for (uint32_t col = lane; col < cols; col += 32) {
                uint64_t rank = rank_of(widen(here[col]), col);
                if (rank < last && rank > best) best = rank;
            }
            last = warp_reduce(best, Max());
            if (lane == 0) {
                uint32_t col = 0xffffffffu - (uint32_t)last;
                values[row * k + i] = widen(here[col]);
                indices[row * k + i] = col;
            }
        }
    }
}

// Experts of choices, or `experts` if there is none.
KERNEL(keys_of_choices)(const uint32_t* choices, uint64_t n, uint32_t experts, uint32_t* keys) {
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        keys[i] = choices[i] < experts ? choices[i] : experts;
    }
}

// The first of the ascending keys that is not less than `key`.
__device__ inline uint64_t first_from(const uint32_t* keys, uint64_t n, uint32_t key) {
    uint64_t from = 0, to = n;
    while (from < to) {
        uint64_t middle = from + (to - from) / 2;
        if (keys[middle] < key) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

KERNEL(count_choices)(const uint32_t* keys, uint64_t n, uint32_t experts, uint32_t* counts) {
    for (uint64_t expert = thread_index(); expert < experts; expert += thread_count()) {
        counts[expert] = (uint32_t)(first_from(keys, n, (uint32_t)expert + 1) - first_from(keys, n, (uint32_t)expert));
    }
}

KERNEL(positions_of_choices)(const uint32_t* sorted, uint64_t n, uint32_t* order, uint32_t* positions) {
    for (uint64_t position = thread_index(); position < n; position += thread_count()) {
        uint32_t choice = sorted[position];
        order[position] = choice;
        positions[choice] = (uint32_t)position;
    }
}

// out[p] = weights[order[p]] * x[order[p] / k] over n positions; without weights where they are null. A row is the work
// of `width` neighboring threads, a power of two.
template <int N, class T>
__device__ inline void to_experts(const T* x, const uint32_t* order, const float* weights, uint64_t n, uint32_t k,
                                  uint64_t cols, T* out, uint32_t width) {
    for (uint64_t position = thread_index() / width; position < n; position += thread_count() / width) {
        uint32_t choice = order[position];
        float weight = weights ? weights[choice] : 1.0f;
        const T* from = x + choice / k * cols;
        for (uint64_t col = threadIdx.x % width * N; col < cols; col += (uint64_t)width * N) {
            float v[N];
            load_vector(from + col, v);
#pragma unroll
            for (int i = 0; i < N; i++) v[i] *= weight;
            store_vector(out + position * cols + col, v);
        }
    }
}

// out[t] = the sum of weights[c] * x[positions[c]] over the choices of token t, in their order; positions from `rows`
// on are not there.
template <int N, class T>
__device__ inline void to_tokens(const T* x, uint64_t rows, const uint32_t* positions, const float* weights,
                                 uint64_t tokens, uint32_t k, uint64_t cols, T* out, uint32_t width) {
    for (uint64_t token = thread_index() / width; token < tokens; token += thread_count() / width) {
        for (uint64_t col = threadIdx.x % width * N; col < cols; col += (uint64_t)width * N) {
            float sum[N] = {};
            for (uint64_t choice = token * k; choice < token * k + k; choice++) {
                uint64_t position = positions[choice];
                if (position >= rows) continue;
                float weight = weights ? weights[choice] : 1.0f;
                float v[N];
                load_vector(x + position * cols + col, v);
#pragma unroll
                for (int i = 0; i < N; i++) sum[i] += weight * v[i];
            }
            store_vector(out + token * cols + col, sum);
        }
    }
}

// dots[c] = the dot product of dy[c / k] and x[positions[c]], or 0 for a position that is not there: a warp for each
// choice.
template <class T>
__device__ inline void dots(const T* x, uint64_t rows, const uint32_t* positions, const T* dy, uint64_t n, uint32_t k,
                            uint64_t cols, float* dots) {
    for (uint64_t choice = thread_index() / 32; choice < n; choice += thread_count() / 32) {
        uint64_t position = positions[choice];
        const T* left = dy + choice / k * cols;
        float sum = 0.0f;
        if (position < rows) {
            for (uint64_t col = threadIdx.x % 32; col < cols; col += 32) {
                sum += widen(left[col]) * widen(x[position * cols + col]);
            }
        }
        sum = warp_reduce(sum, Sum());
        if (threadIdx.x % 32 == 0) dots[choice] = sum;
    }
}

#define ROUTE(name, N, T)                                                                                              \
    KERNEL(to_experts_##name)(const T* x, const uint32_t* order, const float* weights, uint64_t n, uint32_t k,         \
                              uint64_t cols, T* out, uint32_t width) {                                                 \
        to_experts<N>(x, order, weights, n, k, cols, out, width);                                                      \
    }                                                                                                                  \
    KERNEL(to_tokens_##name)(const T* x, uint64_t rows, const uint32_t* positions, const float* weights,               \
                             uint64_t tokens, uint32_t k, uint64_t cols, T* out, uint32_t width) {                     \
        to_tokens<N>(x, rows, positions, weights, tokens, k, cols, out, width);                                        \
    }

ROUTE(f32, 1, float)
ROUTE(f32_vectors, WIDE<float>, float)
ROUTE(bf16, 1, bf16)
ROUTE(bf16_vectors, WIDE<bf16>, bf16)

#define CHOOSE(name, T)                                                                                                \
    KERNEL(top_k_##name)(const T* x, uint64_t rows, uint32_t cols, uint32_t k, float* values, uint32_t* indices) {     \
        top_k(x, rows, cols, k, values, indices);                                                                      \
    }                                                                                                                  \
    KERNEL(dots_##name)(const T* x, uint64_t rows, const uint32_t* positions, const T* dy, uint64_t n, uint32_t k,     \
                        uint64_t cols, float* out) {                                                                   \
        dots(x, rows, positions, dy, n, k, cols, out);                                                                 \
    }

CHOOSE(f32, float)
CHOOSE(bf16, bf16)
