// Answers and turns in the client's own words. See edit.h.
//
// An edit makes a finished turn beside the edited turn, with the same parent and input and the given words as its
// answer, and moves the head to the new turn. Like the versions of versions.c, the new turn has no event. Its `branch`
// is {"edited":T}: no token was sampled, so the turn cannot be replayed. The answer has no end token, like an answer
// that was stopped: the next message closes the answer, and a continuation extends it.
//
// A client may send an answer back in another form than the log has (struct given_answer). The next turn's request then
// begins with such a turn, with an input of its own and "sent_back":true in its `branch`.
//
// WRITE makes a finished turn of a message and an answer that the client brings, with the `branch` {"written":true}: of
// a conversation from elsewhere, or of one that goes on under another model or system prompt. A time that the client
// brings with the turn is the turn's time, and the session's last change.
#include "sessions/turns/edit.h"
#include "base/err.h"
#include "base/json.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/limits.h"
#include "sessions/saving/head.h"
#include "sessions/saving/save.h"
#include "sessions/state/tree.h"
#include "sessions/turns/input.h"
#include "sessions/turns/preparing.h"
#include "sessions/turns/rewind.h"
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// True: refused, because this turn cannot be edited, whatever the words are.
static bool refused(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct err err = {0};
    bool edits = r->kind == REQUEST_EDIT;
    if (!head_can_move(s, r, edits || r->turn != TURN_HEAD ? r->turn : s->head)) return true;
    if (ss->draining)
        refuse(ss, r, "shutting_down", "the server is shutting down");
    else if (!service_model(s))
        input_no_model(s, &err), refuse_err(ss, r, &err);
    else if (edits && session_turn(s, r->turn)->rec.log_first < 0)
        refuse(ss, r, "invalid", "turn %lld never began: it has no answer", (long long)r->turn);
    else
        return limits_refuse_turn(ss, r);
    return true;
}

// The words' ids, behind the path to `parent`. None: a worker makes them first, or the request was refused.
static bool words_made(struct session *s, const struct request *r, int64_t parent,
                       struct input_ids *out) {
    struct preparation *made = s->preparation;
    struct err err = {0};
    if (made && made->aborted) {
        refuse(s->service, r, "cancelled", "the request was cancelled");
        return false;
    }
    if (input_check(s, &r->input, &err) == 0 && made && made->rc < 0) err = made->err;
    struct input_source source = input_source_of(s, &r->input, parent);
    if (err.code == 0 && made && input_suits(&made->made, &source)) {
        *out = made->made;
        made->made = (struct input_ids){0};
        return true;
    }
    if (err.code == 0 && preparing_wanted(s, &r->input, parent, NULL)) {
        if (preparing_request(s, r, parent, NULL, &err) == 0) return false;
    } else if (err.code == 0 && input_encode(service_model(s)->engine, &source, out, &err) == 0) {
        return true;
    }
    refuse_err(s->service, r, &err);
    return false;
}

static int check_room(const struct session *s, const struct turn *t, size_t n, struct err *err) {
    int64_t left = s->rec.session_len - 1 - t->rec.log_first - t->rec.n_input;
    if (n == 0) return err_set(err, E_INVAL, "the answer has no tokens");
    if ((int64_t)n <= left) return 0;
    return input_full(s, "answer", (int64_t)n, false, left, err);
}

// Where in the text each token ends, as far as its bytes tell.
static int put_answer(struct turn *v, const struct engine *e, const char *text, size_t text_len,
                      struct input_ids *ids) {
    size_t end = 0, len;
    v->out.logprobs = calloc(ids->n, sizeof *v->out.logprobs);
    v->out.text_ends = calloc(ids->n, sizeof *v->out.text_ends);
    if (!v->out.logprobs || !v->out.text_ends) return E_NOMEM;
    TRY(buf_add(&v->out.text, text, text_len));
    for (size_t i = 0; i < ids->n; i++) {
        size_t before = end;
        engine_token_bytes(e, ids->ids[i], &len);
        end = end + len < text_len && i + 1 < ids->n ? end + len : text_len;
        size_t whole = end;
        while (whole > before && whole < text_len && (text[whole] & 0xc0) == 0x80) whole--;
        v->out.text_ends[i] =
            (uint32_t)(whole > before || i == 0 ? whole : v->out.text_ends[i - 1]);
    }
    v->out.ids = ids->ids;
    v->out.n = v->out.cap = ids->n;
    *ids = (struct input_ids){0};
    return 0;
}

// given: the client sent the answer back; no user wrote it.
static char *describe(int64_t turn, bool given) {
    char text[sizeof RECORD_EDITED + 48];
    snprintf(text, sizeof text, RECORD_EDITED "%" PRId64 "%s}", turn,
             given ? ",\"sent_back\":true" : "");
    return strdup(text);
}

