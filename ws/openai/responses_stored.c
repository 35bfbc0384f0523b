// GET, DELETE and cancel of a response, and its input items. See responses.h. All begin by looking up the
// turn's record, which a worker replays.
#include "base/json_form.h"
#include "ws/openai/responses.h"
#include "ws/openai/responses_run.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANE_STORED ((uint64_t)7 << 60)
#define REPLY_MAX_BYTES ((size_t)256 << 20)
#define PAGE_DEFAULT 20
#define PAGE_MAX 100

// LOOKING up the record, READING it on a worker; then it replies, STREAMS the events, or FOLLOWS a running turn.
// Deleting: MEASURING the session, DELETING it if it has nothing else; else only the turn.
enum stage { LOOKING, READING, READ, STREAMS, FOLLOWS, MEASURING, MEASURED, DELETING, DELETED };
enum asked { ASKED_GET, ASKED_STREAM, ASKED_DELETE, ASKED_CANCEL, ASKED_ITEMS };

struct stored {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct http *http; // NULL: its client is gone
    char *owner;
    enum asked asked;
    struct responses_id id;
    struct responses_page page;
    int64_t after; // the last event that its client has
    struct responses_lookup *lookup;
    struct responses_run *run; // it follows the turn
    struct responses_record record;
    struct service_job job;
    enum stage stage;
    bool whole;     // deleting: its session goes, which has nothing else
    bool streaming; // the stream's head has been sent
    struct buf out; // the reply's body, or the stream's events
    size_t sent;
    struct completion_failure failure;
};

static void destroy(struct stored *st) {
    service_drop_follower(st->service, &st->follower);
    responses_lookup_drop(st->lookup);
    responses_run_free(st->run);
    responses_record_release(&st->record);
    buf_release(&st->out);
    free(st->owner);
    free(st);
}

static void on_client_gone(void *ctx) {
    struct stored *st = ctx;
    st->http = NULL;
    if (st->stage != READING) destroy(st);
}

// --- replies ---------------------------------------------------------------

static void refuse(struct stored *st, const struct completion_failure *failure) {
    struct completion_failure f = *failure;
    char id[RESPONSES_ID_MAX];
    if (f.status == 404) {
        responses_id_response(id, st->id.session, st->id.turn);
        strcpy(f.code, "response_not_found");
        snprintf(f.message, sizeof f.message, "Response with id '%s' not found.", id);
    }
    openai_reply_failure(st->http, &f);
    destroy(st);
}

static void fail(struct stored *st, const char *code, const char *message) {
    struct completion_failure f = {0};
    completion_failure_set(&f, code, message);
    refuse(st, &f);
}

static void reply(struct stored *st) {
    if (st->out.error) {
        fail(st, "overloaded", "the server is out of memory");
        return;
    }
    http_reply_json(st->http, 200, &st->out);
    destroy(st);
}

// Sends as far as the socket has room.
static void send_stream(struct stored *st) {
    while (st->sent < st->out.len && http_stream_has_room(st->http)) {
        size_t n =
            st->out.len - st->sent < HTTP_ROOM_BYTES ? st->out.len - st->sent : HTTP_ROOM_BYTES;
        http_stream_write(st->http, st->out.data + st->sent, n);
        st->sent += n;
    }
    if (st->sent < st->out.len) return;
    http_stream_end(st->http);
    destroy(st);
}

static void on_room(void *ctx) {
    struct stored *st = ctx;
    if (st->stage == FOLLOWS)
        responses_run_pump(st->run);
    else if (st->stage == STREAMS)
        send_stream(st);
}

static const struct http_waiter waiter = {
    .client_gone = on_client_gone, .writable = on_room, .ping = HTTP_EVENTS_PING};

static void begin_stream(struct stored *st) {
    if (!st->streaming)
        http_stream(st->http, "text/event-stream", HTTP_EVENTS_HEADERS, &waiter, st);
    st->streaming = true;
}

// --- the worker's part -----------------------------------------------------

