// Common parts of the two backward kernels: weights and score gradients from scores and the statistics of queries.
//
// With weights P, weight gradients dP = dO V^T and D = sum(dO * O) per query (`delta`), the score gradients are dS = P
// * (dP - D) (Dao et al. 2022); the scale of the scores is applied at the end.

// Per query: log-sum-exp in base 2, and delta.
struct QueryNumbers {
    float lse_log2, delta;
};

__device__ inline float weight(float score, float scale_log2, const QueryNumbers& query) {
    return exp2_fast(score * scale_log2 - query.lse_log2);
}

__device__ inline float score_gradient(float weight, float weight_gradient, const QueryNumbers& query) {
    return weight * (weight_gradient - query.delta);
}
