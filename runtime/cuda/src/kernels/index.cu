// Elements by their index along a dim, indices of the largest elements, and running sums.

constexpr uint32_t THREADS = 256;

// A dim whose elements are read or written by their index in the global dim, in a tensor `[outer, len, inner]`.
struct IndexedDim {
    uint64_t outer, len, inner, count, is_elementwise, first, gap_at, gap;

    // The place among the elements that are held of the one with this index; `len` if it is not held.
    __device__ uint64_t place(uint32_t index) const {
        if (index < first) return len;
        uint64_t at = index - first;
        if (at < gap_at) return at < len ? at : len;
        return at >= gap + gap_at && at - gap < len ? at - gap : len;
    }

    // The index for element `i` of row `row` of `[outer * count, inner]`.
    __device__ uint32_t index_of(const uint32_t* indices, uint64_t row, uint64_t i) const {
        return indices[is_elementwise ? row * inner + i : row];
    }
};

template <class T>
__device__ inline void take_elements(const IndexedDim& dim, const uint32_t* indices, const T* x, T* out) {
    uint64_t n = dim.outer * dim.count * dim.inner;
    for (uint64_t at = thread_index(); at < n; at += thread_count()) {
        uint64_t row = quotient(at, dim.inner), i = at - row * dim.inner, block = quotient(row, dim.count);
        uint64_t place = dim.place(dim.index_of(indices, row, i));
        store(out + at, place < dim.len ? widen(x[(block * dim.len + place) * dim.inner + i]) : 0.0f);
    }
}

// One thread adds all elements of a column, in their order.
template <class T>
__device__ inline void add_elements(const IndexedDim& dim, const uint32_t* indices, const T* x, float* out) {
    for (uint64_t at = thread_index(); at < dim.outer * dim.inner; at += thread_count()) {
        uint64_t block = quotient(at, dim.inner), i = at - block * dim.inner;
        float* column = out + block * dim.len * dim.inner + i;
        for (uint64_t row = block * dim.count; row < (block + 1) * dim.count; row++) {
            uint64_t place = dim.place(dim.index_of(indices, row, i));
            if (place < dim.len) column[place * dim.inner] += widen(x[row * dim.inner + i]);
        }
    }
}

// A number that grows with an element, and among equal ones with a lower position: NaN is the largest.
__device__ inline uint64_t rank_of(float x, uint64_t position) {
    uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    uint32_t order = x != x ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)order << 32 | (uint32_t)~(uint32_t)position;
}

// One block per column finds the largest element below the last one that it found, `k` times.
template <class T>
__device__ inline void largest(const T* x, uint64_t columns, uint64_t len, uint64_t inner, uint64_t k,
                               uint32_t* positions) {
    __shared__ uint64_t best[THREADS];
    for (uint64_t column = blockIdx.x; column < columns; column += gridDim.x) {
        uint64_t block = quotient(column, inner), i = column - block * inner;
        const T* from = x + block * len * inner + i;
        uint64_t last = ~0ull;
        for (uint64_t found = 0; found < k; found++) {
            uint64_t top = 0;
            for (uint64_t at = threadIdx.x; at < len; at += THREADS) {
                uint64_t rank = rank_of(widen(from[at * inner]), at);
                // The first pass has no upper bound.
                if ((found == 0 || rank < last) && rank > top) top = rank;
            }
            best[threadIdx.x] = top;
            __syncthreads();
            for (uint32_t half = THREADS / 2; half > 0; half /= 2) {
                if (threadIdx.x < half && best[threadIdx.x + half] > best[threadIdx.x]) {
                    best[threadIdx.x] = best[threadIdx.x + half];
                }
                __syncthreads();
            }
            last = best[0];
            if (threadIdx.x == 0) positions[(block * k + found) * inner + i] = ~(uint32_t)last;
            __syncthreads();
        }
    }
}

// One thread per column: neighbors read neighbors.
template <class T>
__device__ inline void sum_columns(const T* x, T* y, uint64_t outer, uint64_t len, uint64_t inner, bool from_end) {
    for (uint64_t at = thread_index(); at < outer * inner; at += thread_count()) {
        uint64_t block = quotient(at, inner), start = block * len * inner + at - block * inner;
        float sum = 0.0f;
        for (uint64_t row = 0; row < len; row++) {
            uint64_t place = start + (from_end ? len - 1 - row : row) * inner;
            sum += widen(x[place]);
            store(y + place, sum);
        }
    }
}

// One block per row adds parts of a row at a time, by the doubling of Hillis and Steele 1986.
template <class T>
__device__ inline void sum_rows(const T* x, T* y, uint64_t rows, uint64_t len, bool from_end) {
    __shared__ float sums[THREADS];
    for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float before = 0.0f;
        for (uint64_t start = 0; start < len; start += THREADS) {
            uint64_t at = start + threadIdx.x, place = row * len + (from_end ? len - 1 - at : at);
            sums[threadIdx.x] = at < len ? widen(x[place]) : 0.0f;
            __syncthreads();
            for (uint32_t distance = 1; distance < THREADS; distance *= 2) {
                float earlier = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0.0f;
                __syncthreads();
                sums[threadIdx.x] += earlier;
                __syncthreads();
            }
            if (at < len) store(y + place, before + sums[threadIdx.x]);
            before += sums[THREADS - 1];
            __syncthreads();
        }
    }
}

#define INDEX(NAME, T)                                                                                           \
    KERNEL(take_elements_##NAME)(IndexedDim dim, const uint32_t* indices, const T* x, T* out) {                  \
        take_elements(dim, indices, x, out);                                                                     \
    }                                                                                                            \
    KERNEL(add_elements_##NAME)(IndexedDim dim, const uint32_t* indices, const T* x, float* out) {               \
        add_elements(dim, indices, x, out);                                                                      \
    }                                                                                                            \
    KERNEL(largest_##NAME)                                                                                       \
    (const T* x, uint64_t columns, uint64_t len, uint64_t inner, uint64_t k, uint32_t* positions) {              \
        largest(x, columns, len, inner, k, positions);                                                           \
    }                                                                                                            \
    KERNEL(sum_columns_##NAME)                                                                                   \
    (const T* x, T* y, uint64_t outer, uint64_t len, uint64_t inner, uint32_t from_end) {                        \
        sum_columns(x, y, outer, len, inner, from_end != 0);                                                     \
    }                                                                                                            \
    KERNEL(sum_rows_##NAME)(const T* x, T* y, uint64_t rows, uint64_t len, uint32_t from_end) {                  \
        sum_rows(x, y, rows, len, from_end != 0);                                                                \
    }
INDEX(f32, float)
INDEX(bf16, bf16)
