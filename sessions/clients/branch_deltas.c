// The other answers of a running turn (sampling n), told to clients as they are drawn. See branch_deltas.h.
//
// Samples are not events: the session's event log has only the tokens of the answer, and only the log
// survives a crash. So samples have no numbers and are not saved. A running turn keeps them in memory,
// and an attached client has a cursor in each of them, as it has one in the events. It takes them
// between the turn's start and its end. The end adds the same answers as versions (versions.c), which
// every later client finds.
#include "sessions/clients/branch_deltas.h"
#include "base/err.h"
#include <stdlib.h>
#include <utlist.h>

// Of one joined piece, as of a joined delta (deliver.c)
#define PIECE_TOKENS 1024
#define PIECE_TOKENS_ALTERNATIVES 64

// --- what the engine draws -----------------------------------------------------------------------

static int begin(struct session *s, struct turn *t) {
    int32_t n = t->sampling->params.n - 1;
    t->samples = calloc((size_t)n, sizeof *t->samples);
    if (!t->samples) return E_NOMEM;
    t->n_samples = n;
    for (int32_t i = 0; i < n; i++) drawn_tokens_init(&t->samples[i].out);
    if (s->sampled_from == TURN_NONE) s->sampled_from = t->rec.turn;
    return 0;
}

// A turn that runs again from its start repeats tokens, which are skipped: its draws are the same.
int branch_deltas_take(struct session *s, struct turn *t, const struct engine_event *e) {
    if (!t->samples) TRY(begin(s, t));
    struct sample *x = e->branch <= t->n_samples ? &t->samples[e->branch - 1] : NULL;
    if (!x) return E_INVAL;
    bool again = e->id >= 0 && x->n_came < x->out.n;
    if (again && x->out.ids[x->n_came] != e->id) return E_CORRUPT;
    size_t known = x->out.text.len > x->text_came ? x->out.text.len - x->text_came : 0;
    if (known > e->text_len) known = e->text_len;
    x->text_came += e->text_len;
    if (e->id >= 0) x->n_came++;
    if (e->id < 0 || again) return buf_add(&x->out.text, e->text + known, e->text_len - known);
    TRY(drawn_tokens_add(&x->out, e, e->text + known, e->text_len - known, t->rec.n_alternatives));
    owner_charge_tokens(s->owner, 1, service_now(s->service));
    return 0;
}

void branch_deltas_again(struct turn *t) {
    for (int32_t i = 0; i < t->n_samples; i++) t->samples[i].n_came = t->samples[i].text_came = 0;
}

// --- what clients have taken ---------------------------------------------------------------------

static int64_t started_seq(const struct session *s, int64_t turn) {
    for (size_t i = s->events.n; i-- > 0;) {
        const struct event_record *e = &s->events.entries[i].rec;
        if (e->kind == EVENT_STARTED && e->turn == turn) return e->seq;
    }
    return INT64_MAX;
}

// The client has the turn's end, or attached after it: it finds the samples as versions.
static bool is_over(const struct turn *t, const struct attachment *a) {
    if (t->state != TURN_DONE) return false;
    return a->cursor >= t->rec.seq_last || a->since_seq >= t->rec.seq_last;
}

// The turn whose samples this client takes: it has the turn's start, but not its end. NULL: none.
static const struct turn *sampled_turn(const struct session *s, const struct attachment *a) {
    if (s->sampled_from == TURN_NONE) return NULL;
    for (size_t i = s->n_turns; i-- > (size_t)s->sampled_from;) {
        const struct turn *t = s->turns[i];
        if (!t->samples || is_over(t, a)) continue;
        if (a->cursor >= started_seq(s, t->rec.turn)) return t;
    }
    return NULL;
}

// Where the client is in each sample of the turn. NULL: no memory.
static struct sample_cursor *cursors(struct attachment *a, const struct turn *t) {
    if (a->sampled && a->sampled_turn == t->rec.turn) return a->sampled;
    free(a->sampled);
    a->sampled = calloc((size_t)t->n_samples, sizeof *a->sampled);
    a->sampled_turn = t->rec.turn;
    return a->sampled;
}

