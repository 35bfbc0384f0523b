// Sending and ending. See outgoing.h.
#include "ws/parley/outgoing.h"
#include "base/array.h"
#include "base/log.h"
#include "ws/net/websocket.h"
#include "ws/parley/protocol.h"
#include <stdlib.h>
#include <string.h>

// Of one joined delta: a slow reader gets few long ones, and none is huge.
#define EVENT_TEXT_BYTES 4096
// Unsent answers beyond which nothing more is read from the client.
#define PAUSE_OUTBOX_BYTES ((size_t)256 << 10)
// As many while all connections together, or those of its owner, have more than these.
#define PAUSE_SCARCE_BYTES ((size_t)32 << 10)
#define WAITING_BYTES ((size_t)64 << 20)
#define OWNER_WAITING_BYTES ((size_t)16 << 20)
#define NEXT_PIECE_BYTES ((size_t)32 << 10) // unsent bytes below which a list or export goes on
#define CLOSE_GRACE_US 10000000             // for the last frames and the close handshake
#define RATE_LINGER_US 1000000     // after a flooder's close frame, in which it may read it
#define CHANGED_INTERVAL_US 100000 // session.changed are coalesced this long
#define PUSH_MAX 4                 // writes of one connection before others get their turn
#define MAX_READY 4096             // sessions with events at once
// Of one owner: a change goes to each of its watchers, so it may cost as much as many requests
// (README.md, Security).
static const struct rate_limit changes_limit = {.per_second = 5000, .burst = 1000};

static void want_write(struct outgoing *o) {
    if (o->close_sent) return;
    if (!o->waiting_us) o->waiting_us = net_now_us();
    websocket_want_write(o->peer);
}

static void count_waiting(struct outgoing *o) {
    size_t bytes = o->outbox.bytes + o->changes.bytes;
    o->service->waiting_bytes += bytes - o->counted;
    if (o->counted_for) o->counted_for->waiting_bytes -= o->counted;
    o->counted_for = o->peer->as.owner;
    if (o->counted_for) o->counted_for->waiting_bytes += bytes;
    o->counted = bytes;
}

// All its owner's connections together, or all there are, have too much.
static enum budget budget_of(const struct outgoing *o) {
    if (o->service->waiting_bytes > WAITING_BYTES) return BUDGET_SERVER;
    bool much = o->counted_for && o->counted_for->waiting_bytes > OWNER_WAITING_BYTES;
    return much ? BUDGET_OWNER : BUDGET_CONNECTION;
}

static bool is_scarce(const struct outgoing *o) {
    return budget_of(o) != BUDGET_CONNECTION;
}

// Answers pile up only when requests come faster than they are read: then the requests wait.
static void pace(struct outgoing *o) {
    count_waiting(o);
    if (o->close_code) return;
    size_t most = is_scarce(o) ? PAUSE_SCARCE_BYTES : PAUSE_OUTBOX_BYTES;
    if (o->outbox.bytes > most) {
        if (!(o->peer->pauses & PAUSE_OUTPUT))
            metric_add(o->service->metrics.over_budget[budget_of(o)], 1);
        websocket_pause(o->peer, PAUSE_OUTPUT, true);
    }
    if (o->outbox.bytes <= most / 2) websocket_pause(o->peer, PAUSE_OUTPUT, false);
}

static void no_memory(struct outgoing *o) { // ends this connection only
    outgoing_end(o, CLOSE_INTERNAL, "no memory");
}

static int store_tx(struct outgoing *o, struct outbox *into) {
    struct buf *tx = &o->service->net->tx;
    struct json_gaps *gaps = &o->service->gaps;
    for (size_t i = 0; i < gaps->n; i++) gaps->list[i].at -= LWS_PRE;
    int rc =
        tx->error ? tx->error : outbox_add_gaps(into, tx->data + LWS_PRE, tx->len - LWS_PRE, gaps);
    gaps->n = 0;
    return rc;
}

struct buf *outgoing_tx(struct outgoing *o) {
    o->service->gaps.n = 0;
    return websocket_tx(o->service->net);
}

void outgoing_queue(struct outgoing *o) {
    if (store_tx(o, &o->outbox) < 0) {
        no_memory(o);
        return;
    }
    want_write(o);
    pace(o);
}

void outgoing_error(struct outgoing *o, const char *code, const char *message,
                    const char *request_id, int64_t retry_after_ms) {
    if (o->close_code) return;
    metric_add(o->service->metrics.errors_out, 1);
    protocol_write_error(outgoing_tx(o), code, message, request_id, NULL, retry_after_ms);
    outgoing_queue(o);
}

// --- frames ---

static int write_chunk(struct outgoing *o, size_t len, bool first, bool last) {
    if (last) metric_add(o->service->metrics.frames_out, 1);
    return websocket_write_text(o->peer, len, first, last);
}

