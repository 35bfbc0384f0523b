// One GET from the hub or a host that it redirects to, by curl's multi interface: several run at a time on one thread.
// Redirects are followed here, because each new host is checked and only the hub itself gets the token. Proxies and
// certificates are as curl has them.
#pragma once
#include "base/err.h"
#include "ws/hub/address.h"
#include "ws/hub/place.h"
#include <stdint.h>

struct hub_net; // a set of connections; one thread
int hub_net_open(struct hub_net **out, const struct hub_place *place, struct err *err);
void hub_net_close(struct hub_net *n); // NULL is allowed; no transfer runs

// What happened to a transfer that has ended.
enum transfer_end {
    TRANSFER_RUNNING,
    TRANSFER_DONE,    // the whole answer was taken
    TRANSFER_RETRY,   // a cut, a timeout, 408, 429, 5xx: retry after delay_ms
    TRANSFER_EXPIRED, // the storage host refuses the signed address: ask the hub for a new one
    TRANSFER_FAILED,  // *err says why
};

// Takes a piece of a body. status: 200, the whole file from its first byte; 206, the range that was asked for. A negative
// code with *err set ends the transfer as failed.
typedef int transfer_take(void *ctx, const char *bytes, size_t n, long status, struct err *err);

struct transfer { // the caller's; zero before the first start
    // set by the caller before transfer_start
    int64_t from, to;    // first and last byte of a range; to -1: no range
    const char *repo;    // "ORG/NAME", for sentences
    const char *what;    // a file's path, or "the list of files", for sentences
    transfer_take *take; // on the caller's thread, in hub_net_run
    void *ctx;
    // results
    enum transfer_end end;
    struct err err;
    int64_t delay_ms;        // of TRANSFER_RETRY: as the host asks for, or -1
    char url[ADDRESS_BYTES]; // where the answer came from, after redirects
    // inside
    void *easy, *headers;
    int redirects;
    long status;
    struct {
        int64_t from, total; // Content-Range; -1: none
        char code[64], message[200];
    } answer;
    struct hub_net *net;
};

// Starts a GET; t->end is TRANSFER_RUNNING, or TRANSFER_FAILED at once.
void transfer_start(struct transfer *t, struct hub_net *n, const char *url);
// Ends the transfer in any state; does nothing if it does not run.
void transfer_stop(struct transfer *t);
// Waits at most wait_ms for bytes and calls `take`. A transfer that has ended has an `end` other than TRANSFER_RUNNING.
int hub_net_run(struct hub_net *n, int wait_ms, struct err *err);
