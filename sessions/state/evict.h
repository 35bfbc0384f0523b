// The idle clock: which session's cache is evicted next.
//
// A session's clock starts when a turn ends and stops when the next one starts, so a running turn is
// never evicted. The timeout is the same for all sessions, so the order of arrival is the order of expiry,
// and every operation is O(1).
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct evict_node { // member of a session
    struct evict_node *prev, *next;
    int64_t since_us;
    bool listed;
};
struct evict_list {
    struct evict_node *first, *last;
    int64_t timeout_us;
    int64_t n;
};

void evict_list_init(struct evict_list *l, int64_t timeout_us); // holds no memory
void evict_start(struct evict_list *l, struct evict_node *node,
                 int64_t now_us);                               // restarts one that runs
void evict_stop(struct evict_list *l, struct evict_node *node); // allowed if it does not run
struct evict_node *evict_due(const struct evict_list *l,
                             int64_t now_us);      // the longest idle one if its time is up
int64_t evict_next_us(const struct evict_list *l); // when the next is due; INT64_MAX: never
