// Softmax over rows, forward and backward.

// Vectors of a row that a lane keeps in registers, and the maximum threads per row then.
constexpr int KEPT = 4, KEPT_BACKWARD = 2, THREADS = 512;

template <class T, int N, int K>
__device__ inline void softmax(const T* x, T* y, uint64_t rows, uint64_t cols, uint32_t lanes) {
    Group group(lanes);
    for (uint64_t r = group.first; r < rows; r += group.step) {
        uint64_t start = r * cols;
        Row<T, N, K> row;
        row.read(group, x + start, cols);
        // Running maximum and sum of exponentials relative to it (Milakov and Gimelshein 2018).
        float top = -INFINITY, sum = 0.0f;
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N];
            row.get(k, i, v);
            float higher = top;
#pragma unroll
            for (int n = 0; n < N; n++) higher = Max()(higher, v[n]);
            // While all values are -infinity, exponentials are 0 relative to any number.
            float base = higher == -INFINITY ? 0.0f : higher;
            if (higher != top) sum *= expf(top - base);
#pragma unroll
            for (int n = 0; n < N; n++) sum += expf(v[n] - base);
            top = higher;
        });
        float max = group.reduce(top, Max());
        float inv = 1.0f / group.reduce(top == -INFINITY ? 0.0f : sum * expf(top - max), Sum());
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N];
            row.get(k, i, v);
#pragma unroll
            for (int n = 0; n < N; n++) v[n] = expf(v[n] - max) * inv;
            store_vector(y + start + i, v);
        });
    }
}

template <class T, int N, int K>
__device__ inline void softmax_backward(const T* y, const T* dy, T* dx, uint64_t rows, uint64_t cols,
                                        uint32_t lanes) {
    Group group(lanes);
    for (uint64_t r = group.first; r < rows; r += group.step) {
        uint64_t start = r * cols;
        Row<T, N, K> weights, grads;
        weights.read(group, y + start, cols);
        grads.read(group, dy + start, cols);
        float dot = 0.0f;
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N], d[N];
            weights.get(k, i, v);
            grads.get(k, i, d);
#pragma unroll
            for (int n = 0; n < N; n++) dot += v[n] * d[n];
        });
        dot = group.reduce(dot, Sum());
        group.template each_vector<N, K>(cols, [&](int k, uint64_t i) {
            float v[N], d[N];
            weights.get(k, i, v);
            grads.get(k, i, d);
#pragma unroll
            for (int n = 0; n < N; n++) v[n] *= d[n] - dot;
            store_vector(dx + start + i, v);
        });
    }
}

#define SOFTMAX(T, NAME, N, K, K_BACKWARD)                                                               \
    KERNEL_OF(THREADS, softmax_##NAME)                                                                   \
    (const T* x, T* y, uint64_t rows, uint64_t cols, uint32_t lanes) {                                   \
        softmax<T, N, K>(x, y, rows, cols, lanes);                                                       \
    }                                                                                                    \
    KERNEL_OF(THREADS, softmax_backward_##NAME)                                                          \
    (const T* y, const T* dy, T* dx, uint64_t rows, uint64_t cols, uint32_t lanes) {                     \
        softmax_backward<T, N, K_BACKWARD>(y, dy, dx, rows, cols, lanes);                                \
    }
SOFTMAX(float, f32, WIDE<float>, KEPT, KEPT_BACKWARD)
SOFTMAX(bf16, bf16, WIDE<bf16>, KEPT, KEPT_BACKWARD)
SOFTMAX(float, any_f32, 1, 0, 0)
SOFTMAX(bf16, any_bf16, 1, 0, 0)
