// Query gradients on tensor cores, 3 matmuls per score.
//
// A block owns queries and iterates over the keys that they attend to, in order and without atomics, so that results
// are deterministic. The next keys and values are copied to a second pair of tiles meanwhile.

// Of one step: keys, then values.
constexpr int STEP = COLS * (STRIDE + VALUE_STRIDE);

// Grid: tiles of queries * heads * batch. `lse` and `delta` are [batch, heads, q_pitch]. The scale is positive.
KERNEL_BOUNDS(attention_backward_queries, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, Result* dq,
 Sizes s, Extras x) {
    DYNAMIC_SHARED(bf16, shared);
    bf16 *queries = shared, *douts = queries + ROWS * STRIDE, *steps = douts + ROWS * VALUE_STRIDE;

    // Later queries attend to more keys: they are scheduled first, so that short blocks fill the tail.
    WorkTile at = work_tile((s.q_len + ROWS - 1) / ROWS, s.heads, true);
    int kv_head = s.kv_head(at.head);
    auto k_rows = key_rows<HEAD_DIM>(k, at.batch, kv_head, s);
    auto v_rows = key_rows<VALUE_DIM>(v, at.batch, kv_head, s);

    int lane = threadIdx.x % 32, warp_row = warp_index() * WARP_ROWS, first_row = at.first_row + warp_row;
    int first_key = 0, n_keys = max(1, min(s.kv_len, min(at.first_row + ROWS, s.q_len) + s.reach));
    // Keys that each row sees; the keys of this warp.
    Seen *seen = (Seen*)(steps + 2 * STEP), *warp_seen = seen + warp_row;
    if constexpr (RANGES) {
        first_key = seen_by(at.first_row, at.batch, s, x).first / COLS * COLS;
        n_keys = max(first_key + 1, seen_by(at.first_row + ROWS - 1, at.batch, s, x).end);
        load_seen(seen, at.first_row, at.batch, s, x);
    }

    load_tile<ROWS>(queries, query_rows<HEAD_DIM>(q, at.batch, at.head, s), at.first_row);
    load_tile<ROWS>(douts, query_rows<VALUE_DIM>(dout, at.batch, at.head, s), at.first_row);
    load_tile<COLS>(steps, k_rows, first_key);
    load_tile<COLS>(steps + COLS * STRIDE, v_rows, first_key);

    QueryNumbers numbers[ROW_TILES][2];
    uint64_t head = ((uint64_t)at.batch * s.heads + at.head) * s.q_pitch;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = min(first_row + m * 16 + i * 8 + lane / 4, s.q_len - 1);
            numbers[m][i] = {lse[head + row] * LOG2_E, delta[head + row]};
        }

    Sums<padded(HEAD_DIM)> sums;
    sums.clear();
    float scale_log2 = remaining_scale(s) * LOG2_E;
    const float* bias = bias_of(at.head, x);
    for (int col = first_key, step = 0; col < n_keys; col += COLS, step ^= 1) {
        const bf16 *keys = steps + step * STEP, *values = keys + COLS * STRIDE;
        wait_for_copies();
        // The tiles of this step have arrived, and all warps have finished the previous step, whose tiles the next copy
        // overwrites.
        __syncthreads();
        if (col + COLS < n_keys) {
            bf16* next = steps + (step ^ 1) * STEP;
            load_tile<COLS>(next, k_rows, col + COLS);
            load_tile<COLS>(next + COLS * STRIDE, v_rows, col + COLS);
        }
        bool sees = col < s.kv_len && col < first_row + WARP_ROWS + s.reach;
        bool masks = col + COLS > min(s.kv_len, first_row + s.reach + 1);
        if constexpr (RANGES) {
            sees = col < warp_seen[WARP_ROWS - 1].end && col + COLS > warp_seen[0].first;
            masks = col < warp_seen[WARP_ROWS - 1].first || col + COLS > warp_seen[0].end;
        }
        if (!sees) continue;

        Dropped dropped;
        if constexpr (DROPOUT) dropped = draw_tile<false>(first_row, col, at.batch, at.head, x);
        Sums<COLS> scores, gradients;
        scores.clear();
        multiply_transposed<HEAD_DIM>(scores, queries + warp_row * STRIDE, keys);
        gradients.clear();
        multiply_transposed<VALUE_DIM>(gradients, douts + warp_row * VALUE_STRIDE, values);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int row = m * 16 + i * 8 + lane / 4, of_lane = col + lane % 4 * 2, hidden = 0, seen;
                if constexpr (RANGES)
                    hidden = warp_seen[row].first - of_lane, seen = warp_seen[row].end - of_lane;
                else
                    seen = min(s.kv_len, first_row + row + s.reach + 1) - of_lane;
#pragma unroll
                for (int n = 0; n < COLS / 8; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float& score = scores.at[m][n][2 * i + e];
                        Score converted = convert(score, bias, first_row + row, of_lane + n * 8 + e, s, x);
                        float p = weight(converted.value, scale_log2, numbers[m][i]);
                        float gradient = gradients.at[m][n][2 * i + e];
                        if constexpr (DROPOUT) gradient *= dropped.factor(m, n, 2 * i + e, x.kept);
                        score = score_gradient(p, gradient, numbers[m][i]);
                        if constexpr (SOFT_CAP) score *= converted.slope;
                        if (masks && (n * 8 + e >= seen || (RANGES && n * 8 + e < hidden))) score = 0;
                    }
            }
        multiply<HEAD_DIM>(sums, scores, keys);
    }
    sums.scale(s.scale);
    store_rows(query_rows<HEAD_DIM>(dq, at.batch, at.head, s), first_row, sums, queries + warp_row * STRIDE);
}