static void add_event(void *ctx, const char *type, const struct buf *json) {
    struct buf *out = ctx;
    buf_addf(out, "event: %s\ndata: ", type);
    buf_add(out, json->data, json->len);
    buf_addz(out, "\n\n");
}

static void write_response(struct stored *st) {
    struct responses_output o;
    bool stream = st->asked == ASKED_STREAM;
    responses_output_init(&o, st->record.echo, stream ? add_event : NULL, &st->out);
    o.after = st->after;
    o.logprobs = st->record.wants_logprobs;
    responses_record_play(&st->record, &o);
    if (!stream) responses_output_write(&o, &st->out);
    if (o.failed) st->out.error = E_NOMEM;
    responses_output_release(&o);
}

static void write_items(struct stored *st) {
    const cJSON *items = responses_record_input(&st->record);
    struct responses_id after = {.index = -1};
    struct json_writer w;
    int64_t n = cJSON_GetArraySize(items), step = st->page.ascending ? 1 : -1,
            left = st->page.limit;
    int64_t at = st->page.ascending ? 0 : n - 1, first = -1, last = -1;
    if (!items) {
        completion_failure_set(&st->failure, "not_found", NULL);
        return;
    }
    if (*st->page.after && responses_id_parse_item(st->page.after, &after)) at = after.index + step;
    json_writer_init(&w, &st->out);
    json_form(&w, "{object:'list',data:[");
    for (; at >= 0 && at < n && left > 0; at += step, left--) {
        responses_record_put_input(&st->record, &w, cJSON_GetArrayItem(items, (int)at), at);
        if (first < 0) first = at;
        last = at;
    }
    json_close(&w, ']');
    char id[RESPONSES_ID_MAX];
    responses_id_item(id, "msg", st->id.session, st->id.turn, first, true);
    json_put_string(&w, "first_id", first < 0 ? NULL : id);
    responses_id_item(id, "msg", st->id.session, st->id.turn, last, true);
    json_form(&w, "last_id:%s,has_more:%hhd}", last < 0 ? NULL : id, at >= 0 && at < n);
}

static void work_run(struct follower *f) {
    struct stored *st = (struct stored *)f;
    if (!st->record.echo && responses_record_read(&st->record, st->service) < 0)
        st->out.error = E_NOMEM;
    else if (st->asked == ASKED_ITEMS)
        write_items(st);
    else if (st->record.finish[0] || st->asked == ASKED_GET)
        write_response(st);
}

static void work_done(struct follower *f) {
    struct stored *st = (struct stored *)f;
    st->stage = READ;
    if (!st->http)
        destroy(st);
    else
        service_push(st->service, &st->follower);
}

static void begin_work(struct stored *st) {
    st->job = (struct service_job){.run = work_run, .done = work_done};
    st->stage = READING;
    if (service_work(st->service, &st->follower, st->owner, LANE_STORED, &st->job) == 0) return;
    st->stage = LOOKING;
    fail(st, "overloaded", "too many requests are being read");
}

// --- following a turn that runs --------------------------------------------

static bool has_room(void *ctx) {
    const struct stored *st = ctx;
    return !st->streaming || http_stream_has_room(st->http);
}

static void send_event(void *ctx, const char *type, const struct buf *json) {
    struct stored *st = ctx;
    begin_stream(st);
    responses_http_event(st->http, type, json);
}

static void on_refused(void *ctx, const struct completion_failure *f) {
    struct stored *st = ctx;
    if (st->streaming)
        http_stream_end(st->http);
    else
        openai_reply_failure(st->http, f);
    destroy(st);
}

static void on_ended(void *ctx) {
    struct stored *st = ctx;
    if (st->streaming || st->asked == ASKED_STREAM) {
        begin_stream(st);
        http_stream_end(st->http);
    } else {
        responses_http_reply(st->http, responses_run_output(st->run));
    }
    destroy(st);
}

