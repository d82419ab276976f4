// What the two backward kernels share: weights and gradients of scores, from scores and the statistics of queries.
//
// With P the weights, dP = dO V^T the gradients of weights and D = sum(dO * O) per query (`delta`), the gradients of scores
// are dS = P * (dP - D) (Dao et al. 2022); the factor on the scores is left to the end.

// Of a query: its log-sum-exp in base 2, and delta.
struct QueryNumbers {
    float lse_log2, delta;
};

__device__ inline float weight(float score, float scale_log2, const QueryNumbers& query) {
    return exp2_fast(score * scale_log2 - query.lse_log2);
}

__device__ inline float score_gradient(float weight, float weight_gradient, const QueryNumbers& query) {
    return weight * (weight_gradient - query.delta);
}
