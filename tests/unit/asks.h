// Requests to the session service in one call each, as tests write them. `from` gives client, owner
// and request id; sampling is JSON text, which a test writes without mistakes.
#pragma once
#pragma GCC diagnostic ignored "-Wunused-function" // no test needs all of it
#include "sessions/sessions.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_VOCAB 1000000

static struct request ask_as(const struct request *from, enum request_kind kind, const char *id) {
    struct request r;
    request_init(&r, kind);
    r.client = from->client;
    r.owner = from->owner;
    r.session = id;
    memcpy(r.request_id, from->request_id, sizeof r.request_id);
    return r;
}

static void ask_with(struct sessions *ss, struct request *r, const char *sampling) {
    static struct turn_sampling given;
    struct err err = {0};
    turn_sampling_init(&given);
    if (sampling && sampling_json_apply(&given, sampling, ASK_VOCAB, &err) < 0) {
        fprintf(stderr, "%s: %s\n", sampling, err.text);
        abort();
    }
    if (sampling) r->sampling = &given;
    sessions_submit(ss, r);
    turn_sampling_release(&given);
}

static struct turn_input ask_content(const char *text) {
    return (struct turn_input){.kind = INPUT_CONTENT, .text = text, .text_len = strlen(text)};
}

struct ask_open {
    const char *id, *model;
    int64_t session_len, memory_len, sink_len;
    const char *system, *title, *sampling;
    int64_t cancel_after_ms;
};
static void ask_open(struct sessions *ss, const struct request *from, const struct ask_open *o) {
    struct request r = ask_as(from, REQUEST_OPEN, o->id);
    r.open.model = o->model;
    r.open.session_len = o->session_len;
    r.open.memory_len = o->memory_len;
    r.open.sink_len = o->sink_len;
    r.open.system = o->system;
    r.title = o->title;
    r.cancel_after_ms = o->cancel_after_ms;
    ask_with(ss, &r, o->sampling);
}
static void ask_attach(struct sessions *ss, const struct request *from, const char *id,
                       int64_t after) {
    struct request r = ask_as(from, REQUEST_ATTACH, id);
    r.after = after;
    sessions_submit(ss, &r);
}
// For kinds of request that need a turn at most; turn TURN_HEAD: the default.
static void ask_for(struct sessions *ss, const struct request *from, enum request_kind kind,
                    const char *id, int64_t turn) {
    struct request r = ask_as(from, kind, id);
    r.turn = turn;
    sessions_submit(ss, &r);
}
static void ask_get(struct sessions *ss, const struct request *from, const char *id, bool attach,
                    int64_t last, int64_t before) {
    struct request r = ask_as(from, REQUEST_GET, id);
    r.attach = attach;
    r.last = last;
    r.before = before;
    sessions_submit(ss, &r);
}
static void ask_list(struct sessions *ss, const struct request *from, const char *query,
                     const char *forked_from, int64_t limit, const char *cursor) {
    struct request r = ask_as(from, REQUEST_LIST, NULL);
    r.list.query = query;
    r.list.forked_from = forked_from;
    r.limit = limit;
    r.list.cursor = cursor;
    sessions_submit(ss, &r);
}
static void ask_update(struct sessions *ss, const struct request *from, const char *id,
                       const char *title, const char *sampling, int64_t cancel_after_ms) {
    struct request r = ask_as(from, REQUEST_UPDATE, id);
    r.title = title;
    r.cancel_after_ms = cancel_after_ms;
    ask_with(ss, &r, sampling);
}
static void ask_close(struct sessions *ss, const struct request *from, const char *id,
                      bool delete_it) {
    struct request r = ask_as(from, REQUEST_CLOSE, id);
    r.close.delete_it = delete_it;
    sessions_submit(ss, &r);
}
static void ask_start(struct sessions *ss, const struct request *from, const char *id,
                      int64_t after, const struct turn_input *input, const char *sampling,
                      bool queue) {
    struct request r = ask_as(from, REQUEST_START, id);
    r.turn = after;
    r.input = *input;
    r.start.queue = queue;
    ask_with(ss, &r, sampling);
}
static void ask_again(struct sessions *ss, const struct request *from, const char *id, int64_t turn,
                      const char *sampling) {
    struct request r = ask_as(from, REQUEST_REGENERATE, id);
    r.turn = turn;
    ask_with(ss, &r, sampling);
}
static void ask_rewind(struct sessions *ss, const struct request *from, const char *id,
                       int64_t turn, bool leaf) {
    struct request r = ask_as(from, REQUEST_REWIND, id);
    r.turn = turn;
    r.leaf = leaf;
    sessions_submit(ss, &r);
}
static void ask_fork(struct sessions *ss, const struct request *from, const char *id, int64_t turn,
                     const char *new_session, const char *title) {
    struct request r = ask_as(from, REQUEST_FORK, id);
    r.turn = turn;
    r.fork.new_session = new_session;
    r.title = title;
    sessions_submit(ss, &r);
}
static void ask_for_events(struct sessions *ss, const struct request *from, const char *id,
                           int64_t before, int64_t last) {
    struct request r = ask_as(from, REQUEST_EVENTS, id);
    r.before = before;
    r.last = last;
    sessions_submit(ss, &r);
}
static void ask_cancel_replay(struct sessions *ss, const struct request *from, const char *id) {
    struct request r = ask_as(from, REQUEST_CANCEL, id);
    r.cancel.replay = true;
    sessions_submit(ss, &r);
}
static void ask_import(struct sessions *ss, const struct request *from, const char *json,
                       size_t len) {
    struct request r = ask_as(from, REQUEST_IMPORT, NULL);
    r.import.archive = json;
    r.import.archive_len = len;
    sessions_submit(ss, &r);
}
