// RMSNorm and LayerNorm over rows. RMSNorm is LayerNorm with mean 0 and without bias.

// Vectors of a row that a lane processes, and the maximum threads per row then: KEPT * THREADS registers at most. In
// the backward pass there are two such kernels; that of three vectors gets 168 registers, in three blocks per
// multiprocessor.
constexpr int KEPT = 4, KEPT_BACKWARD = 2, KEPT_TRIPLE = 3, THREADS = 512, THREADS_TRIPLE = 128, BLOCKS_TRIPLE = 3;
// In the forward pass, lanes get the registers of this many threads, 80 each: three blocks of 256 share a
// multiprocessor.
constexpr int THREADS_FORWARD = 768;

// The gain of an element: the weight, and of RMSNorm an offset with it.
template <bool MEAN>
__device__ inline float gain_of(float weight, float offset) {
    return MEAN ? weight : weight + offset;
}

// Sums over rows of `total` columns, some of them on other ranks: the kernel does not compute the sums.
struct GivenSums {
    const float* sums;
    float total;
};

// With `added`, normalizes rows of `x + added`, which are written to `sum`, instead of rows of `x`. With GIVEN, the
// sums of squares are `given`.
template <class T, int N, int K, bool MEAN, bool GIVEN>
__device__ inline void norm(const T* x, const T* added, T* sum, const T* weight, float offset, const T* bias, float eps,
                            GivenSums given, T* y, float* mean, float* inv_std, uint64_t rows, uint64_t cols,
                            uint32_t lanes) {
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
        float square;
        if constexpr (GIVEN) {
            square = given.sums[r] / given.total;
        } else {
            float squares = 0.0f;
            group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
                float v[N];
                row.get(k, i, v);
#pragma unroll
                for (int n = 0; n < N; n++) squares += (v[n] - mu) * (v[n] - mu);
            });
            square = group.reduce(squares, Sum()) / (float)cols;
        }
        float inv = 1.0f / sqrtf(square + eps);
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N], w[N], b[N];
            row.get(k, i, v);
            gain.get(k, i, w);
            if constexpr (MEAN) load_vector(bias + i, b, LoadConstant());
#pragma unroll
            for (int n = 0; n < N; n++) {
                v[n] = (v[n] - mu) * inv * gain_of<MEAN>(w[n], offset);
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

// Per-column sums over the rows of a group: with K in registers, and at the end the sums of a block's groups are added.
// Without K, in its row of `parts`.
template <int N, int K>
struct ColumnSums {
    float* parts;
    float kept[K > 0 ? K : 1][N];

    // `all_parts` is null if the sums are not needed.
    __device__ void start(const Group& group, float* all_parts, uint64_t cols) {
        if constexpr (K == 0) parts = all_parts ? all_parts + group.first * cols : nullptr;
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
#pragma unroll
            for (int n = 0; n < N; n++) kept[k][n] = 0.0f;
            if constexpr (K == 0) {
                if (parts) store_vector(parts + i, kept[k]);
            }
        });
    }

    // Adds term(n) to the sum of element n of the k-th vector. Sums in registers are computed even if not needed.
    template <class F>
    __device__ void add(int k, uint64_t i, F term) {
        if constexpr (K == 0) {
            if (!parts) return;
            load_vector(parts + i, kept[k]);
        }
#pragma unroll
        for (int n = 0; n < N; n++) kept[k][n] += term(n);
        if constexpr (K == 0) store_vector(parts + i, kept[k]);
    }

    // Writes the sums of a block in its row of `all_parts`.
    __device__ void finish(const Group& group, float* all_parts, uint64_t cols) {
        if constexpr (K > 0) {
            if (!all_parts) return;
            // Of the groups before this one. Several groups have a warp each.
            __shared__ float of_groups[32 * K * N];
            uint32_t groups = blockDim.x / group.lanes, own = threadIdx.x / group.lanes;
            for (uint32_t g = 0; g < groups; g++) {
                __syncthreads();
                if (g != own) continue;
                group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
#pragma unroll
                    for (int n = 0; n < N; n++) {
                        if (g > 0) kept[k][n] += of_groups[i + n];
                        if (g + 1 < groups) of_groups[i + n] = kept[k][n];
                    }
                    if (g + 1 == groups) store_vector(all_parts + blockIdx.x * cols + i, kept[k]);
                });
            }
        }
    }
};

