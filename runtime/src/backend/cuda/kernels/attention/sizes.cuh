// Sizes of attention, with the memory layout of `Sizes` in ops/attention.
struct Sizes {
    int q_len, kv_len, heads, kv_heads;
    // Query i attends to keys up to i + reach.
    int reach;
    float scale;
};
