// Replay and what-if. See replay.h.
#include "sessions/replay/replay.h"
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"
#include "sessions/turns/input.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEQUENCE 1
struct replay {
    struct engine *engine;
    const struct engine_info *info;
    const struct stored_session *stored;
    struct replay_window window;
    struct prompt *prompt; // the record's own table; NULL: none
    struct replay_log log; // of the path to turn `at`; of what-if, as it is now
    int64_t at;
    int64_t *path;    // room for all turns
    uint64_t n_turns; // asked of the engine
    struct rerun rerun;
    // What-if.
    struct answer answer;
    struct turn_sampling sampling; // too large for a stack
    char *changes;
    size_t n_path, next, from; // places in the path
    bool ended;
    char why[REPLAY_WHY_MAX];
};

// The turns from a first one to this one, into r->path.
static size_t find_path(struct replay *r, int64_t turn) {
    size_t n = 0;
    for (int64_t i = turn; i >= 0; i = r->stored->turns[i].rec.parent) n++;
    size_t at = n;
    for (int64_t i = turn; i >= 0; i = r->stored->turns[i].rec.parent) r->path[--at] = i;
    return n;
}

// Makes the log that of the path to `turn`, as recorded. Most turns follow the one before.
static int load_log(struct replay *r, int64_t turn, struct err *err) {
    if (turn == r->at) return 0;
    const struct stored_turn *turns = r->stored->turns;
    size_t n = find_path(r, turn), from = n - 1;
    if (turns[turn].rec.parent != r->at) r->log.n = 0, from = 0;
    r->at = turn;
    for (size_t i = from; i < n; i++) TRY(replay_log_add_turn(&r->log, &turns[r->path[i]], err));
    return 0;
}

static int check_tree(const struct stored_session *s, struct err *err) {
    bool good = s->rec.head >= TURN_NONE && s->rec.head < (int64_t)s->n_turns;
    for (size_t i = 0; good && i < s->n_turns; i++)
        good = s->turns[i].rec.parent >= TURN_NONE && s->turns[i].rec.parent < (int64_t)i;
    return good ? 0 : err_set(err, E_CORRUPT, "the record's turns do not make a tree");
}

