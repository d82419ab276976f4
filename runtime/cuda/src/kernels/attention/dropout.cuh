// Dropout of weights: a word of each, drawn where the weight is computed. `WeightDropout` of the backends defines it.

// The counter of a head's draws, but for the positions.
struct HeadOfDraws {
    uint32_t head, row;
};

__device__ inline HeadOfDraws head_of_draws(int batch, int head, const Extras& x) {
    return {(uint32_t)(x.dropout_head + head), x.rows.at(batch)};
}

// Positions that differ by 8 have one unit.
__device__ inline uint32_t unit_of(uint32_t position) { return position / 16 * 8 + position % 8; }

// Words of the weights of two queries and two keys that differ by 8: (query, key), (query, key + 8), (query + 8, key),
// (query + 8, key + 8).
__device__ inline uint4 draw(uint32_t query, uint32_t key, const HeadOfDraws& of, const Extras& x) {
    return philox4x32(x.key, uint4{unit_of(key), unit_of(query), of.head, of.row});
}

// The word of the weight of one query and one key.
__device__ inline uint32_t word_of(int query, int key, const HeadOfDraws& of, const Extras& x) {
    uint32_t q = x.queries.at(query), k = x.keys.at(key);
    uint4 words = draw(q, k, of, x);
    uint32_t early = k & 8 ? words.y : words.x, late = k & 8 ? words.w : words.z;
    return q & 8 ? late : early;
}
