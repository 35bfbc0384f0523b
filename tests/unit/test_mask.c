// Masks against their definition: a token is allowed where the machine takes its bytes one by one and the text can
// be closed. Counted classes, plain text and everything beside them, over a vocabulary with whole words, parts of
// characters, long runs and other scripts.
#include "engine/grammar/grammar_internal.h"
#include "engine/grammar/grammars.h"
#include "engine/grammar/mask.h"
#include "engine/grammar/plain.h"
#include "tests/cmocka.h"
#include "tests/random_walk.h"
#include <stdlib.h>
#include <string.h>

enum { N = 2000, WORDS = (N + 63) / 64, LONG = 70, WALKS = 60 };
static struct {
    char text[LONG + 8];
    size_t len;
} tokens[N];

static void add(int i, const char *s, size_t n) {
    memcpy(tokens[i].text + tokens[i].len, s, n);
    tokens[i].len += n;
}

static void make_tokens(void) {
    static const char *const scripts[] = {"é", "ж", "中", "字", "😀", "ü"};
    static const char *const marks[] = {"\":", "\",", "\n",    "\\n", " {",
                                        "}]",  "\t",  "\\u00", "; ",  "\xe4\xb8"};
    seed = 3;
    for (int i = 0; i < N; i++) {
        tokens[i].len = 0;
        if (i < 256) {
            tokens[i].text[tokens[i].len++] = (char)i;
            continue;
        }
        if (i % 200 == 7)
            for (int k = 0; k < LONG - i % 50; k++) add(i, i % 3 ? " " : "a", 1);
        else if (below(2))
            add(i, " ", 1);
        for (uint32_t k = 1 + below(6); k > 0; k--)
            add(i, &"abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_.,"[below(46)], 1);
        if (i % 5 == 0) add(i, scripts[i % 6], strlen(scripts[i % 6]));
        if (i % 7 == 0) add(i, marks[i % 10], strlen(marks[i % 10]));
        if (i % 21 == 0) add(i, "xy", 2);
    }
}

static const char *bytes_of(void *ctx, int32_t id, size_t *len) {
    *len = tokens[id].len;
    return id == 1999 ? NULL : tokens[id].text; // a special one
}

static bool takes(struct machine *m, const struct token_trie *v, int32_t config, int32_t id,
                  int32_t left) {
    int32_t at = config;
    if (!v->bytes[id]) return false;
    for (int32_t i = 0; i < v->len[id] && at >= 0; i++) at = machine_step(m, at, v->bytes[id][i]);
    if (at < 0) return false;
    return left < 0 || m->configs[at].least <= left || mask_cost(m, v, at) <= left;
}

static void check(struct machine *m, const struct token_trie *v, int32_t config,
                  const uint64_t *bits, int32_t left, const char *grammar) {
    for (int32_t id = 0; id < N; id++) {
        bool want = takes(m, v, config, id, left), got = bits[id >> 6] >> (id & 63) & 1;
        if (want != got)
            fail_msg("%s, %d left: token %d '%.*s' is %s", grammar, left, id, (int)tokens[id].len,
                     tokens[id].text, got ? "allowed" : "not allowed");
    }
}

static const struct {
    enum grammar_kind kind;
    const char *text;
} grammars[] = {
    {GRAMMAR_REGEX, "[a-z ]{1,80}"},
    {GRAMMAR_REGEX, "[a-z ]{20,25}[.][A-Z]{0,30}"},
    {GRAMMAR_REGEX, "([a-zé ]{1,50}[;,]){1,4}"},
    {GRAMMAR_REGEX, "[^0-9]{3,40}[0-9]"},
    {GRAMMAR_REGEX, "[a-z]{0,9}[a-m0-9 ]*(end|stop)"},
    {GRAMMAR_REGEX, "(a|[a-z ]{5}b)*[A-Z]"},
    {GRAMMAR_GBNF, "root ::= (item \"\\n\"){1,20}\nitem ::= \"- \" [^\\n]{1,100}"},
    {GRAMMAR_GBNF, "root ::= [^\"\\n]* \"\\n\" [^x]{2,35} \"x\""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":50}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[A-Za-z0-9 ,.-]{1,80}$\"}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^a]{1,40}$\",\"minLength\":7}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}"},
    // counters, ranges, and stacks of lists in lists
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"minItems\":2,\"maxItems\":9,\"items\":{\"type\":\"object\","
     "\"properties\":{"
     "\"a\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":40},\"n\":{\"type\":\"integer\","
     "\"minimum\":-7,\"maximum\":999},\"t\":{\"type\":\"array\",\"maxItems\":5,\"items\":{\"type\":"
     "\"string\",\"maxLength\":6}}},\"required\":[\"a\",\"t\"],\"additionalProperties\":false}}"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"$defs\":{\"l\":{\"type\":\"array\",\"items\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
     "l\"},{\"type\":"
     "\"string\"},{\"enum\":[\"a\",\"ab\",\"bxy\"]}]}}},\"$ref\":\"#/$defs/l\"}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":30},"
                          "\"maxProperties\":3,\"additionalProperties\":"
                          "{\"type\":[\"string\",\"number\"],\"maxLength\":35,\"minimum\":0.5}}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z "
                          "]{2,34}(-[0-9]{1,3})?$\"}}"},
    // what keywords become: look-aheads, searches, an opposite, a class of Unicode
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"^(?=.*[a-z])(?=.*[0-9])[^ ]{4,20}$\"}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"a.*b\"}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"not\":{\"enum\":[\"abc\",\"b\",\"中x\"]}}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(\\\\p{L}{1,20}[ ,]){1,4}$\"}"},
    {GRAMMAR_REGEX, "[a-z]{5}( [a-z]{1,12}){0,8}[.]"},
    {GRAMMAR_GBNF, "root ::= \"(\" root? text \")\" text\ntext ::= [^()]{0,20} [a-z;,]{1,33}"},
};

