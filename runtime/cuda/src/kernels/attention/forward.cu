// Attention forward on tensor cores: FlashAttention-2 (Dao 2023).
//
// A block owns queries and iterates over the keys that they attend to. Values are copied while scores are computed, and
// the next keys while values are summed.

// Per row of a lane, row tile m and half i: running maximum of scores, and the lane's part of the sum of exponentials.
struct Softmax {
    float max[ROW_TILES][2], sum[ROW_TILES][2];
};

// Online softmax: converts scores to weights relative to the running maximum, and rescales earlier sums.
__device__ inline void weigh(Sums<COLS>& scores, Softmax& softmax, Sums<padded(VALUE_DIM)>& out, float scale_log2) {
    float correction[ROW_TILES][2];
    bool corrects = false;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float max = softmax.max[m][i];
#pragma unroll
            for (int n = 0; n < COLS / 8; n++)
                max = fmaxf(max, fmaxf(scores.at[m][n][2 * i], scores.at[m][n][2 * i + 1]));
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
            // A row without any key yet has no maximum; its weights are 0 relative to any.
            float base = max == -INFINITY ? 0.0f : max;
            correction[m][i] = exp2_fast((softmax.max[m][i] - base) * scale_log2);
            corrects |= correction[m][i] != 1;
            softmax.max[m][i] = max;
            base *= scale_log2;
            float sum = softmax.sum[m][i] * correction[m][i];
#pragma unroll
            for (int n = 0; n < COLS / 8; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    scores.at[m][n][e] = exp2_fast(scores.at[m][n][e] * scale_log2 - base);
                    sum += scores.at[m][n][e];
                }
            softmax.sum[m][i] = sum;
        }
    // The maximum of a row changes rarely in later steps.
    if (__any_sync(0xffffffffu, corrects)) scale_rows(out, correction);
}

// Converts the scores of queries from `first_row` and keys from `first_col` on.
__device__ inline void convert_all(Sums<COLS>& scores, const float* bias, int first_row, int first_col, const Sizes& s,
                                   const Extras& x) {
    int lane = threadIdx.x % 32, query = first_row + lane / 4, key = first_col + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float& score = scores.at[m][n][e];
                score = convert(score, bias, query + m * 16 + e / 2 * 8, key + n * 8 + e % 2, s, x).value;
            }
}

// Masks scores with -INFINITY; `first_row`, `first_col` and `rows` refer to the warp's scores.
__device__ inline void mask(Sums<COLS>& scores, int first_row, int first_col, const Seen* rows, const Sizes& s) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = m * 16 + i * 8 + lane / 4, of_lane = first_col + lane % 4 * 2, hidden = 0, seen;
            if constexpr (RANGES)
                hidden = rows[row].first - of_lane, seen = rows[row].end - of_lane;
            else
                seen = min(s.kv_len, first_row + row + s.reach + 1) - of_lane;
#pragma unroll
            for (int n = 0; n < COLS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (n * 8 + e >= seen || (RANGES && n * 8 + e < hidden)) scores.at[m][n][2 * i + e] = -INFINITY;
        }
}

// Multiplies weights by 0 or 1. The factor of kept ones follows after the sums, so that the rounded weights are those
// without dropout.
__device__ inline void drop(Sums<COLS>& weights, const Dropped& dropped) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) weights.at[m][n][e] *= dropped.factor(m, n, e, 1);
}

