// parley score: the logits at every position of a token sequence, as a safetensors file.
#include "engine/model/safetensors.h"
#include "ws/cli/cli.h"
#include <math.h>
#include <stdlib.h>

struct settings {
    struct cli_model model;
    char *ids, *logits;
};
static const struct config_key keys[] = {
    {"score", "ids", CONFIG_STRING, offsetof(struct settings, ids), 0, 0, 0, "",
     "Token ids: 1,2,3 (required).", 0},
    {"score", "logits", CONFIG_STRING, offsetof(struct settings, logits), 0, 0, 0, "",
     "Safetensors file to write: `logits` (n_tokens, vocab) f32.", 0},
    CLI_MODEL_KEYS(struct settings, model),
};
static const struct config_table table = {keys, sizeof keys / sizeof *keys};

struct scoring {                       // filled on the engine's thread, read after its last event
    struct safetensors_writer *writer; // NULL: only the sum is wanted
    const int32_t *ids;
    int64_t n_ids, n_vocab;
    double logprob_sum; // of ids[1..] each given what precedes it
    int rc;
    struct err err;
};

static void take_logits(void *ctx, int64_t position, const float *logits) {
    struct scoring *s = ctx;
    if (s->writer && s->rc == 0)
        s->rc = safetensors_write(s->writer, logits, (size_t)s->n_vocab * sizeof *logits, &s->err);
    if (position + 1 >= s->n_ids) return;
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < s->n_vocab; i++) max = fmax(max, (double)logits[i]);
    for (int64_t i = 0; i < s->n_vocab; i++) sum += exp((double)logits[i] - max);
    s->logprob_sum += (double)logits[s->ids[position + 1]] - max - log(sum);
}

static int score(struct engine *e, const struct cli_model *model, struct token_list *ids,
                 struct scoring *s, struct err *err) {
    struct engine_turn turn = {
        .sequence = 1, .turn = 1, .score_only = true, .on_logits = take_logits, .on_logits_ctx = s};
    sampling_params_init(&turn.sampling);
    cli_turn_window(model, e, &turn);
    struct token_list copy;
    token_list_init(&copy);
    if (token_list_append(&copy, ids->ids, ids->len) < 0)
        return err_set(err, E_NOMEM, "no memory for the ids");
    turn.ids = copy.ids;
    turn.n_ids = turn.n_input = (int64_t)copy.len;
    int rc = engine_turn_submit(e, &turn, err);
    if (rc < 0) {
        token_list_release(&copy);
        return rc;
    }
    struct engine_event ev;
    do TRY(engine_wait(e, &ev, -1));
    while (ev.kind != ENGINE_DONE);
    if (ev.finish == FINISH_ERROR)
        return err_set(err, ev.error_code, "%.*s", (int)ev.text_len, ev.text);
    if (s->rc < 0) *err = s->err;
    return s->rc;
}

int main_score(int argc, char **argv) {
    struct settings s;
    struct engine *e = NULL;
    struct token_list ids;
    struct scoring scoring = {0};
    struct err err = {0};
    int n_words,
        rc = cli_parse(&table, &s, argc, argv,
                       "score --model DIR --ids 1,2,3 [--logits OUT.safetensors] [OPTIONS]",
                       "Computes a token sequence and writes the logits at each position.", NULL, 0,
                       &n_words);
    if (rc != CLI_PARSED) return rc == CLI_HELP_SHOWN ? CLI_OK : rc;
    if (!s.model.model[0] || !s.ids[0]) {
        rc = cli_usage(argv[0],
                       s.model.model[0] ? "--ids gives at least one token id" : CLI_NO_MODEL);
        config_release(&table, &s);
        return rc;
    }
    token_list_init(&ids);
    TRY_GOTO(out, cli_parse_ids(s.ids, &ids, &err));
    TRY_GOTO(out, cli_engine_open(&e, &s.model, 1, &err));
    scoring.ids = ids.ids;
    scoring.n_ids = (int64_t)ids.len;
    scoring.n_vocab = engine_info(e)->n_vocab;
    if (s.logits[0]) {
        struct tensor t = {.name = "logits",
                           .dtype = DTYPE_F32,
                           .n_dims = 2,
                           .shape = {scoring.n_ids, scoring.n_vocab},
                           .bytes = ids.len * (size_t)scoring.n_vocab * sizeof(float)};
        TRY_GOTO(out, safetensors_create(&scoring.writer, s.logits, &t, 1, &err));
    }
    TRY_GOTO(out, score(e, &s.model, &ids, &scoring, &err));
    if (scoring.writer) {
        rc = safetensors_finish(scoring.writer, &err);
        scoring.writer = NULL;
        if (rc < 0) goto out;
    }
    printf("{\"tokens\":%lld,\"logprob\":%.9g}\n", (long long)scoring.n_ids, scoring.logprob_sum);
out:
    if (e) engine_close(e);
    if (scoring.writer) safetensors_abort(scoring.writer);
    token_list_release(&ids);
    config_release(&table, &s);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}
