// Sums over the middle dim of [outer, n, inner], and over all elements.

// Range of a block: elements `from..to` of the middle dim of size `n`. Blocks along y take equal parts.
struct Part {
    uint64_t from, to;

    __device__ Part(uint64_t n, uint64_t parts) {
        uint64_t len = (n + parts - 1) / parts;
        from = blockIdx.y * len;
        from = from < n ? from : n;
        to = from + len < n ? from + len : n;
    }
};

// y[outer, parts] of x[outer, n]: one block per row and part.
template <class T, class U>
__device__ inline void sum_rows(const T* x, uint64_t outer, uint64_t n, U* y, float scale) {
    Part part(n, gridDim.y);
    for (uint64_t row = blockIdx.x; row < outer; row += gridDim.x) {
        const T* from = x + row * n + part.from;
        float sum = 0.0f;
        for_each_vector<WIDE<T>>(from, part.to - part.from, threadIdx.x, blockDim.x, [&](uint64_t, auto& v) {
            for (float element : v) sum += element;
        });
        sum = block_reduce(sum, Sum());
        if (threadIdx.x == 0) store(y + row * gridDim.y + blockIdx.y, scale * sum);
    }
}

// Rows of a block of `sum_columns`, which has 32 times as many threads, and vectors that a thread loads at a time.
constexpr int ROWS = 8, LOADS = 8;

// y[outer, parts, inner] of x[outer, n, inner]: one block per 32 vectors of columns and part, whose warps take rows in
// turn.
template <int N, class T, class U>
__device__ inline void sum_columns(const T* x, uint64_t outer, uint64_t n, uint64_t inner, U* y, float scale) {
    __shared__ float of_row[ROWS][32 * N];
    Part part(n, gridDim.y);
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t tiles = (inner + 32 * N - 1) / (32 * N);
    for (uint64_t tile = blockIdx.x; tile < outer * tiles; tile += gridDim.x) {
        uint64_t block = quotient(tile, tiles), start = (tile - block * tiles) * 32 * N, col = start + lane * N;
        float sum[N] = {};
        if (col < inner) {
            const T* from = x + block * n * inner + col;
            uint64_t row = part.from + warp;
            for (; row + (LOADS - 1) * ROWS < part.to; row += LOADS * ROWS) {
                float v[LOADS][N];
#pragma unroll
                for (int i = 0; i < LOADS; i++) load_vector(from + (row + i * ROWS) * inner, v[i]);
#pragma unroll
                for (int i = 0; i < LOADS; i++) {
#pragma unroll
                    for (int k = 0; k < N; k++) sum[k] += v[i][k];
                }
            }
            for (; row < part.to; row += ROWS) {
                float v[N];
                load_vector(from + row * inner, v);
#pragma unroll
                for (int k = 0; k < N; k++) sum[k] += v[k];
            }
        }
        // Columns of one vector are 32 apart, which avoids bank conflicts.
#pragma unroll
        for (int k = 0; k < N; k++) of_row[warp][k * 32 + lane] = sum[k];
        __syncthreads();
        for (uint64_t i = threadIdx.x; i < 32 * N && start + i < inner; i += blockDim.x) {
            uint32_t at = i % N * 32 + i / N;
            float total = 0.0f;
#pragma unroll
            for (int row = 0; row < ROWS; row++) total += of_row[row][at];
            store(y + (block * gridDim.y + blockIdx.y) * inner + start + i, scale * total);
        }
        __syncthreads();
    }
}

// dx[outer, n, inner] of dy[outer, inner], in vectors of N elements of dx. A vector is within one row of `inner`
// elements; if `inner` is 1, within the `n` rows of one element of dy.
template <int N, class T, class U>
__device__ inline void broadcast(uint64_t outer, uint64_t n, uint64_t inner, const U* dy, T* dx, float scale) {
    uint64_t vectors = outer * n * inner / N;
    for (uint64_t i = thread_index(); i < vectors; i += thread_count()) {
        uint64_t at = i * N;
        float v[N];
        if (inner == 1) {
            float one = widen(dy[quotient(at, n)]);
#pragma unroll
            for (int k = 0; k < N; k++) v[k] = one;
        } else {
            uint64_t row = quotient(at, inner), block = quotient(row, n);
            load_vector(dy + block * inner + (at - row * inner), v);
        }
#pragma unroll
        for (int k = 0; k < N; k++) v[k] *= scale;
        store_vector(dx + at, v);
    }
}