static bool has_more(const struct sample *x, const struct sample_cursor *c) {
    return c->n_ids < x->out.n || c->text < x->out.text.len;
}

// The sample of which the client has the fewest tokens; -1: it has all tokens.
static int32_t find_next(const struct turn *t, const struct sample_cursor *c) {
    int32_t next = -1;
    for (int32_t i = 0; i < t->n_samples; i++)
        if (has_more(&t->samples[i], &c[i]) && (next < 0 || c[i].n_ids < c[next].n_ids)) next = i;
    return next;
}

bool branch_deltas_wait(const struct session *s, struct attachment *a) {
    const struct turn *t = sampled_turn(s, a);
    const struct sample_cursor *c = t ? cursors(a, t) : NULL;
    return c && find_next(t, c) >= 0;
}

static size_t join(const struct turn *t, const struct sample *x, const struct sample_cursor *c,
                   size_t max_text) {
    size_t most = t->rec.n_alternatives ? PIECE_TOKENS_ALTERNATIVES : PIECE_TOKENS;
    size_t left = x->out.n - c->n_ids, n = left > 0;
    while (n < left && n < most && x->out.text_ends[c->n_ids + n] - c->text <= max_text) n++;
    return n;
}

static void fill(const struct turn *t, int32_t i, struct sample_cursor *c, size_t max_text,
                 struct session_event *out) {
    const struct sample *x = &t->samples[i];
    size_t n = join(t, x, c, max_text), n_alt = (size_t)t->rec.n_alternatives;
    size_t end = c->n_ids + n == x->out.n ? x->out.text.len : x->out.text_ends[c->n_ids + n - 1];
    *out = (struct session_event){.kind = EVENT_SAMPLE,
                                  .request_id = "",
                                  .delta_turn = t->rec.turn,
                                  .branch = i + 1,
                                  .first_token = (int64_t)c->n_ids,
                                  .text = buf_z(&x->out.text) + c->text,
                                  .text_len = end - c->text,
                                  .n_ids = n,
                                  .n_alternatives = t->rec.n_alternatives};
    if (n) out->ids = x->out.ids + c->n_ids;
    if (n && t->rec.logprobs) out->logprobs = x->out.logprobs + c->n_ids;
    if (n && n_alt) out->alternatives = x->out.alternatives + c->n_ids * n_alt;
    c->n_ids += n;
    c->text = end;
}

// The answers of the turn alternate token by token, so that a slow client gets all answers at the same pace. The turn's
// end follows the last token.
bool branch_deltas_next(const struct session *s, struct attachment *a,
                        const struct event_record *next, size_t max_text,
                        struct session_event *out) {
    const struct turn *t = sampled_turn(s, a);
    struct sample_cursor *c = t ? cursors(a, t) : NULL;
    int32_t i = c ? find_next(t, c) : -1;
    if (i < 0) return false;
    bool is_delta = next && next->kind == EVENT_DELTA && next->turn == t->rec.turn;
    int64_t n_taken = is_delta ? event_log_tokens_upto(&s->events, next->turn, a->cursor) : 0;
    if (is_delta && n_taken <= (int64_t)c[i].n_ids) return false;
    fill(t, i, &c[i], max_text, out);
    return true;
}

// --- the end -------------------------------------------------------------------------------------

static bool is_told(const struct session *s, const struct turn *t) {
    const struct attachment *a;
    if (t->state != TURN_DONE) return false;
    DL_FOREACH(s->attachments, a) {
        if (!is_over(t, a)) return false;
    }
    return true;
}

void branch_deltas_settle(struct session *s) {
    int64_t first = TURN_NONE;
    if (s->sampled_from == TURN_NONE) return;
    for (size_t i = s->n_turns; i-- > (size_t)s->sampled_from;) {
        struct turn *t = s->turns[i];
        if (t->samples && is_told(s, t)) turn_free_samples(t);
        if (t->samples) first = (int64_t)i;
    }
    s->sampled_from = first;
}
