// Sending. See outgoing.h.
#include "ws/parley/outgoing.h"
#include "base/array.h"
#include "ws/net/websocket.h"
#include "ws/parley/protocol.h"
#include <stdlib.h>
#include <string.h>

// Most bytes of one joined delta: a slow reader gets a few long deltas, but no huge one.
#define EVENT_TEXT_BYTES 4096
// With more unsent bytes of answers, nothing more is read from the client.
#define PAUSE_OUTBOX_BYTES ((size_t)256 << 10)
// The same, while all connections together, or those of its owner, have more than the next two.
#define PAUSE_SCARCE_BYTES ((size_t)32 << 10)
#define WAITING_BYTES ((size_t)64 << 20)
#define OWNER_WAITING_BYTES ((size_t)16 << 20)
#define NEXT_PIECE_BYTES ((size_t)32 << 10) // unsent bytes below which a list or export goes on
#define CHANGED_INTERVAL_US 100000          // session.changed are coalesced this long
#define MAX_READY 4096                      // sessions with events at once
// Of one owner: a change goes to each of its watchers, so it may cost as much as many requests
// (README.md, Security).
static const struct rate_limit changes_limit = {.per_second = 5000, .burst = 1000};

static void count_waiting(struct outgoing *o) {
    size_t bytes = o->socket.outbox.bytes + o->changes.bytes;
    o->socket.service->waiting_bytes += bytes - o->counted;
    if (o->counted_for) o->counted_for->waiting_bytes -= o->counted;
    o->counted_for = o->socket.peer->as.owner;
    if (o->counted_for) o->counted_for->waiting_bytes += bytes;
    o->counted = bytes;
}

// The budget that is exceeded: the server's, the owner's, or at most the connection's own.
static enum budget budget_of(const struct outgoing *o) {
    if (o->socket.service->waiting_bytes > WAITING_BYTES) return BUDGET_SERVER;
    bool much = o->counted_for && o->counted_for->waiting_bytes > OWNER_WAITING_BYTES;
    return much ? BUDGET_OWNER : BUDGET_CONNECTION;
}

static bool is_scarce(const struct outgoing *o) {
    return budget_of(o) != BUDGET_CONNECTION;
}

// Answers pile up only when requests come faster than they are read: then the requests wait.
static void pace(struct outgoing *o) {
    count_waiting(o);
    if (o->socket.close_code) return;
    size_t most = is_scarce(o) ? PAUSE_SCARCE_BYTES : PAUSE_OUTBOX_BYTES;
    if (o->socket.outbox.bytes > most) {
        if (!(o->socket.peer->pauses & PAUSE_OUTPUT))
            metric_add(o->socket.service->metrics.over_budget[budget_of(o)], 1);
        websocket_pause(o->socket.peer, PAUSE_OUTPUT, true);
    }
    if (o->socket.outbox.bytes <= most / 2) websocket_pause(o->socket.peer, PAUSE_OUTPUT, false);
}

static int store_tx(struct outgoing *o, struct outbox *into) {
    struct buf *tx = &o->socket.service->net->tx;
    struct json_gaps *gaps = &o->socket.service->gaps;
    for (size_t i = 0; i < gaps->n; i++) gaps->list[i].at -= NET_TX_ROOM;
    int rc = tx->error ? tx->error
                       : outbox_add_gaps(into, tx->data + NET_TX_ROOM, tx->len - NET_TX_ROOM, gaps);
    gaps->n = 0;
    return rc;
}

struct buf *outgoing_tx(struct outgoing *o) {
    o->socket.service->gaps.n = 0;
    return websocket_tx(o->socket.service->net);
}

void outgoing_queue(struct outgoing *o) {
    if (store_tx(o, &o->socket.outbox) < 0) {
        socket_no_memory(&o->socket);
        return;
    }
    socket_want_write(&o->socket);
    pace(o);
}

void outgoing_error(struct outgoing *o, const char *code, const char *message,
                    const char *request_id, int64_t retry_after_ms, const struct err_facts *facts) {
    if (o->socket.close_code) return;
    metric_add(o->socket.service->metrics.errors_out, 1);
    protocol_write_error(outgoing_tx(o), code, message, request_id, NULL, retry_after_ms, facts);
    outgoing_queue(o);
}

// --- frames ---

static int write_tx(struct outgoing *o) {
    struct buf *tx = &o->socket.service->net->tx;
    if (!tx->error && tx->len - NET_TX_ROOM <= NET_CHUNK_BYTES && o->socket.service->gaps.n == 0)
        return socket_send_tx(&o->socket);
    if (store_tx(o, &o->socket.outbox) == 0) return socket_send_queued(&o->socket);
    socket_no_memory(&o->socket);
    return 0;
}

