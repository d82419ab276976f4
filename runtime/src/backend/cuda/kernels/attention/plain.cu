// Attention without tensor cores, for f32 and for operands that the tensor-core kernels do not support: any head dim,
// any alignment.
//
// A block of TILE x TILE threads owns TILE rows and iterates over the other side in tiles of as many columns: thread
// (i, j) computes the score of row i and column j, and every TILE-th element of the sums of row i. Half a warp
// processes a row.

constexpr int TILE = 16, THREADS = TILE * TILE;

// Rows in shared memory start in different banks.
__device__ inline int stride_of(int head_dim) { return head_dim | 1; }

// Tile and head of a block; blocks of one head are consecutive.
struct Place {
    int batch, head, first_row;
};

__device__ inline Place place(int rows, int heads) {
    int tiles = (rows + TILE - 1) / TILE;
    return {(int)(blockIdx.x / tiles / heads), (int)(blockIdx.x / tiles % heads), (int)(blockIdx.x % tiles) * TILE};
}

// One head of a tensor [batch, len, heads, head_dim].
template <class Element>
struct Head {
    Element* first;
    uint64_t stride;
    int len, head_dim;

    __device__ Head(Element* tensor, int batch, int head, int len, int heads, int head_dim)
        : first(tensor + ((uint64_t)batch * len * heads + head) * head_dim),
          stride((uint64_t)heads * head_dim),
          len(len),
          head_dim(head_dim) {}

    // Loads a tile of rows from `row` on; zeros beyond the last.
    __device__ void load(float* tile, int row) const {
        for (int i = threadIdx.x; i < TILE * head_dim; i += THREADS) {
            int r = i / head_dim, d = i % head_dim;
            tile[r * stride_of(head_dim) + d] = row + r < len ? widen(first[(row + r) * stride + d]) : 0;
        }
    }
};

__device__ inline float dot(const float* a, const float* b, int n) {
    float sum = 0;
    for (int d = 0; d < n; d++) sum += a[d] * b[d];
    return sum;
}

// Updates this thread's elements of sums[i, :] = sums[i, :] * factor + weights[i, :] * rows.
__device__ inline void add_weighted(float* sums, float factor, const float* weights, const float* rows, int head_dim) {
    int i = threadIdx.x / TILE, stride = stride_of(head_dim);
    for (int d = threadIdx.x % TILE; d < head_dim; d += TILE) {
        float sum = sums[i * stride + d] * factor;
        for (int j = 0; j < TILE; j++) sum += weights[i * TILE + j] * rows[j * stride + d];
        sums[i * stride + d] = sum;
    }
}

__device__ inline void clear(float* sums, int head_dim) {
    for (int d = threadIdx.x % TILE; d < head_dim; d += TILE) sums[threadIdx.x / TILE * stride_of(head_dim) + d] = 0;
}

template <class T>
__device__ inline void write(const Head<T>& head, int row, const float* sums, float factor) {
    int i = threadIdx.x / TILE;
    if (row + i >= head.len) return;
    for (int d = threadIdx.x % TILE; d < head.head_dim; d += TILE)
        store(head.first + (row + i) * head.stride + d, sums[i * stride_of(head.head_dim) + d] * factor);
}

__device__ inline bool is_seen(int query, int key, const Sizes& s) {
    return query < s.q_len && key < s.kv_len && key <= query + s.reach;
}

template <class T>
__device__ inline void forward(const T* q, const T* k, const T* v, T* out, float* lse, const Sizes& s, int head_dim) {
    DYNAMIC_SHARED(float, shared);
    int tile = TILE * stride_of(head_dim);
    float *queries = shared, *keys = queries + tile, *values = keys + tile, *sums = values + tile, *weights = sums + tile;

    Place at = place(s.q_len, s.heads);
    int kv_head = at.head / (s.heads / s.kv_heads), i = threadIdx.x / TILE, j = threadIdx.x % TILE;
    Head<const T> k_rows(k, at.batch, kv_head, s.kv_len, s.kv_heads, head_dim);
    Head<const T> v_rows(v, at.batch, kv_head, s.kv_len, s.kv_heads, head_dim);
    Head<const T>(q, at.batch, at.head, s.q_len, s.heads, head_dim).load(queries, at.first_row);
    clear(sums, head_dim);

    float max = -INFINITY, sum = 0;
    int row = at.first_row + i, n_keys = min(s.kv_len, min(at.first_row + TILE, s.q_len) + s.reach);
    for (int col = 0; col < n_keys; col += TILE) {
        __syncthreads();
        k_rows.load(keys, col);
        v_rows.load(values, col);
        __syncthreads();
        float score = dot(queries + i * stride_of(head_dim), keys + j * stride_of(head_dim), head_dim) * s.scale;
        if (!is_seen(row, col + j, s)) score = -INFINITY;
        float new_max = fmaxf(max, warp_reduce(score, Max(), TILE));
        // A row without any key yet has no maximum; its weights are 0 relative to any.
        float base = new_max == -INFINITY ? 0 : new_max;
        float correction = expf(max - base), weight = expf(score - base);
        max = new_max;
        sum = sum * correction + warp_reduce(weight, Sum(), TILE);
        weights[i * TILE + j] = weight;
        __syncwarp();
        add_weighted(sums, correction, weights, values, head_dim);
    }
    if (j == 0 && row < s.q_len) lse[((uint64_t)at.batch * s.heads + at.head) * s.q_len + row] = max + logf(sum);
    Head<T> out_rows(out, at.batch, at.head, s.q_len, s.heads, head_dim);
    write(out_rows, at.first_row, sums, sum == 0 ? 0 : 1 / sum);
}

