// The other branches of a turn (sampling n, beam_width) become versions of it. See versions.h.
//
// Each version is a turn beside the answered turn, with the same parent, input and settings and its own answer. So
// clients list versions as siblings and move the head to a version, and forks, exports, searches and replays handle
// versions without special code. No event names a version; its `branch` says which answer of the search or the draw the
// version is.
//
// Versions are added with the end of their turn, in one commit. They wait while a newer turn is not committed, because
// a failing commit would take the newer turn back.
#include "sessions/turns/versions.h"
#include "base/array.h"
#include "base/err.h"
#include "base/json_form.h"
#include "base/log.h"
#include "sessions/matching/told.h"
#include "sessions/saving/save.h"
#include "sessions/state/tree.h"
#include <stdlib.h>

enum { BRANCH_BYTES = 128 };

// {"index":1,"of":4,"score":-2.25}
static char *describe(const struct engine_branches *b, int32_t i) {
    struct json_writer w;
    struct buf out;
    buf_init(&out, BRANCH_BYTES);
    json_writer_init(&w, &out);
    json_form(&w, "{index:%d,of:%d", i, b->n);
    json_put_float(&w, "score", (float)b->of[i].score);
    json_close(&w, '}');
    char *text = buf_take(&out, NULL);
    buf_release(&out);
    return text;
}

static int copy_answer(struct turn *t, const struct engine_branch *b) {
    size_t n = (size_t)b->n;
    bool failed = false;
    t->out.ids = record_memdup(b->ids, n * sizeof *b->ids, &failed);
    t->out.logprobs = record_memdup(b->logprobs, n * sizeof *b->logprobs, &failed);
    t->out.text_ends = record_memdup(b->text_ends, n * sizeof *b->text_ends, &failed);
    if (failed) return E_NOMEM;
    t->out.n = t->out.cap = n;
    return buf_add(&t->out.text, b->text, b->text_len);
}

static int note_told(struct turn *v, const struct turn *t, const struct engine *e) {
    if (!t->told || v->out.n == 0) return 0;
    return told_end(t->told, e, buf_z(&v->out.text), v->out.text.len, v->out.ids, v->out.n,
                    &v->rec.told, &v->rec.shown);
}

static struct turn *version_of(const struct turn *t, const struct engine *e,
                               const struct engine_branches *b, int32_t i) {
    struct turn *v = turn_new();
    if (!v) return NULL;
    struct turn_record rec = t->rec;
    char none[1] = "";
    rec.request_id = none;
    rec.branch = NULL;
    rec.context = rec.told = rec.shown = NULL;
    rec.n_alternatives = 0; // they came with the answer's tokens only
    if (turn_record_copy(&v->rec, &rec) < 0 || copy_answer(v, &b->of[i]) < 0 ||
        note_told(v, t, e) < 0 || !(v->rec.branch = describe(b, i))) {
        turn_free(v);
        return NULL;
    }
    struct turn_record *r = &v->rec;
    r->n_output = r->numbers.output_tokens = b->of[i].n;
    r->numbers.log_tokens = r->log_first + r->n_input + r->n_output;
    r->numbers.computed_tokens = 0; // the answer's turn has them
    r->seq_first = r->seq_last = 1;
    snprintf(r->finish_reason, sizeof r->finish_reason, "%s", engine_finish_name(b->of[i].finish));
    turn_set(v, TURN_DONE);
    v->said = t->said;
    v->version = 1;
    v->answer_of = t->rec.turn;
    v->branch = i;
    return v;
}

static bool is_answer(const struct turn *v, int64_t turn, int32_t branch) {
    return v->branch == branch && v->answer_of == turn && v->storage != TURN_SLIM;
}

// A version has a higher number than its turn, or none yet.
static const struct turn *find_answer(const struct session *s, int64_t turn, int32_t branch) {
    for (size_t i = 0; i < s->n_versions; i++)
        if (is_answer(s->versions[i], turn, branch)) return s->versions[i];
    for (size_t i = (size_t)turn + 1; i < s->n_turns; i++)
        if (is_answer(s->turns[i], turn, branch)) return s->turns[i];
    return NULL;
}

int session_answer_of(const struct session *s, int64_t turn, int32_t branch,
                      struct turn_answer *out) {
    const struct turn *v = branch > 0 ? find_answer(s, turn, branch) : NULL;
    if (!v) return E_NOTFOUND;
    *out = (struct turn_answer){v->out.ids, v->out.logprobs, v->out.n, v->rec.finish_reason};
    return 0;
}

int versions_note(struct turn *t, const struct engine_branches *b) {
    if (!b || b->n < 2) return 0;
    t->rec.branch = describe(b, 0);
    return t->rec.branch ? 0 : E_NOMEM;
}

void versions_take(struct session *s, const struct turn *t, const struct engine_branches *b) {
    struct sessions *ss = s->service;
    for (int32_t i = 1; b && i < b->n; i++) {
        if (b->of[i].n == 0) continue;
        struct turn *v = version_of(t, s->instance->engine, b, i);
        if (!v || ARRAY_RESIZE(s->versions, s->n_versions + 1) < 0) {
            turn_free(v);
            ss->memory_short = true;
            log_warn("session.versions", "session=%s turn=%lld lost=%d", s->rec.id,
                     (long long)t->rec.turn, b->n - i);
            return;
        }
        s->versions[s->n_versions++] = v;
        // Samples were charged as they were drawn.
        if (!t->samples) owner_charge_tokens(s->owner, b->of[i].n, service_now(ss));
    }
}

// The newest turn may be taken back (save.c), and must then be the last.
static bool may_add(const struct session *s) {
    for (const struct pending *p = s->pending; p; p = p->next)
        if (p->kind == PENDING_TURN || p->kind == PENDING_EDIT) return false;
    return s->save != SAVE_SENT;
}

void versions_settle(struct session *s) {
    if (s->n_versions == 0 || !may_add(s)) return;
    for (size_t i = 0; i < s->n_versions; i++) {
        struct turn *v = s->versions[i];
        v->rec.turn = (int64_t)s->n_turns;
        if (session_push_turn(s, v) < 0) {
            s->service->memory_short = true;
            turn_free(v);
            continue;
        }
        tree_link(s, v);
        service_add_bytes(s, turn_bytes(&v->rec));
    }
    free(s->versions);
    s->versions = NULL;
    s->n_versions = 0;
    s->version++;
    s->marks |= MARK_WATCHERS;
    save_now(s);
}