// The next piece of the outbox's first frame.
static int send_queued(struct outgoing *o) {
    struct buf *tx = outgoing_tx(o);
    bool first, last, escape;
    size_t n;
    const char *bytes = outbox_next(&o->outbox, NET_CHUNK_BYTES, &n, &first, &last, &escape);
    if (escape)
        json_escape(tx, bytes, n);
    else
        buf_add(tx, bytes, n);
    if (tx->error) return -1;
    outbox_sent(&o->outbox, n);
    return write_chunk(o, tx->len - LWS_PRE, first, last);
}

static int write_tx(struct outgoing *o) {
    struct buf *tx = &o->service->net->tx;
    if (!tx->error && tx->len - LWS_PRE <= NET_CHUNK_BYTES && o->service->gaps.n == 0)
        return write_chunk(o, tx->len - LWS_PRE, true, true);
    if (store_tx(o, &o->outbox) == 0) return send_queued(o);
    no_memory(o);
    return 0;
}

static void drop_ready(struct outgoing *o, size_t i) {
    memmove(o->ready + i, o->ready + i + 1, (--o->n_ready - i) * sizeof(*o->ready));
}

// Encodes the next event of s into tx. false: none may be told yet.
static bool next_event(struct outgoing *o, struct session *s, struct session_event *ev) {
    if (session_next_event(s, o->follower.client, EVENT_TEXT_BYTES, ev) != 1) return false;
    protocol_write_event(outgoing_tx(o), &o->service->gaps, ev, session_id(s), session_engine(s));
    return true;
}

static int send_event(struct outgoing *o) {
    struct session_event ev;
    while (o->n_ready > 0) {
        struct session *s = o->ready[0];
        drop_ready(o, 0);
        if (!next_event(o, s, &ev)) continue;
        o->ready[o->n_ready++] = s; // at the end: sessions take turns
        int64_t drawn_us = ev.kind == EVENT_DELTA ? ev.drawn_us : 0;
        if (write_tx(o) < 0) return -1;
        service_count_token(o->service, drawn_us);
        return 0;
    }
    return 0;
}

// By hand: where libwebsockets was built with _DEBUG, as Debian's 4.1.6 is, its libuv service
// closes a connection twice when a callback asks for it, and the second time the close frame is
// thrown away. The client's own close frame, or outgoing_tick, then ends the socket.
static int send_close(struct outgoing *o) {
    struct buf *tx = outgoing_tx(o);
    unsigned char code[2] = {(unsigned char)(o->close_code >> 8), (unsigned char)o->close_code};
    buf_add(tx, code, 2);
    if (buf_addz(tx, o->close_reason) < 0) return -1;
    o->close_sent = true;
    int rc = websocket_write_close(o->peer, tx->len - LWS_PRE);
    if (o->close_code == CLOSE_RATE)
        o->end_by_us = net_now_us() + RATE_LINGER_US; // its own would come behind its flood
    else
        websocket_pause(o->peer, PAUSE_OUTPUT, false); // for the client's close frame
    return rc;
}

// One session.changed, of what the session is now.
static int send_changed(struct outgoing *o) {
    struct session_view view;
    struct change c;
    o->changed_us = net_now_us();
    if (!rate_take(&o->peer->as.owner->changes, &changes_limit, 1, o->changed_us)) {
        o->changed_due = false;
        metric_add(o->service->metrics.over_budget[BUDGET_CHANGES], 1);
        service_later(o->service, CHANGED_INTERVAL_US / 1000);
        return 0;
    }
    changes_take(&o->changes, &c);
    o->changed_due = o->changes.n > 0;
    if (c.removed) {
        view = (struct session_view){.rec.id = c.removed};
        protocol_write_changed(outgoing_tx(o), &view, true);
        free(c.removed);
        return write_tx(o);
    }
    int rc = sessions_changed(o->service->sessions, o->follower.client, o->owner, c.key, &view);
    if (rc < 0) no_memory(o);
    o->reading_change = rc == 0;
    if (rc <= 0) return 0;
    protocol_write_changed(outgoing_tx(o), &view, false);
    return write_tx(o);
}

static bool change_is_due(const struct outgoing *o) {
    return o->changed_due && o->changes.n > 0 && !o->reading_change;
}

// Nothing goes between two pieces of a message.
static bool pending(const struct outgoing *o) {
    if (o->close_code && o->skips) return true;
    if (!outbox_empty(&o->outbox)) return outbox_ready(&o->outbox);
    return o->close_code || change_is_due(o) || o->n_ready > 0;
}

static void ask_for_next_piece(struct outgoing *o) {
    if (!o->outbox.open || o->reading_piece || o->close_code) return;
    if (o->outbox.bytes > (is_scarce(o) ? 0 : NEXT_PIECE_BYTES)) return;
    o->reading_piece = true;
    sessions_continue(o->service->sessions, o->follower.client);
    service_poll_soon(o->service);
}

