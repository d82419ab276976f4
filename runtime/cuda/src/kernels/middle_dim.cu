// Reductions over the middle dim of [outer, n, inner] other than sums, functions of elements and of numbers of their
// columns, and the first element of a column that equals a number.

// Terms of reductions, of an element `x`, an element `s` of a second operand, and a number `c` of the column.

struct LargestTerm {
    static constexpr bool IS_SUM = false;
    __device__ float operator()(float x, float, float) const { return x; }
};
struct SmallestTerm {
    static constexpr bool IS_SUM = false;
    __device__ float operator()(float x, float, float) const { return -x; }
};
struct ExpTerm {
    static constexpr bool IS_SUM = true;
    __device__ float operator()(float x, float, float c) const { return expf(c - c != 0.0f ? x : x - c); }
};
struct SquareTerm {
    static constexpr bool IS_SUM = true;
    __device__ float operator()(float x, float, float c) const { return (x - c) * (x - c); }
};
struct DotTerm {
    static constexpr bool IS_SUM = true;
    __device__ float operator()(float x, float s, float) const { return x * s; }
};

template <class Term>
__device__ inline float combine(float a, float b) {
    return Term::IS_SUM ? a + b : Max()(a, b);
}

// Result of no elements.
template <class Term>
__device__ inline float empty() {
    return Term::IS_SUM ? 0.0f : -INFINITY;
}

// Range of a block: elements `from..to` of the middle dim. Blocks along y take equal parts.
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
template <class Term, class T>
__device__ inline void reduce_rows(const T* x, const T* second, const float* column, uint64_t outer, uint64_t n,
                                   float* y, float scale) {
    Part part(n, gridDim.y);
    for (uint64_t row = blockIdx.x; row < outer; row += gridDim.x) {
        float c = column ? column[row] : 0.0f, total = empty<Term>();
        for (uint64_t i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
            uint64_t at = row * n + i;
            total = combine<Term>(total, Term()(widen(x[at]), widen(second[at]), c));
        }
        if constexpr (Term::IS_SUM) total = block_reduce(total, Sum());
        else total = block_reduce(total, Max());
        if (threadIdx.x == 0) y[row * gridDim.y + blockIdx.y] = scale * total;
    }
}

// Rows of a block of `reduce_columns`, which has 32 times as many threads.
constexpr int ROWS = 8;

// y[outer, parts, inner] of x[outer, n, inner]: one block per 32 columns and part, whose warps take rows in turn.
template <class Term, class T>
__device__ inline void reduce_columns(const T* x, const T* second, const float* column, uint64_t outer, uint64_t n,
                                      uint64_t inner, float* y, float scale) {
    __shared__ float of_row[ROWS][32];
    Part part(n, gridDim.y);
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t tiles = (inner + 31) / 32;
    for (uint64_t tile = blockIdx.x; tile < outer * tiles; tile += gridDim.x) {
        uint64_t block = quotient(tile, tiles), col = (tile - block * tiles) * 32 + lane;
        float total = empty<Term>();
        if (col < inner) {
            float c = column ? column[block * inner + col] : 0.0f;
            for (uint64_t row = part.from + warp; row < part.to; row += ROWS) {
                uint64_t at = (block * n + row) * inner + col;
                total = combine<Term>(total, Term()(widen(x[at]), widen(second[at]), c));
            }
        }
        of_row[warp][lane] = total;
        __syncthreads();
        if (warp == 0 && col < inner) {
            total = empty<Term>();
#pragma unroll
            for (int row = 0; row < ROWS; row++) total = combine<Term>(total, of_row[row][lane]);
            y[(block * gridDim.y + blockIdx.y) * inner + col] = scale * total;
        }
        __syncthreads();
    }
}