// Grid: tiles of queries * heads * batch. `lse` is [batch, heads, q_pitch]. The scale is positive.
KERNEL_BOUNDS(attention_forward, THREADS, BLOCKS)
(const bf16* q, const bf16* k, const bf16* v, Result* out, float* lse, Sizes s, Extras x) {
    DYNAMIC_SHARED(bf16, shared);
    bf16 *queries = shared, *keys = queries + ROWS * STRIDE, *values = keys + COLS * STRIDE;

    // Later queries attend to more keys: they are scheduled first, so that short blocks fill the tail.
    WorkTile at = work_tile((s.q_len + ROWS - 1) / ROWS, s.heads, true);
    int kv_head = s.kv_head(at.head);
    auto q_rows = query_rows<HEAD_DIM>(q, at.batch, at.head, s);
    auto k_rows = key_rows<HEAD_DIM>(k, at.batch, kv_head, s);
    auto v_rows = key_rows<VALUE_DIM>(v, at.batch, kv_head, s);

    int warp_row = warp_index() * WARP_ROWS, first_row = at.first_row + warp_row;
    bf16* warp_queries = queries + warp_row * STRIDE;
    // Keys that any row attends to: at least one step, so that results of rows without keys are written too.
    int first_key = 0, n_keys = max(1, min(s.kv_len, min(at.first_row + ROWS, s.q_len) + s.reach));
    int n_warp_keys = max(1, min(s.kv_len, first_row + WARP_ROWS + s.reach));
    // Keys that each row sees; the keys of this warp.
    Seen *seen = (Seen*)(values + COLS * VALUE_STRIDE), *warp_seen = seen + warp_row;
    if constexpr (RANGES) {
        first_key = seen_by(at.first_row, at.batch, s, x).first / COLS * COLS;
        n_keys = max(first_key + 1, seen_by(at.first_row + ROWS - 1, at.batch, s, x).end);
        load_seen(seen, at.first_row, at.batch, s, x);
    }

    Sums<padded(VALUE_DIM)> sums;
    sums.clear();
    Softmax softmax;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) softmax.max[m][i] = -INFINITY, softmax.sum[m][i] = 0;

    float scale = remaining_scale(s), scale_log2 = scale * LOG2_E;
    const float* bias = bias_of(at.head, x);
    load_tile<ROWS>(queries, q_rows, at.first_row);
    load_tile<COLS>(keys, k_rows, first_key);
    for (int col = first_key; col < n_keys; col += COLS) {
        wait_for_copies();
        // The keys have arrived, and all warps have finished with the values of the previous step.
        __syncthreads();
        load_tile<COLS>(values, v_rows, col);
        Sums<COLS> scores;
        Dropped dropped;
        bool sees = col < n_warp_keys;
        if constexpr (RANGES) sees = col < warp_seen[WARP_ROWS - 1].end && col + COLS > warp_seen[0].first;
        if (sees) {
            if constexpr (DROPOUT) dropped = draw_tile<false>(first_row, col, at.batch, at.head, x);
            scores.clear();
            multiply_transposed<HEAD_DIM>(scores, warp_queries, keys);
        }
        wait_for_copies();
        // The values have arrived, and all warps have finished with the keys.
        __syncthreads();
        if (col + COLS < n_keys) load_tile<COLS>(keys, k_rows, col + COLS);
        if (sees) {
            if constexpr (CONVERTS) convert_all(scores, bias, first_row, col, s, x);
            bool masks = col + COLS > min(s.kv_len, first_row + s.reach + 1);
            if constexpr (RANGES) masks = col < warp_seen[WARP_ROWS - 1].first || col + COLS > warp_seen[0].end;
            if (masks) mask(scores, first_row, col, warp_seen, s);
            weigh(scores, softmax, sums, scale_log2);
            if constexpr (DROPOUT) drop(scores, dropped);
            multiply<VALUE_DIM>(sums, scores, values);
        }
    }

    int lane = threadIdx.x % 32;
    float* lse_rows = lse + ((uint64_t)at.batch * s.heads + at.head) * s.q_pitch;
    float factor[ROW_TILES][2];
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = warp_reduce(softmax.sum[m][i], Sum(), 4), max = softmax.max[m][i] * scale, correction = 1;
            if constexpr (SINKS) {
                float sink = x.sinks[at.head], with_sink = Max()(max, sink);
                float base = with_sink == -INFINITY ? 0 : with_sink;
                correction = expf(max - base);
                sum = sum * correction + expf(sink - base);
                max = with_sink;
            }
            factor[m][i] = sum == 0 ? 0.0f : correction * reciprocal_fast(sum);
            if constexpr (DROPOUT) factor[m][i] *= x.kept;
            int row = first_row + m * 16 + i * 8 + lane / 4;
            if (lane % 4 == 0 && row < s.q_len) lse_rows[row] = max + logf(sum);
        }
    scale_rows(sums, factor);
    auto out_rows = query_rows<VALUE_DIM>(out, at.batch, at.head, s);
    // Wider rows would reach into the rows of the next warp, which may still use them.
    if constexpr (VALUE_STRIDE > STRIDE)
        store_pairs(out_rows, first_row, sums);
    else
        store_rows(out_rows, first_row, sums, warp_queries);
}
