// Key and value gradients on tensor cores, 4 matmuls per score.
//
// A block owns keys and iterates over the queries that attend to them, of every query head that shares them, in a fixed
// order without atomics, so that results are deterministic. Scores are computed transposed, keys by queries, so that
// weights and score gradients are in registers in the layout of the next matmuls. The next queries and output gradients
// are copied to a second pair of tiles meanwhile.
//
// Head dims above 128 leave too few registers for both gradients: the same kernel runs once for each.

// Tiles per step: queries, then output gradients; after all tiles, for each of two steps, lse and delta.
constexpr int SHARED_ROWS = 2 * ROWS + 4 * COLS;

template <bool OF_KEYS, bool OF_VALUES>
__device__ inline void backward_keys(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse,
                                     const float* delta, bf16* dk, bf16* dv, const Sizes& s) {
    DYNAMIC_SHARED(bf16, shared);
    bf16 *keys = shared, *values = keys + ROWS * STRIDE, *steps = values + ROWS * STRIDE;
    float* numbers = (float*)(shared + SHARED_ROWS * STRIDE);

    // Earlier keys have more queries and are scheduled first.
    Place at = place((s.kv_len + ROWS - 1) / ROWS, s.kv_heads, false);
    int group = s.heads / s.kv_heads, lane = threadIdx.x % 32;
    int warp_row = warp_index() * WARP_ROWS, first_row = at.first_row + warp_row;
    // Steps of one query head, and of all: at least one, so that gradients of keys without queries are written too.
    int first_col = max(0, min(at.first_row - s.reach, s.q_len - 1)) / COLS * COLS;
    int head_steps = (s.q_len - first_col + COLS - 1) / COLS, n_steps = group * head_steps;

    auto load_step = [&](int step) {
        int head = at.head * group + step / head_steps, col = first_col + step % head_steps * COLS;
        bf16* tiles = steps + step % 2 * 2 * COLS * STRIDE;
        load_tile<COLS>(tiles, Input(q, at.batch, head, s.q_len, s.heads), col);
        load_tile<COLS>(tiles + COLS * STRIDE, Input(dout, at.batch, head, s.q_len, s.heads), col);
        uint64_t first = ((uint64_t)at.batch * s.heads + head) * s.q_len;
        float* of_step = numbers + step % 2 * 2 * COLS;
        load_numbers<COLS>(of_step, lse + first, col, s.q_len);
        load_numbers<COLS>(of_step + COLS, delta + first, col, s.q_len);
    };
    load_tile<ROWS>(keys, Input(k, at.batch, at.head, s.kv_len, s.kv_heads), at.first_row);
    load_tile<ROWS>(values, Input(v, at.batch, at.head, s.kv_len, s.kv_heads), at.first_row);
    load_step(0);

    Sums<DIM> key_sums, value_sums;
    key_sums.clear();
    value_sums.clear();
    float scale_log2 = s.scale * LOG2_E;
    for (int step = 0; step < n_steps; step++) {
        wait_for_copies();
        // The tiles of this step have arrived, and all warps have finished the previous step, whose tiles the next copy
        // overwrites.
        __syncthreads();
        if (step + 1 < n_steps) load_step(step + 1);
        int col = first_col + step % head_steps * COLS;
        // No query of the step attends to the warp's keys.
        if (first_row > col + COLS - 1 + s.reach) continue;

        const bf16 *queries = steps + step % 2 * 2 * COLS * STRIDE, *douts = queries + COLS * STRIDE;
        const float *lses = numbers + step % 2 * 2 * COLS + lane % 4 * 2, *deltas = lses + COLS;
        Sums<COLS> scores, gradients;
        scores.clear();
        multiply_transposed(scores, keys + warp_row * STRIDE, queries);
        if constexpr (OF_KEYS) {
            gradients.clear();
            multiply_transposed(gradients, values + warp_row * STRIDE, douts);
        }
        // Queries beyond the last are zeros, as are their statistics: they contribute nothing.
        bool masks = first_row + WARP_ROWS - 1 > col + s.reach;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                QueryNumbers query = {lses[n * 8 + e] * LOG2_E, deltas[n * 8 + e]};
                // For the lane's first key and this query: how many more keys the query attends to.
                int seen = col + n * 8 + lane % 4 * 2 + e + s.reach - first_row - lane / 4;
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        float& score = scores.at[m][n][2 * i + e];
                        bool hidden = masks && m * 16 + i * 8 > seen;
                        score = hidden ? 0 : weight(score, scale_log2, query);
                        if constexpr (OF_KEYS) {
                            float& gradient = gradients.at[m][n][2 * i + e];
                            gradient = score_gradient(score, gradient, query);
                        }
                    }
            }
        if constexpr (OF_VALUES) multiply(value_sums, scores, douts);
        if constexpr (OF_KEYS) multiply(key_sums, gradients, queries);
    }
    if constexpr (OF_KEYS) {
        key_sums.scale(s.scale);
        store_rows(Output(dk, at.batch, at.head, s.kv_len, s.kv_heads), first_row, key_sums, keys + warp_row * STRIDE);
    }
    if constexpr (OF_VALUES)
        store_rows(Output(dv, at.batch, at.head, s.kv_len, s.kv_heads), first_row, value_sums, values + warp_row * STRIDE);
}

// Grid: tiles of keys * kv_heads * batch. `lse` and `delta` are [batch, heads, q_len]. The scale is positive.
#if HEAD_DIM <= 128
KERNEL_BOUNDS(attention_backward_keys, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, bf16* dk, bf16* dv,
 Sizes s) {
    backward_keys<true, true>(q, k, v, dout, lse, delta, dk, dv, s);
}
#else
KERNEL_BOUNDS(attention_backward_keys, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, bf16* dk, Sizes s) {
    backward_keys<true, false>(q, k, v, dout, lse, delta, dk, nullptr, s);
}
KERNEL_BOUNDS(attention_backward_values, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, bf16* dv, Sizes s) {
    backward_keys<false, true>(q, k, v, dout, lse, delta, nullptr, dv, s);
}
#endif