static void drop_ready(struct outgoing *o, size_t i) {
    memmove(o->ready + i, o->ready + i + 1, (--o->n_ready - i) * sizeof(*o->ready));
}

// Encodes the next event of s into tx. false: this client may not get the next event yet, or there is none.
static bool next_event(struct outgoing *o, struct session *s, struct session_event *ev) {
    if (session_next_event(s, o->socket.follower.client, EVENT_TEXT_BYTES, ev) != 1) return false;
    protocol_write_event(outgoing_tx(o), &o->socket.service->gaps, ev, session_id(s),
                         session_engine(s));
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
        service_count_token(o->socket.service, drawn_us);
        return 0;
    }
    return 0;
}

// One session.changed, with the session's present state.
static int send_changed(struct outgoing *o) {
    struct session_view view;
    struct change c;
    o->changed_us = net_now_us();
    if (!rate_take(&o->socket.peer->as.owner->changes, &changes_limit, 1, o->changed_us)) {
        o->changed_due = false;
        metric_add(o->socket.service->metrics.over_budget[BUDGET_CHANGES], 1);
        service_later(o->socket.service, CHANGED_INTERVAL_US / 1000);
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
    int rc = sessions_changed(o->socket.service->sessions, o->socket.follower.client, o->owner,
                              c.key, &view);
    if (rc < 0) socket_no_memory(&o->socket);
    o->reading_change = rc == 0;
    if (rc <= 0) return 0;
    protocol_write_changed(outgoing_tx(o), &view, false);
    return write_tx(o);
}

static bool change_is_due(const struct outgoing *o) {
    return o->changed_due && o->changes.n > 0 && !o->reading_change;
}

bool outgoing_has_more(const struct socket *s) {
    const struct outgoing *o = (const struct outgoing *)s;
    return change_is_due(o) || o->n_ready > 0;
}

int outgoing_send(struct socket *s) {
    struct outgoing *o = (struct outgoing *)s;
    return change_is_due(o) ? send_changed(o) : send_event(o);
}

static void ask_for_next_piece(struct outgoing *o) {
    if (!o->socket.outbox.open || o->reading_piece || o->socket.close_code) return;
    if (o->socket.outbox.bytes > (is_scarce(o) ? 0 : NEXT_PIECE_BYTES)) return;
    o->reading_piece = true;
    sessions_continue(o->socket.service->sessions, o->socket.follower.client);
    service_poll_soon(o->socket.service);
}

void outgoing_sent(struct socket *s) {
    struct outgoing *o = (struct outgoing *)s;
    ask_for_next_piece(o);
    pace(o);
}

static void push(struct follower *f) {
    socket_push((struct socket *)f);
}

static bool is_drained(const struct follower *f) {
    const struct outgoing *o = (const struct outgoing *)f;
    return !o->n_ready && outbox_empty(&o->socket.outbox);
}

static void forget_client(struct outgoing *o) {
    sessions_client_gone(o->socket.service->sessions, o->socket.follower.client);
    service_poll_soon(o->socket.service);
}

void outgoing_ended(struct socket *s) {
    struct outgoing *o = (struct outgoing *)s;
    o->n_ready = 0;
    changes_release(&o->changes);
    count_waiting(o);
    forget_client(o);
}

// --- from the session service ---

// Puts the events of s that this client may get into the outbox, joined, as far as it has room.
static void pull_events(struct outgoing *o, struct session *s) {
    struct session_event ev;
    while (!o->socket.close_code && o->socket.outbox.bytes < PAUSE_OUTBOX_BYTES &&
           next_event(o, s, &ev))
        outgoing_queue(o);
}

static bool comes_in_pieces(const struct session_answer *a) {
    return a->kind == ANSWER_LIST || a->kind == ANSWER_EXPORTED || a->position;
}

static bool is_last_piece(const struct session_answer *a) { // of an answer that has been encoded
    return a->position ? !a->position->more : a->last;
}

static void take_piece(struct outgoing *o, const struct session_answer *a) {
    const struct buf *tx = &o->socket.service->net->tx;
    o->reading_piece = false;
    if (tx->error || !o->socket.outbox.open ||
        outbox_extend(&o->socket.outbox, tx->data + NET_TX_ROOM, tx->len - NET_TX_ROOM,
                      is_last_piece(a)) < 0)
        socket_no_memory(&o->socket);
}

// Puts `held` into the outbox, after the events of the answer's session.
static void store_answer(struct outgoing *o, const struct session_answer *a, struct outbox *held) {
    for (size_t i = o->n_ready; a->session_id && a->kind != ANSWER_ATTACHED && i-- > 0;) {
        if (strcmp(session_id(o->ready[i]), a->session_id) != 0) continue;
        pull_events(o, o->ready[i]);
        // Detached: no callback reports its end.
        if (a->kind == ANSWER_DETACHED && i < o->n_ready) drop_ready(o, i);
    }
    if (o->socket.close_code)
        outbox_release(held);
    else
        outbox_append(&o->socket.outbox, held);
}

// An answer about a session does not overtake earlier events of that session. session.attached does: the
// client's next events are those after `after`, and so after the answer. The answer is encoded first, because the data
// that it points to may not outlive another call on its session.
static void on_answer(struct follower *f, const struct session_answer *a) {
    struct outgoing *o = (struct outgoing *)f;
    struct outbox held = {0};
    if (a->kind == ANSWER_CHANGED) o->reading_change = false;
    if (o->socket.close_code) return;
    if (a->kind == ANSWER_ERROR) metric_add(o->socket.service->metrics.errors_out, 1);
    if (a->kind != ANSWER_CHANGED || a->session.rec.id) {
        protocol_write_answer(outgoing_tx(o), comes_in_pieces(a) ? NULL : &o->socket.service->gaps,
                              a);
        if (comes_in_pieces(a) && !a->first)
            take_piece(o, a);
        else if (store_tx(o, &held) < 0)
            socket_no_memory(&o->socket);
        else
            store_answer(o, a, &held);
        if (comes_in_pieces(a) && a->first && !is_last_piece(a) && !o->socket.close_code)
            outbox_open_last(&o->socket.outbox);
    }
    if (!o->socket.close_code) socket_want_write(&o->socket);
    pace(o);
}

static void on_ready(struct follower *f, struct session *s) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->socket.close_code) return;
    for (size_t i = 0; i < o->n_ready; i++)
        if (o->ready[i] == s) return;
    if (o->n_ready == MAX_READY || ARRAY_RESERVE(o->ready, o->cap_ready, o->n_ready + 1) < 0) {
        socket_end(&o->socket, CLOSE_INTERNAL, "too many sessions at once");
        return;
    }
    o->ready[o->n_ready++] = s;
    if (!follower_push_later(&o->socket.service->followers, &o->socket.follower))
        socket_want_write(&o->socket);
}

