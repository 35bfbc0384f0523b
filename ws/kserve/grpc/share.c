// Shares. See share.h.
#include "ws/kserve/grpc/share.h"
#include "ws/service.h"
#include <stdlib.h>
#include <utlist.h>

#define RETRY_MS 1000

struct share {
    const struct owner *owner; // the key; NULL: of calls that need no token
    int n_received, received_max, n_waiting, n_streams;
    struct rpc *waiting;
    UT_hash_handle hh;
};

void shares_release(struct shares *all) {
    struct share *s, *next;
    HASH_ITER(hh, all->by_owner, s, next) {
        HASH_DEL(all->by_owner, s);
        free(s);
    }
}

// Owners live as long as the server, and so do their shares.
static struct share *share_of(struct shares *all, const struct owner *owner) {
    struct share *s;
    HASH_FIND_PTR(all->by_owner, &owner, s);
    if (s) return s;
    s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->owner = owner;
    s->received_max = all->long_messages ? SHARE_LONG_RECEIVED : SHARE_RECEIVED;
    HASH_ADD_PTR(all->by_owner, owner, s);
    if (hash_added(&s->hh)) return s;
    free(s);
    return NULL;
}

static struct rpc_refusal refuse(const char *message) {
    return (struct rpc_refusal){GRPC_STATUS_RESOURCE_EXHAUSTED, message, RETRY_MS};
}

static struct rpc_refusal enter_stream(const struct shares *all, struct share *s, struct rpc *r) {
    bool alone = !auth_needs_token(r->service->net->auth);
    int most = all->long_messages ? SHARE_LONG_STREAMS : SHARE_STREAMS;
    if (s->n_streams >= most && !alone) return refuse("too many of your streams are open");
    s->n_streams++;
    r->share_state = RPC_SHARE_STREAM;
    rpc_next(r);
    return (struct rpc_refusal){0};
}

static void receive(struct share *s, struct rpc *r) {
    s->n_received++;
    r->share_state = RPC_SHARE_RECEIVED;
    rpc_next(r);
}

struct rpc_refusal share_enter(struct shares *all, struct rpc *r) {
    struct share *s = share_of(all, r->as.owner);
    if (!s)
        return (struct rpc_refusal){GRPC_STATUS_UNAVAILABLE, "the server is out of memory",
                                    RETRY_MS};
    r->share = s;
    if (r->method->streams) return enter_stream(all, s, r);
    if (s->n_received < s->received_max) {
        receive(s, r);
    } else if (s->n_waiting < SHARE_WAITING) {
        s->n_waiting++;
        r->share_state = RPC_SHARE_WAITS;
        DL_APPEND2(s->waiting, r, share_prev, share_next);
    } else {
        return refuse("too many of your calls wait for their messages to be received");
    }
    return (struct rpc_refusal){0};
}

static void stop_waiting(struct share *s, struct rpc *r) {
    DL_DELETE2(s->waiting, r, share_prev, share_next);
    s->n_waiting--;
    r->share_state = RPC_SHARE_NONE;
}

void share_received(struct rpc *r) {
    struct share *s = r->share;
    if (r->share_state != RPC_SHARE_RECEIVED) return;
    r->share_state = RPC_SHARE_NONE;
    s->n_received--;
    while (s->waiting && s->n_received < s->received_max) {
        struct rpc *next = s->waiting;
        stop_waiting(s, next);
        receive(s, next);
    }
}

void share_leave(struct rpc *r) {
    if (r->share_state == RPC_SHARE_WAITS) stop_waiting(r->share, r);
    if (r->share_state == RPC_SHARE_STREAM) r->share->n_streams--;
    share_received(r);
}
