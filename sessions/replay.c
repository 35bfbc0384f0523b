// Replay and what-if. See replay.h.
#include "sessions/replay.h"
#include "base/err.h"
#include "base/json.h"
#include "sessions/sampling_json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEQUENCE 1
#define TEXT_MAX ((size_t)1 << 28)

// What the engine says to one turn.
struct answer {
    int32_t *ids;
    float *logprobs;
    size_t n, cap;
    struct buf text;
    enum engine_finish finish;
    char error[ENGINE_EVENT_TEXT + 1];
    int32_t n_top; // of the last token
    struct engine_alternative top[REPLAY_TOP];
};

struct replay {
    struct engine *engine;
    const struct engine_info *info;
    const struct stored_session *stored;
    struct replay_window window;
    int32_t *log; // (n_log) as recorded; after replay_what_if from there on as it is now
    size_t n_log, cap_log;
    uint64_t n_turns; // asked of the engine
    struct answer answer;
    struct turn_sampling sampling; // too large for a stack
    // What-if.
    char *changes;
    size_t next, from;
    bool ended;
    char why[REPLAY_WHY_MAX];
};

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

bool replay_instance_equal(const char *recorded, const char *now) {
    size_t separator = strlen(RECORD_INSTANCE_SEPARATOR);
    for (;; recorded++, now++) {
        recorded = skip_threads(recorded);
        now = skip_threads(now);
        if (!*recorded) return !*now || !strncmp(now, RECORD_INSTANCE_SEPARATOR, separator);
        if (*recorded != *now) return false;
    }
}

