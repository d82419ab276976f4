// Kernels around attention: the keys that rows see, sums per row for the backward, gradients of sinks, and the merge of
// the attention over different keys. They read and write the positions of samples only, not those between them.

// Combines a band and the key ranges of rows, if there are any: query i of a sample sees keys from i + begin to i +
// s.reach. Grid: any.
KERNEL(attention_bounds)
(const uint32_t* range_first, const uint32_t* range_end, int* first, int* end, uint64_t rows, int begin, Sizes s) {
    for (uint64_t row = thread_index(); row < rows; row += thread_count()) {
        int query = row % s.q_len;
        uint64_t at = row / s.q_len * s.q_pitch + query;
        int from = max(0, query + begin), to = min(s.kv_len, query + s.reach + 1);
        if (range_first) {
            from = max(from, (int)min(range_first[at], (uint32_t)s.kv_len));
            to = min(to, (int)min(range_end[at], (uint32_t)s.kv_len));
        }
        first[at] = min(from, s.kv_len);
        end[at] = max(to, 0);
    }
}

// delta[batch, heads, q_pitch] = sum(dout * out) over rows of [batch, q_pitch, heads, dim]; eight lanes per row.
// `wide`: rows are aligned to 16 bytes, as is their length.
template <class O, class T>
__device__ inline void row_dots(const O* out, const T* dout, float* delta, uint64_t rows, int dim, bool wide,
                                const Sizes& s) {
    constexpr int LANES = 8;
    int lane = threadIdx.x % LANES;
    // All lanes of a warp continue while its first row is valid, because they reduce together.
    for (uint64_t first = thread_index() / 32 * (32 / LANES); first < rows; first += thread_count() / LANES) {
        uint64_t row = first + threadIdx.x % 32 / LANES, position = row / s.heads, head = row % s.heads;
        uint64_t sample = position / s.q_len, query = position % s.q_len;
        uint64_t start = ((sample * s.q_pitch + query) * s.heads + head) * dim;
        const O* x = out + start;
        const T* y = dout + start;
        float sum = 0;
        if (row < rows && wide) {
            for (int d = lane * WIDE<T>; d < dim; d += LANES * WIDE<T>) {
                float a[WIDE<T>], b[WIDE<T>];
                load_vector(x + d, a);
                load_vector(y + d, b);
#pragma unroll
                for (int i = 0; i < WIDE<T>; i++) sum += a[i] * b[i];
            }
        } else if (row < rows) {
            for (int d = lane; d < dim; d += LANES) sum += widen(x[d]) * widen(y[d]);
        }
        sum = warp_reduce(sum, Sum(), LANES);
        if (row < rows && lane == 0) delta[(sample * s.heads + head) * s.q_pitch + query] = sum;
    }
}

#define DELTAS(NAMES, O, T)                                                                                            \
    KERNEL(attention_deltas_##NAMES)                                                                                   \
    (const O* out, const T* dout, float* delta, uint64_t rows, int dim, uint32_t wide, Sizes s) {                      \
        row_dots(out, dout, delta, rows, dim, wide != 0, s);                                                           \
    }

DELTAS(f32, float, float)
DELTAS(bf16, bf16, bf16)
DELTAS(f32_bf16, float, bf16)

// dsinks[head] = -sum(exp(sink - lse) * delta) over the rows of a head. Grid: heads.
KERNEL_OF(256, attention_sink_gradients)
(const float* sinks, const float* lse, const float* delta, float* dsinks, uint64_t rows, Sizes s) {
    int head = blockIdx.x;
    float sink = sinks[head], sum = 0;
    for (uint64_t row = threadIdx.x; row < rows; row += blockDim.x) {
        uint64_t number = (row / s.q_len * s.heads + head) * s.q_pitch + row % s.q_len;
        // A row that sees nothing at all has no weights.
        if (lse[number] != -INFINITY) sum -= expf(sink - lse[number]) * delta[number];
    }
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) dsinks[head] = sum;
}

// Merges outputs [batch, q_pitch, heads, dim] by their log-sum-exps [batch, heads, q_pitch]: with L' = log(exp(L) +
// exp(l)) and w = exp(l - L'), the sum O becomes O + w (o - O). One warp per row. Grid: any.
KERNEL(attention_merge)
(const float* out, const float* lse, float* sum, float* sum_lse, uint64_t rows, int dim, Sizes s) {
    int lane = threadIdx.x % 32;
    for (uint64_t row = thread_index() / 32; row < rows; row += thread_count() / 32) {
        uint64_t position = row / s.heads, head = row % s.heads;
        uint64_t sample = position / s.q_len, query = position % s.q_len;
        uint64_t number = (sample * s.heads + head) * s.q_pitch + query;
        uint64_t start = ((sample * s.q_pitch + query) * s.heads + head) * dim;
        float other = lse[number], so_far = sum_lse[number];
        // All lanes have read the number that one of them replaces.
        __syncwarp();
        if (other == -INFINITY) continue;
        bool is_first = so_far == -INFINITY;
        // The difference of infinities is not a number; the exponential never overflows.
        float merged = is_first ? other : Max()(so_far, other) + log1pf(expf(-fabsf(so_far - other)));
        float weight = expf(other - merged);
        for (int d = lane; d < dim; d += 32) {
            float x = out[start + d], y = sum[start + d];
            sum[start + d] = is_first ? x : y + weight * (x - y);
        }
        if (lane == 0) sum_lse[number] = merged;
    }
}