// Weight of a score, and the score gradient without the scale, as in `backward.cuh`.
struct Gradients {
    float weight, score;
};

__device__ inline Gradients gradients(float score, float weight_gradient, float lse, float delta, bool seen) {
    if (!seen) return {0, 0};
    float weight = expf(score - lse);
    return {weight, weight * (weight_gradient - delta)};
}

template <class T>
__device__ inline void backward_queries(const T* q, const T* k, const T* v, const T* dout, const float* lse,
                                        const float* delta, T* dq, const Sizes& s, int head_dim) {
    DYNAMIC_SHARED(float, shared);
    int tile = TILE * stride_of(head_dim);
    float *queries = shared, *douts = queries + tile, *keys = douts + tile, *values = keys + tile, *sums = values + tile;
    float* weights = sums + tile;

    Place at = place(s.q_len, s.heads);
    int kv_head = at.head / (s.heads / s.kv_heads), i = threadIdx.x / TILE, j = threadIdx.x % TILE;
    Head<const T> k_rows(k, at.batch, kv_head, s.kv_len, s.kv_heads, head_dim);
    Head<const T> v_rows(v, at.batch, kv_head, s.kv_len, s.kv_heads, head_dim);
    Head<const T>(q, at.batch, at.head, s.q_len, s.heads, head_dim).load(queries, at.first_row);
    Head<const T>(dout, at.batch, at.head, s.q_len, s.heads, head_dim).load(douts, at.first_row);
    clear(sums, head_dim);

    int row = at.first_row + i, n_keys = min(s.kv_len, min(at.first_row + TILE, s.q_len) + s.reach);
    uint64_t number = ((uint64_t)at.batch * s.heads + at.head) * s.q_len + min(row, s.q_len - 1);
    float row_lse = lse[number], row_delta = delta[number];
    for (int col = 0; col < n_keys; col += TILE) {
        __syncthreads();
        k_rows.load(keys, col);
        v_rows.load(values, col);
        __syncthreads();
        int of_row = i * stride_of(head_dim), of_col = j * stride_of(head_dim);
        float score = dot(queries + of_row, keys + of_col, head_dim) * s.scale;
        float weight_gradient = dot(douts + of_row, values + of_col, head_dim);
        weights[i * TILE + j] = gradients(score, weight_gradient, row_lse, row_delta, is_seen(row, col + j, s)).score;
        __syncwarp();
        add_weighted(sums, 1, weights, keys, head_dim);
    }
    Head<T> dq_rows(dq, at.batch, at.head, s.q_len, s.heads, head_dim);
    write(dq_rows, at.first_row, sums, s.scale);
}

