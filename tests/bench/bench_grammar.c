// Microseconds for the mask of one token under a grammar, over a vocabulary of 128k tokens. The bench follows an
// answer token by token, each drawn uniformly from its mask. "cold": the grammar meets every configuration
// for the first time, as in the first turn with it; "warm": the same answers again, as in later turns. Before that, 64
// sessions take steps together, in the order of the engine's thread: "look" (with the transitions of the tokens
// accepted before), "make" and "pass" (masks for the device) while the device computes, "accept" after the step.
//
// usage: bench_grammar [DIR]   the tokenizer of a model folder; else synthetic tokens of such lengths and kinds
#include "base/buf.h"
#include "engine/grammar/grammar_internal.h"
#include "engine/grammar/grammars.h"
#include "engine/grammar/matcher.h"
#include "tests/bench/vocabulary.h"

enum { MAX_MASKS = 40000, MOST_TOKENS = 300, SESSIONS = 64, STEPS = 256 };
enum { MASK_EFFORT = 120000 }; // engine/run/masks.h

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// A uniform token of the mask. -1: none.
static int32_t pick(const uint64_t *bits, int32_t n_vocab, uint64_t seed, uint64_t i) {
    uint32_t n = 0;
    for (int32_t k = 0; k < (n_vocab + 63) / 64; k++) n += (uint32_t)__builtin_popcountll(bits[k]);
    uint32_t nth = draw(seed, i, n);
    for (int32_t id = 0; id < n_vocab; id++)
        if (bits[id / 64] >> id % 64 & 1 && nth-- == 0) return id;
    return -1;
}

