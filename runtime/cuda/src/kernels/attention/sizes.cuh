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

// Masks, biases and sinks, with the memory layout of `Extras` in ops/attention/sizes.rs. Zeros: none.
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