// With `add`, adds to `dx`, which holds the input's gradient from other uses. The sums for the parameter gradients are
// in `weight_parts` and `bias_parts`, a row for each block or group. With GIVEN, the sums of products are `given`.
template <class T, int N, int K, bool MEAN, bool GIVEN>
__device__ inline void norm_backward(const T* x, const T* weight, float offset, const float* mean, const float* inv_std,
                                     GivenSums given, const T* dy, T* dx, uint32_t add, float* weight_parts,
                                     float* bias_parts, uint64_t rows, uint64_t cols, uint32_t lanes) {
    Group group(lanes);
    Row<T, N, K, LoadConstant> gain;
    gain.read(group, weight, cols);
    ColumnSums<N, K> weight_sums, bias_sums;
    weight_sums.start(group, weight_parts, cols);
    if constexpr (MEAN) bias_sums.start(group, bias_parts, cols);
    float next_mu = 0.0f, next_inv = 0.0f, share = 1.0f / (GIVEN ? given.total : (float)cols);
    auto start_statistics = [&](uint64_t r) {
        if (r < rows) {
            next_inv = inv_std[r];
            if constexpr (MEAN) next_mu = mean[r];
        }
    };
    start_statistics(group.first);
    for (uint64_t r = group.first; r < rows; r += group.step) {
        uint64_t start = r * cols;
        // All loads come before the first use and the first store. Copies to shared memory ahead of the row before
        // reach two thirds of this rate.
        Row<T, N, K, LoadConstant> input, grad;
        Row<T, N, K> sum;
        input.read(group, x + start, cols);
        grad.read(group, dy + start, cols);
        if (add) sum.read(group, dx + start, cols);
        float mu = next_mu, inv = next_inv;
        start_statistics(r + group.step);
        // Reductions over the gradient of the normalized values: its product with them, and its sum.
        float sums[MEAN ? 2 : 1] = {};
        if constexpr (GIVEN) {
            sums[0] = given.sums[r];
        } else {
            group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
                float v[N], w[N], d[N];
                input.get(k, i, v);
                gain.get(k, i, w);
                grad.get(k, i, d);
#pragma unroll
                for (int n = 0; n < N; n++) {
                    float g = d[n] * gain_of<MEAN>(w[n], offset);
                    sums[0] += g * (v[n] - mu);
                    if constexpr (MEAN) sums[1] += g;
                }
            });
            group.reduce(sums, Sum());
        }
        float slope = sums[0] * inv * share, shift = 0.0f;
        if constexpr (MEAN) shift = sums[1] * share;
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N], w[N], d[N], normal[N];
            input.get(k, i, v);
            gain.get(k, i, w);
            grad.get(k, i, d);
#pragma unroll
            for (int n = 0; n < N; n++) {
                normal[n] = (v[n] - mu) * inv;
                v[n] = inv * (d[n] * gain_of<MEAN>(w[n], offset) - shift - normal[n] * slope);
            }
            if (add) {
                float h[N];
                sum.get(k, i, h);
                // Not fused with the multiplication before it: the sum is rounded like that of a separate kernel.
#pragma unroll
                for (int n = 0; n < N; n++) v[n] = __fadd_rn(h[n], v[n]);
            }
            store_vector(dx + start + i, v);
            weight_sums.add(k, i, [&](int n) { return d[n] * normal[n]; });
            if constexpr (MEAN) bias_sums.add(k, i, [&](int n) { return d[n]; });
        });
    }
    weight_sums.finish(group, weight_parts, cols);
    if constexpr (MEAN) bias_sums.finish(group, bias_parts, cols);
}

// Sums over the columns of each row: of `x * (offset + weight) * dy`, or of squares if `dy` is null.
template <class T, int N>
__device__ inline void norm_sums(const T* x, const T* weight, float offset, const T* dy, float* sums, uint64_t rows,
                                 uint64_t cols, uint32_t lanes) {
    Group group(lanes);
    for (uint64_t r = group.first; r < rows; r += group.step) {
        float sum = 0.0f;
        group.template each_vector<N, 0>(cols, [&](int, uint64_t i) {
            float v[N];
            load_vector(x + r * cols + i, v, LoadConstant());
            if (dy) {
                float w[N], d[N];
                load_vector(weight + i, w, LoadConstant());
                load_vector(dy + r * cols + i, d, LoadConstant());
#pragma unroll
                for (int n = 0; n < N; n++) sum += d[n] * (w[n] + offset) * v[n];
            } else {
#pragma unroll
                for (int n = 0; n < N; n++) sum += v[n] * v[n];
            }
        });
        sum = group.reduce(sum, Sum());
        if (group.lane == 0) sums[r] = sum;
    }
}