static int answer(struct grammar *g, int32_t n_vocab, uint64_t seed, double *us, int n) {
    struct err err = {0};
    struct grammar_matcher *m;
    uint64_t *bits = malloc(((size_t)n_vocab / 64 + 1) * sizeof *bits);
    if (grammar_matcher_new(&m, g, &err) < 0) abort();
    for (int64_t left = MOST_TOKENS; left > 0 && n < MAX_MASKS; left--) {
        bool may_end;
        double start = now_us();
        if (grammar_matcher_mask(m, left, bits, &may_end, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            exit(1);
        }
        us[n++] = now_us() - start;
        int32_t id = pick(bits, n_vocab, seed, (uint64_t)left);
        if (id < 0 || (may_end && draw(seed, (uint64_t)left + 1000, 3) == 0)) break;
        grammar_matcher_accept(m, id);
    }
    grammar_matcher_free(m);
    free(bits);
    return n;
}

static void print_times(const char *name, const char *what, double *us, int n) {
    qsort(us, (size_t)n, sizeof *us, by_value);
    printf("%-12s %-5s %6d masks   median %8.1f us   p99 %8.1f us   most %8.1f us\n", name, what, n,
           us[n / 2], us[n * 99 / 100], us[n - 1]);
}

// --- steps of many sessions ----------------------------------------------------------------------

enum part { LOOK, MAKE, PASS, ACCEPT, PARTS };
struct steps {
    struct grammar_matcher *m[SESSIONS];
    int64_t left[SESSIONS];
    bool ready[SESSIONS];
    uint64_t *bits, *copies; // (n_words), (SESSIONS, n_words)
    uint64_t *seen;          // (SESSIONS) serials of the step's masks
    int32_t n_words, n_seen;
    int64_t n_waits, n_copies; // sessions that steps leave out; masks that the device gets
    double us[PARTS][STEPS];
};

// A mask for the device: once for all sessions that have it, as kernels/cuda/draws.c copies it.
static void pass_mask(struct steps *s, int i) {
    struct err err = {0};
    bool may_end;
    uint64_t serial = 0;
    const uint64_t *mask = grammar_matcher_kept(s->m[i], s->left[i], &may_end, &serial);
    for (int32_t k = 0; mask && k < s->n_seen; k++)
        if (s->seen[k] == serial) return;
    if (!mask && grammar_matcher_mask(s->m[i], s->left[i], s->bits, &may_end, &err) < 0) abort();
    memcpy(s->copies + (size_t)s->n_seen * (size_t)s->n_words, mask ? mask : s->bits,
           (size_t)s->n_words * sizeof *s->bits);
    s->seen[s->n_seen++] = serial;
    s->n_copies++;
}

// What the engine's thread does for a step: while the device computes, run/masks.c and run/step.c; then the tokens.
static void one_step(struct steps *s, int32_t n_vocab, int step) {
    int64_t effort = MASK_EFFORT;
    int32_t ids[SESSIONS];
    double at[PARTS + 1];
    s->n_seen = 0;
    at[LOOK] = now_us();
    for (int i = 0; i < SESSIONS; i++) {
        int64_t none = 0;
        s->ready[i] = grammar_matcher_prepare(s->m[i], s->left[i], &none);
    }
    at[MAKE] = now_us();
    for (int i = 0; i < SESSIONS; i++)
        if (!s->ready[i]) s->ready[i] = grammar_matcher_prepare(s->m[i], s->left[i], &effort);
    at[PASS] = now_us();
    for (int i = 0; i < SESSIONS; i++)
        if (s->ready[i]) pass_mask(s, i);
    double passed = now_us();
    for (int i = 0; i < SESSIONS; i++) {
        bool may_end;
        struct err err = {0};
        s->n_waits += !s->ready[i];
        if (!s->ready[i]) continue;
        if (grammar_matcher_mask(s->m[i], s->left[i], s->bits, &may_end, &err) < 0) abort();
        ids[i] = pick(s->bits, n_vocab, (uint64_t)i, (uint64_t)step);
    }
    at[ACCEPT] = now_us();
    for (int i = 0; i < SESSIONS; i++) {
        if (!s->ready[i]) continue;
        if (ids[i] >= 0)
            grammar_matcher_accept(s->m[i], ids[i]);
        else
            grammar_matcher_restart(s->m[i]); // the next answer
        s->left[i]--;
    }
    at[PARTS] = now_us();
    s->us[LOOK][step] = at[MAKE] - at[LOOK];
    s->us[MAKE][step] = at[PASS] - at[MAKE];
    s->us[PASS][step] = passed - at[PASS];
    s->us[ACCEPT][step] = at[PARTS] - at[ACCEPT];
}

static void print_steps(const char *name, struct steps *s, int from, int n) {
    double all[STEPS], mean[PARTS] = {0};
    for (int i = 0; i < n; i++) {
        all[i] = 0;
        for (int p = 0; p < PARTS; p++) {
            all[i] += s->us[p][from + i];
            mean[p] += s->us[p][from + i] / n;
        }
    }
    qsort(all, (size_t)n, sizeof *all, by_value);
    printf(
        "%-12s %d sessions, steps %3d..%3d: median %7.1f us   p99 %7.1f us   means: look %6.1f   "
        "make %6.1f   pass %6.1f   accept %6.1f\n",
        name, SESSIONS, from, from + n - 1, all[n / 2], all[n * 99 / 100], mean[LOOK], mean[MAKE],
        mean[PASS], mean[ACCEPT]);
}

static void together(const char *name, struct grammar *g, int32_t n_vocab) {
    static struct steps s;
    struct err err = {0};
    s = (struct steps){.n_words = (n_vocab + 63) / 64};
    s.bits = malloc((size_t)s.n_words * sizeof *s.bits);
    s.copies = malloc((size_t)SESSIONS * (size_t)s.n_words * sizeof *s.copies);
    s.seen = calloc(SESSIONS, sizeof *s.seen);
    for (int i = 0; i < SESSIONS; i++) {
        if (grammar_matcher_new(&s.m[i], g, &err) < 0) abort();
        s.left[i] = 8000;
    }
    for (int step = 0; step < STEPS; step++) {
        one_step(&s, n_vocab, step);
        if (step % (STEPS / 2) == STEPS / 2 - 1)
            print_steps(name, &s, step + 1 - STEPS / 2, STEPS / 2);
    }
    printf("%-12s %d sessions: a step copies %.1f masks and leaves out %.2f sessions; the grammar "
           "has %d "
           "configurations, %.1f MiB\n",
           name, SESSIONS, (double)s.n_copies / STEPS, (double)s.n_waits / STEPS,
           g->machine.n_configs, (double)g->machine.bytes / 1048576);
    for (int i = 0; i < SESSIONS; i++) grammar_matcher_free(s.m[i]);
    free(s.bits);
    free(s.copies);
    free(s.seen);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        enum grammar_kind kind;
        const char *text;
    } grammars[] = {
        {"json", GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}"},
        {"record", GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
         "\"integer\",\"minimum\":0,\"maximum\":150},\"tags\":{\"type\":\"array\",\"items\":{"
         "\"enum\":["
         "\"a\",\"b\",\"c\"]}},\"note\":{\"type\":\"string\",\"maxLength\":200},\"child\":{\"$"
         "ref\":"
         "\"#\"}},\"required\":[\"name\",\"age\",\"tags\"],\"additionalProperties\":false}"},
        {"pattern", GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[A-Za-z0-9 "
         ",.-]{1,80}$\"}}"},
        {"dates", GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"date-time\"}}"},
        {"strings", GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":"
         "\"string\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"name\",\"n\"]},\"minItems\":"
         "300}"},
        {"orders", GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"customer\":{\"type\":\"string\",\"minLength\":1,"
         "\"maxLength\":80},\"id\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-[0-9]{6}$\"},"
         "\"state\":{"
         "\"enum\":[\"open\",\"paid\",\"sent\",\"returned\"]},\"lines\":{\"type\":\"array\","
         "\"minItems\":1,"
         "\"maxItems\":20,\"items\":{\"type\":\"object\",\"properties\":{\"article\":{\"type\":"
         "\"string\","
         "\"maxLength\":120},\"amount\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":999},"
         "\"price\":{"
         "\"type\":\"number\",\"minimum\":0,\"maximum\":100000},\"tags\":{\"type\":\"array\","
         "\"maxItems\":"
         "5,\"items\":{\"type\":\"string\",\"maxLength\":20}}},\"required\":[\"article\","
         "\"amount\","
         "\"price\"],\"additionalProperties\":false}},\"note\":{\"type\":\"string\",\"maxLength\":"
         "500}},"
         "\"required\":[\"customer\",\"id\",\"state\",\"lines\"],\"additionalProperties\":false}"},
        {"regex", GRAMMAR_REGEX, "[a-zA-Z ,.]+"},
        {"gbnf", GRAMMAR_GBNF, "root ::= (item \"\\n\"){1,20}\nitem ::= \"- \" [^\\n]{1,100}"},
    };
    static double us[MAX_MASKS];
    struct err err = {0};
    struct grammars *all;
    int32_t n_vocab = open_vocabulary(argc > 1 ? argv[1] : NULL);
    printf("%d tokens\n", n_vocab);
    if (grammars_new(&all, n_vocab, bytes_of, NULL, &err) < 0) return 1;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        const struct grammar_text *text;
        struct grammar *g;
        double start = now_us();
        if (grammar_text_new(&text, grammars[i].kind, grammars[i].text, strlen(grammars[i].text),
                             &err) < 0 ||
            grammars_get(all, 0, text, &g, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        printf("%-12s compiled in %.1f ms%s\n", grammars[i].name, (now_us() - start) / 1e3,
               i == 0 ? ", with the trie of the vocabulary" : "");
        together(grammars[i].name, g, n_vocab);
        for (int pass = 0; pass < 2; pass++) {
            int n = 0;
            for (uint64_t seed = 0; seed < 60; seed++) n = answer(g, n_vocab, seed, us, n);
            print_times(grammars[i].name, pass ? "warm" : "cold", us, n);
        }
        grammar_free(g);
        grammar_text_free(text);
    }
    grammars_free(all);
    return 0;
}
