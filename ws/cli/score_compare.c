// Compares two models on the same tokens. See score_compare.h.
// Works in steps of as many positions as fit in STEP_BYTES: the reference's logits of a step stay
// in memory until the other model has computed its own. Each engine's cache continues from step to
// step.
#include "ws/cli/score_compare.h"
#include "base/json_form.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_BYTES = 32 << 20, STEP_MAX_TOKENS = 256 };

struct comparing {
    const struct model_settings *model;
    const int32_t *ids; // of the piece
    int64_t n_ids, n_vocab, base, n_step;
    float *kept; // (n_step, n_vocab) the reference's logits from position base on
    int64_t agreeing;
    double kl_sum, kl_max, square_sum, difference_max, variance_sum;
    const char *broken; // the model whose logits are not finite; NULL: none
    struct score_comparison *out;
};

// --- one position

struct distribution {
    const float *logits;
    int64_t best;
    double log_sum; // log of the sum of e^logit
};

static struct distribution distribution(const float *logits, int64_t n) {
    struct distribution d = {logits, 0, 0};
    double sum = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[d.best]) d.best = i;
    double max = logits[d.best];
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - max);
    d.log_sum = max + log(sum);
    return d;
}

static void add_spread(struct comparing *c, const float *logits) {
    double sum = 0, squares = 0, n = (double)c->n_vocab;
    for (int64_t i = 0; i < c->n_vocab; i++) {
        sum += logits[i];
        squares += (double)logits[i] * logits[i];
    }
    c->variance_sum += fmax(0, squares / n - sum / n * (sum / n));
}

static void compare_position(struct comparing *c, int64_t position, const float *x,
                             const float *y) {
    struct distribution p = distribution(x, c->n_vocab), q = distribution(y, c->n_vocab);
    double kl = 0;
    if (!isfinite(p.log_sum) || !isfinite(q.log_sum))
        c->broken = isfinite(p.log_sum) ? "compared" : "reference";
    for (int64_t i = 0; i < c->n_vocab; i++) {
        double lp = (double)x[i] - p.log_sum, lq = (double)y[i] - q.log_sum;
        double difference = fabs((double)x[i] - (double)y[i]);
        kl += exp(lp) * (lp - lq);
        c->square_sum += difference * difference;
        c->difference_max = fmax(c->difference_max, difference);
    }
    add_spread(c, x);
    c->agreeing += p.best == q.best;
    c->kl_sum += kl;
    c->kl_max = fmax(c->kl_max, kl);
    c->out->n_positions++;
    if (position + 1 >= c->n_ids) return;
    int32_t next = c->ids[position + 1];
    c->out->reference.logprob += (double)x[next] - p.log_sum;
    c->out->compared.logprob += (double)y[next] - q.log_sum;
    c->out->n_scored++;
}

// --- the engines

static void keep_logits(void *ctx, int64_t position, const float *logits) {
    struct comparing *c = ctx;
    if (position < c->base || position >= c->base + c->n_step) return;
    memcpy(c->kept + (position - c->base) * c->n_vocab, logits,
           (size_t)c->n_vocab * sizeof *logits);
}

static void compare_logits(void *ctx, int64_t position, const float *logits) {
    struct comparing *c = ctx;
    if (position < c->base || position >= c->base + c->n_step) return;
    compare_position(c, position, c->kept + (position - c->base) * c->n_vocab, logits);
}

// Runs the log up to the step's end through an engine.
static int read_step(struct comparing *c, struct engine *e, uint64_t number,
                     void (*take)(void *ctx, int64_t position, const float *logits),
                     struct err *err) {
    struct engine_turn turn = {.sequence = number,
                               .turn = 1,
                               .score_only = true,
                               .on_logits = take,
                               .on_logits_ctx = c,
                               .n_input = c->n_step};
    sampling_params_init(&turn.sampling);
    TRY(cli_submit(e, c->model, &turn, c->ids, c->base + c->n_step, err));
    return cli_wait_done(e, err);
}

static int compare_piece(struct comparing *c, struct engine *reference, struct engine *compared,
                         int64_t step, uint64_t number, struct err *err) {
    for (c->base = 0; c->base < c->n_ids; c->base += c->n_step) {
        c->n_step = c->n_ids - c->base < step ? c->n_ids - c->base : step;
        TRY(read_step(c, reference, number, keep_logits, err));
        TRY(read_step(c, compared, number, compare_logits, err));
    }
    engine_sequence_release(reference, number);
    engine_sequence_release(compared, number);
    return 0;
}

static void describe(struct score_side *side, const struct engine *e, int64_t n_scored) {
    const struct engine_info *info = engine_info(e);
    side->model = info->model_name;
    side->weight_dtype = info->weight_format;
    side->weight_bytes = info->weight_bytes;
    side->kv_dtype = engine_kv_dtype_name(info->kv_dtype);
    side->kv_bytes_per_token = info->block_bytes / info->block_tokens;
    side->perplexity = n_scored ? exp(-side->logprob / (double)n_scored) : NAN;
}