// A machine of its own follows the same text, and makes each mask in slices of next to no effort.
static void check_sliced(struct machine *m, const struct token_trie *v, int32_t config,
                         int32_t left, const uint64_t *want) {
    struct mask_making k = {0};
    int rc;
    m->work = 0;
    do {
        int64_t before = m->reached_in_all;
        m->effort = 20;
        rc = mask_make(m, v, config, left, &k);
        m->effort = MACHINE_FREE;
        assert_int_equal(m->error, rc);
        if (rc == MACHINE_SPENT) m->error = 0;
        assert_in_range(m->reached_in_all - before, 0, 20 + 600); // of these grammars' largest sets
    } while (rc == MACHINE_SPENT);
    assert_int_equal(rc, 0);
    assert_memory_equal(k.mask->bits, want, WORDS * sizeof *want);
    mask_making_release(&k);
}

// One of the allowed tokens of at most so many bytes. -1: there is none.
static int32_t choose(const uint64_t *bits, size_t most) {
    int32_t id = -1, n = 0;
    for (int32_t k = 0; k < N; k++)
        if (bits[k >> 6] >> (k & 63) & 1 && tokens[k].len <= most && below((uint32_t)++n) == 0)
            id = k;
    return id;
}

static void test_masks(void **state) {
    struct err err = {0};
    struct token_trie *v;
    static uint64_t within[WORDS];
    make_tokens();
    assert_int_equal(token_trie_new(&v, N, bytes_of, NULL, &err), 0);
    int n_plain = 0;
    for (size_t g = 0; g < sizeof grammars / sizeof *grammars; g++) {
        struct net net;
        struct machine m, slow;
        const char *text = grammars[g].text;
        net_init(&net);
        if (grammar_compile(&net, grammars[g].kind, text, strlen(text), v->writes, &err) < 0)
            fail_msg("%s: %s", text, err.text);
        assert_int_equal(machine_init(&m, &net, &err), 0);
        assert_int_equal(machine_init(&slow, &net, &err), 0);
        for (uint64_t walk = 1; walk <= WALKS; walk++) {
            seed = walk;
            int32_t at = machine_start(&m), at_slow = machine_start(&slow), left = 40;
            for (int step = 0; step < 40 && at >= 0; step++, left--) {
                const struct mask *mask = mask_of(&m, v, at);
                assert_non_null(mask);
                check(&m, v, at, mask->bits, -1, text);
                check_sliced(&slow, v, at_slow, -1, mask->bits);
                if (step % 5 == 0) {
                    assert_true(mask_within(&m, v, at, left / 4, within));
                    check(&m, v, at, within, left / 4, text);
                    check_sliced(&slow, v, at_slow, left / 4, within);
                }
                int32_t id = choose(mask->bits, walk % 2 ? 2 : LONG + 8);
                if (id < 0) id = choose(mask->bits, LONG + 8);
                if (id < 0) break;
                for (int32_t i = 0; i < v->len[id]; i++) {
                    at = machine_step(&m, at, v->bytes[id][i]);
                    at_slow = machine_step(&slow, at_slow, v->bytes[id][i]);
                }
                m.work = 0;
                if (step == 20) { // the classes stay
                    struct machine_root root;
                    machine_hold(&m, &root, at);
                    assert_int_equal(machine_collect(&m), 0);
                    at = root.config;
                    machine_drop(&m, &root);
                }
            }
        }
        n_plain += m.n_plain;
        machine_release(&m);
        machine_release(&slow);
        net_release(&net);
    }
    assert_true(n_plain > 8); // and the short way was taken
    token_trie_free(v);
}

