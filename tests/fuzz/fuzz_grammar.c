// Grammars: a byte that names the notation, then the text. If it compiles, the target follows it: the machine
// accepts its shortest ending, and no step leads to a state without an ending.
#include "engine/grammar/grammars.h"
#include "engine/grammar/machine.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_STEPS = 200, MOST_END = 10000 };

static bool accepts(struct machine *m, const uint8_t *text, int32_t n) {
    int32_t at = machine_start(m);
    for (int32_t i = 0; i < n && at >= 0; i++) at = machine_step(m, at, text[i]);
    return at >= 0 && m->configs[at].accepts;
}

// The text's own bytes choose the way: each step takes a byte that leads on.
static void walk(struct machine *m, const uint8_t *data, size_t size) {
    int32_t at = machine_start(m);
    for (size_t i = 0; i < MOST_STEPS && at >= 0 && size > 0; i++) {
        int32_t next = MACHINE_DEAD;
        for (int k = 0; k < 256 && next < 0; k++)
            next = machine_step(m, at, (uint8_t)(data[i % size] + k));
        if (m->error < 0) return;
        FUZZ_CHECK(next >= 0 || m->configs[at].accepts);
        FUZZ_CHECK(next < 0 || m->configs[next].least < NET_NEVER);
        at = next;
        m->work = 0;
    }
}

static void check(const struct net *n, const uint8_t *data, size_t size) {
    struct machine m;
    struct machine_root root;
    static uint8_t end[MOST_END];
    FUZZ_CHECK(machine_init(&m, n, NULL) == 0);
    int32_t start = machine_start(&m);
    if (start >= 0 && m.error == 0) {
        int32_t len = machine_shortest(&m, start, end, MOST_END);
        FUZZ_CHECK(len < 0 || m.error < 0 || accepts(&m, end, len));
        walk(&m, data, size);
        if (m.error == 0) {
            machine_hold(&m, &root, machine_start(&m));
            int32_t least = m.configs[root.config].least;
            FUZZ_CHECK(machine_collect(&m) == 0);
            FUZZ_CHECK(m.configs[root.config].least == least);
            machine_drop(&m, &root);
        }
    }
    machine_release(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct net n;
    struct err err = {0};
    if (size < 2) return 0;
    net_init(&n);
    const char *text = (const char *)data + 1;
    char *copy = malloc(size);
    FUZZ_CHECK(copy);
    memcpy(copy, text, size - 1);
    copy[size - 1] = 0;
    // As a request gives it: without NUL bytes.
    if (!memchr(copy, 0, size - 1)) {
        int rc = grammar_compile(&n, data[0] % GRAMMAR_KINDS, copy, size - 1, NULL, &err);
        if (rc < 0)
            FUZZ_CHECK(err.code == rc && err.text[0]);
        else
            check(&n, data, size);
    }
    net_release(&n);
    free(copy);
    return 0;
}