// `N` elements per vector; a lane keeps `K` vectors in registers, or none; `ops/norm.rs` chooses.
#define NORMS(T, NAME, N, K)                                                                                         \
    KERNEL_OF(THREADS_FORWARD, rms_norm_##NAME)                                                                      \
    (const T* x, const T* added, T* sum, const T* weight, float offset, float eps, T* y, float* inv_rms,             \
     uint64_t rows, uint64_t cols, uint32_t lanes) {                                                                 \
        norm<T, N, K, false, false>(x, added, sum, weight, offset, nullptr, eps, GivenSums{}, y, nullptr,            \
                                    inv_rms, rows, cols, lanes);                                                     \
    }                                                                                                                \
    KERNEL_OF(THREADS_FORWARD, rms_norm_of_sums_##NAME)                                                              \
    (const T* x, const T* added, T* sum, const T* weight, float offset, float eps, const float* squares,             \
     float total, T* y, float* inv_rms, uint64_t rows, uint64_t cols, uint32_t lanes) {                              \
        norm<T, N, K, false, true>(x, added, sum, weight, offset, nullptr, eps, GivenSums{squares, total}, y,        \
                                   nullptr, inv_rms, rows, cols, lanes);                                             \
    }                                                                                                                \
    KERNEL_OF(THREADS_FORWARD, rms_norm_sums_##NAME)                                                                 \
    (const T* x, const T* weight, float offset, const T* dy, float* sums, uint64_t rows, uint64_t cols,              \
     uint32_t lanes) {                                                                                               \
        norm_sums<T, N>(x, weight, offset, dy, sums, rows, cols, lanes);                                             \
    }                                                                                                                \
    KERNEL_OF(THREADS_FORWARD, layer_norm_##NAME)                                                                    \
    (const T* x, const T* added, T* sum, const T* weight, const T* bias, float eps, T* y, float* mean,               \
     float* inv_std, uint64_t rows, uint64_t cols, uint32_t lanes) {                                                 \
        norm<T, N, K, true, false>(x, added, sum, weight, 0.0f, bias, eps, GivenSums{}, y, mean, inv_std, rows,      \
                                   cols, lanes);                                                                     \
    }
NORMS(float, f32, WIDE<float>, KEPT)
NORMS(bf16, bf16, WIDE<bf16>, KEPT)
NORMS(float, any_f32, 1, 0)
NORMS(bf16, any_bf16, 1, 0)

#define NORMS_BACKWARD(T, NAME, N, K, THREADS, BLOCKS)                                                               \
    KERNEL_BOUNDS(rms_norm_backward_##NAME, THREADS, BLOCKS)                                                         \
    (const T* x, const T* weight, float offset, const float* inv_rms, const T* dy, T* dx, uint32_t add,              \
     float* weight_parts, uint64_t rows, uint64_t cols, uint32_t lanes) {                                            \
        norm_backward<T, N, K, false, false>(x, weight, offset, nullptr, inv_rms, GivenSums{}, dy, dx, add,          \
                                             weight_parts, nullptr, rows, cols, lanes);                              \
    }                                                                                                                \
    KERNEL_BOUNDS(rms_norm_of_sums_backward_##NAME, THREADS, BLOCKS)                                                 \
    (const T* x, const T* weight, float offset, const float* inv_rms, const float* dots, float total,                \
     const T* dy, T* dx, uint32_t add, float* weight_parts, uint64_t rows, uint64_t cols, uint32_t lanes) {          \
        norm_backward<T, N, K, false, true>(x, weight, offset, nullptr, inv_rms, GivenSums{dots, total}, dy, dx,     \
                                            add, weight_parts, nullptr, rows, cols, lanes);                          \
    }                                                                                                                \
    KERNEL_BOUNDS(layer_norm_backward_##NAME, THREADS, BLOCKS)                                                       \
    (const T* x, const T* weight, const float* mean, const float* inv_std, const T* dy, T* dx, uint32_t add,         \
     float* weight_parts, float* bias_parts, uint64_t rows, uint64_t cols, uint32_t lanes) {                         \
        norm_backward<T, N, K, true, false>(x, weight, 0.0f, mean, inv_std, GivenSums{}, dy, dx, add,                \
                                            weight_parts, bias_parts, rows, cols, lanes);                            \
    }
NORMS_BACKWARD(float, f32, WIDE<float>, KEPT_BACKWARD, THREADS, 1)
NORMS_BACKWARD(bf16, bf16, WIDE<bf16>, KEPT_BACKWARD, THREADS, 1)
NORMS_BACKWARD(float, triple_f32, WIDE<float>, KEPT_TRIPLE, THREADS_TRIPLE, BLOCKS_TRIPLE)
NORMS_BACKWARD(bf16, triple_bf16, WIDE<bf16>, KEPT_TRIPLE, THREADS_TRIPLE, BLOCKS_TRIPLE)
NORMS_BACKWARD(float, any_f32, 1, 0, THREADS, 1)
NORMS_BACKWARD(bf16, any_bf16, 1, 0, THREADS, 1)
