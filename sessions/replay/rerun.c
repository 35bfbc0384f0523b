// One recorded turn, run again. See rerun.h.
#include "sessions/replay/rerun.h"
#include "base/array.h"
#include "base/err.h"
#include "base/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *replay_verdict_name(enum replay_verdict v) {
    static const char *const names[] = {"equal", "empty", "diverged", "failed"};
    return names[v];
}

const char *replay_kind_name(enum replay_kind k) {
    static const char *const names[] = {"token", "logprob", "end"};
    return names[k];
}

// Behind ", 8 threads": their number changes no bit.
static const char *skip_threads(const char *p) {
    size_t digits = strncmp(p, ", ", 2) ? 0 : strspn(p + 2, "0123456789");
    if (!digits || strncmp(p + 2 + digits, " thread", 7)) return p;
    p += 2 + digits + 7;
    return *p == 's' ? p + 1 : p;
}

int replay_instance_differs(const char *recorded, const char *now) {
    const char *settings = strstr(recorded, RECORD_INSTANCE_SEPARATOR);
    const char *settings_now = strstr(now, RECORD_INSTANCE_SEPARATOR);
    const char *end = settings ? settings : recorded + strlen(recorded);
    const char *end_now = settings_now ? settings_now : now + strlen(now);
    const char *p = skip_threads(recorded), *q = skip_threads(now);
    while (p < end && q < end_now && *p == *q) p = skip_threads(p + 1), q = skip_threads(q + 1);
    int differs = p < end || q < end_now ? REPLAY_DEVICE : 0;
    if (settings && (!settings_now || strcmp(settings, settings_now))) differs |= REPLAY_SETTINGS;
    return differs;
}

bool replay_instance_equal(const char *recorded, const char *now) {
    return replay_instance_differs(recorded, now) == 0;
}

const char *replay_or_unknown(const char *recorded) {
    return recorded && recorded[0] ? recorded : "unknown";
}

// --- the log -----------------------------------------------------------------

int replay_log_add(struct replay_log *l, const int32_t *ids, size_t n, struct err *err) {
    if (ARRAY_RESERVE(l->ids, l->cap, l->n + n) < 0)
        return err_set(err, E_NOMEM, "no memory for a log of %zu tokens", l->n + n);
    if (n) memcpy(l->ids + l->n, ids, n * sizeof *ids);
    l->n += n;
    return 0;
}

static int misfit(struct err *err, const struct stored_turn *t, const char *what) {
    return err_set(err, E_CORRUPT, "the record contradicts itself in turn %lld: %s",
                   (long long)t->rec.turn, what);
}

int replay_log_add_turn(struct replay_log *l, const struct stored_turn *t, struct err *err) {
    if (t->rec.log_first < 0)
        return t->tokens.n ? misfit(err, t, "it has an answer but never began") : 0;
    if (t->rec.log_first != (int64_t)l->n)
        return misfit(err, t, "it does not begin where the log ends");
    if (t->rec.n_input != (int64_t)t->rec.n_input_ids)
        return misfit(err, t, "its input has another number of tokens than it says");
    if (t->rec.n_output != (int64_t)t->tokens.n)
        return misfit(err, t, "its answer has another number of tokens than it says");
    TRY(replay_log_add(l, t->rec.input_ids, t->rec.n_input_ids, err));
    return replay_log_add(l, t->tokens.ids, t->tokens.n, err);
}

// --- what the record says ----------------------------------------------------

bool rerun_ended_by_itself(const struct turn_record *t) {
    return !strcmp(t->finish_reason, "eos") || !strcmp(t->finish_reason, "stop") ||
           !strcmp(t->finish_reason, "length");
}

// Which of its turn's answers a recorded one is; 0: the turn's own.
static int32_t branch_of(const struct turn_record *t) {
    cJSON *o = t->branch ? cJSON_Parse(t->branch) : NULL;
    const cJSON *index = cJSON_GetObjectItemCaseSensitive(o, "index");
    int32_t n = cJSON_IsNumber(index) ? index->valueint : 0;
    cJSON_Delete(o);
    return n > 0 && n < BEAMS_MAX ? n : 0;
}

