// Query gradients on tensor cores, 3 matmuls per score.
//
// A block owns queries and iterates over the keys that they attend to, in order and without atomics, so that results
// are deterministic. The next keys and values are copied to a second pair of tiles meanwhile.

// Grid: tiles of queries * heads * batch. `lse` and `delta` are [batch, heads, q_len]. The scale is positive.
KERNEL_BOUNDS(attention_backward_queries, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, bf16* dq, Sizes s) {
    DYNAMIC_SHARED(bf16, shared);
    bf16 *queries = shared, *douts = queries + ROWS * STRIDE, *steps = douts + ROWS * STRIDE;

    // Later queries attend to more keys: they are scheduled first, so that short blocks fill the tail.
    Place at = place((s.q_len + ROWS - 1) / ROWS, s.heads, true);
    int kv_head = at.head / (s.heads / s.kv_heads);
    Input q_rows(q, at.batch, at.head, s.q_len, s.heads), dout_rows(dout, at.batch, at.head, s.q_len, s.heads);
    Input k_rows(k, at.batch, kv_head, s.kv_len, s.kv_heads), v_rows(v, at.batch, kv_head, s.kv_len, s.kv_heads);

    int lane = threadIdx.x % 32, warp_row = warp_index() * WARP_ROWS, first_row = at.first_row + warp_row;
    int n_keys = max(1, min(s.kv_len, min(at.first_row + ROWS, s.q_len) + s.reach));

    load_tile<ROWS>(queries, q_rows, at.first_row);
    load_tile<ROWS>(douts, dout_rows, at.first_row);
    load_tile<COLS>(steps, k_rows, 0);
    load_tile<COLS>(steps + COLS * STRIDE, v_rows, 0);

    QueryNumbers numbers[ROW_TILES][2];
    uint64_t head = ((uint64_t)at.batch * s.heads + at.head) * s.q_len;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = min(first_row + m * 16 + i * 8 + lane / 4, s.q_len - 1);
            numbers[m][i] = {lse[head + row] * LOG2_E, delta[head + row]};
        }

    Sums<DIM> sums;
    sums.clear();
    float scale_log2 = s.scale * LOG2_E;
    for (int col = 0, step = 0; col < n_keys; col += COLS, step ^= 1) {
        const bf16 *keys = steps + step * 2 * COLS * STRIDE, *values = keys + COLS * STRIDE;
        wait_for_copies();
        // The tiles of this step have arrived, and all warps have finished the previous step, whose tiles the next copy
        // overwrites.
        __syncthreads();
        if (col + COLS < n_keys) {
            bf16* next = steps + (step ^ 1) * 2 * COLS * STRIDE;
            load_tile<COLS>(next, k_rows, col + COLS);
            load_tile<COLS>(next + COLS * STRIDE, v_rows, col + COLS);
        }
        if (col >= s.kv_len || col >= first_row + WARP_ROWS + s.reach) continue;

        Sums<COLS> scores, gradients;
        scores.clear();
        multiply_transposed(scores, queries + warp_row * STRIDE, keys);
        gradients.clear();
        multiply_transposed(gradients, douts + warp_row * STRIDE, values);
        bool masks = col + COLS > min(s.kv_len, first_row + s.reach + 1);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int seen = min(s.kv_len, first_row + m * 16 + i * 8 + lane / 4 + s.reach + 1) - col - lane % 4 * 2;
#pragma unroll
                for (int n = 0; n < COLS / 8; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float& score = scores.at[m][n][2 * i + e];
                        float p = weight(score, scale_log2, numbers[m][i]);
                        score = score_gradient(p, gradients.at[m][n][2 * i + e], numbers[m][i]);
                        if (masks && n * 8 + e >= seen) score = 0;
                    }
            }
        multiply(sums, scores, keys);
    }
    sums.scale(s.scale);
    store_rows(Output(dq, at.batch, at.head, s.q_len, s.heads), first_row, sums, queries + warp_row * STRIDE);
}
