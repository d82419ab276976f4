// Weights and auxiliary losses of routers (MoE). A warp computes one token.

// Scores of a token's experts up to a factor that all have in common, so that some do not underflow.
struct Scores {
    bool sigmoid;
    // Logarithm of the divisor of scores.
    float base;

    // For experts the largest of whose logits is `max`: the largest score is 1/2 to 1. The sigmoid is about e^x for
    // negative x, and about 1 for positive x.
    __device__ static Scores up_to(bool sigmoid, float max) {
        return Scores{sigmoid, sigmoid ? fminf(max, 0.0f) : max};
    }

    __device__ float get(float logit) const {
        if (!sigmoid) return expf(logit - base);
        return (logit > 0.0f ? 1.0f : expf(logit - base)) / (1.0f + expf(-fabsf(logit)));
    }

    // The derivative of a score by its logit, divided by the score.
    __device__ float slope(float logit) const {
        if (!sigmoid) return 1.0f;
        // 1 minus the sigmoid, without cancellation.
        float small = expf(-fabsf(logit));
        return (logit > 0.0f ? small : 1.0f) / (1.0f + small);
    }
};

__device__ inline float largest(const float* logits, uint32_t experts) {
    float max = -INFINITY;
    for (uint32_t e = threadIdx.x % 32; e < experts; e += 32) max = Max()(max, logits[e]);
    return warp_reduce(max, Max());
}

// The sum of the `top` largest scores, the largest first.
__device__ inline float sum_of_largest(const float* scores, uint32_t len, uint32_t top) {
    uint64_t last = ~0ull;
    float sum = 0.0f;
    for (uint32_t i = 0; i < top; i++) {
        // Below every rank.
        uint64_t best = 0;
        for (uint32_t col = 0; col < len; col++) {
            uint64_t rank = rank_of(scores[col], col);
            if (rank < last && rank > best) best = rank;
        }
        last = best;
        sum += scores[0xffffffffu - (uint32_t)last];
    }
    return sum;
}

// Scores that a token chooses experts by: score and bias, and negative infinity outside of the `best` groups. Lane g
// adds up the score of group g.
KERNEL(choice_scores)(const float* logits, const float* bias, uint64_t tokens, uint32_t experts, uint32_t sigmoid,
                      uint32_t groups, uint32_t best, uint32_t top, float* scores) {
    uint32_t lane = threadIdx.x % 32, size = experts / groups;
    for (uint64_t token = thread_index() / 32; token < tokens; token += thread_count() / 32) {
        const float* here = logits + token * experts;
        float* out = scores + token * experts;
        Scores of_logits = Scores{true, 0.0f};
        float sum = 1.0f;
        if (sigmoid == 0) {
            of_logits = Scores::up_to(false, largest(here, experts));
            float part = 0.0f;
            for (uint32_t e = lane; e < experts; e += 32) part += of_logits.get(here[e]);
            sum = warp_reduce(part, Sum());
        }
        for (uint32_t e = lane; e < experts; e += 32) {
            out[e] = of_logits.get(here[e]) / sum + (bias == nullptr ? 0.0f : bias[e]);
        }
        if (best == groups) continue;
        // The scores of a group were written by several lanes.
        __syncwarp();
        float of_group = lane < groups ? sum_of_largest(out + lane * size, size, top) : 0.0f;
        uint64_t rank = rank_of(of_group, lane);
        uint32_t better = 0;
        for (uint32_t other = 0; other < groups; other++) {
            uint64_t other_rank = __shfl_sync(0xffffffffu, rank, other);
            better += other_rank > rank ? 1 : 0;
        }
        uint32_t chosen = __ballot_sync(0xffffffffu, lane < groups && better < best);
        for (uint32_t e = lane; e < experts; e += 32) {
            if ((chosen >> (e / size) & 1) == 0) out[e] = -INFINITY;
        }
        __syncwarp();
    }
}

// Fields of RouterOptions.
struct Options {
    bool sigmoid, normalize;
    float scale, sum_epsilon;

    // Weights are the scores of choices divided by a sum, except unnormalized sigmoids.
    __device__ bool has_sum() const { return !sigmoid || normalize; }
};

// The choice of each of the first k lanes, and its weight for a scale of 1; other lanes have weight 0.
struct Choice {
    bool exists;
    uint32_t expert;
    float logit, weight;
    Scores scores;
    // The sum of scores, their divisor.
    float sum;

    __device__ Choice(const Options& options, const float* logits, const uint32_t* choices, uint32_t experts,
                      uint32_t k) {
        uint32_t lane = threadIdx.x % 32;
        exists = lane < k;
        expert = exists ? choices[lane] : 0;
        logit = exists ? logits[expert] : -INFINITY;
        scores = Scores{options.sigmoid, 0.0f};
        if (options.has_sum()) {
            float max = options.normalize ? warp_reduce(logit, Max()) : largest(logits, experts);
            scores = Scores::up_to(options.sigmoid, max);
        }
        weight = exists ? scores.get(logit) : 0.0f;
        sum = 1.0f;
        if (options.has_sum()) {
            float part = weight;
            if (!options.normalize) {
                part = 0.0f;
                for (uint32_t e = lane; e < experts; e += 32) part += scores.get(logits[e]);
            }
            sum = warp_reduce(part, Sum());
            if (options.sigmoid && options.sum_epsilon > 0.0f) sum += options.sum_epsilon * expf(-scores.base);
        }
        weight /= sum;
    }
};

