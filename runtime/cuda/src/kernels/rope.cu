// Rotary position embedding (Su et al. 2021), in the half-split and the interleaved layout.

// Heads that a thread rotates by the angles that it has loaded, and threads per block.
constexpr int HEADS = 2, THREADS = 256;

// Sizes of the operands: x and y [positions, heads, 2 half + pass], tables [seq, half].
struct RopeSizes {
    uint64_t positions, seq, heads, half, pass;
};

// Copies elements `j .. j + N` behind the rotated ones of up to HEADS heads.
template <class T, int N>
__device__ inline void pass_through(const T* x, T* y, uint64_t start, uint64_t width, uint64_t heads) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (h >= heads) break;
        float v[N];
        load_vector(x + start + h * width, v, LoadConstant());
        store_vector(y + start + h * width, v);
    }
}

// Rotates N pairs of two vectors that were loaded: (v[0][n], v[1][n]), or with INTERLEAVED neighbors of the first
// followed by the second. Every operation is rounded on its own, as on the host.
template <int N, bool INTERLEAVED>
__device__ inline void rotate(float (&v)[2][N], const float (&c)[N], const float (&s)[N], float sign) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        int i = INTERLEAVED ? 2 * n : n, j = INTERLEAVED ? 2 * n + 1 : N + n;
        float &first = v[i / N][i % N], &second = v[j / N][j % N];
        float sine = __fmul_rn(s[n], sign);
        float turned = __fsub_rn(__fmul_rn(first, c[n]), __fmul_rn(second, sine));
        second = __fadd_rn(__fmul_rn(second, c[n]), __fmul_rn(first, sine));
        first = turned;
    }
}

// Rotates every head. Position `p` uses row `p % seq` of the tables. `sign` is -1 for the inverse rotation.
// The pairs of a head are (j, j + half), or with INTERLEAVED (2j, 2j + 1).
template <class T, int N, bool INTERLEAVED>
__device__ inline void rope(const T* x, T* y, const float* cos, const float* sin, float sign, RopeSizes sizes) {
    uint64_t half = sizes.half, width = 2 * half + sizes.pass;
    uint64_t vectors = (half + sizes.pass) / N, shares = (sizes.heads + HEADS - 1) / HEADS;
    for (uint64_t i = thread_index(); i < sizes.positions * shares * vectors; i += thread_count()) {
        uint64_t share = quotient(i, vectors), j = (i - share * vectors) * N;
        uint64_t position = quotient(share, shares), head = (share - position * shares) * HEADS;
        uint64_t row = (position * sizes.heads + head) * width, heads = sizes.heads - head;
        if (j >= half) {
            pass_through<T, N>(x, y, row + half + j, width, heads);
            continue;
        }
        uint64_t in_table = modulo(position, sizes.seq) * half + j;
        uint64_t start = row + (INTERLEAVED ? 2 * j : j), second = INTERLEAVED ? N : half;
        float c[N], s[N], v[HEADS][2][N];
        load_vector(cos + in_table, c, LoadConstant());
        load_vector(sin + in_table, s, LoadConstant());
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (h >= heads) break;
            load_vector(x + start + h * width, v[h][0], LoadConstant());
            load_vector(x + start + h * width + second, v[h][1], LoadConstant());
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (h >= heads) break;
            rotate<N, INTERLEAVED>(v[h], c, s, sign);
            store_vector(y + start + h * width, v[h][0]);
            store_vector(y + start + h * width + second, v[h][1]);
        }
    }
}

#define ROPE(T, NAME, N, INTERLEAVED)                                                                            \
    KERNEL_OF(THREADS, rope_##NAME)                                                                              \
    (const T* x, T* y, const float* cos, const float* sin, float sign, uint64_t positions, uint64_t seq,         \
     uint64_t heads, uint64_t half, uint64_t pass) {                                                             \
        rope<T, N, INTERLEAVED>(x, y, cos, sin, sign, {positions, seq, heads, half, pass});                      \
    }
ROPE(float, f32, WIDE<float>, false)
ROPE(bf16, bf16, WIDE<bf16>, false)
ROPE(float, any_f32, 1, false)
ROPE(bf16, any_bf16, 1, false)
ROPE(float, interleaved_f32, WIDE<float>, true)
ROPE(bf16, interleaved_bf16, WIDE<bf16>, true)
ROPE(float, interleaved_any_f32, 1, true)
ROPE(bf16, interleaved_any_bf16, 1, true)