static void on_progress(struct follower *f, struct session *s, int64_t turn, int64_t done,
                        int64_t total) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->socket.close_code || !outbox_empty(&o->socket.outbox))
        return; // only the latest is of interest
    protocol_write_progress(outgoing_tx(o), session_id(s), turn, done, total);
    outgoing_queue(o);
}

static void on_stalled(struct follower *f, struct session *s, const struct err *why) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->socket.close_code) return;
    protocol_write_stalled(outgoing_tx(o), session_id(s), why);
    outgoing_queue(o);
}

static void on_moved(struct follower *f, struct session *s, int64_t turn, const char *reason) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->socket.close_code) return;
    protocol_write_moved(outgoing_tx(o), session_id(s), turn, reason);
    outgoing_queue(o);
}

// Sends the last events of s and removes the pointer to it.
static void on_gone(struct follower *f, struct session *s) {
    struct outgoing *o = (struct outgoing *)f;
    pull_events(o, s);
    for (size_t i = o->n_ready; i-- > 0;)
        if (o->ready[i] == s) drop_ready(o, i);
}

static void on_changed(struct follower *f, int64_t key, const char *owner, const char *id,
                       bool removed) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->socket.close_code || !o->owner || strcmp(o->owner, owner) != 0) return;
    if (changes_add(&o->changes, key, removed ? id : NULL) < 0) {
        socket_end(&o->socket, CLOSE_SLOW, "too many changes are waiting");
        return;
    }
    count_waiting(o);
    if (o->changed_due) return;
    if (net_now_us() - o->changed_us >= CHANGED_INTERVAL_US) {
        o->changed_due = true;
        socket_want_write(&o->socket);
    } else {
        service_later(o->socket.service, CHANGED_INTERVAL_US / 1000);
    }
}

// Coalesced session.changed are due.
static void on_later(struct follower *f, int64_t now_us) {
    struct outgoing *o = (struct outgoing *)f;
    if (o->socket.close_code || o->changed_due || o->changes.n == 0) return;
    o->changed_due = true;
    socket_want_write(&o->socket);
}

// --- life ---

static void on_end(struct follower *f) {
    socket_end((struct socket *)f, CLOSE_GOING_AWAY, "shutting down");
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

int outgoing_init(struct outgoing *o, struct service *s, struct peer *p,
                  const struct socket_ops *ops) {
    return socket_init(&o->socket, s, p, &follower_ops, ops);
}

void outgoing_release(struct outgoing *o) {
    if (!o->socket.close_code) {
        o->socket.close_code = CLOSE_GOING_AWAY;
        forget_client(o);
    }
    socket_release(&o->socket);
    changes_release(&o->changes);
    count_waiting(o);
    free(o->ready);
}
