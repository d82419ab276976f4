// Embedding tables, whole or split by rows over ranks.

// Copies rows of out[tokens, units] from table[rows, units], or writes zeros for tokens outside the table; a unit is a
// vector of elements. A row is copied by `width` consecutive threads, a power of two.
template <class Unit>
__device__ inline void gather(const uint32_t* tokens, uint64_t n, const Unit* table, uint64_t first_row, uint64_t rows,
                              Unit* out, uint64_t units, uint32_t width) {
    uint64_t per_pass = thread_count() / width;
    for (uint64_t i = thread_index() / width; i < n; i += per_pass) {
        // A token before the first row wraps to a number beyond the last.
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

// Returns the table row of each token, or `rows` for a token outside the table and for the padding.
KERNEL(local_rows)(const uint32_t* tokens, uint64_t n, uint32_t padding, uint64_t first_row, uint64_t rows,
                   uint32_t* keys) {
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        uint64_t row = tokens[i] - first_row;
        keys[i] = (uint32_t)(row < rows && tokens[i] != padding ? row : rows);
    }
}

// Rows of dout loaded before the first of them is added.
constexpr int AHEAD = 4;
// Rows of dout with one key that one block sums; `SEGMENT` of the launch.
constexpr uint64_t SEGMENT = 64;

// Returns the position of the first `key` in ascending keys, not before `low`; `last` is a position of the key.
__device__ inline uint64_t first_of_run(const uint32_t* keys, uint32_t key, uint64_t low, uint64_t last) {
    while (low < last) {
        uint64_t middle = (low + last) / 2;
        if (keys[middle] == key) {
            last = middle;
        } else {
            low = middle + 1;
        }
    }
    return last;
}

// sum += the rows of dout from `dout` on whose keys, `first` to `end`, are equal to `key`.
template <int N, class T>
__device__ inline void add_run(const uint32_t* keys, const uint32_t* order, uint32_t key, uint64_t first, uint64_t end,
                               const T* dout, uint64_t cols, float (&sum)[N]) {
    bool more = true;
    for (uint64_t i = first; more; i += AHEAD) {
        float x[AHEAD][N];
        bool same[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            same[a] = i + a < end && keys[i + a] == key;
            if (same[a]) load_vector(dout + order[i + a] * cols, x[a]);
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
}

// Adds rows of dout[.., cols] to rows of dtable[rows, cols]: `keys` are table rows in ascending order, and `order` the
// corresponding rows of dout, ascending for each key. The keys of a row are divided into segments of SEGMENT. The first
// segment is added to the table; the sum of every other segment goes to `partials`, which has a row per SEGMENT keys:
// these segments start at least that far apart, so each has a row of its own. Blocks along x divide the segments, each
// processed by the block of its first key; blocks along y divide the columns.
template <int N, class T>
__device__ inline void add_rows(const uint32_t* keys, const uint32_t* order, uint64_t n, const T* dout, float* dtable,
                                float* partials, uint64_t rows, uint64_t cols) {
    for (uint64_t first = blockIdx.x; first < n; first += gridDim.x) {
        uint32_t row = keys[first];
        // All further keys are of tokens outside the table.
        if (row >= rows) return;
        bool is_later = false;
        if (first > 0 && keys[first - 1] == row) {
            if (first < SEGMENT || keys[first - SEGMENT] != row) continue;
            if ((first - first_of_run(keys, row, 0, first)) % SEGMENT != 0) continue;
            is_later = true;
        }
        uint64_t end = first + SEGMENT < n ? first + SEGMENT : n;
        uint64_t col = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
        for (; col < cols; col += (uint64_t)gridDim.y * blockDim.x * N) {
            float sum[N] = {};
            float* to = (is_later ? partials + first / SEGMENT * cols : dtable + row * cols) + col;
            if (!is_later) load_vector(to, sum);
            add_run(keys, order, row, first, end, dout + col, cols, sum);
            store_vector(to, sum);
        }
    }
}

// Adds the partial sums of add_rows to the table: for each row with several segments, in their order. Blocks along x
// divide ranges of SEGMENT keys; a row is processed by the block of the first range that starts inside its run.
template <int N>
__device__ inline void add_segments(const uint32_t* keys, uint64_t n, const float* partials, float* dtable,
                                    uint64_t rows, uint64_t cols) {
    uint64_t segments = (n + SEGMENT - 1) / SEGMENT;
    for (uint64_t segment = blockIdx.x; segment < segments; segment += gridDim.x) {
        uint64_t at = segment * SEGMENT;
        uint32_t row = keys[at];
        if (row >= rows) return;
        if (at > 0 && keys[at - SEGMENT] == row) continue;
        // The second segment, if any.
        uint64_t first = first_of_run(keys, row, at > 0 ? at - SEGMENT + 1 : 0, at) + SEGMENT;
        if (first >= n || keys[first] != row) continue;
        uint64_t col = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
        for (; col < cols; col += (uint64_t)gridDim.y * blockDim.x * N) {
            float sum[N];
            load_vector(dtable + row * cols + col, sum);
            for (uint64_t segment = first; segment < n && keys[segment] == row; segment += SEGMENT) {
                float x[N];
                load_vector(partials + segment / SEGMENT * cols + col, x);
#pragma unroll
                for (int k = 0; k < N; k++) sum[k] += x[k];
            }
            store_vector(dtable + row * cols + col, sum);
        }
    }
}

#define ADD_ROWS(name, T)                                                                                              \
    KERNEL_OF(128, add_rows_##name)(const uint32_t* keys, const uint32_t* order, uint64_t n, const T* dout,            \
                                    float* dtable, float* partials, uint64_t rows, uint64_t cols) {                    \
        add_rows<1>(keys, order, n, dout, dtable, partials, rows, cols);                                               \
    }                                                                                                                  \
    KERNEL_OF(128, add_rows_##name##_vectors)(const uint32_t* keys, const uint32_t* order, uint64_t n, const T* dout,  \
                                              float* dtable, float* partials, uint64_t rows, uint64_t cols) {          \
        add_rows<WIDE<T>>(keys, order, n, dout, dtable, partials, rows, cols);                                         \
    }

ADD_ROWS(f32, float)
ADD_ROWS(bf16, bf16)

KERNEL_OF(128, add_segments)(const uint32_t* keys, uint64_t n, const float* partials, float* dtable, uint64_t rows,
                             uint64_t cols) {
    add_segments<1>(keys, n, partials, dtable, rows, cols);
}
KERNEL_OF(128, add_segments_vectors)(const uint32_t* keys, uint64_t n, const float* partials, float* dtable,
                                     uint64_t rows, uint64_t cols) {
    add_segments<4>(keys, n, partials, dtable, rows, cols);
}