int rerun_sampling(const struct turn_record *t, int32_t n_vocab, struct turn_sampling *out,
                   struct err *err) {
    turn_sampling_release(out);
    memset(out, 0, sizeof *out);
    sampling_params_init(&out->params);
    TRY(sampling_json_apply(out, t->sampling, n_vocab, err));
    out->params.seed = t->seed;
    out->params.has_seed = true;
    out->params.deadline_us = 0;
    return 0;
}

void rerun_bound(struct sampling_params *p, const struct stored_turn *t) {
    if (p->beam_width > 1) return; // the bound is a part of the search
    int64_t most = (int64_t)t->tokens.n + (rerun_ended_by_itself(&t->rec) ? 1 : 0);
    if (most > INT32_MAX) most = INT32_MAX;
    if (p->max_tokens == 0 || p->max_tokens > most) p->max_tokens = (int32_t)most;
}

static int64_t log_end(const struct stored_turn *t) {
    if (t->rec.log_first < 0) return 0;
    return t->rec.log_first + (int64_t)t->rec.n_input_ids + (int64_t)t->tokens.n;
}

static int32_t number_in(const cJSON *o, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsNumber(v) && v->valuedouble > 1 && v->valuedouble <= BEAMS_MAX ? v->valueint : 1;
}

int32_t replay_branches(const struct stored_session *s) {
    int32_t most = 1;
    for (size_t i = 0; i < s->n_turns; i++) {
        const char *sampling = s->turns[i].rec.sampling;
        cJSON *o = sampling ? cJSON_Parse(sampling) : NULL;
        if (number_in(o, "n") > most) most = number_in(o, "n");
        if (number_in(o, "beam_width") > most) most = number_in(o, "beam_width");
        cJSON_Delete(o);
    }
    return most;
}

void replay_window(const struct stored_session *s, bool what_if, struct replay_window *out) {
    int64_t longest = 0; // of the logs of all paths
    for (size_t i = 0; i < s->n_turns; i++)
        if (log_end(&s->turns[i]) > longest) longest = log_end(&s->turns[i]);
    if (replay_branches(s) > 1)
        longest = s->rec.session_len; // the bound of a search is a part of it
    longest += 2;                     // one token more than is on record may be drawn
    *out = (struct replay_window){
        .session_len = s->rec.session_len,
        .memory_len = s->rec.memory_len,
        .sink_len = s->rec.sink_len,
    };
    if (!what_if && out->session_len > longest) out->session_len = longest;
    if (out->memory_len > out->session_len && out->session_len > 0)
        out->memory_len = (int32_t)out->session_len;
    if (out->sink_len >= out->memory_len && s->rec.sink_len < s->rec.memory_len)
        out->sink_len = out->memory_len - 1;
}

// --- comparing ---------------------------------------------------------------

