// See net.h.
#include "engine/grammar/net.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void net_init(struct net *n) {
    *n = (struct net){.root = -1};
}

void net_begin(struct net *n) {
    net_init(n);
    n->root = net_rule_new(n, NULL, 0);
}

void net_release(struct net *n) {
    for (int32_t i = 0; i < n->n_rules; i++) free(n->rules[i].name);
    free(n->states);
    free(n->edges);
    free(n->rules);
    net_init(n);
}

void net_fail(struct net *n, int code, const char *fmt, ...) {
    va_list ap;
    if (n->failed.code < 0) return;
    n->failed.code = code;
    va_start(ap, fmt);
    vsnprintf(n->failed.text, sizeof n->failed.text, fmt, ap);
    va_end(ap);
}

bool net_failed(const struct net *n) {
    return n->failed.code < 0;
}

// Makes room for one more of *items. False: the network has failed.
static bool grow(struct net *n, void **items, size_t size, int32_t len, int32_t *cap, int32_t most,
                 const char *what) {
    if (net_failed(n)) return false;
    if (len == most) {
        net_fail(n, E_INVAL, "it is too large: more than %d %s", most, what);
        return false;
    }
    if (len < *cap) return true;
    int32_t more = *cap ? *cap * 2 : 256;
    void *moved = realloc(*items, (size_t)more * size);
    if (!moved) {
        net_fail(n, E_NOMEM, "no memory to compile it");
        return false;
    }
    n->bytes += (int64_t)(more - *cap) * (int64_t)size;
    *items = moved;
    *cap = more;
    return true;
}

// --- building ------------------------------------------------------------------------------------

// After a failure states are 0: emitting on is harmless, because nothing is added.
int32_t net_state_new(struct net *n) {
    if (!grow(n, (void **)&n->states, sizeof *n->states, n->n_states, &n->cap_states,
              NET_MAX_STATES, "states"))
        return 0;
    n->states[n->n_states] = (struct net_state){.first = -1, .least = NET_NEVER};
    return n->n_states++;
}

int32_t net_rule_new(struct net *n, const char *name, size_t name_len) {
    int32_t start = net_state_new(n), end = net_state_new(n);
    if (!grow(n, (void **)&n->rules, sizeof *n->rules, n->n_rules, &n->cap_rules, NET_MAX_RULES,
              "rules"))
        return 0;
    n->states[end].end = true;
    n->rules[n->n_rules] = (struct net_rule){.start = start,
                                             .end = end,
                                             .least = NET_NEVER,
                                             .name = name ? strndup(name, name_len) : NULL};
    return n->n_rules++;
}

static void add_edge(struct net *n, int32_t from, struct net_edge e) {
    if (!grow(n, (void **)&n->edges, sizeof *n->edges, n->n_edges, &n->cap_edges, NET_MAX_EDGES,
              "edges"))
        return;
    e.next = n->states[from].first;
    n->states[from].first = n->n_edges;
    n->edges[n->n_edges++] = e;
}

void net_byte_range(struct net *n, int32_t from, uint8_t lo, uint8_t hi, int32_t to) {
    add_edge(n, from, (struct net_edge){.kind = NET_BYTES, .lo = lo, .hi = hi, .to = to});
}

void net_empty(struct net *n, int32_t from, int32_t to) {
    add_edge(n, from, (struct net_edge){.kind = NET_EMPTY, .to = to});
}

void net_call(struct net *n, int32_t from, int32_t rule, int32_t to) {
    add_edge(n, from, (struct net_edge){.kind = NET_CALL, .rule = rule, .to = to});
}

void net_text(struct net *n, int32_t from, const char *text, size_t len, int32_t to) {
    if (len == 0) net_empty(n, from, to);
    for (size_t i = 0; i < len && !net_failed(n); i++) {
        int32_t next = i + 1 < len ? net_state_new(n) : to;
        net_byte_range(n, from, (uint8_t)text[i], (uint8_t)text[i], next);
        from = next;
    }
}

void net_repeat(struct net *n, int32_t from, int32_t rule, int64_t min, int64_t max, int32_t to) {
    for (int64_t i = 0; i < min && !net_failed(n); i++) {
        int32_t next = net_state_new(n);
        net_call(n, from, rule, next);
        from = next;
    }
    if (max < 0) {
        int32_t loop = net_state_new(n);
        net_empty(n, from, loop);
        net_call(n, loop, rule, loop);
        net_empty(n, loop, to);
        return;
    }
    net_empty(n, from, to);
    for (int64_t i = min; i < max && !net_failed(n); i++) {
        int32_t next = i + 1 < max ? net_state_new(n) : to;
        net_call(n, from, rule, next);
        if (next != to) net_empty(n, next, to);
        from = next;
    }
}

