// Common parts of the attention kernels without tensor cores.
//
// A block of TILE x TILE threads owns TILE rows and iterates over the other side in tiles of as many columns: thread
// (i, j) computes the score of row i and column j, and every TILE-th element of the sums of row i. Half a warp
// processes a row.

constexpr int TILE = 16, THREADS = TILE * TILE;

// Rows in shared memory start in different banks.
__device__ inline int stride_of(int dim) { return dim | 1; }

// Tile and head of a block; blocks of one head are consecutive.
struct WorkTile {
    int batch, head, first_row;
};

__device__ inline WorkTile work_tile(int rows, int heads) {
    int tiles = (rows + TILE - 1) / TILE;
    return {(int)(blockIdx.x / tiles / heads), (int)(blockIdx.x / tiles % heads), (int)(blockIdx.x % tiles) * TILE};
}

// One head of a tensor [batch, pitch, heads, dim]; `len` positions of each sample are used.
template <class Element>
struct Head {
    Element* first;
    uint64_t stride;
    int len, dim;

    __device__ Head(Element* tensor, int batch, int head, int len, int pitch, int heads, int dim)
        : first(tensor + ((uint64_t)batch * pitch * heads + head) * dim),
          stride((uint64_t)heads * dim),
          len(len),
          dim(dim) {}

    // Loads a tile of rows from `row` on; zeros beyond the last.
    __device__ void load(float* tile, int row) const {
        for (int i = threadIdx.x; i < TILE * dim; i += THREADS) {
            int r = i / dim, d = i % dim;
            tile[r * stride_of(dim) + d] = row + r < len ? widen(first[(row + r) * stride + d]) : 0;
        }
    }
};

template <class Element>
__device__ inline Head<Element> query_rows(Element* tensor, const WorkTile& at, int head, const Sizes& s, int dim) {
    return {tensor, at.batch, head, s.q_len, s.q_pitch, s.heads, dim};
}

template <class Element>
__device__ inline Head<Element> key_rows(Element* tensor, const WorkTile& at, int kv_head, const Sizes& s, int dim) {
    return {tensor, at.batch, kv_head, s.kv_len, s.kv_pitch, s.kv_heads, dim};
}

// The sum of short chains, which have smaller rounding errors than a long one.
__device__ inline float dot(const float* a, const float* b, int n) {
    constexpr int CHAIN = 16;
    float sum = 0;
    for (int first = 0; first < n; first += CHAIN) {
        float part = 0;
        for (int d = first; d < min(first + CHAIN, n); d++) part += a[d] * b[d];
        sum += part;
    }
    return sum;
}

// The keys that a query attends to: from `first` to before `end`.
struct Seen {
    int first, end;

    __device__ bool has(int key) const { return first <= key && key < end; }
};

__device__ inline Seen seen_by(int query, int batch, const Sizes& s, const Extras& x) {
    if (query >= s.q_len) return {0, 0};
    if (!x.first) return {0, min(s.kv_len, query + s.reach + 1)};
    uint64_t at = (uint64_t)batch * s.q_pitch + query;
    return {x.first[at], x.end[at]};
}

// The keys that a tile of queries attends to, from a whole tile on.
__device__ inline Seen seen_by_tile(const WorkTile& at, const Sizes& s, const Extras& x) {
    int last = min(at.first_row + TILE, s.q_len) - 1;
    return {seen_by(at.first_row, at.batch, s, x).first / TILE * TILE, seen_by(last, at.batch, s, x).end};
}

// A score, and its derivative by the scaled dot product of query and key.
struct Score {
    float value, slope;
};

__device__ inline Score score_of(float product, int head, int query, int key, const Sizes& s, const Extras& x) {
    Score score = {product * s.scale, 1};
    if (x.soft_cap > 0) {
        float part = tanhf(score.value / x.soft_cap);
        score = {x.soft_cap * part, 1 - part * part};
    }
    if (x.bias) score.value += x.bias[(uint64_t)head * x.distances + x.distance(query, key)];
    return score;
}

// The factor of a weight by dropout.
__device__ inline float factor_of(int batch, int head, int query, int key, const Extras& x) {
    return word_of(query, key, head_of_draws(batch, head, x), x) < x.threshold ? 0.0f : x.kept;
}

// Weight of a score, and the gradient of the score.
struct Gradients {
    float weight, score;
};

__device__ inline Gradients gradients(float score, float weight_gradient, float lse, float delta, bool seen) {
    // A row whose scores are all -INFINITY, by a bias, has no weights.
    if (!seen || lse == -INFINITY) return {0, 0};
    float weight = expf(score - lse);
    return {weight, weight * (weight_gradient - delta)};
}