static const struct responses_sink streamed = {
    .room = has_room, .event = send_event, .refused = on_refused, .ended = on_ended};
static const struct responses_sink whole = {
    .room = has_room, .refused = on_refused, .ended = on_ended};

static void follow(struct stored *st) {
    bool stream = st->asked == ASKED_STREAM;
    st->stage = FOLLOWS;
    buf_reset(&st->out);
    if (stream) begin_stream(st); // a proxy waits for its head
    st->run = responses_run_follow(st->service, st->owner, &st->record, st->after,
                                   stream ? &streamed : &whole, st);
    if (!st->run && st->streaming) {
        http_stream_end(st->http);
        destroy(st);
    } else if (!st->run) {
        fail(st, "overloaded", "the server is out of memory");
    } else if (st->asked == ASKED_CANCEL) {
        responses_run_cancel(st->run);
    }
}

// --- deleting --------------------------------------------------------------

static void submit(struct stored *st, enum request_kind kind) {
    struct request r = service_request(&st->follower, kind, st->owner, st->id.session);
    r.leaf = true;
    if (kind == REQUEST_CLOSE) r.close.delete_it = true;
    r.turn = st->id.turn;
    r.last = 1;
    service_submit(st->service, &r);
}

static void write_deleted(struct stored *st) {
    char id[RESPONSES_ID_MAX];
    responses_id_response(id, st->id.session, st->id.turn);
    json_form_to(&st->out, "{id:%s,object:'response.deleted',deleted:true}", id);
}

// --- as a follower ---------------------------------------------------------

static void show(struct stored *st) {
    bool runs = !st->record.finish[0];
    if (st->out.error || st->asked == ASKED_GET || st->asked == ASKED_ITEMS) {
        reply(st);
    } else if (runs) {
        follow(st);
    } else if (st->asked == ASKED_STREAM) {
        st->stage = STREAMS;
        begin_stream(st);
        send_stream(st);
    } else {
        reply(st); // a late cancel is answered with how the turn ended
    }
}

static void push(struct follower *f) {
    struct stored *st = (struct stored *)f;
    if (!st->http) return;
    if (st->failure.status) {
        refuse(st, &st->failure);
    } else if (st->stage == READ) {
        show(st);
    } else if (st->stage == MEASURED) {
        st->stage = DELETING;
        submit(st, st->whole ? REQUEST_CLOSE : REQUEST_ERASE);
    } else if (st->stage == DELETED) {
        reply(st);
    }
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct stored *st = (struct stored *)f;
    if (a->kind == ANSWER_ERROR) {
        completion_failure_take(&st->failure, a);
        if (st->stage == DELETING && strcmp(a->code, "unsupported") == 0)
            strcpy(st->failure.message, "Other responses continue this one: delete them first.");
    } else if (a->kind == ANSWER_STATE && st->stage == MEASURING) {
        st->stage = MEASURED;
        st->whole = a->session.rec.n_turns == 1 && !a->session.rec.note;
    } else if ((a->kind == ANSWER_CLOSED || a->kind == ANSWER_REWOUND) && st->stage == DELETING) {
        st->stage = DELETED;
        write_deleted(st);
    } else {
        return;
    }
    service_push(st->service, &st->follower);
}

static void on_end(struct follower *f) {
    struct stored *st = (struct stored *)f;
    if (!st->http || st->stage == READING || st->stage == FOLLOWS || st->stage == STREAMS) return;
    fail(st, "shutting_down", "the server is shutting down");
}

static const struct follower_ops follower_ops = {
    .on_answer = on_answer, .push = push, .end = on_end};

// --- the request -----------------------------------------------------------

static void looked_up(void *ctx, struct responses_record *r, const struct completion_failure *f) {
    struct stored *st = ctx;
    st->lookup = NULL;
    if (f->status) {
        refuse(st, f);
        return;
    }
    st->record = *r;
    if (st->asked == ASKED_DELETE) {
        st->stage = MEASURING;
        submit(st, REQUEST_GET);
    } else {
        begin_work(st);
    }
}

