// Pieces of a cross-entropy over rows of logits, whose vocabulary may be cut over ranks.

// e^x within 2^-22 and 2^-24 |x| of its value.
__device__ inline float exponential(float x) { return __expf(x); }

// The logit of the target, or 0 where it is in none of the columns.
template <class T>
__device__ inline float logit_of_target(const T* row, uint64_t cols, uint32_t target, uint64_t first_col) {
    uint64_t col = target - first_col;
    return col < cols ? widen(row[col]) : 0.0f;
}

template <class T>
__device__ inline void row_max(const Group& group, const T* x, uint64_t rows, uint64_t cols, float* max) {
    for (uint64_t row = group.first; row < rows; row += group.step) {
        float largest = -INFINITY;
        for_each_vector<WIDE<T>>(x + row * cols, cols, group.lane, group.lanes, [&](uint64_t, auto& x) {
            for (float element : x) largest = Max()(largest, element);
        });
        largest = group.reduce(largest, Max());
        if (group.lane == 0) max[row] = largest;
    }
}

template <class T>
__device__ inline void exp_sum(const Group& group, const T* logits, uint64_t rows, uint64_t cols, const float* max, const uint32_t* targets,
                               uint64_t first_col, float* sum_exp, float* target_logit) {
    for (uint64_t row = group.first; row < rows; row += group.step) {
        const T* here = logits + row * cols;
        float largest = max[row], sum = 0.0f;
        for_each_vector<WIDE<T>>(here, cols, group.lane, group.lanes, [&](uint64_t, auto& x) {
            for (float logit : x) sum += exponential(logit - largest);
        });
        sum = group.reduce(sum, Sum());
        if (group.lane == 0) {
            sum_exp[row] = sum;
            target_logit[row] = logit_of_target(here, cols, targets[row], first_col);
        }
    }
}

// The largest logit so far, and the sum of exponentials less that.
struct Online {
    float max = -INFINITY;
    float sum = 0.0f;

    // What is taken off logits before the exponential: nothing while all of them are -infinity.
    __device__ static float shift(float max) { return max == -INFINITY ? 0.0f : max; }

    template <int N>
    __device__ void add(const float (&x)[N]) {
        float larger = max;
#pragma unroll
        for (int i = 0; i < N; i++) larger = Max()(larger, x[i]);
        rescale(larger);
        float off = shift(max);
#pragma unroll
        for (int i = 0; i < N; i++) sum += exponential(x[i] - off);
    }

    __device__ void rescale(float larger) {
        // Nothing has been summed before the first number, and -infinity less itself would be NaN.
        if (max != -INFINITY) sum *= exponential(max - larger);
        max = larger;
    }
};

// row_max and exp_sum in one pass over the logits (Milakov and Gimelshein 2018).
template <class T>
__device__ inline void max_exp_sum(const Group& group, const T* logits, uint64_t rows, uint64_t cols, const uint32_t* targets,
                                   uint64_t first_col, float* max, float* sum_exp, float* target_logit) {
    for (uint64_t row = group.first; row < rows; row += group.step) {
        const T* here = logits + row * cols;
        Online online;
        for_each_vector<WIDE<T>>(here, cols, group.lane, group.lanes, [&](uint64_t, auto& x) { online.add(x); });
        float largest = group.reduce(online.max, Max());
        online.rescale(largest);
        float sum = group.reduce(online.sum, Sum());
        if (group.lane == 0) {
            max[row] = largest;
            // Of logits that are all -infinity: NaN, as -infinity less the maximum is.
            sum_exp[row] = largest == -INFINITY ? largest - largest : sum;
            target_logit[row] = logit_of_target(here, cols, targets[row], first_col);
        }
    }
}

