// See repair.h.
#include "sessions/archive/repair.h"
#include "base/err.h"
#include "sessions/archive/check.h"
#include "sessions/archive/rules.h"
#include <stdio.h>
#include <stdlib.h>

static void replace(char **s, const char *with, bool *failed) {
    free(*s);
    *s = record_strdup(with, failed);
}

static void repair_row(struct session_record *r, bool *failed) {
    rules_repair(&record_tables[TABLE_SESSIONS], r, failed);
    if (r->sink_len >= r->memory_len) r->sink_len = 0;
}

static void repair_request(struct turn_record *r, bool *failed) {
    rules_repair(&record_tables[TABLE_TURNS], r, failed);
    if (!turn_input_has_text(r->kind) && r->input_text) replace(&r->input_text, NULL, failed);
    if (turn_input_has_text(r->kind) && !r->input_text) r->kind = INPUT_IDS;
    if (!r->input_text) r->input_text_len = 0;
    size_t n = 0;
    while (n < r->n_input_ids && r->input_ids[n] >= 0) n++;
    r->n_input_ids = n;
}

// How many tokens, from the first, are valid.
static size_t n_sound(const struct token_run *t) {
    uint32_t last = 0;
    for (size_t i = 0; i < t->n; i++) {
        uint32_t end = t->text_ends[i];
        if (t->ids[i] < 0 || end < last || end > t->text_len) return i;
        if (end < t->text_len && (t->text[end] & 0xc0) == 0x80) return i;
        last = end;
    }
    return t->n;
}

static void repair_output(struct stored_turn *t, bool *failed) {
    struct token_run *k = &t->tokens;
    if (!k->text) k->text = record_strdup("", failed), k->text_len = 0;
    k->n = n_sound(k); // the text stays without its tokens
    if ((int64_t)k->n < t->rec.n_output)
        snprintf(t->rec.finish_reason, sizeof t->rec.finish_reason, "interrupted");
    if (k->n && !k->alternatives) t->rec.n_alternatives = 0;
    for (size_t i = 0; i < k->n * (size_t)t->rec.n_alternatives; i++)
        if (k->alternatives[i].id < -1) k->alternatives[i].id = -1;
    t->rec.n_output = (int64_t)k->n;
}

// After a missing turn the others are renumbered. An invalid parent becomes the turn before.
static void repair_tree(struct stored_session *s) {
    int64_t n_turns = (int64_t)s->n_turns;
    bool holes = false;
    for (int64_t i = 0; i < n_turns; i++) holes |= s->turns[i].rec.turn != i;
    for (int64_t i = 0; i < n_turns; i++) {
        struct turn_record *r = &s->turns[i].rec;
        if (holes || r->parent < TURN_NONE || r->parent >= i) r->parent = i - 1;
        r->turn = i;
    }
    if (holes || s->rec.head < TURN_NONE || s->rec.head >= n_turns) s->rec.head = n_turns - 1;
}

static void repair_turns(struct stored_session *s, bool *failed) {
    int64_t longest = 0;
    for (size_t i = 0; i < s->n_turns; i++) {
        struct stored_turn *t = &s->turns[i];
        struct turn_record *r = &t->rec;
        repair_request(r, failed);
        repair_output(t, failed);
        if (r->log_first < 0 && r->n_output == 0) {
            r->log_first = -1;
            continue;
        }
        r->log_first = stored_session_log_end(s, r->parent);
        r->n_input = (int64_t)r->n_input_ids;
        int64_t end = r->log_first + r->n_input + r->n_output;
        if (end > longest) longest = end;
    }
    s->rec.n_turns = (int64_t)s->n_turns;
    s->rec.n_tokens = stored_session_log_end(s, s->rec.head);
    if (s->rec.session_len < longest) s->rec.session_len = longest;
}

// --- events ------------------------------------------------------------------

// Adds an event after the last number.
static int64_t add(struct stored_session *s, int kind, int64_t n, int64_t turn, int64_t at_ms) {
    s->events[s->n_events++] = (struct event_record){
        .seq = s->rec.seq + 1, .n = n, .kind = kind, .turn = turn, .at_ms = at_ms};
    s->rec.seq += n;
    return s->rec.seq;
}

static int number_anew(struct stored_session *s, struct err *err) {
    int64_t last = s->rec.seq > s->rec.seq_reserved ? s->rec.seq : s->rec.seq_reserved;
    for (size_t i = 0; i < s->n_events; i++) {
        const struct event_record *e = &s->events[i];
        if (e->n > 0 && e->n < COLUMN_WHOLE && e->seq < COLUMN_WHOLE && e->seq + e->n > last)
            last = e->seq + e->n - 1;
    }
    if (last < 0 || last >= COLUMN_WHOLE) last = 0;
    free(s->events);
    s->n_events = 0;
    s->events = calloc(s->n_turns * 3 + 4, sizeof *s->events);
    if (!s->events) return err_set(err, E_NOMEM, "no memory to repair a session");
    s->rec.seq = 0;
    add(s, EVENT_OPENED, 1, -1, s->rec.created_ms);
    if (last > 1) add(s, EVENT_LOST, last - 1, 0, s->rec.created_ms);
    int64_t head = TURN_NONE;
    for (size_t i = 0; i < s->n_turns; i++) {
        struct turn_record *r = &s->turns[i].rec;
        if (r->parent != head) add(s, EVENT_REWOUND, 1, r->parent, r->created_ms);
        head = r->turn;
        r->seq_first = s->rec.seq + 1;
        if (r->log_first >= 0) add(s, EVENT_STARTED, 1, r->turn, r->started_ms);
        s->rec.seq += r->n_output;
        r->seq_last = add(s, EVENT_DONE, 1, r->turn, r->ended_ms);
    }
    if (s->rec.head != head) add(s, EVENT_REWOUND, 1, s->rec.head, s->rec.updated_ms);
    if (s->rec.closed_ms) add(s, EVENT_CLOSED, 1, -1, s->rec.closed_ms);
    s->rec.seq_reserved = s->rec.seq;
    return 0;
}

int stored_session_repair(struct stored_session *s, int64_t now_ms, struct err *err) {
    bool failed = false;
    TRY(stored_session_interrupt(s, now_ms, err));
    repair_tree(s); // before the columns' fallbacks, which know less
    repair_row(&s->rec, &failed);
    repair_turns(s, &failed);
    if (failed) return err_set(err, E_NOMEM, "no memory to repair a session");
    if (stored_session_check(s, NULL) < 0) TRY(number_anew(s, err));
    return stored_session_check(s, err);
}
