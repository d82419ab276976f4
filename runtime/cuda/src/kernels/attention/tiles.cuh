// Common parts of the tensor-core attention kernels. A block owns ROWS rows (queries, or keys in `backward_keys.cu`),
// 16 * ROW_TILES of them per warp, and iterates over the other side in steps of COLS columns.
//
// The includer defines HEAD_DIM, VALUE_DIM, WARPS, ROW_TILES, COLS and BLOCKS; and the variant, each 0 or 1: RANGES
// (keys per query instead of `reach`), SOFT_CAP, BIAS, SINKS, DROPOUT, WIDE (results in f32) and ACCUMULATE.
//
// Tiles in shared memory are padded to rows of an odd number of 16-byte units, so that the eight rows of each matrix
// that `ldmatrix_x4` reads are in different banks.

constexpr int THREADS = 32 * WARPS;
constexpr int WARP_ROWS = 16 * ROW_TILES, ROWS = WARPS * WARP_ROWS;
// Elements of a head of queries and keys, or of values, in tiles: padded with zeros to a multiple of 16.
constexpr int padded(int dim) { return (dim + 15) / 16 * 16; }
constexpr int stride_of(int dim) { return padded(dim) + 8; }
constexpr int STRIDE = stride_of(HEAD_DIM), VALUE_STRIDE = stride_of(VALUE_DIM);

#if WIDE
typedef float Result;
#else
typedef bf16 Result;
#endif

// Fragments of f32 sums: lane l has elements (l / 4 + 8 (e / 2), 2 (l % 4) + e % 2) of each 16 x 8 tile, e = 0..4.
template <int N>
struct Sums {
    float at[ROW_TILES][N / 8][4];

    template <class Change>
    __device__ void each(Change change) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) change(at[m][n][e]);
    }
    __device__ void clear() {
        each([](float& x) { x = 0; });
    }
    __device__ void scale(float factor) {
        each([=](float& x) { x *= factor; });
    }
};

// Multiplies every row by the factor of its row tile and half.
template <int N>
__device__ inline void scale_rows(Sums<N>& sums, const float (&factor)[ROW_TILES][2]) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums.at[m][n][e] *= factor[m][e / 2];
}

// Rows and head of a block; blocks of one head are consecutive.
struct WorkTile {
    int batch, head, first_row;
};

// Returns the warp index; the shuffle tells the compiler that it is uniform within the warp.
__device__ inline int warp_index() { return __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0); }

__device__ inline WorkTile work_tile(int tiles, int heads, bool backwards) {
    int tile = blockIdx.x % tiles, head = blockIdx.x / tiles % heads, batch = blockIdx.x / tiles / heads;
    return {batch, head, (backwards ? tiles - 1 - tile : tile) * ROWS};
}

// Rows of one head in a tensor [batch, pitch, heads, SIZE]; `len` positions of each sample are used.
template <int SIZE, class Pointer>
struct Head {
    Pointer tensor;
    uint64_t first, stride;
    int len;

    __device__ Head(Pointer tensor, int batch, int head, int len, int pitch, int heads)
        : tensor(tensor),
          first(((uint64_t)batch * pitch * heads + head) * SIZE),
          stride((uint64_t)heads * SIZE),
          len(len) {}

    __device__ Pointer at(int row, int d) const { return tensor + (first + row * stride + d); }
};

template <int SIZE, class Pointer>
__device__ inline Head<SIZE, Pointer> query_rows(Pointer tensor, int batch, int head, const Sizes& s) {
    return {tensor, batch, head, s.q_len, s.q_pitch, s.heads};
}

template <int SIZE, class Pointer>
__device__ inline Head<SIZE, Pointer> key_rows(Pointer tensor, int batch, int kv_head, const Sizes& s) {
    return {tensor, batch, kv_head, s.kv_len, s.kv_pitch, s.kv_heads};
}

// Starts copying N rows from `row` on to a tile, with zeros beyond the last row and beyond SIZE.
template <int N, int SIZE>
__device__ inline void load_tile(bf16* tile, const Head<SIZE, const bf16*>& head, int row) {
    constexpr int UNITS = padded(SIZE) / 8, DOWN = THREADS / UNITS, STRIDE = stride_of(SIZE);
    if constexpr (THREADS % UNITS == 0 && N % DOWN == 0) {
        // Every thread stays in its column and advances by whole rows.
        int d = threadIdx.x % UNITS * 8;
        row += threadIdx.x / UNITS;
        tile += threadIdx.x / UNITS * STRIDE + d;
        const bf16* from = head.at(row, d);
#pragma unroll
        for (int i = 0; i < N / DOWN; i++) {
            cp_async_16(tile + i * DOWN * STRIDE, from, row + i * DOWN < head.len && d < SIZE ? 16 : 0);
            from += DOWN * head.stride;
        }
    } else {
        for (int unit = threadIdx.x; unit < N * UNITS; unit += THREADS) {
            int r = unit / UNITS, d = unit % UNITS * 8;
            cp_async_16(tile + r * STRIDE + d, head.at(row + r, d), row + r < head.len && d < SIZE ? 16 : 0);
        }
    }
}

// Starts copying N numbers of rows from `row` on, with zeros beyond the last.
template <int N, class T>
__device__ inline void load_numbers(T* numbers, const T* of_head, int row, int len) {
    static_assert(N <= THREADS, "one number per thread");
    int i = threadIdx.x;
    if (i < N) cp_async_4(numbers + i, of_head + row + i, row + i < len ? 4 : 0);
}

