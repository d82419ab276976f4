// RMSNorm and LayerNorm over rows. RMSNorm is LayerNorm with mean 0 and without bias.

// Vectors of a row that a lane keeps in registers, and the maximum threads per row then: KEPT * THREADS registers at
// most.
constexpr int KEPT = 4, KEPT_BACKWARD = 2, THREADS = 512;
// In the forward pass, lanes get the registers of this many threads, 80 each: three blocks of 256 share a
// multiprocessor.
constexpr int THREADS_FORWARD = 768;

// With `added`, normalizes rows of `x + added`, which are written to `sum`, instead of rows of `x`.
template <class T, int N, int K, bool MEAN>
__device__ inline void norm(const T* x, const T* added, T* sum, const T* weight, const T* bias, float eps, T* y,
                            float* mean, float* inv_std, uint64_t rows, uint64_t cols, uint32_t lanes) {
    Group group(lanes);
    for (uint64_t r = group.first; r < rows; r += group.step) {
        uint64_t start = r * cols;
        Row<T, N, K> row;
        row.read(group, x + start, cols);
        if (added) {
            // All loads come before the first store, after which loads would wait.
            Row<T, N, K> other;
            other.read(group, added + start, cols);
            group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
                float v[N], a[N];
                row.get(k, i, v);
                other.get(k, i, a);
#pragma unroll
                for (int n = 0; n < N; n++) v[n] += a[n];
                row.set(k, v);
                store_vector(sum + start + i, v);
            });
            row.from = sum + start;
        }
        // Loaded during the reductions over lanes. Biases stay in memory because registers are short.
        Row<T, N, K, LoadConstant> gain;
        gain.read(group, weight, cols);
        float mu = 0.0f;
        if constexpr (MEAN) {
            group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
                float v[N];
                row.get(k, i, v);
#pragma unroll
                for (int n = 0; n < N; n++) mu += v[n];
            });
            mu = group.reduce(mu, Sum()) / (float)cols;
        }
        float squares = 0.0f;
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N];
            row.get(k, i, v);
#pragma unroll
            for (int n = 0; n < N; n++) squares += (v[n] - mu) * (v[n] - mu);
        });
        float inv = 1.0f / sqrtf(group.reduce(squares, Sum()) / (float)cols + eps);
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N], w[N], b[N];
            row.get(k, i, v);
            gain.get(k, i, w);
            if constexpr (MEAN) load_vector(bias + i, b, LoadConstant());
#pragma unroll
            for (int n = 0; n < N; n++) {
                v[n] = (v[n] - mu) * inv * w[n];
                if constexpr (MEAN) v[n] += b[n];
            }
            store_vector(y + start + i, v);
        });
        if (group.lane == 0) {
            if constexpr (MEAN) mean[r] = mu;
            inv_std[r] = inv;
        }
    }
}

// Per-column sums of one group over its rows: in registers with K, else in its row of `parts`.
template <int N, int K>
struct ColumnSums {
    float* parts;
    float kept[K > 0 ? K : 1][N];

    // `parts` is null if the sums are not needed.
    __device__ void start(const Group& group, float* all_parts, uint64_t cols) {
        parts = all_parts ? all_parts + group.first * cols : nullptr;
        if (!parts) return;
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
#pragma unroll
            for (int n = 0; n < N; n++) kept[k][n] = 0.0f;
            if constexpr (K == 0) store_vector(parts + i, kept[k]);
        });
    }

    __device__ void add(int k, uint64_t i, const float (&x)[N]) {
        if (!parts) return;
        if constexpr (K == 0) load_vector(parts + i, kept[k]);
#pragma unroll
        for (int n = 0; n < N; n++) kept[k][n] += x[n];
        if constexpr (K == 0) store_vector(parts + i, kept[k]);
    }

    __device__ void finish(const Group& group, uint64_t cols) {
        if constexpr (K > 0) {
            if (!parts) return;
            group.template each_vector<N, K>(cols, [&](int k, uint64_t i) { store_vector(parts + i, kept[k]); });
        }
    }
};

