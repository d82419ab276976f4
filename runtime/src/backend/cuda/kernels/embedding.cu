// Embedding tables, whole or cut by rows over ranks.

// Rows of out[tokens, units] from table[rows, units], or zeros for tokens that are not in the table; a unit is a vector
// of elements. A row is copied by `width` neighbouring threads, a power of two.
template <class Unit>
__device__ inline void gather(const uint32_t* tokens, uint64_t n, const Unit* table, uint64_t first_row, uint64_t rows,
                              Unit* out, uint64_t units, uint32_t width) {
    uint64_t at_once = thread_count() / width;
    for (uint64_t i = thread_index() / width; i < n; i += at_once) {
        // A token before the first row becomes a number beyond the last.
        uint64_t row = tokens[i] - first_row;
        bool here = row < rows;
        for (uint64_t unit = threadIdx.x % width; unit < units; unit += width) {
            out[i * units + unit] = here ? table[row * units + unit] : Unit{};
        }
    }
}

#define GATHER(bytes, Unit)                                                                                            \
    KERNEL(gather_##bytes)(const uint32_t* tokens, uint64_t n, const Unit* table, uint64_t first_row, uint64_t rows,   \
                           Unit* out, uint64_t units, uint32_t width) {                                                \
        gather(tokens, n, table, first_row, rows, out, units, width);                                                  \
    }

GATHER(2, uint16_t)
GATHER(4, uint32_t)
GATHER(16, uint4)

// The row of each token in a table, or `rows` for one that is not there.
KERNEL(local_rows)(const uint32_t* tokens, uint64_t n, uint64_t first_row, uint64_t rows, uint32_t* keys) {
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        uint64_t row = tokens[i] - first_row;
        keys[i] = (uint32_t)(row < rows ? row : rows);
    }
}

// Rows of dout that are loaded before the first of them is added.
constexpr int AHEAD = 4;

// Adds rows of dout[.., cols] to rows of dtable[rows, cols]: `keys` are rows of the table in ascending order, and `order`
// the rows of dout that belong to them, in ascending order for each key. Blocks along x share the rows of the table,
// each taken by the block of its first key; blocks along y share the columns.
template <int N, class T>
__device__ inline void add_rows(const uint32_t* keys, const uint32_t* order, uint64_t n, const T* dout, float* dtable,
                                uint64_t rows, uint64_t cols) {
    for (uint64_t first = blockIdx.x; first < n; first += gridDim.x) {
        uint32_t row = keys[first];
        // All keys from here on are of tokens that are not in the table.
        if (row >= rows) return;
        if (first > 0 && keys[first - 1] == row) continue;
        uint64_t col = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
        for (; col < cols; col += (uint64_t)gridDim.y * blockDim.x * N) {
            float sum[N];
            float* to = dtable + row * cols + col;
            load_vector(to, sum);
            bool more = true;
            for (uint64_t i = first; more; i += AHEAD) {
                float x[AHEAD][N];
                bool same[AHEAD];
#pragma unroll
                for (int a = 0; a < AHEAD; a++) {
                    same[a] = i + a < n && keys[i + a] == row;
                    if (same[a]) load_vector(dout + order[i + a] * cols + col, x[a]);
                }
#pragma unroll
                for (int a = 0; a < AHEAD; a++) {
#pragma unroll
                    for (int k = 0; k < N; k++) {
                        if (same[a]) sum[k] += x[a][k];
                    }
                }
                more = same[AHEAD - 1];
            }
            store_vector(to, sum);
        }
    }
}

#define ADD_ROWS(name, T)                                                                                              \
    KERNEL_OF(128, add_rows_##name)(const uint32_t* keys, const uint32_t* order, uint64_t n, const T* dout,            \
                                    float* dtable, uint64_t rows, uint64_t cols) {                                     \
        add_rows<1>(keys, order, n, dout, dtable, rows, cols);                                                         \
    }                                                                                                                  \
    KERNEL_OF(128, add_rows_##name##_vectors)(const uint32_t* keys, const uint32_t* order, uint64_t n, const T* dout,  \
                                              float* dtable, uint64_t rows, uint64_t cols) {                           \
        add_rows<WIDE<T>>(keys, order, n, dout, dtable, rows, cols);                                                   \
    }

ADD_ROWS(f32, float)
ADD_ROWS(bf16, bf16)