static bool same_bits(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static struct replay_choice choice(const int32_t *ids, const float *logprobs, size_t n, size_t i) {
    if (i >= n) return (struct replay_choice){.id = -1, .logprob = NAN};
    return (struct replay_choice){.id = ids[i], .logprob = logprobs[i]};
}

static void diverge(struct rerun *r, enum replay_kind kind, size_t i) {
    const struct answer *a = &r->answer;
    const struct stored_turn *t = r->stored;
    struct replay_turn *out = &r->found;
    struct replay_divergence d = {
        .kind = kind,
        .index = (int64_t)i,
        .position = t->rec.log_first + t->rec.n_input + (int64_t)i,
        .recorded = choice(t->tokens.ids, t->tokens.logprobs, t->tokens.n, i),
        .now = choice(a->ids, a->logprobs, a->n, i),
        .recorded_id_logprob = NAN,
    };
    if (out->first.index < 0) out->first = d;
    if (kind == REPLAY_TOKEN) out->token = d;
    out->verdict = REPLAY_DIVERGED;
}

static void compare(struct rerun *r) {
    const struct answer *a = &r->answer;
    const struct token_run *k = &r->stored->tokens;
    struct replay_turn *out = &r->found;
    size_t n = a->n < k->n ? a->n : k->n, i = 0;
    for (; i < n && a->ids[i] == k->ids[i]; i++) {
        if (same_bits(a->logprobs[i], k->logprobs[i])) continue;
        if (out->n_logprobs_differ++ == 0) diverge(r, REPLAY_LOGPROB, i);
    }
    out->n_compared = (int64_t)i;
    // A search that was cut short runs to its end again: it has more than the tokens on record.
    bool same_end =
        out->cut_short ? a->n >= k->n : a->n == k->n && !strcmp(out->recorded_finish, out->finish);
    if (i < n)
        diverge(r, REPLAY_TOKEN, i);
    else if (!same_end)
        diverge(r, REPLAY_END, i);
}

// --- stages ------------------------------------------------------------------

void rerun_init(struct rerun *r, const struct engine_info *info, int32_t n_top) {
    *r = (struct rerun){.info = info, .stage = RERUN_OVER};
    answer_init(&r->answer, n_top);
    answer_init(&r->probed, REPLAY_TOP);
}

void rerun_release(struct rerun *r) {
    turn_sampling_release(&r->sampling);
    answer_release(&r->answer);
    answer_release(&r->probed);
}

static void fail(struct rerun *r, const char *why) {
    r->stage = RERUN_OVER;
    r->found.verdict = REPLAY_FAILED;
    snprintf(r->found.why, sizeof r->found.why, "%.*s", REPLAY_WHY_MAX - 1, why);
}

void rerun_begin(struct rerun *r, const struct stored_turn *t, const int32_t *log,
                 const struct replay_window *w, bool probe) {
    r->stored = t;
    r->log = log;
    r->window = *w;
    r->probe = probe;
    r->stage = RERUN_ANSWER;
    r->found = (struct replay_turn){.turn = t->rec.turn,
                                    .verdict = REPLAY_EQUAL,
                                    .cut_short = !rerun_ended_by_itself(&t->rec),
                                    .first = {.index = -1},
                                    .token = {.index = -1}};
    snprintf(r->found.recorded_finish, sizeof r->found.recorded_finish, "%s", t->rec.finish_reason);
    answer_reset(&r->answer);
    // The best beam of a search that was cut short depends on where it was cut.
    // An answer that a client wrote was not sampled.
    if (turn_was_edited(&t->rec) || ((t->tokens.n == 0 || t->rec.branch) && r->found.cut_short)) {
        r->found.verdict = REPLAY_EMPTY;
        r->stage = RERUN_OVER;
    } else if (t->rec.log_first < 0) {
        fail(r, "the record says it ended, but not that it began");
    }
}

int rerun_spec(const struct replay_window *w, const struct sampling_params *p, const int32_t *log,
               size_t n_log, int64_t n_input, struct engine_turn *out, struct err *err) {
    *out = (struct engine_turn){
        .n_ids = (int64_t)n_log,
        .n_input = n_input,
        .memory_len = w->memory_len,
        .sink_len = w->sink_len,
        .session_len = w->session_len,
        .prompt = w->prompt,
        .sampling = *p,
    };
    out->ids = malloc((n_log + 1) * sizeof *out->ids);
    if (!out->ids) return err_set(err, E_NOMEM, "no memory for a log of %zu tokens", n_log);
    if (n_log) memcpy(out->ids, log, n_log * sizeof *out->ids);
    return 0;
}

static int ask_answer(struct rerun *r, struct engine_turn *out, struct err *err) {
    const struct turn_record *t = &r->stored->rec;
    struct sampling_params *p = &r->sampling.params;
    TRY(rerun_sampling(t, r->info->n_vocab, &r->sampling, err));
    int32_t asked = p->max_tokens;
    rerun_bound(p, r->stored);
    r->answer.branch = branch_of(t);
    if (r->answer.n_top && p->beam_width == 1)
        p->top_logprobs = r->answer.n_top; // changes the report, not the draw
    TRY(rerun_spec(&r->window, p, r->log, (size_t)(t->log_first + t->n_input), t->n_input, out,
                   err));
    out->planned_tokens = asked > 0 ? asked : INT32_MAX; // 0: the session bounds it
    out->goes_on = t->kind != INPUT_CONTENT; // as it ran: its text decides about stop strings
    return 0;
}

static struct replay_divergence *probed_at(struct rerun *r) {
    return r->stage == RERUN_FIRST ? &r->found.first : &r->found.token;
}

// Draws one token at the divergence's position for the report: the alternatives and, since a bias
// changes the draw but not the report, the recorded token's own
// log-probability. The ids before that position are the same on both sides, so the recorded log
// leads there.
static int ask_probe(struct rerun *r, struct engine_turn *out, struct err *err) {
    const struct replay_divergence *d = probed_at(r);
    struct sampling_params *p = &r->sampling.params;
    turn_sampling_release(&r->sampling);
    sampling_params_init(p);
    p->temperature = 0;
    p->max_tokens = 1;
    p->top_logprobs = REPLAY_TOP;
    p->has_seed = true;
    if (d->recorded.id >= 0 && d->recorded.id < r->info->n_vocab) {
        p->n_bias = 1;
        p->bias[0] = (struct logit_bias){d->recorded.id, 100};
    }
    answer_reset(&r->probed);
    return rerun_spec(&r->window, p, r->log, (size_t)d->position, 0, out, err);
}

static bool out_of_means(int rc) {
    return rc == E_NOMEM || rc == E_CLOSED;
}

int rerun_next(struct rerun *r, struct engine_turn *out, struct err *err) {
    if (r->stage == RERUN_OVER) return 0;
    int rc = (r->stage == RERUN_ANSWER ? ask_answer : ask_probe)(r, out, err);
    if (rc == 0) return 1;
    if (out_of_means(rc)) return rc;
    fail(r, err->text); // its sampling parameters cannot be read
    err_set(err, 0, "%s", "");
    return 0;
}

static void after_answer(struct rerun *r) {
    const struct answer *a = &r->answer;
    char why[REPLAY_WHY_MAX];
    r->stage = RERUN_OVER;
    if (a->failed) {
        fail(r, "no memory for the answer");
    } else if (a->finish == FINISH_ERROR) {
        snprintf(why, sizeof why, "after %zu tokens: %s", a->n, a->error);
        fail(r, why);
    } else if (a->finish == FINISH_CANCELLED || a->finish == FINISH_SHUTDOWN) {
        fail(r, "the replay was stopped");
    } else {
        snprintf(r->found.finish, sizeof r->found.finish, "%s", engine_finish_name(a->finish));
        compare(r);
        if (r->found.verdict == REPLAY_DIVERGED && r->probe) r->stage = RERUN_FIRST;
    }
}

static void next_probe(struct rerun *r) {
    struct replay_turn *f = &r->found;
    bool both = r->stage == RERUN_FIRST && f->token.index >= 0;
    r->stage = RERUN_OVER;
    if (both && f->token.index == f->first.index)
        f->token = f->first;
    else if (both)
        r->stage = RERUN_TOKEN;
}

static void after_probe(struct rerun *r) {
    const struct answer *a = &r->probed;
    struct replay_divergence *d = probed_at(r);
    if (a->n > 0 && !a->failed) {
        d->n_top = 0;
        while (d->n_top < REPLAY_TOP && a->top[d->n_top].id >= 0) d->n_top++;
        memcpy(d->top, a->top, sizeof d->top);
        if (a->ids[0] == d->recorded.id) d->recorded_id_logprob = (double)a->logprobs[0];
    }
    next_probe(r);
}

int rerun_refused(struct rerun *r, int rc, const struct err *err) {
    if (r->stage != RERUN_ANSWER) { // the verdict stands without it
        next_probe(r);
        return 0;
    }
    if (out_of_means(rc)) return rc;
    fail(r, err->text);
    return 0;
}

bool rerun_take(struct rerun *r, const struct engine_event *e) {
    bool answer = r->stage == RERUN_ANSWER;
    if (!answer_take(answer ? &r->answer : &r->probed, e)) return false;
    (answer ? after_answer : after_probe)(r);
    return true;
}
