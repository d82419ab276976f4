// Sizes of attention; the same bytes as `Sizes` in ops/attention.
struct Sizes {
    int q_len, kv_len, heads, kv_heads;
    // Query i sees the keys up to i + reach.
    int reach;
    float scale;
};