void replay_window(const struct stored_session *s, bool what_if, struct replay_window *out) {
    int64_t longest = 2; // one token more than is on record may be drawn
    for (size_t i = 0; i < s->n_turns; i++)
        longest += (int64_t)s->turns[i].rec.n_input_ids + (int64_t)s->turns[i].tokens.n;
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

// --- the log -----------------------------------------------------------------

static int log_add(struct replay *r, const int32_t *ids, size_t n, struct err *err) {
    if (n > r->cap_log - r->n_log) {
        size_t cap = (r->n_log + n) * 2;
        int32_t *grown = realloc(r->log, cap * sizeof *grown);
        if (!grown) return err_set(err, E_NOMEM, "no memory for a log of %zu tokens", cap);
        r->log = grown;
        r->cap_log = cap;
    }
    if (n) memcpy(r->log + r->n_log, ids, n * sizeof *ids);
    r->n_log += n;
    return 0;
}

static int misfit(struct err *err, size_t turn, const char *what) {
    return err_set(err, E_CORRUPT, "the record contradicts itself in turn %zu: %s", turn, what);
}

static int log_add_turn(struct replay *r, size_t i, struct err *err) {
    const struct stored_turn *t = &r->stored->turns[i];
    if (t->rec.log_first < 0)
        return t->tokens.n ? misfit(err, i, "it has an answer but never began") : 0;
    if (t->rec.log_first != (int64_t)r->n_log)
        return misfit(err, i, "it does not begin where the log ends");
    if (t->rec.n_input != (int64_t)t->rec.n_input_ids)
        return misfit(err, i, "its input has another number of tokens than it says");
    if (t->rec.n_output != (int64_t)t->tokens.n)
        return misfit(err, i, "its answer has another number of tokens than it says");
    TRY(log_add(r, t->rec.input_ids, t->rec.n_input_ids, err));
    return log_add(r, t->tokens.ids, t->tokens.n, err);
}

int replay_new(struct replay **out, struct engine *e, const struct stored_session *s,
               const struct replay_window *w, struct err *err) {
    struct replay *r = calloc(1, sizeof *r);
    int rc = 0;
    if (!r) return err_set(err, E_NOMEM, "no memory for a replay");
    r->engine = e;
    r->info = engine_info(e);
    r->stored = s;
    r->window = *w;
    buf_init(&r->answer.text, TEXT_MAX);
    for (size_t i = 0; rc == 0 && i < s->n_turns; i++) rc = log_add_turn(r, i, err);
    if (rc < 0) {
        replay_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void replay_free(struct replay *r) {
    if (!r) return;
    buf_release(&r->answer.text);
    free(r->answer.ids);
    free(r->answer.logprobs);
    free(r->log);
    free(r->changes);
    free(r);
}

// --- the engine --------------------------------------------------------------

static int take_token(struct answer *a, const struct engine_event *ev) {
    TRY(buf_add(&a->text, ev->text, ev->text_len));
    if (ev->id < 0) return 0;
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 256;
        int32_t *ids = realloc(a->ids, cap * sizeof *ids);
        if (!ids) return E_NOMEM;
        a->ids = ids;
        float *logprobs = realloc(a->logprobs, cap * sizeof *logprobs);
        if (!logprobs) return E_NOMEM;
        a->logprobs = logprobs;
        a->cap = cap;
    }
    a->ids[a->n] = ev->id;
    a->logprobs[a->n++] = ev->logprob;
    a->n_top = ev->n_alternatives < REPLAY_TOP ? ev->n_alternatives : REPLAY_TOP;
    memcpy(a->top, ev->alternatives, (size_t)a->n_top * sizeof *a->top);
    return 0;
}

static int take_end(struct answer *a, const struct engine_event *ev) {
    a->finish = ev->finish;
    a->error[0] = '\0';
    if (ev->finish != FINISH_ERROR) return buf_add(&a->text, ev->text, ev->text_len);
    snprintf(a->error, sizeof a->error, "%.*s", (int)ev->text_len, ev->text);
    return 0;
}

// Runs one turn to its end. A refusal is returned as it is; nothing is running afterwards.
static int ask(struct replay *r, struct engine_turn *t, const int32_t *ids, size_t n,
               struct err *err) {
    struct answer *a = &r->answer;
    struct engine_event ev;
    int rc = 0;
    a->n = 0;
    buf_reset(&a->text);
    t->sequence = SEQUENCE;
    t->turn = ++r->n_turns;
    t->n_ids = (int64_t)n;
    t->memory_len = r->window.memory_len;
    t->sink_len = r->window.sink_len;
    t->session_len = r->window.session_len;
    t->ids = malloc((n + 1) * sizeof *ids);
    if (!t->ids) return err_set(err, E_NOMEM, "no memory for a log of %zu tokens", n);
    memcpy(t->ids, ids, n * sizeof *ids);
    int submitted = engine_turn_submit(r->engine, t, err);
    if (submitted < 0) {
        free(t->ids);
        return submitted;
    }
    do {
        if (engine_wait(r->engine, &ev, -1) != 1)
            return err_set(err, E_CLOSED, "the engine has ended");
        if (ev.turn != t->turn) continue;
        if (ev.kind == ENGINE_TOKEN && rc == 0) rc = take_token(a, &ev);
        if (ev.kind == ENGINE_DONE && rc == 0) rc = take_end(a, &ev);
    } while (ev.kind != ENGINE_DONE || ev.turn != t->turn);
    return rc < 0 ? err_set(err, rc, "no memory for the answer") : 0;
}

// --- comparing ---------------------------------------------------------------

// "eos", "stop" and "length" follow from the tokens; all else came from outside.
static bool ended_by_itself(const struct turn_record *t) {
    return !strcmp(t->finish_reason, "eos") || !strcmp(t->finish_reason, "stop") ||
           !strcmp(t->finish_reason, "length");
}

static int sampling_of(struct replay *r, const struct turn_record *t, struct err *err) {
    memset(&r->sampling, 0, sizeof r->sampling);
    sampling_params_init(&r->sampling.params);
    TRY(sampling_json_apply(&r->sampling, t->sampling, r->info->n_vocab, err));
    r->sampling.params.seed = t->seed;
    r->sampling.params.has_seed = true;
    r->sampling.params.deadline_us = 0; // time passes differently now
    return 0;
}

static bool same_bits(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static struct replay_choice choice(const int32_t *ids, const float *logprobs, size_t n, size_t i) {
    if (i >= n) return (struct replay_choice){.id = -1, .logprob = NAN};
    return (struct replay_choice){.id = ids[i], .logprob = logprobs[i]};
}

static void diverge(const struct replay *r, const struct stored_turn *t, enum replay_kind kind,
                    size_t i, struct replay_divergence *out) {
    const struct answer *a = &r->answer;
    *out = (struct replay_divergence){
        .kind = kind,
        .index = (int64_t)i,
        .position = t->rec.log_first + t->rec.n_input + (int64_t)i,
        .recorded = choice(t->tokens.ids, t->tokens.logprobs, t->tokens.n, i),
        .now = choice(a->ids, a->logprobs, a->n, i),
        .recorded_id_logprob = NAN,
    };
}

static void note(struct replay_turn *out, const struct replay_divergence *d) {
    if (out->first.index < 0) out->first = *d;
    if (d->kind == REPLAY_TOKEN) out->token = *d;
    out->verdict = REPLAY_DIVERGED;
}

static void compare(const struct replay *r, const struct stored_turn *t, struct replay_turn *out) {
    const struct answer *a = &r->answer;
    const struct token_run *k = &t->tokens;
    struct replay_divergence d;
    size_t n = a->n < k->n ? a->n : k->n, i = 0;
    for (; i < n && a->ids[i] == k->ids[i]; i++) {
        if (same_bits(a->logprobs[i], k->logprobs[i])) continue;
        if (out->n_logprobs_differ++ > 0) continue;
        diverge(r, t, REPLAY_LOGPROB, i, &d);
        note(out, &d);
    }
    out->n_compared = (int64_t)i;
    if (i < n) {
        diverge(r, t, REPLAY_TOKEN, i, &d);
        note(out, &d);
    } else if (a->n != k->n || (!out->cut_short && strcmp(out->recorded_finish, out->finish))) {
        diverge(r, t, REPLAY_END, i, &d);
        note(out, &d);
    }
}

// --- what else was likely ----------------------------------------------------

// Draws one token at d's position for what is reported with it: the alternatives, and, since a bias
// changes what is drawn but not what is reported, the recorded token's own log-probability. The ids
// before that position are the same on both sides, so the recorded log leads there.
static void look_around(struct replay *r, struct replay_divergence *d) {
    struct engine_turn t = {0};
    struct answer *a = &r->answer;
    int32_t id = d->recorded.id;
    sampling_params_init(&t.sampling);
    t.sampling.temperature = 0;
    t.sampling.max_tokens = 1;
    t.sampling.top_logprobs = REPLAY_TOP;
    t.sampling.has_seed = true;
    if (id >= 0 && id < r->info->n_vocab) {
        t.sampling.n_bias = 1;
        t.sampling.bias[0] = (struct logit_bias){id, 100};
    }
    a->n_top = 0;
    if (ask(r, &t, r->log, (size_t)d->position, NULL) < 0 || a->n == 0) return;
    d->n_top = a->n_top;
    memcpy(d->top, a->top, sizeof d->top);
    if (a->ids[0] == id) d->recorded_id_logprob = (double)a->logprobs[0];
}

// --- one turn ----------------------------------------------------------------

static bool out_of_means(int rc) {
    return rc == E_NOMEM || rc == E_CLOSED;
}

static int fail(struct replay_turn *out, int rc, struct err *err) {
    if (out_of_means(rc)) return rc;
    out->verdict = REPLAY_FAILED;
    snprintf(out->why, sizeof out->why, "%.*s", REPLAY_WHY_MAX - 1, err->text);
    err_set(err, 0, "%s", "");
    return 0;
}

// No more than one token beyond the record, however long the model would go on now.
static void bound(struct sampling_params *p, const struct stored_turn *t, bool cut_short) {
    int64_t most = (int64_t)t->tokens.n + (cut_short ? 0 : 1);
    if (most > INT32_MAX) most = INT32_MAX;
    if (p->max_tokens == 0 || p->max_tokens > most) p->max_tokens = (int32_t)most;
}

static int run_again(struct replay *r, const struct stored_turn *t, struct replay_turn *out,
                     struct err *err) {
    size_t n = (size_t)(t->rec.log_first + t->rec.n_input);
    struct engine_turn spec = {.n_input = t->rec.n_input};
    TRY(sampling_of(r, &t->rec, err));
    bound(&r->sampling.params, t, out->cut_short);
    spec.sampling = r->sampling.params;
    TRY(ask(r, &spec, r->log, n, err));
    if (r->answer.finish == FINISH_ERROR)
        return err_set(err, E_DEVICE, "after %zu tokens: %s", r->answer.n, r->answer.error);
    snprintf(out->finish, sizeof out->finish, "%s", engine_finish_name(r->answer.finish));
    return 0;
}

int replay_turn(struct replay *r, size_t turn, bool probe, struct replay_turn *out,
                struct err *err) {
    const struct stored_turn *t = &r->stored->turns[turn];
    struct err local = {0};
    if (!err) err = &local;
    *out = (struct replay_turn){.turn = t->rec.turn,
                                .verdict = REPLAY_EQUAL,
                                .cut_short = !ended_by_itself(&t->rec),
                                .first = {.index = -1},
                                .token = {.index = -1}};
    snprintf(out->recorded_finish, sizeof out->recorded_finish, "%s", t->rec.finish_reason);
    if (t->tokens.n == 0 && out->cut_short) {
        out->verdict = REPLAY_EMPTY;
        return 0;
    }
    if (t->rec.log_first < 0) {
        snprintf(err->text, sizeof err->text, "the record says it ended, but not that it began");
        return fail(out, E_CORRUPT, err);
    }
    int rc = run_again(r, t, out, err);
    if (rc < 0) return fail(out, rc, err);
    compare(r, t, out);
    if (out->verdict != REPLAY_DIVERGED || !probe) return 0;
    look_around(r, &out->first);
    if (out->token.index == out->first.index)
        out->token = out->first;
    else if (out->token.index >= 0)
        look_around(r, &out->token);
    return 0;
}

// --- what if -----------------------------------------------------------------

// On the wire a key that is not known is ignored. Here it would be an experiment that was not made.
static int check_keys(const char *changes, struct err *err) {
    cJSON *o = json_parse(changes, strlen(changes), &json_limits_message, err);
    int rc = o ? 0 : E_INVAL;
    const cJSON *item;
    cJSON_ArrayForEach(item, o) {
        if (rc == 0 && !sampling_json_knows(item->string))
            rc = err_set(err, E_INVAL, "there is no sampling parameter '%.80s'", item->string);
    }
    cJSON_Delete(o);
    return rc;
}

int replay_check_changes(const char *changes, int32_t n_vocab, struct err *err) {
    struct turn_sampling *s = calloc(1, sizeof *s); // large for a stack
    if (!s) return err_set(err, E_NOMEM, "no memory for a replay");
    sampling_params_init(&s->params);
    int rc = sampling_json_apply(s, changes, n_vocab, err);
    if (rc == 0) rc = check_keys(changes, err);
    if (rc == 0 && s->set == 0) rc = err_set(err, E_INVAL, "no sampling parameter is named");
    free(s);
    return rc;
}

int replay_what_if(struct replay *r, size_t from, const char *changes, struct err *err) {
    TRY(replay_check_changes(changes, r->info->n_vocab, err));
    free(r->changes);
    r->changes = strdup(changes);
    if (!r->changes) return err_set(err, E_NOMEM, "no memory for a replay");
    r->ended = false;
    while (from < r->stored->n_turns && r->stored->turns[from].rec.log_first < 0) from++;
    r->from = r->next = from;
    if (from < r->stored->n_turns) r->n_log = (size_t)r->stored->turns[from].rec.log_first;
    return 0;
}

static bool chat_begun(const struct replay *r, size_t turn) {
    for (size_t i = 0; i < turn; i++)
        if (r->stored->turns[i].rec.kind == INPUT_CONTENT && r->stored->turns[i].rec.log_first >= 0)
            return true;
    return false;
}

// As sessions/run.c renders it, behind the log as it is now.
static int render(struct replay *r, size_t turn, struct token_list *out, struct err *err) {
    const struct turn_record *t = &r->stored->turns[turn].rec;
    struct engine_message messages[2];
    size_t n = 0;
    if (!r->info->tokenizer)
        return err_set(err, E_UNSUPPORTED, "the model has no tokenizer to render the input with");
    if (!t->input_text) return misfit(err, turn, "its input has no text");
    if (t->kind == INPUT_TEXT)
        return engine_tokenize(r->engine, t->input_text, t->input_text_len, true, out, err);
    if (!r->info->chat_template)
        return err_set(err, E_UNSUPPORTED, "the model has no chat template to render the input by");
    if (r->stored->rec.system && !chat_begun(r, turn))
        messages[n++] = (struct engine_message){"system", r->stored->rec.system};
    messages[n++] = (struct engine_message){"user", t->input_text};
    return engine_render_turn(r->engine, messages, n, r->n_log ? r->log[r->n_log - 1] : -1, out,
                              err);
}

// The first turn stands on the recorded log, so what was rendered then is right. Later ones may
// follow another end.
static int add_input(struct replay *r, size_t turn, int64_t *n_input, struct err *err) {
    const struct turn_record *t = &r->stored->turns[turn].rec;
    size_t before = r->n_log;
    int rc;
    if (t->kind == INPUT_IDS || turn == r->from) {
        rc = log_add(r, t->input_ids, t->n_input_ids, err);
    } else {
        struct token_list list;
        token_list_init(&list);
        rc = render(r, turn, &list, err);
        if (rc == 0) rc = log_add(r, list.ids, list.len, err);
        token_list_release(&list);
    }
    *n_input = (int64_t)(r->n_log - before);
    return rc;
}

static int run_changed(struct replay *r, size_t turn, struct err *err) {
    const struct stored_turn *t = &r->stored->turns[turn];
    struct engine_turn spec = {0};
    struct sampling_params *p = &r->sampling.params;
    bool cut_short = !ended_by_itself(&t->rec);
    r->answer.n = 0;
    buf_reset(&r->answer.text);
    r->answer.finish = FINISH_CANCELLED;
    TRY(add_input(r, turn, &spec.n_input, err));
    if (cut_short && t->tokens.n == 0) return 0; // its input is in the log, and nothing more
    TRY(sampling_of(r, &t->rec, err));
    TRY(sampling_json_apply(&r->sampling, r->changes, r->info->n_vocab, err));
    p->deadline_us = 0;
    if (cut_short) bound(p, t, true);
    spec.sampling = *p;
    TRY(ask(r, &spec, r->log, r->n_log, err));
    if (r->answer.finish == FINISH_ERROR) return err_set(err, E_DEVICE, "%s", r->answer.error);
    return log_add(r, r->answer.ids, r->answer.n, err);
}

static void pair_up(const struct replay *r, const struct stored_turn *t, struct replay_pair *out) {
    const struct answer *a = &r->answer;
    const struct token_run *k = &t->tokens;
    bool cut_short = !ended_by_itself(&t->rec);
    *out = (struct replay_pair){
        .turn = t->rec.turn,
        .stored = t,
        .recorded = {k->ids, k->logprobs, k->n, k->text ? k->text : "", k->text_len,
                     t->rec.finish_reason},
        .now = {a->ids, a->logprobs, a->n, buf_z(&a->text), a->text.len,
                cut_short && a->n == k->n ? t->rec.finish_reason : engine_finish_name(a->finish)},
    };
    size_t n = a->n < k->n ? a->n : k->n;
    while (out->n_same < n && a->ids[out->n_same] == k->ids[out->n_same]) out->n_same++;
    out->same = a->n == k->n && out->n_same == n;
}

int replay_next(struct replay *r, struct replay_pair *out, struct err *err) {
    struct err local = {0};
    if (!err) err = &local;
    while (r->next < r->stored->n_turns && r->stored->turns[r->next].rec.log_first < 0) r->next++;
    if (r->ended || r->next == r->stored->n_turns) return 0;
    size_t turn = r->next++;
    int rc = run_changed(r, turn, err);
    if (out_of_means(rc)) return rc;
    pair_up(r, &r->stored->turns[turn], out);
    if (rc < 0) {
        r->ended = true; // what follows would have nothing to stand on
        snprintf(r->why, sizeof r->why, "%.*s", REPLAY_WHY_MAX - 1, err->text);
        out->failed = r->why;
    }
    return 1;
}
