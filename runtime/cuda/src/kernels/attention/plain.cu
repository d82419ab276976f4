// Attention without tensor cores, for f32 and for operands that the tensor-core kernels do not support: any head dim,
// any alignment. Results are of type O: that of the operands, or f32. The includer defines DROPOUT, 0 or 1.

// Updates this thread's elements of sums[i, :] = sums[i, :] * factor + weights[i, :] * rows.
__device__ inline void add_weighted(float* sums, float factor, const float* weights, const float* rows, int dim) {
    int i = threadIdx.x / TILE, stride = stride_of(dim);
    for (int d = threadIdx.x % TILE; d < dim; d += TILE) {
        // Of the tile alone first: a short chain of sums, as in `dot`.
        float sum = 0;
        for (int j = 0; j < TILE; j++) sum += weights[i * TILE + j] * rows[j * stride + d];
        sums[i * stride + d] = sums[i * stride + d] * factor + sum;
    }
}

__device__ inline void clear(float* sums, int dim) {
    for (int d = threadIdx.x % TILE; d < dim; d += TILE) sums[threadIdx.x / TILE * stride_of(dim) + d] = 0;
}

template <class O>
__device__ inline void write(const Head<O>& head, int row, const float* sums, float factor, bool accumulate) {
    int i = threadIdx.x / TILE;
    if (row + i >= head.len) return;
    for (int d = threadIdx.x % TILE; d < head.dim; d += TILE) {
        O* at = head.first + (row + i) * head.stride + d;
        float sum = sums[i * stride_of(head.dim) + d] * factor;
        store(at, accumulate ? widen(*at) + sum : sum);
    }
}

template <class T, class O>
__device__ inline void forward(const T* q, const T* k, const T* v, O* out, float* lse, const Sizes& s, const Extras& x,
                               int head_dim, int value_dim) {
    DYNAMIC_SHARED(float, shared);
    int tile = TILE * stride_of(head_dim), value_tile = TILE * stride_of(value_dim);
    float *queries = shared, *keys = queries + tile, *values = keys + tile, *sums = values + value_tile;
    float* weights = sums + value_tile;

    WorkTile at = work_tile(s.q_len, s.heads);
    int kv_head = s.kv_head(at.head), i = threadIdx.x / TILE, j = threadIdx.x % TILE, row = at.first_row + i;
    Head<const T> k_rows = key_rows(k, at, kv_head, s, head_dim), v_rows = key_rows(v, at, kv_head, s, value_dim);
    query_rows(q, at, at.head, s, head_dim).load(queries, at.first_row);
    clear(sums, value_dim);

    float max = -INFINITY, sum = 0;
    Seen seen = seen_by(row, at.batch, s, x), of_tile = seen_by_tile(at, s, x);
    for (int col = of_tile.first; col < of_tile.end; col += TILE) {
        __syncthreads();
        k_rows.load(keys, col);
        v_rows.load(values, col);
        __syncthreads();
        float product = dot(queries + i * stride_of(head_dim), keys + j * stride_of(head_dim), head_dim);
        float score = seen.has(col + j) ? score_of(product, at.head, row, col + j, s, x).value : -INFINITY;
        float new_max = fmaxf(max, warp_reduce(score, Max(), TILE));
        // A row without any key yet has no maximum; its weights are 0 relative to any.
        float base = new_max == -INFINITY ? 0 : new_max;
        float correction = expf(max - base), weight = expf(score - base);
        max = new_max;
        sum = sum * correction + warp_reduce(weight, Sum(), TILE);
        if constexpr (DROPOUT) weight *= factor_of(at.batch, at.head, row, col + j, x);
        weights[i * TILE + j] = weight;
        __syncwarp();
        add_weighted(sums, correction, weights, values, value_dim);
    }
    float factor = 1;
    if (x.sinks) {
        float sink = x.sinks[at.head], new_max = Max()(max, sink), base = new_max == -INFINITY ? 0 : new_max;
        factor = expf(max - base);
        sum = sum * factor + expf(sink - base);
        max = new_max;
    }
    if (j == 0 && row < s.q_len) lse[((uint64_t)at.batch * s.heads + at.head) * s.q_pitch + row] = max + logf(sum);
    write(query_rows(out, at, at.head, s, value_dim), at.first_row, sums, sum == 0 ? 0 : factor / sum, false);
}

template <class T, class O>
__device__ inline void backward_queries(const T* q, const T* k, const T* v, const T* dout, const float* lse,
                                        const float* delta, O* dq, const Sizes& s, const Extras& x, int head_dim,
                                        int value_dim) {
    DYNAMIC_SHARED(float, shared);
    int tile = TILE * stride_of(head_dim), value_tile = TILE * stride_of(value_dim);
    float *queries = shared, *douts = queries + tile, *keys = douts + value_tile, *values = keys + tile;
    float *sums = values + value_tile, *weights = sums + tile;

    WorkTile at = work_tile(s.q_len, s.heads);
    int kv_head = s.kv_head(at.head), i = threadIdx.x / TILE, j = threadIdx.x % TILE, row = at.first_row + i;
    Head<const T> k_rows = key_rows(k, at, kv_head, s, head_dim), v_rows = key_rows(v, at, kv_head, s, value_dim);
    query_rows(q, at, at.head, s, head_dim).load(queries, at.first_row);
    query_rows(dout, at, at.head, s, value_dim).load(douts, at.first_row);
    clear(sums, head_dim);

    uint64_t number = ((uint64_t)at.batch * s.heads + at.head) * s.q_pitch + min(row, s.q_len - 1);
    float row_lse = lse[number], row_delta = delta[number];
    Seen seen = seen_by(row, at.batch, s, x), of_tile = seen_by_tile(at, s, x);
    for (int col = of_tile.first; col < of_tile.end; col += TILE) {
        __syncthreads();
        k_rows.load(keys, col);
        v_rows.load(values, col);
        __syncthreads();
        float product = dot(queries + i * stride_of(head_dim), keys + j * stride_of(head_dim), head_dim);
        float weight_gradient = dot(douts + i * stride_of(value_dim), values + j * stride_of(value_dim), value_dim);
        if constexpr (DROPOUT) weight_gradient *= factor_of(at.batch, at.head, row, col + j, x);
        Score score = score_of(product, at.head, row, col + j, s, x);
        Gradients of_score = gradients(score.value, weight_gradient, row_lse, row_delta, seen.has(col + j));
        weights[i * TILE + j] = of_score.score * score.slope;
        __syncwarp();
        add_weighted(sums, 1, weights, keys, head_dim);
    }
    write(query_rows(dq, at, at.head, s, head_dim), at.first_row, sums, s.scale, x.accumulate != 0);
}