#define REDUCE(name, T, U)                                                                                             \
    KERNEL(sum_rows_##name)(const T* x, uint64_t outer, uint64_t n, U* y, float scale) {                               \
        sum_rows(x, outer, n, y, scale);                                                                            \
    }                                                                                                                  \
    KERNEL(sum_columns_##name)(const T* x, uint64_t outer, uint64_t n, uint64_t inner, U* y, float scale) {            \
        sum_columns<1>(x, outer, n, inner, y, scale);                                                                  \
    }                                                                                                                  \
    KERNEL(sum_columns_##name##_vectors)(const T* x, uint64_t outer, uint64_t n, uint64_t inner, U* y, float scale) {  \
        sum_columns<WIDE<T>>(x, outer, n, inner, y, scale);                                                            \
    }                                                                                                                  \
    KERNEL(broadcast_##name)(uint64_t outer, uint64_t n, uint64_t inner, const T* dy, U* dx, float scale) {            \
        broadcast<1>(outer, n, inner, dy, dx, scale);                                                                  \
    }                                                                                                                  \
    KERNEL(broadcast_##name##_vectors)(uint64_t outer, uint64_t n, uint64_t inner, const T* dy, U* dx, float scale) {  \
        broadcast<WIDE<U>>(outer, n, inner, dy, dx, scale);                                                            \
    }

REDUCE(f32_f32, float, float)
REDUCE(f32_bf16, float, bf16)
REDUCE(bf16_f32, bf16, float)
REDUCE(bf16_bf16, bf16, bf16)

// One block's part of a sum of squares, in f64: threads take N elements in turn, vectorized or not.
template <class T>
__device__ inline void sum_squares(const T* x, uint64_t n, uint64_t block, uint64_t blocks, double* sum_of_block) {
    constexpr int N = WIDE<T>;
    uint64_t step = blocks * blockDim.x, i = block * blockDim.x + threadIdx.x;
    uint64_t vectors = (uint64_t)x % 16 == 0 ? n / N : 0;
    double sum = 0.0;
    // Several loads are in flight, while the order of additions is fixed.
#pragma unroll 4
    for (; i < vectors; i += step) {
        float v[N];
        load_vector(x + i * N, v);
#pragma unroll
        for (int k = 0; k < N; k++) sum += (double)v[k] * v[k];
    }
    for (; i * N < n; i += step) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            float v = i * N + k < n ? widen(x[i * N + k]) : 0.0f;
            sum += (double)v * v;
        }
    }
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) *sum_of_block = sum;
}

// Buffers that one launch sums: each has consecutive blocks of its own.
constexpr int MOST_BUFFERS = 64;

struct Buffers {
    uint64_t x[MOST_BUFFERS], n[MOST_BUFFERS];
    // Inclusive prefix sum of the buffers' block counts.
    uint32_t end_block[MOST_BUFFERS], count;

    __device__ uint32_t first_block(uint32_t buffer) const { return buffer == 0 ? 0 : end_block[buffer - 1]; }
};

// Returns the buffer of a block.
__device__ inline uint32_t buffer_of(const Buffers& buffers, uint32_t block) {
    uint32_t low = 0, high = buffers.count - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (buffers.end_block[middle] <= block) low = middle + 1;
        else high = middle;
    }
    return low;
}

template <class T>
__device__ inline void sum_squares_of(const Buffers& buffers, double* sums) {
    uint32_t buffer = buffer_of(buffers, blockIdx.x), first = buffers.first_block(buffer);
    sum_squares((const T*)buffers.x[buffer], buffers.n[buffer], blockIdx.x - first, buffers.end_block[buffer] - first,
                sums + blockIdx.x);
}

KERNEL(sum_squares_f32)(Buffers buffers, double* sums) {
    sum_squares_of<float>(buffers, sums);
}
KERNEL(sum_squares_bf16)(Buffers buffers, double* sums) {
    sum_squares_of<bf16>(buffers, sums);
}

// Sums the block results of each buffer, with one block per buffer.
KERNEL(sum_doubles)(Buffers buffers, const double* sums, double* sum_of_buffer) {
    uint32_t from = buffers.first_block(blockIdx.x), to = buffers.end_block[blockIdx.x];
    double sum = 0.0;
    for (uint32_t i = from + threadIdx.x; i < to; i += blockDim.x) sum += sums[i];
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) sum_of_buffer[blockIdx.x] = sum;
}