// The request of the turn without its protocol's note: no client of that protocol asked for these words.
static int copy_request(struct turn_record *rec, const char *request) {
    struct err err = {0};
    cJSON *o = request ? json_parse(request, strlen(request), &json_limits_file, &err) : NULL;
    cJSON_DeleteItemFromObjectCaseSensitive(o, "note");
    free(rec->request);
    rec->request = o ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    return rec->request || !request ? 0 : E_NOMEM;
}

static struct turn *edited(const struct session *s, const struct turn *t, const struct request *r,
                           struct input_ids *ids) {
    struct turn *v = turn_new();
    struct turn_record rec = t->rec;
    int64_t now_ms = service_now_ms(s->service);
    char none[] = "";
    if (!v) return NULL;
    rec.request_id = (char *)r->request_id;
    rec.branch = rec.context = rec.error_message = NULL;
    rec.told = NULL;      // no client has got these words
    rec.thinking = false; // a user wrote an answer
    rec.error_code[0] = '\0';
    rec.instance = rec.build = none; // nothing computed it
    rec.logprobs = false;
    rec.n_alternatives = 0;
    rec.n_output = (int64_t)ids->n;
    rec.numbers = (struct turn_numbers){.input_tokens = rec.n_input,
                                        .output_tokens = rec.n_output,
                                        .log_tokens = rec.log_first + rec.n_input + rec.n_output};
    rec.seq_first = rec.seq_last = 1;
    rec.created_ms = rec.started_ms = rec.ended_ms = now_ms;
    snprintf(rec.finish_reason, sizeof rec.finish_reason, "stop");
    if (turn_record_copy(&v->rec, &rec) < 0 || copy_request(&v->rec, t->rec.request) < 0 ||
        !(v->rec.branch = describe(t->rec.turn, false)) ||
        put_answer(v, service_model(s)->engine, r->input.text, r->input.text_len, ids) < 0) {
        turn_free(v);
        return NULL;
    }
    turn_set(v, TURN_DONE);
    v->said = t->said;
    v->version = 1;
    return v;
}

// Puts the turn into the tree and moves the head to it, or changes nothing.
static int add(struct session *s, struct turn *v, struct pending *p) {
    v->rec.turn = (int64_t)s->n_turns;
    TRY(session_push_turn(s, v));
    tree_link(s, v);
    int rc = head_move(s, v->rec.turn, NULL, p);
    if (rc < 0) tree_unlink_newest(s);
    return rc;
}

// Takes v (NULL: no memory), adds it as the head and schedules its save; *out is its request. E_NOMEM.
static int add_take(struct session *s, struct turn *v, const struct request *r,
                    struct pending **out) {
    struct pending *p = v ? save_pending(s, PENDING_EDIT, r, 0) : NULL;
    if (!p || add(s, v, p) < 0) {
        if (p) pending_drop(&s->pending, p);
        turn_free(v);
        return E_NOMEM;
    }
    p->turn = v->rec.turn;
    p->seq = p->rewound_seq;
    if (r->kind == REQUEST_WRITE) s->rec.updated_ms = v->rec.created_ms;
    service_add_bytes(s, turn_bytes(&v->rec));
    save_now(s);
    *out = p;
    return 0;
}

// The request has made this turn before.
static int answer_again(struct session *s, const struct request *r, const struct turn *same) {
    struct request again = *r;
    again.turn = same->rec.turn;
    again.leaf = false;
    return rewind_start(s, &again);
}

int edit_start(struct session *s, const struct request *r) {
    struct input_ids ids = {0};
    struct err err = {0};
    const struct turn *same = session_find_request(s, r->request_id);
    if (same) return answer_again(s, r, same);
    // The words follow the same log as the turn's own answer, and that is not empty.
    if (refused(s, r) || !words_made(s, r, r->turn, &ids)) return 0;
    const struct turn *t = session_turn(s, r->turn);
    int rc = check_room(s, t, ids.n, &err);
    if (rc < 0) {
        input_ids_release(&ids);
        return refuse_err(s->service, r, &err);
    }
    struct pending *p;
    rc = add_take(s, edited(s, t, r, &ids), r, &p);
    input_ids_release(&ids);
    return rc;
}

// --- turns that no model answered --------------------------------------------