// --- finishing -----------------------------------------------------------------------------------

static int32_t plus(int32_t a, int32_t b) {
    return a >= NET_NEVER || b >= NET_NEVER || a + b >= NET_NEVER ? NET_NEVER : a + b;
}

static int32_t edge_least(const struct net *n, const struct net_edge *e) {
    int32_t behind = n->states[e->to].least;
    if (e->kind == NET_EMPTY) return behind;
    return plus(behind, e->kind == NET_BYTES ? 1 : n->rules[e->rule].least);
}

static int32_t state_least(const struct net *n, const struct net_state *s) {
    int32_t least = s->end ? 0 : NET_NEVER;
    for (int32_t i = s->first; i >= 0; i = n->edges[i].next) {
        int32_t of = edge_least(n, &n->edges[i]);
        if (of < least) least = of;
    }
    return least;
}

// Relaxes all states until nothing changes. Builders number states from start to end, so sweeps from the
// last state to the first settle a rule in few rounds; each further level of calls takes one more.
static bool find_least(struct net *n) {
    const int64_t most_work = 400000000; // edges: about a second
    int64_t work = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = n->n_states - 1; i >= 0; i--) {
            int32_t least = state_least(n, &n->states[i]);
            if (least >= n->states[i].least) continue;
            n->states[i].least = least;
            changed = true;
        }
        for (int32_t i = 0; i < n->n_rules; i++)
            n->rules[i].least = n->states[n->rules[i].start].least;
        work += n->n_edges + n->n_states;
        if (work > most_work) return false;
    }
    return true;
}

static void cut_dead_edges(struct net *n) {
    for (int32_t i = 0; i < n->n_states; i++) {
        int32_t *at = &n->states[i].first;
        while (*at >= 0) {
            struct net_edge *e = &n->edges[*at];
            if (edge_least(n, e) >= NET_NEVER)
                *at = e->next;
            else
                at = &e->next;
        }
    }
}

// In each state's list, puts the edges that take no byte before the others: a closure (machine.c) follows those alone,
// and a class of Unicode has many ranges of bytes to pass over.
static void order_edges(struct net *n) {
    for (int32_t i = 0; i < n->n_states; i++) {
        int32_t bytes = -1, *last = &n->states[i].first;
        for (int32_t at = *last, next; at >= 0; at = next) {
            next = n->edges[at].next;
            if (n->edges[at].kind == NET_BYTES) {
                n->edges[at].next = bytes;
                bytes = at;
            } else {
                *last = at;
                last = &n->edges[at].next;
            }
        }
        *last = bytes;
    }
}

// States that are as good as the end of their rule, found backwards through chains of empty edges.
static void find_pops(struct net *n) {
    for (int32_t i = n->n_states - 1; i >= 0; i--) {
        int32_t at = i;
        for (int hops = 0; hops < 8; hops++) {
            const struct net_state *s = &n->states[at];
            if (s->pops || (s->end && s->first < 0)) {
                n->states[i].pops = true;
                break;
            }
            const struct net_edge *e = s->first >= 0 ? &n->edges[s->first] : NULL;
            if (s->end || !e || e->kind != NET_EMPTY || e->next >= 0) break;
            at = e->to;
        }
    }
}

static void make_classes(struct net *n) {
    bool begins[257] = {true};
    for (int32_t i = 0; i < n->n_edges; i++) {
        if (n->edges[i].kind != NET_BYTES) continue;
        begins[n->edges[i].lo] = true;
        begins[n->edges[i].hi + 1] = true;
    }
    n->n_classes = 0;
    for (int b = 0; b < 256; b++) {
        if (begins[b]) n->class_byte[n->n_classes++] = (uint8_t)b;
        n->byte_class[b] = (uint8_t)(n->n_classes - 1);
    }
}

// A rule is left-recursive if it can call itself before it has taken a byte: a walk over the calls that
// come first, depth first, with a stack of its own. Colours: 0 new, 1 on the path, 2 done.
struct walk {
    const struct net *net;
    uint8_t *colour;  // (n_rules)
    uint32_t *seen;   // (n_states) the rule's number + 1 that reached it last
    int32_t *path;    // (n_rules) rules
    int32_t *pending; // states to look at, for all rules on the path
    int32_t n_path, n_pending, cap_pending;
    int32_t *base; // (n_rules) where the pending states of path[i] begin
};