static bool read_number(const char *text, int64_t min, int64_t max, int64_t *out) {
    char *end;
    *out = strtoll(text, &end, 10);
    return *text && !*end && *out >= min && *out <= max;
}

const char *responses_page_read(struct responses_page *page, const struct http *h) {
    char value[RESPONSES_ID_MAX];
    *page = (struct responses_page){.limit = PAGE_DEFAULT};
    if (http_query(h, "limit", value, sizeof value) &&
        !read_number(value, 1, PAGE_MAX, &page->limit))
        return "limit";
    if (http_query(h, "order", value, sizeof value)) {
        page->ascending = strcmp(value, "asc") == 0;
        if (!page->ascending && strcmp(value, "desc") != 0) return "order";
    }
    http_query(h, "after", page->after, sizeof page->after);
    return NULL;
}

// Reads what the address asks for. Returns NULL, or the parameter at fault.
static const char *read_query(struct stored *st, const struct http *h) {
    char value[RESPONSES_ID_MAX];
    st->after = -1;
    if (st->asked == ASKED_GET && http_query(h, "stream", value, sizeof value)) {
        if (strcmp(value, "true") == 0) st->asked = ASKED_STREAM;
        if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0) return "stream";
    }
    if (st->asked == ASKED_STREAM && http_query(h, "starting_after", value, sizeof value) &&
        !read_number(value, 0, INT32_MAX, &st->after))
        return "starting_after";
    if (st->asked != ASKED_ITEMS) return NULL;
    return responses_page_read(&st->page, h);
}

// Reads /v1/responses/ID[/cancel | /input_items]. false: there is no such address, or the id is invalid.
static bool read_path(struct stored *st, const struct http *h) {
    const char *path = http_path(h) + strlen("/v1/responses/"), *slash = strchr(path, '/');
    char id[RESPONSES_ID_MAX];
    size_t n = slash ? (size_t)(slash - path) : strlen(path);
    enum http_method m = http_verb(h);
    if (n >= sizeof id) return false;
    memcpy(id, path, n);
    id[n] = '\0';
    if (!responses_id_parse(id, &st->id)) return false;
    st->asked = m == HTTP_DELETE ? ASKED_DELETE : ASKED_GET;
    if (!slash) return m != HTTP_POST;
    if (strcmp(slash, "/cancel") == 0) st->asked = ASKED_CANCEL;
    if (strcmp(slash, "/input_items") == 0) st->asked = ASKED_ITEMS;
    return st->asked == ASKED_CANCEL ? m == HTTP_POST : st->asked == ASKED_ITEMS && m != HTTP_POST;
}

static struct stored *stored_new(struct service *s, struct http *h) {
    struct stored *st = calloc(1, sizeof *st);
    if (!st) return NULL;
    *st = (struct stored){.follower.ops = &follower_ops, .service = s, .http = h};
    st->owner = strdup(http_owner(h));
    buf_init(&st->out, REPLY_MAX_BYTES);
    if (st->owner && followers_add(&s->followers, &st->follower) == 0) return st;
    free(st->owner);
    free(st);
    return NULL;
}

void openai_responses_stored_handle(void *user, struct http *h) {
    struct service *s = user;
    struct stored *st = stored_new(s, h);
    if (!st) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    struct completion_failure f = {0};
    const char *param = NULL;
    if (!read_path(st, h))
        openai_fail(&f, 404, "response_not_found", NULL, "There is no such response.");
    else if ((param = read_query(st, h)))
        openai_fail(&f, 400, "invalid_value", param,
                    "This parameter has a value that is not served.");
    if (!f.status) {
        http_wait(h, &waiter, st);
        st->lookup =
            responses_lookup_start(s, st->owner, st->id.session, st->id.turn, looked_up, st);
        if (!st->lookup) fail(st, "overloaded", "the server is out of memory");
        return;
    }
    openai_reply_failure(h, &f);
    destroy(st);
}
