// Walks texts through the automaton of a grammar, byte by byte. A row is a grammar, and instances with + (accepted) or -
// (refused) before them.
#pragma once
#include "engine/grammar/grammars.h"
#include "engine/grammar/machine.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *text;
    const char *instances[24];
};

static bool accepts(struct machine *m, const char *text) {
    int32_t at = machine_start(m);
    for (; *text && at >= 0; text++) {
        int32_t least = m->configs[at].least;
        at = machine_step(m, at, (uint8_t)*text);
        if (at >= 0) assert_true(m->configs[at].least >= least - 1); // one byte, one step closer
        if (at >= 0) assert_true(m->configs[at].least < NET_NEVER);  // and never into a dead end
    }
    return at >= 0 && m->configs[at].accepts;
}

// The shortest end of every configuration on the way is an end.
static void check_shortest(struct machine *m, const char *grammar) {
    uint8_t text[4096];
    int32_t n = machine_shortest(m, machine_start(m), text, sizeof text - 1);
    if (n < 0) return; // longer
    text[n] = 0;
    assert_int_equal(n, m->configs[machine_start(m)].least);
    if (!accepts(m, (char *)text)) fail_msg("%s: the shortest end '%s' is none", grammar, text);
}

static void check(enum grammar_kind kind, const struct row *r) {
    struct net n;
    struct machine m;
    struct err err = {0};
    net_init(&n);
    if (grammar_compile(&n, kind, r->text, strlen(r->text), NULL, &err) < 0)
        fail_msg("%s: %s", r->text, err.text);
    assert_int_equal(machine_init(&m, &n, &err), 0);
    check_shortest(&m, r->text);
    for (const char *const *i = r->instances; *i; i++) {
        bool want = **i == '+';
        if (accepts(&m, *i + 1) != want)
            fail_msg("%s %s %s", r->text, want ? "refuses" : "accepts", *i + 1);
    }
    machine_release(&m);
    net_release(&n);
}

static void refused(enum grammar_kind kind, const char *text, int code, const char *word) {
    struct net n;
    struct err err = {0};
    net_init(&n);
    int rc = grammar_compile(&n, kind, text, strlen(text), NULL, &err);
    if (rc != code || !strstr(err.text, word))
        fail_msg("%.80s: %d '%s', not %d '%s'", text, rc, err.text, code, word);
    net_release(&n);
}
