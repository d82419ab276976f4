// Scores of the tensor-core kernels: soft cap and distance bias, and the keys that rows see by key ranges.

// Scores that are capped or biased are converted to natural units first; others when they are exponentiated.
constexpr bool CONVERTS = SOFT_CAP || BIAS;

__device__ inline float remaining_scale(const Sizes& s) { return CONVERTS ? 1.0f : s.scale; }

// tanh within 3e-7.
__device__ inline float tanh_fast(float x) { return 1 - 2 * reciprocal_fast(1 + exp2_fast(2 * LOG2_E * x)); }

// A score, and its derivative by the scaled dot product of query and key.
struct Score {
    float value, slope;
};

// Converts the dot product of a query and a key of a head with this bias.
__device__ inline Score convert(float product, const float* bias, int query, int key, const Sizes& s, const Extras& x) {
    Score score = {product, 1};
    if constexpr (CONVERTS) score.value *= s.scale;
    if constexpr (SOFT_CAP) {
        float part = tanh_fast(score.value / x.soft_cap);
        score = {x.soft_cap * part, 1 - part * part};
    }
    if constexpr (BIAS) score.value += __ldg(bias + x.distance(query, key));
    return score;
}

// Returns the bias of a head; null without one.
__device__ inline const float* bias_of(int head, const Extras& x) {
    return BIAS ? x.bias + (uint64_t)head * x.distances : nullptr;
}

// The keys that a query sees: from `first` to before `end`. Both ascend with the query.
struct Seen {
    int first, end;
};

// Returns the keys that a query of a sample sees; beyond the last query, the keys that the last one sees.
__device__ inline Seen seen_by(int query, int batch, const Sizes& s, const Extras& x) {
    query = min(query, s.q_len - 1);
    if constexpr (RANGES) {
        uint64_t at = (uint64_t)batch * s.q_pitch + query;
        return {x.first[at], x.end[at]};
    }
    return {0, min(s.kv_len, query + s.reach + 1)};
}

// With RANGES, the keys that a block's rows see are in shared memory, one `Seen` per row.
__device__ inline void load_seen(Seen* rows, int first_row, int batch, const Sizes& s, const Extras& x) {
    static_assert(ROWS <= THREADS, "one row per thread");
    if constexpr (RANGES)
        if (threadIdx.x < ROWS) rows[threadIdx.x] = seen_by(first_row + threadIdx.x, batch, s, x);
}
