// See regex.h. Emitting walks the tree. What follows a look-ahead becomes an automaton of its own: the product with
// that of the look-ahead.
#include "engine/grammar/notations.h"
#include "engine/grammar/product.h"
#include "engine/grammar/regex_tree.h"
#include <stdlib.h>
#include <string.h>

// --- emitting ------------------------------------------------------------------------------------

struct emitter {
    const struct regex *r;
    struct net *net;
    enum chars_form form;
};

static void emit(const struct emitter *e, int32_t from, int32_t node, int32_t to);

static void emit_repeat(const struct emitter *e, int32_t from, const struct regex_node *node,
                        int32_t to) {
    struct net *n = e->net;
    if (node->max < 0 && node->min <= 1) {
        int32_t a = net_state_new(n), b = net_state_new(n);
        net_empty(n, from, a);
        emit(e, a, node->child, b);
        net_empty(n, b, a);
        net_empty(n, node->min == 1 ? b : a, to);
        return;
    }
    if (node->max == 1) {
        if (node->min == 0) net_empty(n, from, to);
        emit(e, from, node->child, to);
        return;
    }
    if (node->max == 0) {
        net_empty(n, from, to);
        return;
    }
    int32_t rule = net_rule_new(n, NULL, 0);
    if (net_failed(n)) return;
    emit(e, n->rules[rule].start, node->child, n->rules[rule].end);
    net_repeat(n, from, rule, node->min, node->max, to);
}

// --- look-aheads ---------------------------------------------------------------------------------

static void emit_sequence(const struct emitter *e, int32_t from, int32_t first, int32_t to);

struct ahead {
    struct net parts[PRODUCT_MAX_PARTS]; // what follows, what it must match, what it must not match
    int n, n_needed;
    int32_t to;
};

static int32_t ahead_target(void *ctx, uint32_t matched) {
    const struct ahead *a = ctx;
    return matched == (uint32_t)(((uint64_t)1 << a->n_needed) - 1) ? a->to : -1;
}

// Begins the next part, and returns what emits into it.
static struct emitter next_part(const struct emitter *e, struct ahead *a) {
    struct net *n = &a->parts[a->n++];
    net_begin(n);
    return (struct emitter){.r = e->r, .net = n, .form = e->form};
}

// The parts of one kind: look-aheads, negated or not, at the beginning of what `first` leads.
static int add_aheads(const struct emitter *e, struct ahead *a, int32_t first, bool negated) {
    for (int32_t i = first; i >= 0 && e->r->nodes[i].kind == NODE_LOOKAHEAD;
         i = e->r->nodes[i].next) {
        if (e->r->nodes[i].negated != negated) continue;
        if (a->n == PRODUCT_MAX_PARTS) return E_LIMIT;
        struct emitter own = next_part(e, a);
        const struct net *n = own.net;
        if (!net_failed(n))
            emit(&own, n->rules[n->root].start, e->r->nodes[i].child, n->rules[n->root].end);
    }
    return 0;
}

static int finish_aheads(struct ahead *a, struct err *why) {
    for (int i = 0; i < a->n; i++) {
        int rc = net_finish(&a->parts[i], NULL, why);
        if (a->parts[i].matches_nothing && i < a->n_needed) return 1;
        if (rc < 0) return rc;
    }
    return 0;
}

static void emit_ahead(const struct emitter *e, int32_t from, int32_t first, int32_t to) {
    struct err why = {0};
    int32_t rest = first;
    struct ahead *a = calloc(1, sizeof *a);
    if (!a) {
        net_fail(e->net, E_NOMEM, "no memory for a regular expression");
        return;
    }
    while (rest >= 0 && e->r->nodes[rest].kind == NODE_LOOKAHEAD) rest = e->r->nodes[rest].next;
    struct emitter own = next_part(e, a);
    const struct net *n = own.net;
    if (!net_failed(n)) emit_sequence(&own, n->rules[n->root].start, rest, n->rules[n->root].end);
    int rc = add_aheads(e, a, first, false);
    a->n_needed = a->n;
    a->to = to;
    if (rc == 0) rc = add_aheads(e, a, first, true);
    if (rc < 0) err_set(&why, E_UNSUPPORTED, "so many look-aheads are not supported");
    if (rc == 0) rc = finish_aheads(a, &why);
    if (rc == 0)
        rc = product_emit(e->net, from, a->parts, a->n, a->n_needed, ahead_target, a, &why);
    if (rc < 0) net_fail(e->net, why.code, "%s", why.text);
    for (int i = 0; i < a->n; i++) net_release(&a->parts[i]);
    free(a);
}

