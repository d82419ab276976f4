// Rotary position embedding (Su et al. 2021), in the half-split layout.

// Heads that a thread rotates by the angles that it has loaded, and threads per block.
constexpr int HEADS = 2, THREADS = 256;

// y[positions, heads, 2 half] from x: rotates every head. Position `p` uses row `p % seq` of the tables [seq, half].
// `sign` is -1 for the inverse rotation.
template <class T, int N>
__device__ inline void rope(const T* x, T* y, const float* cos, const float* sin, float sign, uint64_t positions,
                            uint64_t seq, uint64_t heads, uint64_t half) {
    uint64_t vectors = half / N, shares = (heads + HEADS - 1) / HEADS;
    for (uint64_t i = thread_index(); i < positions * shares * vectors; i += thread_count()) {
        uint64_t share = quotient(i, vectors), j = (i - share * vectors) * N;
        uint64_t position = quotient(share, shares), head = (share - position * shares) * HEADS;
        uint64_t in_table = modulo(position, seq) * half + j, start = (position * heads + head) * 2 * half + j;
        float c[N], s[N], a[HEADS][N], b[HEADS][N];
        load_vector(cos + in_table, c, LoadConstant());
        load_vector(sin + in_table, s, LoadConstant());
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (head + h >= heads) break;
            load_vector(x + start + h * 2 * half, a[h], LoadConstant());
            load_vector(x + start + h * 2 * half + half, b[h], LoadConstant());
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (head + h >= heads) break;
#pragma unroll
            for (int n = 0; n < N; n++) {
                float turned = a[h][n] * c[n] - b[h][n] * (s[n] * sign);
                b[h][n] = b[h][n] * c[n] + a[h][n] * (s[n] * sign);
                a[h][n] = turned;
            }
            store_vector(y + start + h * 2 * half, a[h]);
            store_vector(y + start + h * 2 * half + half, b[h]);
        }
    }
}

#define ROPE(T, NAME, N)                                                                                         \
    KERNEL_OF(THREADS, rope_##NAME)                                                                              \
    (const T* x, T* y, const float* cos, const float* sin, float sign, uint64_t positions, uint64_t seq,         \
     uint64_t heads, uint64_t half) {                                                                            \
        rope<T, N>(x, y, cos, sin, sign, positions, seq, heads, half);                                           \
    }
ROPE(float, f32, WIDE<float>)
ROPE(bf16, bf16, WIDE<bf16>)
ROPE(float, any_f32, 1)
ROPE(bf16, any_bf16, 1)
