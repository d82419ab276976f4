// Key and value gradients on tensor cores, 4 matmuls per score.
//
// A block owns keys and iterates over the queries that attend to them, of every query head that reads them, in a fixed
// order without atomics, so that results are deterministic. Scores are computed transposed, keys by queries, so that
// weights and score gradients are in registers in the layout of the next matmuls. The next queries and output gradients
// are copied to a second pair of tiles meanwhile.
//
// Head dims above 128 leave too few registers for both gradients: the same kernel runs once for each.

// Of one step: queries, then output gradients. Numbers of one step, after all tiles: lse and delta of each query, and
// with RANGES the keys that it sees.
constexpr int STEP = COLS * (STRIDE + VALUE_STRIDE), NUMBERS = (RANGES ? 4 : 2) * COLS;

template <bool OF_KEYS, bool OF_VALUES>
__device__ inline void backward_keys(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse,
                                     const float* delta, Result* dk, Result* dv, const Sizes& s, const Extras& x) {
    DYNAMIC_SHARED(bf16, shared);
    bf16 *keys = shared, *values = keys + ROWS * STRIDE, *steps = values + ROWS * VALUE_STRIDE;
    float* numbers = (float*)(steps + 2 * STEP);

    // Earlier keys have more queries and are scheduled first.
    WorkTile at = work_tile((s.kv_len + ROWS - 1) / ROWS, s.kv_heads, false);
    int first_head = s.first_reader(at.head), n_heads = s.first_reader(at.head + 1) - first_head;
    int lane = threadIdx.x % 32;
    int warp_row = warp_index() * WARP_ROWS, first_row = at.first_row + warp_row;
    // Queries that attend to any key of the block, of each head in whole steps.
    int first_col = max(0, at.first_row - s.reach) / COLS * COLS, end_col = s.q_len;
    uint64_t sample = (uint64_t)at.batch * s.q_pitch;
    if constexpr (RANGES) {
        first_col = first_where(s.q_len, [&](int query) { return x.end[sample + query] > at.first_row; }) / COLS * COLS;
        end_col = first_where(s.q_len, [&](int query) { return x.first[sample + query] >= at.first_row + ROWS; });
    }
    int head_steps = max(0, end_col - first_col + COLS - 1) / COLS, n_steps = n_heads * head_steps;

    auto load_step = [&](int step) {
        int head = first_head + step / head_steps, col = first_col + step % head_steps * COLS;
        bf16* tiles = steps + step % 2 * STEP;
        load_tile<COLS>(tiles, query_rows<HEAD_DIM>(q, at.batch, head, s), col);
        load_tile<COLS>(tiles + COLS * STRIDE, query_rows<VALUE_DIM>(dout, at.batch, head, s), col);
        uint64_t first = ((uint64_t)at.batch * s.heads + head) * s.q_pitch;
        float* of_step = numbers + step % 2 * NUMBERS;
        load_numbers<COLS>(of_step, lse + first, col, s.q_len);
        load_numbers<COLS>(of_step + COLS, delta + first, col, s.q_len);
        if constexpr (RANGES) {
            // Queries beyond the last see no keys.
            load_numbers<COLS>((int*)of_step + 2 * COLS, x.first + sample, col, s.q_len);
            load_numbers<COLS>((int*)of_step + 3 * COLS, x.end + sample, col, s.q_len);
        }
    };
    load_tile<ROWS>(keys, key_rows<HEAD_DIM>(k, at.batch, at.head, s), at.first_row);
    load_tile<ROWS>(values, key_rows<VALUE_DIM>(v, at.batch, at.head, s), at.first_row);
    if (n_steps > 0) load_step(0);

    Sums<padded(HEAD_DIM)> key_sums;
    Sums<padded(VALUE_DIM)> value_sums;
    key_sums.clear();
    value_sums.clear();
    float scale_log2 = remaining_scale(s) * LOG2_E;
    for (int step = 0; step < max(1, n_steps); step++) {
        wait_for_copies();
        // The tiles of this step have arrived, and all warps have finished the previous step, whose tiles the next copy
        // overwrites.
        __syncthreads();
        // Gradients of keys without queries are written, too.
        if (n_steps == 0) break;
        if (step + 1 < n_steps) load_step(step + 1);
        int col = first_col + step % head_steps * COLS;
        const bf16 *queries = steps + step % 2 * STEP, *douts = queries + COLS * STRIDE;
        const float *lses = numbers + step % 2 * NUMBERS + lane % 4 * 2, *deltas = lses + COLS;
        const int *firsts = (const int*)(deltas + COLS), *ends = firsts + COLS;
        // If any query of the step attends to the warp's keys, and if not all do to all.
        bool sees = first_row <= col + COLS - 1 + s.reach, masks = first_row + WARP_ROWS - 1 > col + s.reach;
        if constexpr (RANGES) {
            int last = min(COLS, s.q_len - col) - 1 - lane % 4 * 2, first = -(lane % 4 * 2);
            sees = first_row < ends[last] && first_row + WARP_ROWS > firsts[first];
            masks = first_row < firsts[last] || first_row + WARP_ROWS > ends[first];
        }
        if (!sees) continue;

        Dropped dropped;
        if constexpr (DROPOUT)
            dropped = draw_tile<true>(first_row, col, at.batch, first_head + step / head_steps, x);
        Sums<COLS> scores, gradients;
        scores.clear();
        multiply_transposed<HEAD_DIM>(scores, keys + warp_row * STRIDE, queries);
        if constexpr (OF_KEYS) {
            gradients.clear();
            multiply_transposed<VALUE_DIM>(gradients, values + warp_row * VALUE_STRIDE, douts);
        }
        const float* bias = BIAS ? bias_of(first_head + step / head_steps, x) : nullptr;
        // Queries beyond the last are zeros, as are their statistics: they contribute nothing unless biased.
        if constexpr (BIAS) masks |= col + COLS > s.q_len;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                QueryNumbers query = {lses[n * 8 + e] * LOG2_E, deltas[n * 8 + e]};
                // For the lane's first key and this query: how many more keys the query attends to.
                int column = col + n * 8 + lane % 4 * 2 + e, seen = column + s.reach - first_row - lane / 4, before = 0;
                if constexpr (RANGES) {
                    seen = ends[n * 8 + e] - 1 - first_row - lane / 4;
                    before = firsts[n * 8 + e] - first_row - lane / 4;
                }
                if constexpr (BIAS) seen = column < s.q_len ? seen : -1;
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        float& score = scores.at[m][n][2 * i + e];
                        bool hidden = masks && (m * 16 + i * 8 > seen || (RANGES && m * 16 + i * 8 < before));
                        Score converted = convert(score, bias, column, first_row + m * 16 + i * 8 + lane / 4, s, x);
                        score = hidden ? 0 : weight(converted.value, scale_log2, query);
                        if constexpr (OF_KEYS) {
                            float& gradient = gradients.at[m][n][2 * i + e];
                            if constexpr (DROPOUT) gradient *= dropped.factor(m, n, 2 * i + e, x.kept);
                            gradient = score_gradient(score, gradient, query);
                            if constexpr (SOFT_CAP) gradient *= converted.slope;
                        }
                        if constexpr (DROPOUT && OF_VALUES) score *= dropped.factor(m, n, 2 * i + e, 1);
                    }
            }
        if constexpr (OF_VALUES) multiply<VALUE_DIM>(value_sums, scores, douts);
        if constexpr (OF_KEYS) multiply<HEAD_DIM>(key_sums, gradients, queries);
    }
    if constexpr (OF_KEYS) {
        key_sums.scale(s.scale);
        store_rows(key_rows<HEAD_DIM>(dk, at.batch, at.head, s), first_row, key_sums, keys + warp_row * STRIDE);
    }
    if constexpr (DROPOUT && OF_VALUES) value_sums.scale(x.kept);
    if constexpr (OF_VALUES)
        store_rows(key_rows<VALUE_DIM>(dv, at.batch, at.head, s), first_row, value_sums,
                   values + warp_row * VALUE_STRIDE);
}

// Grid: tiles of keys * kv_heads * batch. `lse` and `delta` are [batch, heads, q_pitch]. The scale is positive.
#if HEAD_DIM <= 128 && VALUE_DIM <= 128
KERNEL_BOUNDS(attention_backward_keys, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, Result* dk,
 Result* dv, Sizes s, Extras x) {
    backward_keys<true, true>(q, k, v, dout, lse, delta, dk, dv, s, x);
}
#else
KERNEL_BOUNDS(attention_backward_keys, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, Result* dk,
 Sizes s, Extras x) {
    backward_keys<true, false>(q, k, v, dout, lse, delta, dk, nullptr, s, x);
}
KERNEL_BOUNDS(attention_backward_values, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, Result* dv,
 Sizes s, Extras x) {
    backward_keys<false, true>(q, k, v, dout, lse, delta, nullptr, dv, s, x);
}
#endif
