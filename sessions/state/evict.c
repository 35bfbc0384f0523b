// The idle clock. See evict.h.
#include "sessions/state/evict.h"
#include <stddef.h>

void evict_list_init(struct evict_list *l, int64_t timeout_us) {
    *l = (struct evict_list){.timeout_us = timeout_us};
}

void evict_stop(struct evict_list *l, struct evict_node *node) {
    if (!node->listed) return;
    *(node->prev ? &node->prev->next : &l->first) = node->next;
    *(node->next ? &node->next->prev : &l->last) = node->prev;
    *node = (struct evict_node){0};
    l->n--;
}

void evict_start(struct evict_list *l, struct evict_node *node, int64_t now_us) {
    evict_stop(l, node);
    *node = (struct evict_node){.prev = l->last, .since_us = now_us, .listed = true};
    *(l->last ? &l->last->next : &l->first) = node;
    l->last = node;
    l->n++;
}

int64_t evict_next_us(const struct evict_list *l) {
    if (!l->first || l->timeout_us > INT64_MAX - l->first->since_us) return INT64_MAX;
    return l->first->since_us + l->timeout_us;
}

struct evict_node *evict_due(const struct evict_list *l, int64_t now_us) {
    return evict_next_us(l) <= now_us ? l->first : NULL;
}