int score_compare(struct engine *reference, struct engine *compared, const struct model_settings *m,
                  const int32_t *ids, int64_t n_ids, int64_t context_len,
                  struct score_comparison *out, struct err *err) {
    int64_t n_vocab = engine_info(reference)->n_vocab;
    struct comparing c = {.model = m, .n_vocab = n_vocab, .out = out};
    *out = (struct score_comparison){0};
    if (engine_info(compared)->n_vocab != n_vocab)
        return err_set(err, E_INVAL, "the models' vocabularies differ: %lld and %d tokens",
                       (long long)n_vocab, engine_info(compared)->n_vocab);
    int64_t step = STEP_BYTES / (n_vocab * (int64_t)sizeof *c.kept);
    step = step < 1 ? 1 : step > STEP_MAX_TOKENS ? STEP_MAX_TOKENS : step;
    c.kept = malloc((size_t)(step * n_vocab) * sizeof *c.kept);
    if (!c.kept)
        return err_set(err, E_NOMEM, "out of memory for the logits of %lld positions",
                       (long long)step);
    uint64_t number = 0;
    int rc = 0;
    for (int64_t at = 0; at < n_ids && rc == 0; at += context_len) {
        c.ids = ids + at;
        c.n_ids = n_ids - at < context_len ? n_ids - at : context_len;
        rc = compare_piece(&c, reference, compared, step, ++number, err);
        cli_progress("comparing", at + c.n_ids, n_ids);
    }
    free(c.kept);
    if (rc == 0 && c.broken)
        rc = err_set(err, E_INTERNAL, "the logits of the %s model are not finite", c.broken);
    if (rc < 0) return rc;
    double n = (double)out->n_positions;
    out->top1_agreement = (double)c.agreeing / n;
    out->mean_kl = c.kl_sum / n;
    out->max_kl = c.kl_max;
    out->rms_difference = sqrt(c.square_sum / n / (double)n_vocab);
    out->max_difference = c.difference_max;
    out->spread = sqrt(c.variance_sum / n);
    describe(&out->reference, reference, out->n_scored);
    describe(&out->compared, compared, out->n_scored);
    return 0;
}

// --- the report

static void put_side(struct json_writer *w, const char *key, const struct score_side *s) {
    json_form(w,
              "%s:{model:%s,weight_dtype:%s,weight_bytes:%ld,kv_dtype:%s,kv_bytes_per_token:%ld,"
              "logprob:%g,perplexity:%g}",
              key, s->model, s->weight_dtype, s->weight_bytes, s->kv_dtype, s->kv_bytes_per_token,
              s->logprob, s->perplexity);
}

static int print_json(const struct score_comparison *c, struct err *err) {
    struct cli_json j;
    cli_json_begin(&j);
    json_form(&j.w, "positions:%ld,scored:%ld", c->n_positions, c->n_scored);
    put_side(&j.w, "reference", &c->reference);
    put_side(&j.w, "compared", &c->compared);
    json_form(&j.w,
              "top1_agreement:%g,perplexity_ratio:%g,mean_kl:%g,max_kl:%g,"
              "rms_logit_difference:%g,max_logit_difference:%g,logit_spread:%g",
              c->top1_agreement, c->compared.perplexity / c->reference.perplexity, c->mean_kl,
              c->max_kl, c->rms_difference, c->max_difference, c->spread);
    return cli_json_end(&j, err);
}

static void print_side(const char *label, const struct score_side *s) {
    printf("  %-10s %s, %s weights of %.2f GB, %s cache, %.1f kB per token: perplexity %.4f\n",
           label, s->model, s->weight_dtype, (double)s->weight_bytes / 1e9, s->kv_dtype,
           (double)s->kv_bytes_per_token / 1e3, s->perplexity);
}

int score_comparison_print(const struct score_comparison *c, bool json, struct err *err) {
    if (json) return print_json(c, err);
    printf("%lld positions\n", (long long)c->n_positions);
    print_side("reference", &c->reference);
    print_side("compared", &c->compared);
    printf("  top-1 agreement     %.2f %%\n", 100 * c->top1_agreement);
    printf("  perplexity          %+.3f %%\n",
           100 * (c->compared.perplexity / c->reference.perplexity - 1));
    printf("  KL divergence       %.3g nats on average, %.3g at most\n", c->mean_kl, c->max_kl);
    printf("  logits              differ by %.3g (root mean square), %.3g at most; standard "
           "deviation %.3g\n",
           c->rms_difference, c->max_difference, c->spread);
    return 0;
}