// --- all nodes -----------------------------------------------------------------------------------

static void emit_sequence(const struct emitter *e, int32_t from, int32_t first, int32_t to) {
    if (first < 0) net_empty(e->net, from, to);
    for (int32_t i = first; i >= 0 && !net_failed(e->net); i = e->r->nodes[i].next) {
        if (e->r->nodes[i].kind == NODE_LOOKAHEAD) {
            emit_ahead(e, from, i, to);
            return;
        }
        int32_t next = e->r->nodes[i].next >= 0 ? net_state_new(e->net) : to;
        emit(e, from, i, next);
        from = next;
    }
}

static void emit(const struct emitter *e, int32_t from, int32_t at, int32_t to) {
    const struct regex_node *node = &e->r->nodes[at];
    if (net_failed(e->net)) return;
    switch (node->kind) {
    case NODE_SET:
        chars_emit(e->net, from, &e->r->sets[node->set], e->form, to);
        return;
    case NODE_SEQUENCE:
        emit_sequence(e, from, node->child, to);
        return;
    case NODE_CHOICE:
        for (int32_t i = node->child; i >= 0; i = e->r->nodes[i].next) emit(e, from, i, to);
        return;
    case NODE_REPEAT:
        emit_repeat(e, from, node, to);
        return;
    case NODE_EMPTY:
    case NODE_START:
    case NODE_END:
    case NODE_LOOKAHEAD:
        net_empty(e->net, from, to);
    }
}

void regex_emit(const struct regex *r, struct net *n, int32_t from, enum chars_form form,
                int32_t to) {
    struct emitter e = {.r = r, .net = n, .form = form};
    emit(&e, from, r->root, to);
}

bool regex_has_property(const struct regex *r) {
    return r->property;
}

// --- lengths -------------------------------------------------------------------------------------

static struct regex_lengths lengths(const struct regex *r, int32_t at) {
    const int64_t most = REGEX_MOST_LENGTH;
    const struct regex_node *node = &r->nodes[at];
    struct regex_lengths l = {0, 0};
    if (node->kind == NODE_SET) return (struct regex_lengths){1, 1};
    if (node->kind == NODE_LOOKAHEAD) return l;
    for (int32_t i = node->child; i >= 0; i = r->nodes[i].next) {
        struct regex_lengths one = lengths(r, i);
        bool choice = node->kind == NODE_CHOICE;
        if (choice && (i == node->child || one.min < l.min)) l.min = one.min;
        if (choice && one.max > l.max) l.max = one.max;
        if (!choice) l = (struct regex_lengths){l.min + one.min, l.max + one.max};
    }
    if (node->kind == NODE_REPEAT) {
        l.min *= node->min;
        l.max = node->max < 0 ? (l.max > 0 ? most : 0) : l.max * node->max;
    }
    if (l.min > most) l.min = most;
    if (l.max > most) l.max = most;
    return l;
}

struct regex_lengths regex_lengths(const struct regex *r) {
    return lengths(r, r->root);
}

int regex_compile(struct net *net, const char *text, size_t len, struct err *err) {
    struct regex *r;
    TRY(regex_parse(&r, text, len, false, err));
    net->root = net_rule_new(net, "the expression", strlen("the expression"));
    if (!net_failed(net))
        regex_emit(r, net, net->rules[net->root].start, CHARS_UTF8, net->rules[net->root].end);
    regex_free(r);
    return 0;
}