// `out` may be `logits`, or lie elsewhere in another type.
template <int N, class T, class Out>
__device__ inline void gradient_of_row(const Group& group, const T* logits, Out* out, uint64_t cols, float max, float factor, uint64_t target,
                                       float scale) {
    for_each_vector<N>(logits, cols, group.lane, group.lanes, [&](uint64_t col, auto& x) {
        uint64_t at = target - col;
        for (float& logit : x) {
            float probability = exponential(logit - max) * factor;
            logit = at == 0 ? probability - scale : probability;
            at--;
        }
        store_vector(out + col, x);
    });
}

template <class T, class Out>
__device__ inline void cross_entropy_grad(const Group& group, const T* logits, Out* out, uint64_t rows, uint64_t cols, const float* max,
                                          const float* sum_exp, const uint32_t* targets, uint64_t first_col,
                                          const float* row_scale) {
    constexpr int N = WIDE<T> < WIDE<Out> ? WIDE<T> : WIDE<Out>;
    for (uint64_t row = group.first; row < rows; row += group.step) {
        const T* from = logits + row * cols;
        Out* to = out + row * cols;
        float scale = row_scale[row];
        if (scale == 0.0f) {
            for (uint64_t col = group.lane; col < cols; col += group.lanes) store(to + col, 0.0f);
            continue;
        }
        float factor = scale / sum_exp[row];
        uint64_t target = targets[row] - first_col;
        // Both begin at the same element of a vector, so that both are aligned where one is.
        bool together = (uint64_t)from / sizeof(T) % N == (uint64_t)to / sizeof(Out) % N;
        if (together) {
            gradient_of_row<N>(group, from, to, cols, max[row], factor, target, scale);
        } else {
            gradient_of_row<1>(group, from, to, cols, max[row], factor, target, scale);
        }
    }
}

#define LOSS(name, T)                                                                                            \
    KERNEL(row_max_##name)(uint32_t lanes, const T* x, uint64_t rows, uint64_t cols, float* max) {               \
        row_max(Group(lanes), x, rows, cols, max);                                                               \
    }                                                                                                            \
    KERNEL(exp_sum_##name)                                                                                       \
    (uint32_t lanes, const T* logits, uint64_t rows, uint64_t cols, const float* max, const uint32_t* targets,   \
     uint64_t first_col, float* sum_exp, float* target_logit) {                                                  \
        exp_sum(Group(lanes), logits, rows, cols, max, targets, first_col, sum_exp, target_logit);               \
    }                                                                                                            \
    KERNEL(max_exp_sum_##name)                                                                                   \
    (uint32_t lanes, const T* logits, uint64_t rows, uint64_t cols, const uint32_t* targets, uint64_t first_col, \
     float* max, float* sum_exp, float* target_logit) {                                                          \
        max_exp_sum(Group(lanes), logits, rows, cols, targets, first_col, max, sum_exp, target_logit);           \
    }

LOSS(f32, float)
LOSS(bf16, bf16)

#define GRADIENT(name, T, Out)                                                                                   \
    KERNEL(cross_entropy_grad_##name)                                                                            \
    (uint32_t lanes, const T* logits, Out* out, uint64_t rows, uint64_t cols, const float* max,                  \
     const float* sum_exp, const uint32_t* targets, uint64_t first_col, const float* row_scale) {                \
        Group group(lanes);                                                                                      \
        cross_entropy_grad(group, logits, out, rows, cols, max, sum_exp, targets, first_col, row_scale);         \
    }

GRADIENT(f32_f32, float, float)
GRADIENT(f32_bf16, float, bf16)
GRADIENT(bf16_bf16, bf16, bf16)

// The losses of all rows whose targets count, added up in f64. For one block.
KERNEL(cross_entropy_loss)(const float* max, const float* sum_exp, const float* target_logit, const uint32_t* targets,
                           uint64_t rows, float* sum) {
    double losses = 0.0;
    for (uint64_t row = threadIdx.x; row < rows; row += blockDim.x) {
        if (targets[row] == 0xffffffffu) continue;
        losses += (double)max[row] + log((double)sum_exp[row]) - (double)target_logit[row];
    }
    losses = block_reduce(losses, Sum());
    if (threadIdx.x == 0) *sum = (float)losses;
}
