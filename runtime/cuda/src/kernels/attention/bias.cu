// Gradient of the distance bias, deterministic. The includer defines DROPOUT, 0 or 1.
//
// A block owns a head and a diagonal of tiles of scores, so that every thread's scores have one distance. The sums of a
// block go to a row of `partials`; a second kernel adds those that belong to one value of the bias.

// Distances of a tile of scores.
constexpr int DISTANCES = 2 * TILE - 1;

// partials[heads, diagonals, DISTANCES]: the sums of the gradients of scores over all samples. Element o of diagonal t
// is that of distance TILE * (t - tiles of queries + 1) + o - TILE + 1. Grid: diagonals * heads.
template <class T>
__device__ inline void bias_partials(const T* q, const T* k, const T* v, const T* dout, const float* lse,
                                     const float* delta, float* partials, int diagonals, int batches,
                                     const Sizes& s, const Extras& x, int head_dim, int value_dim) {
    DYNAMIC_SHARED(float, shared);
    int tile = TILE * stride_of(head_dim), value_tile = TILE * stride_of(value_dim);
    float *queries = shared, *douts = queries + tile, *keys = douts + value_tile, *values = keys + tile;
    float* sums = values + value_tile;

    int q_tiles = (s.q_len + TILE - 1) / TILE;
    int head = blockIdx.x / diagonals, shift = (int)(blockIdx.x % diagonals) - q_tiles + 1;
    int i = threadIdx.x / TILE, j = threadIdx.x % TILE;
    float sum = 0;
    for (int batch = 0; batch < batches; batch++) {
        for (int row = max(0, -shift) * TILE; row < s.q_len && row + shift * TILE < s.kv_len; row += TILE) {
            WorkTile at = {batch, head, row};
            int col = row + shift * TILE;
            Seen of_tile = seen_by_tile(at, s, x);
            if (col + TILE <= of_tile.first || col >= of_tile.end) continue;
            __syncthreads();
            query_rows(q, at, head, s, head_dim).load(queries, row);
            query_rows(dout, at, head, s, value_dim).load(douts, row);
            key_rows(k, at, s.kv_head(head), s, head_dim).load(keys, col);
            key_rows(v, at, s.kv_head(head), s, value_dim).load(values, col);
            __syncthreads();
            uint64_t number = ((uint64_t)batch * s.heads + head) * s.q_pitch + min(row + i, s.q_len - 1);
            float product = dot(queries + i * stride_of(head_dim), keys + j * stride_of(head_dim), head_dim);
            float weight_gradient = dot(douts + i * stride_of(value_dim), values + j * stride_of(value_dim), value_dim);
            if constexpr (DROPOUT) weight_gradient *= factor_of(batch, head, row + i, col + j, x);
            bool seen = seen_by(row + i, batch, s, x).has(col + j);
            float score = score_of(product, head, row + i, col + j, s, x).value;
            sum += gradients(score, weight_gradient, lse[number], delta[number], seen).score;
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    int of = threadIdx.x;
    if (of >= DISTANCES) return;
    // Of row r, column r + of - (TILE - 1).
    float total = 0;
    for (int r = max(0, TILE - 1 - of); r < TILE && r + of - TILE + 1 < TILE; r++)
        total += sums[r * TILE + r + of - TILE + 1];
    partials[(uint64_t)blockIdx.x * DISTANCES + of] = total;
}

KERNEL(attention_bias_partials_f32)
(const float* q, const float* k, const float* v, const float* dout, const float* lse, const float* delta,
 float* partials, int diagonals, int batches, Sizes s, Extras x, int head_dim, int value_dim) {
    bias_partials(q, k, v, dout, lse, delta, partials, diagonals, batches, s, x, head_dim, value_dim);
}
KERNEL(attention_bias_partials_bf16)
(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta, float* partials,
 int diagonals, int batches, Sizes s, Extras x, int head_dim, int value_dim) {
    bias_partials(q, k, v, dout, lse, delta, partials, diagonals, batches, s, x, head_dim, value_dim);
}

// dbias[heads, distances]: sums of partials, one warp per value. Grid: any.
KERNEL(attention_bias_gradients)
(const float* partials, float* dbias, int diagonals, Sizes s, Extras x) {
    int lane = threadIdx.x % 32, q_tiles = (s.q_len + TILE - 1) / TILE, last = x.distances - 1;
    uint64_t values = (uint64_t)s.heads * x.distances;
    for (uint64_t value = thread_index() / 32; value < values; value += thread_count() / 32) {
        int index = value % x.distances;
        const float* of_head = partials + value / x.distances * diagonals * DISTANCES;
        // Distances of this value, counted from the first of all; the outer values have all those beyond them.
        int first = 1 - s.q_len, here = index - x.zero;
        int from = index == 0 ? first : max(first, here), to = index == last ? s.kv_len : min(s.kv_len, here + 1);
        float sum = 0;
        for (int distance = from + lane; distance < to; distance += 32) {
            // Each distance is in two diagonals of tiles.
            int shifted = distance + q_tiles * TILE, diagonal = shifted / TILE - 1, of = shifted % TILE;
            if (diagonal >= 0 && diagonal < diagonals) sum += of_head[(uint64_t)diagonal * DISTANCES + of + TILE - 1];
            if (of > 0 && diagonal + 1 < diagonals) sum += of_head[(uint64_t)(diagonal + 1) * DISTANCES + of - 1];
        }
        sum = warp_reduce(sum, Sum());
        if (lane == 0) dbias[value] = x.accumulate ? dbias[value] + sum : sum;
    }
}
