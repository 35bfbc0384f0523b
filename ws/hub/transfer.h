// One GET from the hub or a host that it redirects to, by curl's multi interface: several run at a time on one thread.
// Redirects are followed here, because each new host is checked and only the hub itself gets the token. Proxies and
// certificates are as curl has them.
#pragma once
#include "base/err.h"
#include "ws/hub/address.h"
#include "ws/hub/place.h"
#include <stdbool.h>
#include <stdint.h>

struct hub_net; // a set of connections; one thread
int hub_net_open(struct hub_net **out, const struct hub_place *place, struct err *err);
void hub_net_close(struct hub_net *n); // NULL is allowed; no transfer runs

// What happened to a transfer that has ended.
enum transfer_end {
    TRANSFER_RUNNING,
    TRANSFER_DONE,    // the whole answer was taken
    TRANSFER_RETRY,   // a cut, a timeout, 408, 429, 5xx: again after delay_ms
    TRANSFER_EXPIRED, // another host than the hub refuses its signed address: ask the hub again
    TRANSFER_FAILED,  // *err says why
};

// Takes a piece of a body. status is 200 or 206; offset is the place of the first byte in the whole file. A negative
// code with *err set ends the transfer as failed.
typedef int transfer_take(void *ctx, const char *bytes, size_t n, long status, struct err *err);

struct transfer { // the caller's; zero before the first start
    // set by the caller before transfer_start
    int64_t from, to;    // bytes of a range, both included; to -1: no range, all
    const char *repo;    // "ORG/NAME" of the sentences
    const char *what;    // what is fetched: a file's path, or "the list of files"
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
// Ends it, whatever its state. Harmless for one that does not run.
void transfer_stop(struct transfer *t);
// Moves bytes, for at most wait_ms. Transfers that have ended have another `end` afterwards.
int hub_net_run(struct hub_net *n, int wait_ms, struct err *err);