// A mask that allows few tokens skips most of the trie, so it takes little of a step's effort.
static void skipped_nodes_cost_nothing(void **state) {
    struct err err = {0};
    struct token_trie *v;
    struct net net;
    struct machine m;
    static const char text[] = "!key!";
    make_tokens();
    assert_int_equal(token_trie_new(&v, N, bytes_of, NULL, &err), 0);
    net_init(&net);
    assert_int_equal(grammar_compile(&net, GRAMMAR_REGEX, text, strlen(text), v->writes, &err), 0);
    assert_int_equal(machine_init(&m, &net, &err), 0);
    int32_t at = machine_start(&m);
    struct mask_making k = {0};
    m.effort = 1000;
    assert_int_equal(mask_make(&m, v, at, -1, &k), 0);
    // The 256 first bytes, in the time of 64 pairs, and a few transitions.
    assert_in_range(1000 - m.effort, 64, 64 + 40);
    assert_true(v->all.n > 6000); // in the time of 1,500
    check(&m, v, at, k.mask->bits, -1, text);
    mask_making_release(&k);
    machine_release(&m);
    net_release(&net);
    token_trie_free(v);
}

struct opened { // a regular expression over the tokens
    struct token_trie *v;
    struct net net;
    struct machine m;
};

static void open_regex(struct opened *o, const char *regex) {
    struct err err = {0};
    make_tokens();
    assert_int_equal(token_trie_new(&o->v, N, bytes_of, NULL, &err), 0);
    net_init(&o->net);
    assert_int_equal(
        grammar_compile(&o->net, GRAMMAR_REGEX, regex, strlen(regex), o->v->writes, &err), 0);
    assert_int_equal(machine_init(&o->m, &o->net, &err), 0);
}

static void close_regex(struct opened *o) {
    machine_release(&o->m);
    net_release(&o->net);
    token_trie_free(o->v);
}

// The chain of [a-z] goes on into the text, whose own class is larger.
static void a_class_is_not_taken_from_a_chain(void **state) {
    static const char text[] = "[a-z]{4}[ -~]*";
    struct opened o;
    int32_t at[PLAIN_CHARS + 1];
    const struct plain_class *letters, *all;
    open_regex(&o, text);
    assert_int_equal(plain_chain(&o.m, o.v, machine_start(&o.m), &letters, at), PLAIN_CHARS);
    int32_t behind = at[4];
    assert_int_equal(at[5], behind);
    assert_int_equal(plain_chain(&o.m, o.v, behind, &all, at), PLAIN_CHARS);
    assert_int_equal(__builtin_popcountll(letters->set.ascii[0]), 0);
    assert_int_equal(__builtin_popcountll(letters->set.ascii[1]), 26);
    assert_int_equal(__builtin_popcountll(all->set.ascii[0]), 32);
    assert_int_equal(__builtin_popcountll(all->set.ascii[1]), 63);
    check(&o.m, o.v, behind, mask_of(&o.m, o.v, behind)->bits, -1, text);
    close_regex(&o);
}

// One look at a shortest end finds the costs of all configurations on the way, and a later one stops where these are
// known. A plan is made without them.
static void costs_are_those_of_plans(void **state) {
    static const char *const texts[] = {"[a-z ]{300}", "a{70}b?c{1,40}", "(x|yy){3}[0-9]{50}(xy)*"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct opened o;
        open_regex(&o, texts[i]);
        int32_t start = machine_start(&o.m), at = start, n;
        for (int k = 0; k < 5; k++) { // into the middle, then from the start
            uint8_t byte;
            at = machine_shorten(&o.m, at, &byte);
        }
        (void)mask_cost(&o.m, o.v, at);
        (void)mask_cost(&o.m, o.v, start);
        for (at = start; o.m.configs[at].least > 0;) {
            uint8_t byte;
            assert_true(o.m.configs[at].cost > 0); // known already
            free(mask_plan(&o.m, o.v, at, &n));
            assert_int_equal(o.m.configs[at].cost, n);
            at = machine_shorten(&o.m, at, &byte);
        }
        close_regex(&o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks),
                                       cmocka_unit_test(skipped_nodes_cost_nothing),
                                       cmocka_unit_test(a_class_is_not_taken_from_a_chain),
                                       cmocka_unit_test(costs_are_those_of_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
