// Options of language-model heads: a bias and a soft cap of logits, and the gradient of a cross-entropy with label
// smoothing and z-loss.

// `cap` is 0 without a soft cap.
__device__ inline float finished(float x, float bias, float cap) {
    x += bias;
    return cap > 0.0f ? cap * tanhf(x / cap) : x;
}

// Logits in vectors of N elements, each within one row.
template <int N, class T>
__device__ inline void finish_logits(T* logits, uint64_t rows, uint64_t cols, const float* bias, float cap) {
    uint64_t vectors = rows * cols / N;
    for (uint64_t i = thread_index(); i < vectors; i += thread_count()) {
        uint64_t at = i * N, col = modulo(at, cols);
        float v[N];
        load_vector(logits + at, v);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = finished(v[k], bias ? bias[col + k] : 0.0f, cap);
        store_vector(logits + at, v);
    }
}

// Statistics of rows, and the options of the loss.
struct Rows {
    const float *max, *sum_exp, *row_scale;
    const uint32_t* targets;
    uint64_t first_col;
    // `vocab` is the size of the whole vocabulary; `inverse_cap` is 0 without a soft cap.
    float vocab, label_smoothing, z_loss, inverse_cap;
};

template <int N, class T>
__device__ inline void smoothed_grad(T* logits, uint64_t rows, uint64_t cols, Rows of) {
    uint64_t vectors = rows * cols / N;
    for (uint64_t i = thread_index(); i < vectors; i += thread_count()) {
        uint64_t at = i * N, row = quotient(at, cols), col = at - row * cols;
        float scale = of.row_scale[row], max = of.max[row], sum = of.sum_exp[row];
        float factor = scale * (1.0f + 2.0f * of.z_loss * (max + logf(sum))) / sum;
        float everywhere = scale * of.label_smoothing / of.vocab, at_target = scale * (1.0f - of.label_smoothing);
        uint64_t target = of.targets[row] - of.first_col;
        float v[N];
        load_vector(logits + at, v);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float capped = v[k] * of.inverse_cap, shift = everywhere + (col + k == target ? at_target : 0.0f);
            v[k] = scale == 0.0f ? 0.0f : (expf(v[k] - max) * factor - shift) * (1.0f - capped * capped);
        }
        store_vector(logits + at, v);
    }
}

#define HEAD(suffix, T, N)                                                                                   \
    KERNEL(finish_logits_##suffix)                                                                           \
    (T* logits, uint64_t rows, uint64_t cols, const float* bias, float cap) {                                \
        finish_logits<N>(logits, rows, cols, bias, cap);                                                     \
    }                                                                                                        \
    KERNEL(smoothed_grad_##suffix)(T* logits, uint64_t rows, uint64_t cols, Rows of) {                       \
        smoothed_grad<N>(logits, rows, cols, of);                                                            \
    }

HEAD(f32, float, 1)
HEAD(bf16, bf16, 1)
HEAD(f32_vectors, float, WIDE<float>)
HEAD(bf16_vectors, bf16, WIDE<bf16>)
