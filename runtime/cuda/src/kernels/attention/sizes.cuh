// Sizes of attention, with the memory layout of `Sizes` in ops/attention/sizes.rs.
struct Sizes {
    // Positions of a sample, and from the beginning of a sample to the next.
    int q_len, q_pitch, kv_len, kv_pitch;
    int heads, kv_heads;
    // Query head h reads the key/value head (first_head + h) / group.
    int group, first_head;
    // Query i attends to keys up to i + reach.
    int reach;
    float scale;

    __device__ int kv_head(int head) const { return (first_head + head) / group; }
    // The query heads that read a key/value head are those from its `first_reader` to before that of the next.
    __device__ int first_reader(int kv_head) const { return min(heads, max(0, kv_head * group - first_head)); }
};

// Positions of indices in a global dim: from `gap_at` on, `gap` positions are left out.
struct Positions {
    int first, gap_at, gap;

    __device__ uint32_t at(int index) const { return first + index + (index >= gap_at ? gap : 0); }
};

// Masks, biases, sinks and dropout, with the memory layout of `Extras` in ops/attention/sizes.rs. Zeros: none.
struct Extras {
    // Query i of a sample attends to the keys first[i] <= key < end[i], [batch, q_pitch], instead of the keys of
    // `reach`. Neither decreases from one query to the next.
    const int *first, *end;
    // Bias of query i and key j: bias[head, j - i + zero], clamped to the distances.
    const float* bias;
    // Scores of one more key without a value, [heads].
    const float* sinks;
    int distances, zero;
    float soft_cap;
    // Gradients are accumulated.
    uint32_t accumulate;
    // Dropout of weights: key of the draws, number below which the words of dropped weights are, factor of the others.
    uint64_t key;
    uint32_t threshold;
    float kept;
    int dropout_head;
    Positions rows, queries, keys;
    // 1 if 16 queries, or keys, from a multiple of 16 on are at 16 positions from a multiple of 16 on.
    uint32_t aligned_queries, aligned_keys;

    __device__ int distance(int query, int key) const { return min(max(key - query + zero, 0), distances - 1); }
};

// Returns the first of n indices that meets a condition, which all later ones meet too; n if there is none.
template <class Condition>
__device__ inline int first_where(int n, Condition holds) {
    int from = 0;
    while (from < n) {
        int middle = from + (n - from) / 2;
        if (holds(middle))
            n = middle;
        else
            from = middle + 1;
    }
    return n;
}
