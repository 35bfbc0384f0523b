// One HTTP request that one completion answers, whole or by a stream: chat completions, messages, counts of tokens.
// The http_completion takes the completion's events and sends them as its dialect spells them. A dialect is a
// protocol's table of functions. Net thread only.
#pragma once
#include "ws/completion/completion.h"
#include "ws/net/http.h"

// What a protocol's decoder makes: first in the protocol's own struct, in malloc's memory.
struct http_completion_request {
    struct completion_request *request; // the completion takes it
    struct completion_failure failure;  // status 0: it is served
    bool stream;
};
void http_completion_request_free(void *r); // of a protocol that adds nothing to free; NULL is fine

struct http_completion { // first in the protocol's own struct; the rest is zero before begin()
    const struct dialect *dialect;
    struct service *service;
    struct http *http;
    struct http_completion_request *in;
    struct completion *completion;
    char session[SESSION_ID_MAX + 1]; // "": no turn has begun
    struct completion_failure failure;
    bool streaming; // the head has been sent
};

struct dialect {
    size_t bytes;       // of the protocol's own struct http_completion
    const char *type;   // of a stream
    bool names_session; // the request's headers may name the session (completion_name_session)
    // http_completion_client_gone, http_completion_push, and the protocol's ping.
    struct http_waiter waiter;
    bool (*begin)(struct http_completion *x);   // false: no memory. NULL: nothing to do
    void (*release)(struct http_completion *x); // what begin() and take() made. NULL: nothing
    void (*release_request)(void *in);
    // Adds header lines of a reply or a stream. NULL: none
    void (*put_headers)(const struct http_completion *x, struct buf *extra);
    // Takes an event other than FAILED; what a stream sends is appended to out. E_NOMEM, or E_* with x->failure set.
    int (*take)(struct http_completion *x, const struct completion_event *e, struct buf *out);
    // The whole reply, after DONE, if it is not streamed.
    void (*write_whole)(struct http_completion *x, struct buf *out);
    // Gives a failure of the completion the protocol's names of members. NULL: it needs none
    void (*name_param)(struct completion_failure *f);
    void (*reply_failure)(struct http *h, const struct completion_failure *f);
    // The last event of a stream.
    void (*write_failure)(const struct http_completion *x, const struct completion_failure *f,
                          struct buf *out);
};

// A route's handle(): answers the request that its decode() made.
void http_completion_handle(struct service *s, struct http *h, const struct dialect *d);
// Of a dialect's waiter.
void http_completion_client_gone(void *x);
void http_completion_push(void *x);