#define REDUCTION_OF(name, Term, suffix, T)                                                                       \
    KERNEL(name##_rows_##suffix)                                                                                  \
    (const T* x, const T* second, const float* column, uint64_t outer, uint64_t n, uint64_t inner, float* y,      \
     float scale) {                                                                                               \
        reduce_rows<Term>(x, second, column, outer * inner, n, y, scale);                                         \
    }                                                                                                             \
    KERNEL(name##_columns_##suffix)                                                                               \
    (const T* x, const T* second, const float* column, uint64_t outer, uint64_t n, uint64_t inner, float* y,      \
     float scale) {                                                                                               \
        reduce_columns<Term>(x, second, column, outer, n, inner, y, scale);                                       \
    }

#define REDUCTION(name, Term)               \
    REDUCTION_OF(name, Term, f32, float)    \
    REDUCTION_OF(name, Term, bf16, bf16)

REDUCTION(largest, LargestTerm)
REDUCTION(smallest, SmallestTerm)
REDUCTION(exp_sum, ExpTerm)
REDUCTION(square_sum, SquareTerm)
REDUCTION(dot_sum, DotTerm)

// Functions of an element `x`, an element `s` of a second operand, and numbers `c` and `d` of the column.

__device__ inline bool is_infinite(float c) { return c == INFINITY || c == -INFINITY; }

struct SoftmaxOf {
    __device__ float operator()(float x, float, float c, float d) const {
        return is_infinite(c) ? c - c : expf(x - c) / d;
    }
};
struct LogSoftmaxOf {
    __device__ float operator()(float x, float, float c, float d) const { return is_infinite(c) ? c - c : x - c - d; }
};
struct ScaledExpOf {
    __device__ float operator()(float x, float, float c, float d) const {
        return c == -INFINITY ? 0.0f : expf(x - c) * d;
    }
};
struct SoftmaxGradOf {
    __device__ float operator()(float x, float s, float c, float) const { return x * (s - c); }
};
struct LogSoftmaxGradOf {
    __device__ float operator()(float x, float s, float c, float) const { return s - expf(x) * c; }
};
struct CenteredOf {
    __device__ float operator()(float x, float, float c, float d) const { return (x - c) * d; }
};
struct DirectionOf {
    __device__ float operator()(float x, float, float c, float d) const { return c == 0.0f ? 0.0f : x / c * d; }
};

// y of x[outer, n, inner], in vectors of N elements. A vector is within one row of `inner` elements; if `inner` is 1,
// within the `n` elements of one column.
template <class Of, int N, class T>
__device__ inline void map_dim(const T* x, const T* second, const float* c, const float* d, uint64_t outer, uint64_t n,
                               uint64_t inner, T* y) {
    uint64_t vectors = outer * n * inner / N;
    for (uint64_t i = thread_index(); i < vectors; i += thread_count()) {
        uint64_t at = i * N, row = inner == 1 ? at : quotient(at, inner), block = quotient(row, n);
        uint64_t column = block * inner + (inner == 1 ? 0 : at - row * inner), step = inner == 1 ? 0 : 1;
        float v[N], s[N];
        load_vector(x + at, v);
        load_vector(second + at, s);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = Of()(v[k], s[k], c[column + k * step], d[column + k * step]);
        store_vector(y + at, v);
    }
}

#define FUNCTION_OF(name, Of, suffix, T)                                                                          \
    KERNEL(map_##name##_##suffix)                                                                                 \
    (const T* x, const T* second, const float* c, const float* d, uint64_t outer, uint64_t n, uint64_t inner,     \
     T* y) {                                                                                                      \
        map_dim<Of, 1>(x, second, c, d, outer, n, inner, y);                                                      \
    }                                                                                                             \
    KERNEL(map_##name##_##suffix##_vectors)                                                                       \
    (const T* x, const T* second, const float* c, const float* d, uint64_t outer, uint64_t n, uint64_t inner,     \
     T* y) {                                                                                                      \
        map_dim<Of, WIDE<T>>(x, second, c, d, outer, n, inner, y);                                                \
    }

#define FUNCTION(name, Of)             \
    FUNCTION_OF(name, Of, f32, float)  \
    FUNCTION_OF(name, Of, bf16, bf16)

FUNCTION(softmax, SoftmaxOf)
FUNCTION(log_softmax, LogSoftmaxOf)
FUNCTION(scaled_exp, ScaledExpOf)
FUNCTION(softmax_grad, SoftmaxGradOf)
FUNCTION(log_softmax_grad, LogSoftmaxGradOf)
FUNCTION(centered, CenteredOf)
FUNCTION(direction, DirectionOf)

// Global indices of the elements of a dim, with a gap after `gap_at` elements.
struct Positions {
    uint64_t offset, gap_at, gap;

    // Minus the global index of an element, which is exact below 2^24.
    __device__ float negated(uint64_t local) const { return -(float)(offset + local + (local < gap_at ? 0 : gap)); }
};

// Minus the global index of the first element of each column that equals its number: a thread for each column if they
// are neighbors in memory, else a warp.
template <class T>
__device__ inline void find_in_dim(const T* x, const float* column, Positions positions, uint64_t outer, uint64_t n,
                                   uint64_t inner, uint32_t lanes, float* found) {
    uint32_t lane = threadIdx.x % lanes;
    uint64_t step = thread_count() / lanes;
    for (uint64_t i = thread_index() / lanes; i < outer * inner; i += step) {
        uint64_t block = quotient(i, inner), first = block * n * inner + (i - block * inner);
        float number = column[i], index = -INFINITY;
        for (uint64_t local = lane; local < n; local += lanes) {
            float v = widen(x[first + local * inner]);
            if (v == number || (v != v && number != number)) {
                index = positions.negated(local);
                break;
            }
        }
        index = warp_reduce(index, Max(), (int)lanes);
        if (lane == 0) found[i] = index;
    }
}

template <class T>
__device__ inline void place_in_dim(const float* found, Positions positions, const T* dy, uint64_t outer, uint64_t n,
                                    uint64_t inner, T* dx) {
    for (uint64_t at = thread_index(); at < outer * n * inner; at += thread_count()) {
        uint64_t row = quotient(at, inner), block = quotient(row, n), column = block * inner + (at - row * inner);
        bool is_found = found[column] == positions.negated(row - block * n);
        store(dx + at, is_found ? widen(dy[column]) : 0.0f);
    }
}

#define INDEX(suffix, T)                                                                                          \
    KERNEL(find_in_dim_##suffix)                                                                                  \
    (const T* x, const float* column, Positions positions, uint64_t outer, uint64_t n, uint64_t inner,            \
     uint32_t lanes, float* found) {                                                                              \
        find_in_dim(x, column, positions, outer, n, inner, lanes, found);                                         \
    }                                                                                                             \
    KERNEL(place_in_dim_##suffix)                                                                                 \
    (const float* found, Positions positions, const T* dy, uint64_t outer, uint64_t n, uint64_t inner, T* dx) {   \
        place_in_dim(found, positions, dy, outer, n, inner, dx);                                                  \
    }

INDEX(f32, float)
INDEX(bf16, bf16)
