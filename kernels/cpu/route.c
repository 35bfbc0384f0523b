// Which experts a row goes to, and with what weights. A few operations for each expert and row: nothing
// beside the experts themselves.
//
// Everything of a row is computed by one worker in one order, so that it depends on that row alone.
#include "kernels/cpu/cpu.h"
#include <math.h>

struct route_job {
    const struct route_args *args;
    const float *logits;
    int32_t *ids;
    float *weights;
};

// The place of the largest of n scores that is not taken, the first of equals.
static int32_t largest(const float *score, const bool *taken, int32_t n) {
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || score[i] > score[best])) best = i;
    return best;
}

// taken: the k largest of n.
static void take(const float *score, int32_t n, int32_t k, bool *taken) {
    for (int32_t i = 0; i < n; i++) taken[i] = false;
    for (int32_t i = 0; i < k; i++) taken[largest(score, taken, n)] = true;
}

// Experts in groups that are not chosen are not chosen, however low a bias makes the scores of the others.
static void limit_groups(const struct route_args *a, float *score) {
    const int32_t size = a->n_experts / a->n_groups;
    float group[ROUTE_MAX_EXPERTS];
    bool taken[ROUTE_MAX_EXPERTS];
    for (int32_t g = 0; g < a->n_groups; g++) {
        const float *s = score + g * size;
        take(s, size, a->group_best < size ? a->group_best : size, taken);
        group[g] = 0;
        for (int32_t i = 0; i < size; i++)
            if (taken[i]) group[g] += s[i];
    }
    take(group, a->n_groups, a->n_chosen_groups, taken);
    for (int32_t e = 0; e < a->n_experts; e++)
        if (!taken[e / size]) score[e] = -INFINITY;
}

// The experts' weights before any are chosen, and the scores to choose by. The softmax keeps the order of the
// logits but may make equals of them: without a bias the logits themselves are compared.
static void score_row(const struct route_args *a, const float *logit, float *weight, float *score) {
    const int32_t n = a->n_experts;
    if (a->kind == ROUTER_SIGMOID) {
        for (int32_t e = 0; e < n; e++) weight[e] = 1 / (1 + expf(-logit[e]));
    } else {
        float top = logit[0], sum = 0;
        for (int32_t e = 1; e < n; e++) top = logit[e] > top ? logit[e] : top;
        for (int32_t e = 0; e < n; e++) sum += weight[e] = expf(logit[e] - top);
        if (a->kind == ROUTER_SOFTMAX_TOPK)
            for (int32_t e = 0; e < n; e++) weight[e] /= sum;
    }
    const bool by_logit = !a->choice_bias && a->kind != ROUTER_SIGMOID;
    for (int32_t e = 0; e < n; e++)
        score[e] = by_logit ? logit[e] : weight[e] + (a->choice_bias ? a->choice_bias[e] : 0);
    if (a->n_groups > 1) limit_groups(a, score);
}

static bool is_broken(const float *logit, int32_t n) {
    bool finite = true;
    for (int32_t e = 0; e < n; e++) finite = finite && isfinite(logit[e]);
    return !finite;
}

static void route_row(const struct route_args *a, const float *logit, int32_t *ids,
                      float *weights) {
    float weight[ROUTE_MAX_EXPERTS], score[ROUTE_MAX_EXPERTS], sum = 0;
    bool taken[ROUTE_MAX_EXPERTS];
    if (is_broken(logit, a->n_experts)) {
        for (int32_t i = 0; i < a->n_chosen; i++) {
            ids[i] = i;
            weights[i] = NAN;
        }
        return;
    }
    score_row(a, logit, weight, score);
    take(score, a->n_experts, a->n_chosen, taken);
    for (int32_t e = 0, i = 0; e < a->n_experts; e++) {
        if (!taken[e]) continue;
        ids[i] = e;
        weights[i++] = weight[e];
        sum += weight[e];
    }
    float by = 1;
    if (a->kind == ROUTER_TOPK_SOFTMAX) by = sum;
    if (a->kind != ROUTER_TOPK_SOFTMAX && a->normalised) by = sum + 1e-20f;
    for (int32_t i = 0; i < a->n_chosen; i++) {
        weights[i] = weights[i] / by * a->factor;
        if (a->expert_scale) weights[i] *= a->expert_scale[ids[i]];
    }
}

static void route_rows(void *ctx, int32_t row, int32_t n_rows) {
    const struct route_job *j = ctx;
    const int64_t n = j->args->n_experts, k = j->args->n_chosen;
    for (int64_t r = row; r < row + n_rows; r++)
        route_row(j->args, j->logits + r * n, j->ids + r * k, j->weights + r * k);
}

int cpu_route(struct backend *be, int32_t *ids, float *weights, const float *logits, int32_t n,
              const struct route_args *args) {
    struct route_job j = {args, logits, ids, weights};
    int64_t work = (int64_t)args->n_experts * (args->n_chosen + 16);
    cpu_for_rows(cpu_of(be), n, work, route_rows, &j);
    return 0;
}
