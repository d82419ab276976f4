// Copies to another order of dims. Strides are in elements, or in the units of runs.

// Dims from the outermost to the innermost one.
struct CopyDims {
    uint64_t sizes[5];
    uint64_t src[5];
    uint64_t dst[5];

    // Moves both operands to element `i`.
    template <class U>
    __device__ void seek(uint64_t i, const U*& from, U*& to) const {
#pragma unroll
        for (int dim = 4; dim > 0; dim--) {
            uint64_t rest = quotient(i, sizes[dim]), at = i - rest * sizes[dim];
            from += at * src[dim];
            to += at * dst[dim];
            i = rest;
        }
        from += i * src[0];
        to += i * dst[0];
    }
};

template <class U>
__device__ inline void copy_elements(U* dst, const U* src, const CopyDims& dims, uint64_t n) {
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        const U* from = src;
        U* to = dst;
        dims.seek(i, from, to);
        *to = *from;
    }
}

#define COPY_STRIDED(BYTES, U)                                                                                   \
    KERNEL(copy_strided_##BYTES)(U* dst, const U* src, CopyDims dims, uint64_t n) {                              \
        copy_elements(dst, src, dims, n);                                                                        \
    }
COPY_STRIDED(2, uint16_t)
COPY_STRIDED(4, uint32_t)
COPY_STRIDED(8, uint64_t)
COPY_STRIDED(16, uint4)

// For each element of `others`, a transpose: `rows` are neighbors in the source, `cols` in the destination. Each tile
// is read along rows and written along columns.
template <class U>
__device__ inline void copy_in_tiles(U* dst, const U* src, const CopyDims& others, uint64_t count, uint64_t rows,
                                     uint64_t row_dst, uint64_t cols, uint64_t col_src) {
    constexpr uint32_t TILE = 32;
    __shared__ U tile[TILE][TILE + 1];
    uint32_t lane = threadIdx.x % TILE, warp = threadIdx.x / TILE, warps = blockDim.x / TILE;
    uint64_t across = (cols + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    for (uint64_t index = blockIdx.x; index < count * down * across; index += gridDim.x) {
        uint64_t pair = quotient(index, across), block = quotient(pair, down);
        uint64_t col = (index - pair * across) * TILE, row = (pair - block * down) * TILE;
        const U* from = src;
        U* to = dst;
        others.seek(block, from, to);
        for (uint32_t i = warp; i < TILE && col + i < cols; i += warps) {
            if (row + lane < rows) tile[i][lane] = from[(col + i) * col_src + row + lane];
        }
        __syncthreads();
        for (uint32_t i = warp; i < TILE && row + i < rows; i += warps) {
            if (col + lane < cols) to[(row + i) * row_dst + col + lane] = tile[lane][i];
        }
        __syncthreads();
    }
}

#define COPY_TILES(BYTES, U)                                                                                     \
    KERNEL(copy_tiles_##BYTES)                                                                                   \
    (U* dst, const U* src, CopyDims others, uint64_t count, uint64_t rows, uint64_t row_dst, uint64_t cols,      \
     uint64_t col_src) {                                                                                         \
        copy_in_tiles(dst, src, others, count, rows, row_dst, cols, col_src);                                    \
    }
COPY_TILES(2, uint16_t)
COPY_TILES(4, uint32_t)
COPY_TILES(8, uint64_t)