// Waits for all copies that this thread has started.
__device__ inline void wait_for_copies() {
    cp_async_commit();
    cp_async_wait<0>();
}

// Two matmuls with a common input, 16 columns in total.
__device__ inline void multiply_add(float (&left)[4], float (&right)[4], const uint32_t (&rows)[4],
                                    const uint32_t (&cols)[4]) {
    mma_m16n8k16(left, rows, {cols[0], cols[1]});
    mma_m16n8k16(right, rows, {cols[2], cols[3]});
}

// sums[rows, N] += a * b^T, where `a` is the warp's rows and `b` is N rows of a tile of SIZE columns.
template <int SIZE, int N>
__device__ inline void multiply_transposed(Sums<N>& sums, const bf16* a, const bf16* b) {
    // Loads of one step overlap with the other without exceeding the registers.
    constexpr int DIM = padded(SIZE), STRIDE = stride_of(SIZE), K_UNROLL = DIM <= 64 ? 2 : 4;
    int lane = threadIdx.x % 32;
    a += lane % 16 * STRIDE + lane / 16 * 8;
    b += (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll K_UNROLL
    for (int k = 0; k < DIM; k += 16) {
        uint32_t rows[ROW_TILES][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) ldmatrix_x4(rows[m], a + m * 16 * STRIDE + k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t cols[4];
            ldmatrix_x4(cols, b + n * 16 * STRIDE + k);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) multiply_add(sums.at[m][2 * n], sums.at[m][2 * n + 1], rows[m], cols);
        }
    }
}

// sums[rows, SIZE] += weights[rows, N] * b, where `b` is N rows of a tile of SIZE columns. The layout of sums is that
// of the next matmul's left input: weights are rounded to bf16 in place.
template <int SIZE, int N>
__device__ inline void multiply(Sums<padded(SIZE)>& sums, const Sums<N>& weights, const bf16* b) {
    constexpr int DIM = padded(SIZE), STRIDE = stride_of(SIZE);
    int lane = threadIdx.x % 32;
    b += lane % 16 * STRIDE + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t rows[ROW_TILES][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* pair = weights.at[m][2 * k + i / 2] + i % 2 * 2;
                rows[m][i] = bf16_pair(pair[0], pair[1]);
            }
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            uint32_t cols[4];
            ldmatrix_x4_trans(cols, b + k * 16 * STRIDE + d * 16);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) multiply_add(sums.at[m][2 * d], sums.at[m][2 * d + 1], rows[m], cols);
        }
    }
}

// Writes the warp's rows through its rows of a tile that no other warp uses any more.
template <int SIZE>
__device__ inline void store_through_tile(const Head<SIZE, bf16*>& head, int row, const Sums<padded(SIZE)>& sums,
                                          bf16* tile) {
    constexpr int DIM = padded(SIZE), STRIDE = stride_of(SIZE);
    int lane = threadIdx.x % 32;
    bf16* of_lane = tile + lane / 4 * STRIDE + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                *(uint32_t*)(of_lane + (m * 16 + i * 8) * STRIDE + n * 8) =
                    bf16_pair(sums.at[m][n][2 * i], sums.at[m][n][2 * i + 1]);
    __syncwarp();
    constexpr int UNITS = SIZE / 8;
    for (int unit = lane; unit < WARP_ROWS * UNITS; unit += 32) {
        int r = unit / UNITS, d = unit % UNITS * 8;
        if (row + r < head.len)
            *(uint4*)(head.at(row + r, d)) = *(const uint4*)(tile + r * STRIDE + d);
    }
}

__device__ inline float2 load_pair(const float* from) { return *(const float2*)from; }
__device__ inline float2 load_pair(const bf16* from) {
    float2 pair;
    widen_pair(*(const uint32_t*)from, pair.x, pair.y);
    return pair;
}
__device__ inline void store_pair(float* to, float2 pair) { *(float2*)to = pair; }
__device__ inline void store_pair(bf16* to, float2 pair) { *(uint32_t*)to = bf16_pair(pair.x, pair.y); }

// Writes or accumulates the warp's rows, from registers.
template <int SIZE, class T>
__device__ inline void store_pairs(const Head<SIZE, T*>& head, int row, const Sums<padded(SIZE)>& sums) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int r = row + m * 16 + i * 8 + lane / 4;
            if (r >= head.len) continue;
            T* to = head.at(r, lane % 4 * 2);
#pragma unroll
            for (int n = 0; n < SIZE / 8; n++) {
                float2 pair = {sums.at[m][n][2 * i], sums.at[m][n][2 * i + 1]};
                if constexpr (ACCUMULATE) {
                    float2 before = load_pair(to + n * 8);
                    pair.x += before.x, pair.y += before.y;
                }
                store_pair(to + n * 8, pair);
            }
        }
}

template <int SIZE, class T>
__device__ inline void store_rows(const Head<SIZE, T*>& head, int row, const Sums<padded(SIZE)>& sums, bf16* tile) {
    if constexpr (sizeof(T) == sizeof(bf16) && !ACCUMULATE)
        store_through_tile(head, row, sums, tile);
    else
        store_pairs(head, row, sums);
}
