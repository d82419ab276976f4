// RMSNorm with a gate: y = x / rms(x) * weight * silu(gate), row by row. Sums are in f32 and in a fixed order.

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class T>
__device__ inline void forward(const T* x, const T* gate, const T* weight, T* y, float* inv_rms, float eps,
                               uint64_t rows, uint64_t cols) {
    for (uint64_t row = thread_index(); row < rows; row += thread_count()) {
        uint64_t start = row * cols;
        float squares = 0;
        for (uint64_t i = 0; i < cols; i++) squares += widen(x[start + i]) * widen(x[start + i]);
        float scale = 1.0f / sqrtf(squares / cols + eps);
        for (uint64_t i = 0; i < cols; i++) {
            float g = widen(gate[start + i]);
            store(y + start + i, widen(x[start + i]) * scale * widen(weight[i]) * g * sigmoid(g));
        }
        inv_rms[row] = scale;
    }
}

template <class T>
__device__ inline void input_gradient(const T* x, const T* gate, const T* weight, const float* inv_rms, const T* dy,
                                      T* dx, uint64_t rows, uint64_t cols) {
    for (uint64_t row = thread_index(); row < rows; row += thread_count()) {
        uint64_t start = row * cols;
        float scale = inv_rms[row], mean = 0;
        for (uint64_t i = 0; i < cols; i++) {
            float g = widen(gate[start + i]);
            mean += widen(dy[start + i]) * widen(weight[i]) * g * sigmoid(g) * widen(x[start + i]) * scale;
        }
        mean /= cols;
        for (uint64_t i = 0; i < cols; i++) {
            float g = widen(gate[start + i]);
            float through = widen(dy[start + i]) * widen(weight[i]) * g * sigmoid(g);
            store(dx + start + i, scale * (through - widen(x[start + i]) * scale * mean));
        }
    }
}

template <class T>
__device__ inline void gate_gradient(const T* x, const T* gate, const T* weight, const float* inv_rms, const T* dy,
                                     T* dgate, uint64_t rows, uint64_t cols) {
    for (uint64_t row = thread_index(); row < rows; row += thread_count()) {
        for (uint64_t i = 0; i < cols; i++) {
            uint64_t at = row * cols + i;
            float g = widen(gate[at]), s = sigmoid(g);
            float normed = widen(x[at]) * inv_rms[row];
            store(dgate + at, widen(dy[at]) * normed * widen(weight[i]) * s * (1.0f + g * (1.0f - s)));
        }
    }
}

template <class T>
__device__ inline void weight_gradient(const T* x, const T* gate, const float* inv_rms, const T* dy, float* dweight,
                                       uint64_t rows, uint64_t cols) {
    for (uint64_t col = thread_index(); col < cols; col += thread_count()) {
        float sum = 0;
        for (uint64_t row = 0; row < rows; row++) {
            uint64_t at = row * cols + col;
            float g = widen(gate[at]);
            sum += widen(dy[at]) * widen(x[at]) * inv_rms[row] * g * sigmoid(g);
        }
        dweight[col] = sum;
    }
}

KERNEL(gated_norm_f32)(const float* x, const float* gate, const float* weight, float* y, float* inv_rms, float eps,
                       uint64_t rows, uint64_t cols) {
    forward(x, gate, weight, y, inv_rms, eps, rows, cols);
}

KERNEL(gated_norm_bf16)(const bf16* x, const bf16* gate, const bf16* weight, bf16* y, float* inv_rms, float eps,
                        uint64_t rows, uint64_t cols) {
    forward(x, gate, weight, y, inv_rms, eps, rows, cols);
}

KERNEL(gated_norm_dx_f32)(const float* x, const float* gate, const float* weight, const float* inv_rms,
                          const float* dy, float* dx, uint64_t rows, uint64_t cols) {
    input_gradient(x, gate, weight, inv_rms, dy, dx, rows, cols);
}

KERNEL(gated_norm_dx_bf16)(const bf16* x, const bf16* gate, const bf16* weight, const float* inv_rms,
                           const bf16* dy, bf16* dx, uint64_t rows, uint64_t cols) {
    input_gradient(x, gate, weight, inv_rms, dy, dx, rows, cols);
}

KERNEL(gated_norm_dgate_f32)(const float* x, const float* gate, const float* weight, const float* inv_rms,
                             const float* dy, float* dgate, uint64_t rows, uint64_t cols) {
    gate_gradient(x, gate, weight, inv_rms, dy, dgate, rows, cols);
}

KERNEL(gated_norm_dgate_bf16)(const bf16* x, const bf16* gate, const bf16* weight, const float* inv_rms,
                              const bf16* dy, bf16* dgate, uint64_t rows, uint64_t cols) {
    gate_gradient(x, gate, weight, inv_rms, dy, dgate, rows, cols);
}

KERNEL(gated_norm_dweight_f32)(const float* x, const float* gate, const float* inv_rms, const float* dy,
                               float* dweight, uint64_t rows, uint64_t cols) {
    weight_gradient(x, gate, inv_rms, dy, dweight, rows, cols);
}

KERNEL(gated_norm_dweight_bf16)(const bf16* x, const bf16* gate, const float* inv_rms, const bf16* dy,
                                float* dweight, uint64_t rows, uint64_t cols) {
    weight_gradient(x, gate, inv_rms, dy, dweight, rows, cols);
}