// A finished turn after `parent`: the question, its ids, its time (0: now), and what answers it. Takes *output, and *branch (NULL: no
// memory). NULL: no memory.
static struct turn *finished_turn(struct session *s, int64_t parent, const struct turn_record *as,
                                  const char *answer, struct input_ids *output, char *branch) {
    struct turn *v = branch ? turn_new() : NULL;
    struct turn_record rec = *as;
    int64_t now_ms = service_now_ms(s->service), first = tree_log_end(s, parent);
    int64_t at_ms = rec.created_ms && rec.created_ms < now_ms ? rec.created_ms : now_ms;
    char none[] = "", empty[] = "{}";
    rec.parent = parent;
    if (!rec.request_id) rec.request_id = none;
    rec.request = rec.sampling = empty;
    rec.kind = INPUT_CONTENT;
    rec.log_first = first;
    rec.n_input = (int64_t)rec.n_input_ids;
    rec.n_output = (int64_t)output->n;
    rec.instance = rec.build = none;
    rec.seq_first = rec.seq_last = 1;
    rec.created_ms = rec.started_ms = rec.ended_ms = at_ms;
    rec.numbers = (struct turn_numbers){.input_tokens = rec.n_input,
                                        .output_tokens = rec.n_output,
                                        .log_tokens = first + rec.n_input + rec.n_output};
    snprintf(rec.finish_reason, sizeof rec.finish_reason, "stop");
    if (!v || turn_record_copy(&v->rec, &rec) < 0 ||
        put_answer(v, service_model(s)->engine, answer, strlen(answer), output) < 0) {
        input_ids_release(output);
        free(branch);
        turn_free(v);
        return NULL;
    }
    v->rec.branch = branch;
    turn_note_input(v);
    turn_set(v, TURN_DONE);
    v->version = 1;
    return v;
}

static struct turn *given_turn(struct session *s, const struct given_answer *g, int64_t parent) {
    struct input_ids input = {0}, output = {.n = g->n_output};
    struct turn_input in = {.kind = INPUT_CONTENT, .ids = g->input, .n_ids = g->n_input};
    bool failed = false;
    int64_t of = session_turn(s, g->of) ? g->of : 0; // a fork may have no copy of it
    if (input_given(s, &in, parent, &input) < 0) return NULL;
    struct turn_record rec = {
        .input_text = g->question,
        .input_text_len = strlen(g->question),
        .input_ids = input.ids,
        .n_input_ids = input.n,
        .told = g->told,
        .shown = g->shown,
    };
    struct turn *v = NULL;
    output.ids = record_memdup(g->output, g->n_output * sizeof *g->output, &failed);
    if (!failed) v = finished_turn(s, parent, &rec, g->answer, &output, describe(of, true));
    input_ids_release(&input);
    return v;
}

int edit_given(struct session *s, const struct given_answer *g, int64_t parent,
               struct pending **out, struct err *err) {
    struct request none; // no client asked for it
    int64_t left = s->rec.session_len - 1 - tree_log_end(s, parent);
    if ((int64_t)(g->n_input + g->n_output) > left)
        return input_full(s, "conversation", (int64_t)(g->n_input + g->n_output), false, left, err);
    request_init(&none, REQUEST_EDIT);
    if (add_take(s, given_turn(s, g, parent), &none, out) < 0)
        return err_set(err, E_NOMEM, "the server is out of memory");
    return 0;
}

// --- written turns -----------------------------------------------------------

static struct turn *written(struct session *s, const struct request *r, int64_t parent,
                            const struct input_ids *made) {
    size_t n_input = made->n - made->n_answer;
    bool failed = false;
    struct input_ids output = {.n = made->n_answer};
    struct turn_record rec = {
        .request_id = (char *)r->request_id,
        .input_text = (char *)r->input.text,
        .input_text_len = r->input.text_len,
        .input_ids = made->ids,
        .n_input_ids = n_input,
        .thinking = made->thinking,
        .created_ms = r->write.created_ms,
    };
    output.ids = record_memdup(made->ids + n_input, output.n * sizeof *output.ids, &failed);
    if (failed) return NULL;
    return finished_turn(s, parent, &rec, made->answer, &output, strdup(RECORD_WRITTEN));
}

int write_start(struct session *s, const struct request *r) {
    struct input_ids ids = {0};
    const struct turn *same = session_find_request(s, r->request_id);
    if (same) return answer_again(s, r, same);
    int64_t parent = r->turn == TURN_HEAD ? s->head : r->turn;
    if (r->input.answer_len == 0) return refuse(s->service, r, "invalid", "text is empty");
    if (refused(s, r) || !words_made(s, r, parent, &ids)) return 0;
    int64_t left = s->rec.session_len - 1 - tree_log_end(s, parent);
    struct err err = {0};
    struct pending *p;
    int rc = 0;
    if (ids.n_answer == 0)
        rc = err_set(&err, E_INVAL, "the answer has no tokens");
    else if ((int64_t)ids.n > left)
        rc = input_full(s, "message and answer", (int64_t)ids.n, false, left, &err);
    if (rc < 0)
        refuse_err(s->service, r, &err), rc = 0;
    else
        rc = add_take(s, written(s, r, parent, &ids), r, &p);
    input_ids_release(&ids);
    return rc;
}