static int push_state(struct walk *w, int32_t rule, int32_t state) {
    if (w->seen[state] == (uint32_t)rule + 1) return 0;
    w->seen[state] = (uint32_t)rule + 1;
    if (w->n_pending == w->cap_pending) {
        int32_t cap = w->cap_pending ? w->cap_pending * 2 : 1024;
        int32_t *moved = realloc(w->pending, (size_t)cap * sizeof *moved);
        if (!moved) return E_NOMEM;
        w->pending = moved;
        w->cap_pending = cap;
    }
    w->pending[w->n_pending++] = state;
    return 0;
}

static int enter_rule(struct walk *w, int32_t rule) {
    w->colour[rule] = 1;
    w->path[w->n_path] = rule;
    w->base[w->n_path++] = w->n_pending;
    return push_state(w, rule, w->net->rules[rule].start);
}

static int left_recursive(const struct net *n, int32_t rule, struct err *err) {
    const char *name = n->rules[rule].name;
    return err_set(err, E_INVAL,
                   "%s%s refers to itself before it takes a character (left recursion): begin it "
                   "with something else",
                   name ? "the rule " : "a rule", name ? name : "");
}

// Looks at one pending state of the last rule of the path; a call found there is entered first, and the
// state is then looked at again.
static int look(struct walk *w, struct err *err) {
    const struct net *n = w->net;
    int32_t rule = w->path[w->n_path - 1], state = w->pending[w->n_pending - 1];
    for (int32_t i = n->states[state].first; i >= 0; i = n->edges[i].next) {
        const struct net_edge *e = &n->edges[i];
        if (e->kind != NET_CALL || w->colour[e->rule] == 2) continue;
        if (w->colour[e->rule] == 1) return left_recursive(n, e->rule, err);
        return enter_rule(w, e->rule);
    }
    w->n_pending--;
    for (int32_t i = n->states[state].first; i >= 0; i = n->edges[i].next) {
        const struct net_edge *e = &n->edges[i];
        bool takes_none =
            e->kind == NET_EMPTY || (e->kind == NET_CALL && n->rules[e->rule].least == 0);
        if (takes_none) TRY(push_state(w, rule, e->to));
    }
    return 0;
}

static int check_left(struct walk *w, struct err *err) {
    for (int32_t rule = 0; rule < w->net->n_rules; rule++) {
        if (w->colour[rule]) continue;
        TRY(enter_rule(w, rule));
        while (w->n_path > 0) {
            if (w->n_pending > w->base[w->n_path - 1]) {
                TRY(look(w, err));
            } else {
                w->colour[w->path[--w->n_path]] = 2;
            }
        }
    }
    return 0;
}

static int check_left_recursion(const struct net *n, struct err *err) {
    size_t rules = (size_t)n->n_rules, states = (size_t)n->n_states;
    struct walk w = {.net = n,
                     .colour = calloc(rules, 1),
                     .seen = calloc(states, sizeof *w.seen),
                     .path = calloc(rules, sizeof *w.path),
                     .base = calloc(rules, sizeof *w.base)};
    int rc = E_NOMEM;
    if (w.colour && w.seen && w.path && w.base) rc = check_left(&w, err);
    if (rc == E_NOMEM) err_set(err, rc, "no memory to compile it");
    free(w.colour);
    free(w.seen);
    free(w.path);
    free(w.base);
    free(w.pending);
    return rc;
}

// A range of which a part cannot be written becomes several: the first takes the edge's place.
static void cut_unwritable(struct net *n, const bool *writes) {
    for (int32_t state = 0; state < n->n_states; state++) {
        int32_t old = n->states[state].first;
        n->states[state].first = -1;
        for (int32_t i = old, next; i >= 0; i = next) {
            struct net_edge e = n->edges[i];
            next = e.next;
            if (e.kind != NET_BYTES) {
                n->edges[i].next = n->states[state].first;
                n->states[state].first = i;
                continue;
            }
            for (int b = e.lo; b <= e.hi; b++) {
                if (!writes[b]) continue;
                int lo = b;
                while (b < e.hi && writes[b + 1]) b++;
                net_byte_range(n, state, (uint8_t)lo, (uint8_t)b, e.to);
            }
            n->edges[i].kind = NET_EMPTY; // unused from here on
        }
    }
}

int net_finish(struct net *n, const bool *writes, struct err *err) {
    int32_t root = n->root;
    if (writes) cut_unwritable(n, writes);
    if (net_failed(n)) return err_set(err, n->failed.code, "%s", n->failed.text);
    if (!find_least(n)) return err_set(err, E_INVAL, "it is too deeply nested to compile");
    n->matches_nothing = n->rules[root].least >= NET_NEVER;
    if (n->matches_nothing) return err_set(err, E_INVAL, "no finite answer can match it");
    cut_dead_edges(n);
    TRY(check_left_recursion(n, err));
    order_edges(n);
    find_pops(n);
    make_classes(n);
    return 0;
}
