// Concatenation and splitting of rows.

// Layout of parts: part `p` has the units of every row from the end of the part before it to `ends[p]`.
struct RowParts {
    static constexpr uint32_t MOST = 32;
    uint64_t count;
    uint64_t ends[MOST];
    uint64_t at[MOST];
};

// Calls f(unit of the whole, unit of its part) for all units of `rows` rows, whose parts start `stride` units apart.
template <class U, class F>
__device__ inline void each_unit(U* whole, uint64_t rows, uint64_t stride, const RowParts& parts, F f) {
    uint64_t width = parts.ends[parts.count - 1];
    for (uint64_t i = thread_index(); i < rows * width; i += thread_count()) {
        uint64_t row = quotient(i, width), place = i - row * width;
        uint32_t p = 0;
        while (place >= parts.ends[p]) p++;
        uint64_t start = p == 0 ? 0 : parts.ends[p - 1], len = parts.ends[p] - start;
        f(whole[row * stride + place], ((U*)parts.at[p])[row * len + (place - start)]);
    }
}

#define ROWS(BYTES, U)                                                                                           \
    KERNEL(join_rows_##BYTES)(U* whole, uint64_t rows, uint64_t stride, RowParts parts) {                        \
        each_unit(whole, rows, stride, parts, [](U& whole, const U& part) { whole = part; });                    \
    }                                                                                                            \
    KERNEL(split_rows_##BYTES)(U* whole, uint64_t rows, uint64_t stride, RowParts parts) {                       \
        each_unit(whole, rows, stride, parts, [](const U& whole, U& part) { part = whole; });                    \
    }
ROWS(2, uint16_t)
ROWS(4, uint32_t)
ROWS(8, uint64_t)
ROWS(16, uint4)