template <class T>
__device__ inline void backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse,
                                     const float* delta, T* dk, T* dv, const Sizes& s, int head_dim) {
    DYNAMIC_SHARED(float, shared);
    int tile = TILE * stride_of(head_dim);
    float *keys = shared, *values = keys + tile, *queries = values + tile, *douts = queries + tile;
    float *key_sums = douts + tile, *value_sums = key_sums + tile;
    float *weights = value_sums + tile, *score_gradients = weights + TILE * TILE;

    Place at = place(s.kv_len, s.kv_heads);
    int group = s.heads / s.kv_heads, i = threadIdx.x / TILE, j = threadIdx.x % TILE;
    Head<const T>(k, at.batch, at.head, s.kv_len, s.kv_heads, head_dim).load(keys, at.first_row);
    Head<const T>(v, at.batch, at.head, s.kv_len, s.kv_heads, head_dim).load(values, at.first_row);
    clear(key_sums, head_dim);
    clear(value_sums, head_dim);

    int first_col = max(0, at.first_row - s.reach) / TILE * TILE;
    for (int head = at.head * group; head < (at.head + 1) * group; head++) {
        Head<const T> q_rows(q, at.batch, head, s.q_len, s.heads, head_dim);
        Head<const T> dout_rows(dout, at.batch, head, s.q_len, s.heads, head_dim);
        uint64_t first = ((uint64_t)at.batch * s.heads + head) * s.q_len;
        for (int col = first_col; col < s.q_len; col += TILE) {
            __syncthreads();
            q_rows.load(queries, col);
            dout_rows.load(douts, col);
            __syncthreads();
            int of_row = i * stride_of(head_dim), of_col = j * stride_of(head_dim);
            uint64_t number = first + min(col + j, s.q_len - 1);
            float score = dot(keys + of_row, queries + of_col, head_dim) * s.scale;
            float weight_gradient = dot(values + of_row, douts + of_col, head_dim);
            bool seen = is_seen(col + j, at.first_row + i, s);
            Gradients of_score = gradients(score, weight_gradient, lse[number], delta[number], seen);
            weights[i * TILE + j] = of_score.weight;
            score_gradients[i * TILE + j] = of_score.score;
            __syncwarp();
            add_weighted(value_sums, 1, weights, douts, head_dim);
            add_weighted(key_sums, 1, score_gradients, queries, head_dim);
        }
    }
    Head<T> dk_rows(dk, at.batch, at.head, s.kv_len, s.kv_heads, head_dim);
    Head<T> dv_rows(dv, at.batch, at.head, s.kv_len, s.kv_heads, head_dim);
    write(dk_rows, at.first_row, key_sums, s.scale);
    write(dv_rows, at.first_row, value_sums, 1);
}

// delta[batch, heads, len] = sum(dout * out) over rows of [batch, len, heads, head_dim]; eight lanes per row. `wide`:
// rows are aligned to 16 bytes, as is their length.
template <class T>
__device__ inline void row_dots(const T* out, const T* dout, float* delta, uint64_t rows, int len, int heads, int head_dim,
                                bool wide) {
    constexpr int LANES = 8;
    int lane = threadIdx.x % LANES;
    // All lanes of a warp continue while its first row is valid, because they reduce together.
    for (uint64_t first = thread_index() / 32 * (32 / LANES); first < rows; first += thread_count() / LANES) {
        uint64_t row = first + threadIdx.x % 32 / LANES;
        const T *x = out + row * head_dim, *y = dout + row * head_dim;
        float sum = 0;
        if (row < rows && wide) {
            for (int d = lane * WIDE<T>; d < head_dim; d += LANES * WIDE<T>) {
                float a[WIDE<T>], b[WIDE<T>];
                load_vector(x + d, a);
                load_vector(y + d, b);
#pragma unroll
                for (int i = 0; i < WIDE<T>; i++) sum += a[i] * b[i];
            }
        } else if (row < rows) {
            for (int d = lane; d < head_dim; d += LANES) sum += widen(x[d]) * widen(y[d]);
        }
        sum = warp_reduce(sum, Sum(), LANES);
        uint64_t position = row / heads, head = row % heads;
        if (row < rows && lane == 0) delta[(position / len * heads + head) * len + position % len] = sum;
    }
}

// Grids: tiles of queries * heads * batch; of `keys`, tiles of keys * kv_heads * batch; of `deltas`, any.
#define KERNELS(T)                                                                                                      \
    KERNEL(attention_plain_forward_##T)                                                                                 \
    (const T* q, const T* k, const T* v, T* out, float* lse, Sizes s, int head_dim) {                                   \
        forward(q, k, v, out, lse, s, head_dim);                                                                        \
    }                                                                                                                   \
    KERNEL(attention_plain_backward_queries_##T)                                                                        \
    (const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dq, Sizes s,           \
     int head_dim) {                                                                                                    \
        backward_queries(q, k, v, dout, lse, delta, dq, s, head_dim);                                                   \
    }                                                                                                                   \
    KERNEL(attention_plain_backward_keys_##T)                                                                           \
    (const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk, T* dv, Sizes s,    \
     int head_dim) {                                                                                                    \
        backward_keys(q, k, v, dout, lse, delta, dk, dv, s, head_dim);                                                  \
    }                                                                                                                   \
    KERNEL(attention_deltas_##T)                                                                                        \
    (const T* out, const T* dout, float* delta, uint64_t rows, int len, int heads, int head_dim, uint32_t wide) {       \
        row_dots(out, dout, delta, rows, len, heads, head_dim, wide != 0);                                              \
    }

typedef float f32;
KERNELS(f32)
KERNELS(bf16)