// One frame, or a piece of one. 0, or -1 when the socket is broken.
static int send_one(struct outgoing *o) {
    int rc = 0;
    if (o->close_code && (o->skips || outbox_empty(&o->outbox))) return send_close(o);
    if (outbox_ready(&o->outbox))
        rc = send_queued(o);
    else if (outbox_empty(&o->outbox) && change_is_due(o))
        rc = send_changed(o);
    else if (outbox_empty(&o->outbox))
        rc = send_event(o);
    ask_for_next_piece(o);
    pace(o);
    return rc;
}

int outgoing_writable(struct outgoing *o) {
    if (o->close_sent) return 0;
    o->waiting_us = 0; // the socket took what it had
    if (send_one(o) < 0) return -1;
    if (pending(o)) want_write(o);
    return 0;
}

// Asking for a writable callback costs two epoll_ctl and a turn-round of the loop: as much as the
// write itself. So what has just become ready is written at once while the socket says, before each
// write, that it takes more.
static void push(struct follower *f) {
    struct outgoing *o = (struct outgoing *)f;
    for (int i = 0; i < PUSH_MAX && pending(o) && !o->close_sent; i++) {
        if (o->waiting_us || websocket_choked(o->peer)) break;
        if (send_one(o) < 0) {
            websocket_kill(o->peer);
            return;
        }
    }
    if (pending(o)) want_write(o);
}

static bool is_drained(const struct follower *f) {
    const struct outgoing *o = (const struct outgoing *)f;
    return !o->n_ready && outbox_empty(&o->outbox);
}

// --- the end ---

static void forget_client(struct outgoing *o) {
    sessions_client_gone(o->service->sessions, o->follower.client);
    service_poll_soon(o->service);
}

void outgoing_end(struct outgoing *o, int code, const char *reason) {
    if (o->close_code) return;
    o->close_code = code;
    o->close_reason = reason;
    o->end_by_us = net_now_us() + CLOSE_GRACE_US;
    // The rest of an open message will not come.
    o->skips = code == CLOSE_SLOW || code == CLOSE_INTERNAL || o->outbox.open;
    o->n_ready = 0;
    changes_release(&o->changes);
    count_waiting(o);
    forget_client(o);
    // A flooder is read no more. libwebsockets would also write the pongs of a flood of pings before
    // anything of ours.
    if (code == CLOSE_RATE) websocket_pause(o->peer, PAUSE_OUTPUT, true);
    want_write(o);
    log_info("ws.end", "client=%llu code=%d reason=\"%s\"", (unsigned long long)o->follower.client,
             code, reason);
}

void outgoing_tick(struct outgoing *o, int64_t now_us) {
    int64_t patience_us = (int64_t)(o->service->config->slow_reader_timeout * 1e6);
    if (o->close_code) {
        if (now_us > o->end_by_us) websocket_kill(o->peer);
    } else if (o->waiting_us && now_us - o->waiting_us > patience_us) {
        metric_add(o->service->metrics.slow_readers, 1);
        outgoing_end(o, CLOSE_SLOW, "reads too slowly: attach again");
    }
}

// --- from the session service ---

// Events of s that may be told go into the outbox, joined, as far as it has room.
static void pull_events(struct outgoing *o, struct session *s) {
    struct session_event ev;
    while (!o->close_code && o->outbox.bytes < PAUSE_OUTBOX_BYTES && next_event(o, s, &ev))
        outgoing_queue(o);
}

static bool comes_in_pieces(const struct session_answer *a) {
    return a->kind == ANSWER_LIST || a->kind == ANSWER_EXPORTED || a->position;
}

static bool is_last_piece(const struct session_answer *a) { // of an answer that has been encoded
    return a->position ? !a->position->more : a->last;
}

static void take_piece(struct outgoing *o, const struct session_answer *a) {
    const struct buf *tx = &o->service->net->tx;
    o->reading_piece = false;
    if (tx->error || !o->outbox.open ||
        outbox_extend(&o->outbox, tx->data + LWS_PRE, tx->len - LWS_PRE, is_last_piece(a)) < 0)
        no_memory(o);
}

// What of `held` goes behind the events of the answer's session.
static void store_answer(struct outgoing *o, const struct session_answer *a, struct outbox *held) {
    for (size_t i = o->n_ready; a->session_id && a->kind != ANSWER_ATTACHED && i-- > 0;) {
        if (strcmp(session_id(o->ready[i]), a->session_id) != 0) continue;
        pull_events(o, o->ready[i]);
        // Detached: no callback reports its end.
        if (a->kind == ANSWER_DETACHED && i < o->n_ready) drop_ready(o, i);
    }
    if (o->close_code)
        outbox_release(held);
    else
        outbox_append(&o->outbox, held);
}