template <class T, class O>
__device__ inline void backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse,
                                     const float* delta, O* dk, O* dv, const Sizes& s, const Extras& x, int head_dim,
                                     int value_dim) {
    DYNAMIC_SHARED(float, shared);
    int tile = TILE * stride_of(head_dim), value_tile = TILE * stride_of(value_dim);
    float *keys = shared, *values = keys + tile, *queries = values + value_tile, *douts = queries + tile;
    float *key_sums = douts + value_tile, *value_sums = key_sums + tile;
    float *weights = value_sums + value_tile, *score_gradients = weights + TILE * TILE;

    WorkTile at = work_tile(s.kv_len, s.kv_heads);
    int i = threadIdx.x / TILE, j = threadIdx.x % TILE, key = at.first_row + i;
    key_rows(k, at, at.head, s, head_dim).load(keys, at.first_row);
    key_rows(v, at, at.head, s, value_dim).load(values, at.first_row);
    clear(key_sums, head_dim);
    clear(value_sums, value_dim);

    // Queries that attend to any key of the block.
    int first_col = max(0, at.first_row - s.reach), end_col = s.q_len;
    if (x.first) {
        uint64_t sample = (uint64_t)at.batch * s.q_pitch;
        first_col = first_where(s.q_len, [&](int query) { return x.end[sample + query] > at.first_row; });
        end_col = first_where(s.q_len, [&](int query) { return x.first[sample + query] >= at.first_row + TILE; });
    }
    for (int head = s.first_reader(at.head); head < s.first_reader(at.head + 1); head++) {
        Head<const T> q_rows = query_rows(q, at, head, s, head_dim);
        Head<const T> dout_rows = query_rows(dout, at, head, s, value_dim);
        uint64_t first = ((uint64_t)at.batch * s.heads + head) * s.q_pitch;
        for (int col = first_col / TILE * TILE; col < end_col; col += TILE) {
            __syncthreads();
            q_rows.load(queries, col);
            dout_rows.load(douts, col);
            __syncthreads();
            uint64_t number = first + min(col + j, s.q_len - 1);
            float product = dot(keys + i * stride_of(head_dim), queries + j * stride_of(head_dim), head_dim);
            float weight_gradient = dot(values + i * stride_of(value_dim), douts + j * stride_of(value_dim), value_dim);
            bool seen = seen_by(col + j, at.batch, s, x).has(key);
            float factor = 1;
            if constexpr (DROPOUT) factor = factor_of(at.batch, head, col + j, key, x);
            Score score = score_of(product, head, col + j, key, s, x);
            Gradients of_score = gradients(score.value, weight_gradient * factor, lse[number], delta[number], seen);
            weights[i * TILE + j] = of_score.weight * factor;
            score_gradients[i * TILE + j] = of_score.score * score.slope;
            __syncwarp();
            add_weighted(key_sums, 1, score_gradients, queries, head_dim);
            add_weighted(value_sums, 1, weights, douts, value_dim);
        }
    }
    write(key_rows(dk, at, at.head, s, head_dim), at.first_row, key_sums, s.scale, x.accumulate != 0);
    write(key_rows(dv, at, at.head, s, value_dim), at.first_row, value_sums, 1, x.accumulate != 0);
}

// Draws take more registers than as many threads as a block may have could get.
#if DROPOUT
#define PLAIN_KERNEL(NAME) KERNEL_BOUNDS(NAME, THREADS, 2)
#else
#define PLAIN_KERNEL(NAME) KERNEL(NAME)
#endif

// Grids: tiles of queries * heads * batch; of `keys`, tiles of keys * kv_heads * batch. The scale is positive.
#define KERNELS(NAMES, T, O)                                                                                           \
    PLAIN_KERNEL(attention_plain_forward_##NAMES)                                                                      \
    (const T* q, const T* k, const T* v, O* out, float* lse, Sizes s, Extras x, int head_dim, int value_dim) {         \
        forward(q, k, v, out, lse, s, x, head_dim, value_dim);                                                         \
    }                                                                                                                  \
    PLAIN_KERNEL(attention_plain_backward_queries_##NAMES)                                                             \
    (const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, O* dq, Sizes s,          \
     Extras x, int head_dim, int value_dim) {                                                                          \
        backward_queries(q, k, v, dout, lse, delta, dq, s, x, head_dim, value_dim);                                    \
    }                                                                                                                  \
    PLAIN_KERNEL(attention_plain_backward_keys_##NAMES)                                                                \
    (const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, O* dk, O* dv, Sizes s,   \
     Extras x, int head_dim, int value_dim) {                                                                          \
        backward_keys(q, k, v, dout, lse, delta, dk, dv, s, x, head_dim, value_dim);                                   \
    }

KERNELS(f32, float, float)
KERNELS(bf16, bf16, bf16)
KERNELS(bf16_f32, bf16, float)