// With `add`, adds to `dx`, which holds the input's gradient from other uses. Each group stores its sums for the
// parameter gradients in a row of `weight_parts` and of `bias_parts`.
template <class T, int N, int K, bool MEAN>
__device__ inline void norm_backward(const T* x, const T* weight, const float* mean, const float* inv_std, const T* dy,
                                     T* dx, uint32_t add, float* weight_parts, float* bias_parts, uint64_t rows,
                                     uint64_t cols, uint32_t lanes) {
    Group group(lanes);
    Row<T, N, K, LoadConstant> gain;
    gain.read(group, weight, cols);
    ColumnSums<N, K> weight_sums, bias_sums;
    weight_sums.start(group, weight_parts, cols);
    if constexpr (MEAN) bias_sums.start(group, bias_parts, cols);
    // The next row is loaded while the current one is processed, and the one after it comes into the L2 cache, so that
    // memory stays busy during reductions over lanes.
    Row<T, N, K> next_row, next_grads;
    float next_mu = 0.0f, next_inv = 0.0f;
    auto read = [&](uint64_t r) {
        if (r < rows) {
            next_row.read(group, x + r * cols, cols);
            next_grads.read(group, dy + r * cols, cols);
            next_inv = inv_std[r];
            if constexpr (MEAN) next_mu = mean[r];
        }
        if (K > 0 && r + group.step < rows) {
            uint64_t start = (r + group.step) * cols;
            group.template each_vector<N, K>(cols, [&](int, uint64_t i) {
                prefetch(x + start + i);
                prefetch(dy + start + i);
                if (add) prefetch(dx + start + i);
            });
        }
    };
    read(group.first);
    for (uint64_t r = group.first; r < rows; r += group.step) {
        uint64_t start = r * cols;
        float mu = next_mu, inv = next_inv;
        Row<T, N, K> row = next_row, grads = next_grads;
        Row<T, N, K> held;
        if (add) held.read(group, dx + start, cols);
        read(r + group.step);
        // Reductions over the gradient of the normalized values: its product with them, and its sum.
        float sums[MEAN ? 2 : 1] = {};
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N], w[N], d[N];
            row.get(k, i, v);
            gain.get(k, i, w);
            grads.get(k, i, d);
#pragma unroll
            for (int n = 0; n < N; n++) {
                sums[0] += d[n] * w[n] * ((v[n] - mu) * inv);
                if constexpr (MEAN) sums[1] += d[n] * w[n];
            }
        });
        group.reduce(sums, Sum());
        float slope = sums[0] / (float)cols, shift = 0.0f;
        if constexpr (MEAN) shift = sums[1] / (float)cols;
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N], w[N], d[N];
            row.get(k, i, v);
            gain.get(k, i, w);
            grads.get(k, i, d);
            if constexpr (MEAN) bias_sums.add(k, i, d);
#pragma unroll
            for (int n = 0; n < N; n++) {
                float normal = (v[n] - mu) * inv;
                v[n] = inv * (d[n] * w[n] - shift - normal * slope);
                d[n] *= normal;
            }
            if (add) {
                float h[N];
                held.get(k, i, h);
                // Not fused with the multiplication before it: the sum is rounded like that of a separate kernel.
#pragma unroll
                for (int n = 0; n < N; n++) v[n] = __fadd_rn(h[n], v[n]);
            }
            store_vector(dx + start + i, v);
            weight_sums.add(k, i, d);
        });
    }
    weight_sums.finish(group, cols);
    if constexpr (MEAN) bias_sums.finish(group, cols);
}

// `N` elements per vector, of which a lane keeps `K` vectors in registers, or none; `ops/rows.rs` chooses.
#define NORMS(T, NAME, N, K, K_BACKWARD)                                                                         \
    KERNEL_OF(THREADS_FORWARD, rms_norm_##NAME)                                                                  \
    (const T* x, const T* added, T* sum, const T* weight, float eps, T* y, float* inv_rms, uint64_t rows,        \
     uint64_t cols, uint32_t lanes) {                                                                            \
        norm<T, N, K, false>(x, added, sum, weight, nullptr, eps, y, nullptr, inv_rms, rows, cols, lanes);       \
    }                                                                                                            \
    KERNEL_OF(THREADS_FORWARD, layer_norm_##NAME)                                                                \
    (const T* x, const T* added, T* sum, const T* weight, const T* bias, float eps, T* y, float* mean,           \
     float* inv_std, uint64_t rows, uint64_t cols, uint32_t lanes) {                                             \
        norm<T, N, K, true>(x, added, sum, weight, bias, eps, y, mean, inv_std, rows, cols, lanes);              \
    }                                                                                                            \
    KERNEL_OF(THREADS, rms_norm_backward_##NAME)                                                                 \
    (const T* x, const T* weight, const float* inv_rms, const T* dy, T* dx, uint32_t add, float* weight_parts,   \
     uint64_t rows, uint64_t cols, uint32_t lanes) {                                                             \
        norm_backward<T, N, K_BACKWARD, false>(x, weight, nullptr, inv_rms, dy, dx, add, weight_parts, nullptr,  \
                                               rows, cols, lanes);                                               \
    }                                                                                                            \
    KERNEL_OF(THREADS, layer_norm_backward_##NAME)                                                               \
    (const T* x, const T* weight, const float* mean, const float* inv_std, const T* dy, T* dx, uint32_t add,     \
     float* weight_parts, float* bias_parts, uint64_t rows, uint64_t cols, uint32_t lanes) {                     \
        norm_backward<T, N, K_BACKWARD, true>(x, weight, mean, inv_std, dy, dx, add, weight_parts, bias_parts,   \
                                              rows, cols, lanes);                                                \
    }
NORMS(float, f32, WIDE<float>, KEPT, KEPT_BACKWARD)
NORMS(bf16, bf16, WIDE<bf16>, KEPT, KEPT_BACKWARD)
NORMS(float, any_f32, 1, 0, 0)
NORMS(bf16, any_bf16, 1, 0, 0)