// An answer about a session does not overtake the events that came before it; but for
// session.attached: what its client has yet to get is what comes behind `after`, and so behind the
// answer. It is encoded first: what it points to may not outlive another call on its session.
static void on_answer(struct follower *f, const struct session_answer *a) {
    struct outgoing *o = (struct outgoing *)f;
    struct outbox held = {0};
    if (a->kind == ANSWER_CHANGED) o->reading_change = false;
    if (o->close_code) return;
    if (a->kind == ANSWER_ERROR) metric_add(o->service->metrics.errors_out, 1);
    if (a->kind != ANSWER_CHANGED || a->session.rec.id) {
        protocol_write_answer(outgoing_tx(o), comes_in_pieces(a) ? NULL : &o->service->gaps, a);
        if (comes_in_pieces(a) && !a->first)
            take_piece(o, a);
        else if (store_tx(o, &held) < 0)
            no_memory(o);
        else
            store_answer(o, a, &held);
        if (comes_in_pieces(a) && a->first && !is_last_piece(a) && !o->close_code)
            outbox_open_last(&o->outbox);
    }
    if (!o->close_code) want_write(o);
    pace(o);
}

static void on_ready(struct follower *f, struct session *s) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->close_code) return;
    for (size_t i = 0; i < o->n_ready; i++)
        if (o->ready[i] == s) return;
    if (o->n_ready == MAX_READY || ARRAY_RESERVE(o->ready, o->cap_ready, o->n_ready + 1) < 0) {
        outgoing_end(o, CLOSE_INTERNAL, "too many sessions at once");
        return;
    }
    o->ready[o->n_ready++] = s;
    if (!follower_push_later(&o->service->followers, &o->follower)) want_write(o);
}

static void on_progress(struct follower *f, struct session *s, int64_t turn, int64_t done,
                        int64_t total) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->close_code || !outbox_empty(&o->outbox)) return; // only the latest is of interest
    protocol_write_progress(outgoing_tx(o), session_id(s), turn, done, total);
    outgoing_queue(o);
}

static void on_stalled(struct follower *f, struct session *s, const char *reason) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->close_code) return;
    protocol_write_stalled(outgoing_tx(o), session_id(s), reason);
    outgoing_queue(o);
}

static void on_moved(struct follower *f, struct session *s, int64_t turn, const char *reason) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->close_code) return;
    protocol_write_moved(outgoing_tx(o), session_id(s), turn, reason);
    outgoing_queue(o);
}

// The service's last events of s go out, the pointer to it goes.
static void on_gone(struct follower *f, struct session *s) {
    struct outgoing *o = (struct outgoing *)f;
    pull_events(o, s);
    for (size_t i = o->n_ready; i-- > 0;)
        if (o->ready[i] == s) drop_ready(o, i);
}

static void on_changed(struct follower *f, int64_t key, const char *owner, const char *id,
                       bool removed) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->close_code || !o->owner || strcmp(o->owner, owner) != 0) return;
    if (changes_add(&o->changes, key, removed ? id : NULL) < 0) {
        outgoing_end(o, CLOSE_SLOW, "too many changes are waiting");
        return;
    }
    count_waiting(o);
    if (o->changed_due) return;
    if (net_now_us() - o->changed_us >= CHANGED_INTERVAL_US) {
        o->changed_due = true;
        want_write(o);
    } else {
        service_later(o->service, CHANGED_INTERVAL_US / 1000);
    }
}

// Coalesced session.changed are due.
static void on_later(struct follower *f, int64_t now_us) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->close_code || o->changed_due || o->changes.n == 0) return;
    o->changed_due = true;
    want_write(o);
}

// --- life ---

static void on_end(struct follower *f) {
    outgoing_end((struct outgoing *)f, CLOSE_GOING_AWAY, "shutting down");
}

static const struct follower_ops follower_ops = {.on_answer = on_answer,
                                                 .on_ready = on_ready,
                                                 .on_progress = on_progress,
                                                 .on_stalled = on_stalled,
                                                 .on_moved = on_moved,
                                                 .on_gone = on_gone,
                                                 .on_changed = on_changed,
                                                 .push = push,
                                                 .later = on_later,
                                                 .drained = is_drained,
                                                 .end = on_end};

int outgoing_init(struct outgoing *o, struct service *s, struct peer *p) {
    *o = (struct outgoing){.follower.ops = &follower_ops, .service = s, .peer = p};
    return followers_add(&s->followers, &o->follower);
}

void outgoing_release(struct outgoing *o) {
    if (!o->close_code) {
        o->close_code = CLOSE_GOING_AWAY;
        forget_client(o);
    }
    outbox_release(&o->outbox);
    changes_release(&o->changes);
    count_waiting(o);
    free(o->ready);
    followers_remove(&o->service->followers, &o->follower);
}
