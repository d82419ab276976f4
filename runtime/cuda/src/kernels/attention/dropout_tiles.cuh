// Dropout in the tensor-core kernels: the weights of a lane that are dropped.

// One bit for each of a lane's weights, of element e of column tile n: bit 4 n + e.
struct Dropped {
    uint32_t bits[ROW_TILES];

    // The factor of a weight: that of kept ones, or 0.
    __device__ float factor(int m, int n, int e, float kept) const {
        return bits[m] >> (4 * n + e) & 1 ? 0.0f : kept;
    }
};

// Draws the words of the warp's weights, of rows from `first_row` and columns from `first_col` on. TRANSPOSED: rows are
// keys, and columns are queries. A lane has the four weights of a draw if positions are aligned as its rows and columns
// are; otherwise it draws for each.
template <bool TRANSPOSED>
__device__ inline Dropped draw_tile(int first_row, int first_col, int batch, int head, const Extras& x) {
    static_assert(COLS <= 64, "32 weights of a lane for each row tile");
    HeadOfDraws of = head_of_draws(batch, head, x);
    bool aligned = x.aligned_queries && x.aligned_keys;
    int lane = threadIdx.x % 32;
    Dropped dropped;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
        int row = first_row + m * 16 + lane / 4;
        uint32_t bits = 0;
#pragma unroll 2
        for (int pair = 0; pair < COLS / 8; pair++) {
            int col = first_col + pair / 2 * 16 + lane % 4 * 2 + pair % 2;
            int query = TRANSPOSED ? col : row, key = TRANSPOSED ? row : col;
            uint4 words;
            if (aligned) {
                words = draw(x.queries.at(query), x.keys.at(key), of, x);
            } else {
                words.x = word_of(query, key, of, x), words.y = word_of(query, key + 8, of, x);
                words.z = word_of(query + 8, key, of, x), words.w = word_of(query + 8, key + 8, of, x);
            }
            // Column tiles 2 (pair / 2) and the next one; elements pair % 2 of the upper rows, and 2 + pair % 2 of the
            // lower ones.
            uint32_t first = words.x < x.threshold, both = words.w < x.threshold;
            uint32_t next_key = words.y < x.threshold, next_query = words.z < x.threshold;
            uint32_t next_tile = TRANSPOSED ? next_query : next_key, next_row = TRANSPOSED ? next_key : next_query;
            bits |= (first | next_row << 2 | next_tile << 4 | both << 6) << (pair / 2 * 8 + pair % 2);
        }
        dropped.bits[m] = bits;
    }
    return dropped;
}