KERNEL(router_weights)(const float* logits, const uint32_t* choices, uint64_t tokens, uint32_t experts, uint32_t k,
                       uint32_t sigmoid, uint32_t normalize, float scale, float sum_epsilon, float* weights) {
    Options options{sigmoid != 0, normalize != 0, scale, sum_epsilon};
    for (uint64_t token = thread_index() / 32; token < tokens; token += thread_count() / 32) {
        Choice choice(options, logits + token * experts, choices + token * k, experts, k);
        if (choice.exists) weights[token * k + threadIdx.x % 32] = scale * choice.weight;
    }
}

KERNEL(router_weights_backward)(const float* logits, const uint32_t* choices, const float* dweights, uint64_t tokens,
                                uint32_t experts, uint32_t k, uint32_t sigmoid, uint32_t normalize, float scale,
                                float sum_epsilon, float* dlogits) {
    Options options{sigmoid != 0, normalize != 0, scale, sum_epsilon};
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t token = thread_index() / 32; token < tokens; token += thread_count() / 32) {
        const float* here = logits + token * experts;
        float* out = dlogits + token * experts;
        Choice choice(options, here, choices + token * k, experts, k);
        float grad = choice.exists ? scale * dweights[token * k + lane] : 0.0f;
        // Each logit reduces all weights through the sum, if they are divided by one.
        float reduction = options.has_sum() ? warp_reduce(choice.weight * grad, Sum()) : 0.0f;
        // Logits that are not in the sum have no effect unless they are chosen.
        bool all_in_sum = options.has_sum() && !options.normalize;
        for (uint32_t e = lane; e < experts; e += 32) {
            out[e] = all_in_sum ? -reduction * (choice.scores.get(here[e]) / choice.sum) : 0.0f;
        }
        // Another lane may have written the element of this lane's choice.
        __syncwarp();
        if (choice.exists) out[choice.expert] = choice.weight * choice.scores.slope(choice.logit) * (grad - reduction);
    }
}

// Sums over the experts of a token.
struct Sums {
    // The largest logit, and the sum of exponentials relative to it.
    float max, exps;
    Scores scores;
    float sum;
    // Mean of the factors, weighted by the probabilities.
    float mean_factor;

    __device__ Sums(bool sigmoid, const float* logits, const float* factors, uint32_t experts) {
        max = largest(logits, experts);
        scores = Scores::up_to(sigmoid, max);
        float all_exps = 0.0f, all_scores = 0.0f, weighted = 0.0f;
        for (uint32_t e = threadIdx.x % 32; e < experts; e += 32) {
            float score = scores.get(logits[e]);
            all_exps += expf(logits[e] - max);
            all_scores += score;
            weighted += factors[e] * score;
        }
        exps = warp_reduce(all_exps, Sum());
        sum = warp_reduce(all_scores, Sum());
        mean_factor = warp_reduce(weighted, Sum()) / sum;
    }

    __device__ float log_sum_exp() const { return max + logf(exps); }
};

template <class T>
__device__ inline void auxiliary_loss(const float* logits, const float* factors, uint64_t tokens, uint32_t experts,
                                      bool sigmoid, float z, T* out) {
    for (uint64_t token = thread_index() / 32; token < tokens; token += thread_count() / 32) {
        Sums sums(sigmoid, logits + token * experts, factors, experts);
        float lse = sums.log_sum_exp();
        if (threadIdx.x % 32 == 0) store(out + token, z * (lse * lse) + sums.mean_factor);
    }
}

template <class T>
__device__ inline void auxiliary_loss_backward(const float* logits, const float* factors, const T* dout,
                                               uint64_t tokens, uint32_t experts, bool sigmoid, float z,
                                               float* dlogits) {
    for (uint64_t token = thread_index() / 32; token < tokens; token += thread_count() / 32) {
        const float* here = logits + token * experts;
        Sums sums(sigmoid, here, factors, experts);
        float grad = widen(dout[token]), of_softmax = 2.0f * z * sums.log_sum_exp();
        for (uint32_t e = threadIdx.x % 32; e < experts; e += 32) {
            float softmax = expf(here[e] - sums.max) / sums.exps;
            float probability = sums.scores.get(here[e]) / sums.sum;
            float of_factor = probability * sums.scores.slope(here[e]) * (factors[e] - sums.mean_factor);
            dlogits[token * experts + e] = grad * (of_softmax * softmax + of_factor);
        }
    }
}

#define AUXILIARY_LOSS(name, T)                                                                                        \
    KERNEL(router_auxiliary_loss_##name)(const float* logits, const float* factors, uint64_t tokens, uint32_t experts, \
                                         uint32_t sigmoid, float z, T* out) {                                          \
        auxiliary_loss(logits, factors, tokens, experts, sigmoid != 0, z, out);                                        \
    }                                                                                                                  \
    KERNEL(router_auxiliary_loss_backward_##name)(const float* logits, const float* factors, const T* dout,            \
                                                  uint64_t tokens, uint32_t experts, uint32_t sigmoid, float z,        \
                                                  float* dlogits) {                                                    \
        auxiliary_loss_backward(logits, factors, dout, tokens, experts, sigmoid != 0, z, dlogits);                     \
    }

AUXILIARY_LOSS(f32, float)
AUXILIARY_LOSS(bf16, bf16)
