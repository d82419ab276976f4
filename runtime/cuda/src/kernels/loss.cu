// Parts of a cross-entropy over rows of logits, whose vocabulary may be split over ranks.

// Computes e^x within 2^-22 and 2^-24 |x| of its value.
__device__ inline float exponential(float x) { return exp2_fast(LOG2_E * x); }

// Returns the logit of the target, or 0 if it is in none of the columns.
template <class T>
__device__ inline float logit_of_target(const T* row, uint64_t cols, uint32_t target, uint64_t first_col) {
    uint64_t col = target - first_col;
    return col < cols ? widen(row[col]) : 0.0f;
}

template <class T>
__device__ inline void row_max(Group group, const T* x, uint64_t rows, uint64_t cols, float* max) {
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
__device__ inline void exp_sum(Group group, const T* logits, uint64_t rows, uint64_t cols, const float* max,
                               const uint32_t* targets, uint64_t first_col, float* sum_exp, float* target_logit) {
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

// Running maximum of logits, and the sum of exponentials relative to it. Several kernels share it and have the same
// bits, so no multiplication is contracted with an addition.
struct Online {
    float max = -INFINITY;
    float sum = 0.0f;

    // Subtracted from logits before the exponential: 0 while all of them are -infinity.
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

    // Adds elements of type T, as loaded.
    template <class T, class Raw>
    __device__ void add_raw(const Raw& raw) {
        float x[sizeof(Raw) / sizeof(T)];
        load_vector((const T*)&raw, x);
        add(x);
    }

    __device__ void rescale(float larger) {
        // Before the first number nothing is summed; subtracting -infinity from itself would be NaN.
        if (max != -INFINITY) sum = __fmul_rn(sum, exponential(max - larger));
        max = larger;
    }
};

// Calls f(first column, raw elements) for this lane's part of a row: vectors of 16 bytes where aligned, single elements
// before and after. Several vectors are loaded before f processes the first, because the compiler orders a load after
// an earlier store that may alias it.
template <class T, class F>
__device__ inline void for_each_access(const Group& group, const T* row, uint64_t cols, F f) {
    constexpr uint64_t N = WIDE<T>, LOADS = 4;
    uint64_t head = (16 - (uint64_t)row % 16) % 16 / sizeof(T);
    if (head > cols) head = cols;
    uint64_t vectors = (cols - head) / N, tail = head + vectors * N;
    const uint4* from = (const uint4*)(row + head);
    uint64_t i = group.lane, lanes = group.lanes;
    if (i < head) f(i, row[i]);
    for (; i + (LOADS - 1) * lanes < vectors; i += LOADS * lanes) {
        uint4 loaded[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++) loaded[k] = from[i + k * lanes];
#pragma unroll
        for (int k = 0; k < LOADS; k++) f(head + (i + k * lanes) * N, loaded[k]);
    }
    for (; i < vectors; i += lanes) f(head + i * N, from[i]);
    if (group.lane < cols - tail) f(tail + group.lane, row[tail + group.lane]);
}

// Computes row_max and exp_sum in one pass over the logits (Milakov and Gimelshein 2018).
template <class T>
__device__ inline void max_exp_sum(Group group, const T* logits, uint64_t rows, uint64_t cols,
                                   const uint32_t* targets, uint64_t first_col, float* max, float* sum_exp,
                                   float* target_logit) {
    for (uint64_t row = group.first; row < rows; row += group.step) {
        const T* here = logits + row * cols;
        Online online;
        for_each_access(group, here, cols, [&](uint64_t, auto raw) { online.add_raw<T>(raw); });
        float largest = group.reduce(online.max, Max());
        online.rescale(largest);
        float sum = group.reduce(online.sum, Sum());
        if (group.lane == 0) {
            max[row] = largest;
            // NaN if all logits are -infinity, as with the maximum subtracted.
            sum_exp[row] = largest == -INFINITY ? largest - largest : sum;
            target_logit[row] = logit_of_target(here, cols, targets[row], first_col);
        }
    }
}

// Inputs of the gradient of a row of logits other than the logits.
struct RowGradient {
    float max, factor, scale;
    // Column of the target; beyond the last column if it is not here.
    uint64_t target;

    // Writes the gradient of the logits from column `col` on, whose elements are `raw`. Two kernels share it, as they
    // share `Online`.
    template <class T, class Raw>
    __device__ void write(T* row, uint64_t col, const Raw& raw) const {
        float x[sizeof(Raw) / sizeof(T)];
        load_vector((const T*)&raw, x);
        for (float& logit : x) logit = __fmul_rn(exponential(logit - max), factor);
        constexpr int N = sizeof(Raw) / sizeof(T);
        // In one lane of the row.
        if (target - col < N) {
            int at = (int)(target - col);
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = __fsub_rn(x[i], i == at ? scale : 0.0f);
        }
        store_vector(row + col, x);
    }
};

template <class T>
__device__ inline void clear_row(const Group& group, T* row, uint64_t cols) {
    for (uint64_t col = group.lane; col < cols; col += group.lanes) store(row + col, 0.0f);
}

template <class T>
__device__ inline void cross_entropy_grad(const Group& group, T* logits, uint64_t rows, uint64_t cols, const float* max,
                                          const float* sum_exp, const uint32_t* targets, uint64_t first_col,
                                          const float* row_scale) {
    for (uint64_t row = group.first; row < rows; row += group.step) {
        T* here = logits + row * cols;
        float scale = row_scale[row];
        if (scale == 0.0f) {
            clear_row(group, here, cols);
            continue;
        }
        RowGradient gradient{max[row], scale / sum_exp[row], scale, targets[row] - first_col};
        for_each_access(group, here, cols, [&](uint64_t col, auto raw) { gradient.write(here, col, raw); });
    }
}

// Fuses max_exp_sum and cross_entropy_grad, reading a row from memory once. With KEPT, for blocks that process a row
// each, the row stays in shared memory; otherwise it stays in a cache if the rows of all blocks fit. A lane rereads
// only elements that it has read before.
template <class T, bool KEPT>
__device__ inline void cross_entropy(Group group, T* logits, uint64_t rows, uint64_t cols,
                                     const uint32_t* targets, uint64_t first_col, const float* row_scale, float* max,
                                     float* sum_exp, float* target_logit) {
    DYNAMIC_SHARED(T, kept);
    for (uint64_t row = group.first; row < rows; row += group.step) {
        T* here = logits + row * cols;
        // Aligned like the row in memory, so lanes may read other elements than of the row before.
        T* copy = kept + (uint64_t)here % 16 / sizeof(T);
        if constexpr (KEPT) __syncthreads();
        if (group.lane == 0) target_logit[row] = logit_of_target(here, cols, targets[row], first_col);
        Online online;
        for_each_access(group, here, cols, [&](uint64_t col, auto raw) {
            if constexpr (KEPT) *(decltype(raw)*)(copy + col) = raw;
            online.add_raw<T>(raw);
        });
        float largest = group.reduce(online.max, Max());
        online.rescale(largest);
        float sum = group.reduce(online.sum, Sum());
        // NaN if all logits are -infinity, as with the maximum subtracted.
        if (largest == -INFINITY) sum = largest - largest;
        if (group.lane == 0) max[row] = largest, sum_exp[row] = sum;
        // The target's logit is read before another lane overwrites it.
        __syncwarp();
        float scale = row_scale[row];
        if (scale == 0.0f) {
            clear_row(group, here, cols);
            continue;
        }
        RowGradient gradient{largest, scale / sum, scale, targets[row] - first_col};
        for_each_access(group, KEPT ? copy : here, cols,
                        [&](uint64_t col, auto raw) { gradient.write(here, col, raw); });
    }
}

#define ONE_PASS(name, T, kept)                                                                                  \
    KERNEL(name)                                                                                                 \
    (uint32_t lanes, T* logits, uint64_t rows, uint64_t cols, const uint32_t* targets, uint64_t first_col,       \
     const float* row_scale, float* max, float* sum_exp, float* target_logit) {                                  \
        cross_entropy<T, kept>(Group(lanes), logits, rows, cols, targets, first_col, row_scale, max, sum_exp,    \
                               target_logit);                                                                    \
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
    }                                                                                                            \
    KERNEL(cross_entropy_grad_##name)                                                                            \
    (uint32_t lanes, T* logits, uint64_t rows, uint64_t cols, const float* max, const float* sum_exp,            \
     const uint32_t* targets, uint64_t first_col, const float* row_scale) {                                      \
        cross_entropy_grad(Group(lanes), logits, rows, cols, max, sum_exp, targets, first_col, row_scale);       \
    }                                                                                                            \
    ONE_PASS(cross_entropy_##name, T, false)                                                                     \
    ONE_PASS(cross_entropy_kept_##name, T, true)

LOSS(f32, float)
LOSS(bf16, bf16)

// Sums the losses of all rows with counted targets in f64, in one block.
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