static int find_table(struct replay *r, struct err *err) {
    const struct session_record *rec = &r->stored->rec;
    if (r->stored->prompt)
        r->prompt = prompt_hold(r->stored->prompt);
    else if (rec->prompt_data)
        TRY(record_prompt_make(rec, &r->prompt, err));
    return record_prompt_find(rec, r->info, r->prompt, &r->window.prompt, err);
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
    rerun_init(&r->rerun, r->info, 0);
    answer_init(&r->answer, 0);
    r->at = TURN_NONE;
    r->path = malloc((s->n_turns + 1) * sizeof *r->path);
    rc = find_table(r, err);
    if (rc == 0)
        rc = r->path ? check_tree(s, err) : err_set(err, E_NOMEM, "no memory for a replay");
    for (size_t i = 0; rc == 0 && i < s->n_turns; i++) rc = load_log(r, (int64_t)i, err);
    if (rc < 0) {
        replay_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void replay_free(struct replay *r) {
    if (!r) return;
    rerun_release(&r->rerun);
    answer_release(&r->answer);
    turn_sampling_release(&r->sampling);
    free(r->log.ids);
    free(r->path);
    free(r->changes);
    prompt_free(r->prompt);
    free(r);
}

// --- the engine --------------------------------------------------------------

// Submits; takes the turn's ids in any case. A refusal is returned as it is.
static int submit(struct replay *r, struct engine_turn *t, struct err *err) {
    t->sequence = SEQUENCE;
    t->turn = ++r->n_turns;
    int rc = engine_turn_submit(r->engine, t, err);
    if (rc < 0) free(t->ids);
    return rc;
}

static int wait_event(struct replay *r, uint64_t turn, struct engine_event *e, struct err *err) {
    do {
        if (engine_wait(r->engine, e, -1) != 1)
            return err_set(err, E_CLOSED, "the engine has ended");
    } while (e->turn != turn);
    return 0;
}

static bool out_of_means(int rc) {
    return rc == E_NOMEM || rc == E_CLOSED;
}

// --- one turn ----------------------------------------------------------------

int replay_one(struct replay *r, size_t turn, bool probe, struct replay_turn *out,
               struct err *err) {
    struct rerun *again = &r->rerun;
    struct engine_turn t;
    struct engine_event e;
    struct err local = {0};
    int rc;
    if (!err) err = &local;
    TRY(load_log(r, (int64_t)turn, err));
    rerun_begin(again, &r->stored->turns[turn], r->log.ids, &r->window, probe);
    while ((rc = rerun_next(again, &t, err)) == 1) {
        if ((rc = submit(r, &t, err)) < 0) {
            TRY(rerun_refused(again, rc, err));
            err_set(err, 0, "%s", "");
            continue;
        }
        do TRY(wait_event(r, t.turn, &e, err));
        while (!rerun_take(again, &e));
    }
    *out = again->found;
    return rc;
}

// --- what if -----------------------------------------------------------------

// On the wire an unknown key is ignored. Here the user would believe in an experiment that was not made.
static int check_keys(const char *changes, struct err *err) {
    cJSON *o = json_parse(changes, strlen(changes), &json_limits_message, err);
    int rc = o ? 0 : E_INVAL;
    const cJSON *item;
    cJSON_ArrayForEach(item, o) {
        if (rc == 0 && !sampling_row_find(item->string))
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
    turn_sampling_free(s);
    return rc;
}

static size_t newest_below(const struct replay *r, size_t turn) {
    size_t newest = turn;
    for (size_t i = turn + 1; i < r->stored->n_turns; i++) {
        int64_t up = (int64_t)i;
        while (up > (int64_t)turn) up = r->stored->turns[up].rec.parent;
        if (up == (int64_t)turn) newest = i;
    }
    return newest;
}

// The path in use if the turn is on it, else one through it, and the turn's place there.
static void choose_path(struct replay *r, int64_t from) {
    r->n_path = find_path(r, r->stored->rec.head);
    for (r->from = 0; from >= 0 && r->from < r->n_path; r->from++)
        if (r->path[r->from] == from) return;
    if (from < 0) return;
    r->n_path = find_path(r, (int64_t)newest_below(r, (size_t)from));
    for (r->from = 0; r->path[r->from] != from;) r->from++;
}

static const struct turn_record *on_path(const struct replay *r, size_t place) {
    return &r->stored->turns[r->path[place]].rec;
}

int replay_what_if(struct replay *r, int64_t from, const char *changes, struct err *err) {
    TRY(replay_check_changes(changes, r->info->n_vocab, err));
    free(r->changes);
    r->changes = strdup(changes);
    if (!r->changes) return err_set(err, E_NOMEM, "no memory for a replay");
    r->ended = false;
    choose_path(r, from);
    while (r->from < r->n_path && on_path(r, r->from)->log_first < 0) r->from++;
    r->next = r->from;
    r->log.n = 0;
    r->at = TURN_NONE;
    for (size_t i = 0; i < r->from; i++)
        TRY(replay_log_add_turn(&r->log, &r->stored->turns[r->path[i]], err));
    return 0;
}

static bool chat_begun(const struct replay *r, size_t place) {
    for (size_t i = 0; i < place; i++)
        if (on_path(r, i)->kind == INPUT_CONTENT && on_path(r, i)->log_first >= 0) return true;
    return false;
}

// Continues the log as it is now.
static int render(struct replay *r, size_t place, struct input_ids *out, struct err *err) {
    const struct turn_record *t = on_path(r, place);
    bool first = t->kind == INPUT_CONTENT && !chat_begun(r, place);
    struct input_source source = {.kind = t->kind,
                                  .text = t->input_text,
                                  .text_len = t->input_text_len,
                                  .system = first ? r->stored->rec.system : NULL,
                                  .last_id = r->log.n ? r->log.ids[r->log.n - 1] : -1,
                                  .n_virtual = r->log.n ? 0 : (int32_t)r->stored->rec.prompt_rows};
    if (!t->input_text)
        return err_set(err, E_CORRUPT, "the record of turn %zu has no text of its input",
                       (size_t)t->turn);
    return input_encode(r->engine, &source, out, err);
}

// The first turn stands on the recorded log, so what was rendered then is right. Later ones may
// follow another end.
static int add_input(struct replay *r, size_t place, int64_t *n_input, struct err *err) {
    const struct turn_record *t = on_path(r, place);
    size_t before = r->log.n;
    int rc;
    if (!turn_input_has_text(t->kind) || place == r->from) {
        rc = replay_log_add(&r->log, t->input_ids, t->n_input_ids, err);
    } else {
        struct input_ids made = {0};
        rc = render(r, place, &made, err);
        if (rc == 0) rc = replay_log_add(&r->log, made.ids, made.n, err);
        input_ids_release(&made);
    }
    *n_input = (int64_t)(r->log.n - before);
    return rc;
}

static int run(struct replay *r, struct engine_turn *spec, struct err *err) {
    struct engine_event e;
    TRY(submit(r, spec, err));
    do TRY(wait_event(r, spec->turn, &e, err));
    while (!answer_take(&r->answer, &e));
    return 0;
}

static int run_changed(struct replay *r, size_t place, struct err *err) {
    const struct stored_turn *t = &r->stored->turns[r->path[place]];
    struct answer *a = &r->answer;
    struct sampling_params *p = &r->sampling.params;
    struct engine_turn spec;
    int64_t n_input;
    bool cut_short = !rerun_ended_by_itself(&t->rec);
    bool complete = place > r->from && a->finish == FINISH_EOS;
    answer_reset(a);
    a->finish = FINISH_EOS;
    if (t->rec.kind == INPUT_CONTINUE && complete) return 0; // what it went on with is not cut off
    a->finish = FINISH_CANCELLED;
    TRY(add_input(r, place, &n_input, err));
    if (cut_short && t->tokens.n == 0) return 0; // its input is in the log, and nothing more
    TRY(rerun_sampling(&t->rec, r->info->n_vocab, &r->sampling, err));
    TRY(sampling_json_apply(&r->sampling, r->changes, r->info->n_vocab, err));
    p->deadline_us = 0;
    int32_t asked = p->max_tokens;
    if (cut_short) rerun_bound(p, t);
    TRY(rerun_spec(&r->window, p, r->log.ids, r->log.n, n_input, &spec, err));
    spec.planned_tokens = asked > 0 ? asked : INT32_MAX; // 0: the session bounds it
    spec.goes_on = t->rec.kind != INPUT_CONTENT;
    TRY(run(r, &spec, err));
    if (a->failed) return err_set(err, E_NOMEM, "no memory for the answer");
    if (a->finish == FINISH_ERROR) return err_set(err, E_DEVICE, "%s", a->error);
    return replay_log_add(&r->log, a->ids, a->n, err);
}

static void pair_up(const struct replay *r, const struct stored_turn *t, struct replay_pair *out) {
    const struct answer *a = &r->answer;
    const struct token_run *k = &t->tokens;
    bool cut_short = !rerun_ended_by_itself(&t->rec);
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
    while (r->next < r->n_path && on_path(r, r->next)->log_first < 0) r->next++;
    if (r->ended || r->next == r->n_path) return 0;
    size_t place = r->next++;
    int rc = run_changed(r, place, err);
    if (out_of_means(rc)) return rc;
    pair_up(r, &r->stored->turns[r->path[place]], out);
    if (rc < 0) {
        r->ended = true; // later turns have no log to continue
        snprintf(r->why, sizeof r->why, "%.*s", REPLAY_WHY_MAX - 1, err->text);
        out->failed = r->why;
    }
    return 1;
}
