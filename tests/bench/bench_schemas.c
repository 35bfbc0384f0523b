// What the schemas of files cost over a vocabulary of 128k tokens: the time to compile each, the time of each mask while
// answers are drawn, and the memory. Masks are of three kinds:
//
//   kept       the configuration has its mask: looked up
//   new        made for the first time, and kept
//   near end   made for the tokens left, where max_tokens is close; not kept
//
// A time includes the transitions of the token accepted before. Each answer is drawn at random from its masks; one
// draw in four takes a token that begins with a quote or a closing bracket, where one is allowed, because uniform draws
// would stay inside the first string. Of four answers, one has little more room than the shortest answer needs.
//
// usage: bench_schemas [-v DIR] [FILE...]   DIR: the tokenizer of a model folder; a line of FILE: {"from", "schema"}.
// By default those of the SDKs (../fixtures/schemas) and one or more for each keyword that is hard (schemas.jsonl).
#include "base/buf.h"
#include "base/json.h"
#include "engine/grammar/grammar_internal.h"
#include "engine/grammar/grammars.h"
#include "engine/grammar/matcher.h"
#include "tests/bench/vocabulary.h"

enum { ANSWERS = 12, MOST_TOKENS = 300, ROOM = 40, MAX_SCHEMAS = 4096, WORST = 10 };
enum kind { KEPT, NEW, NEAR_END, KINDS };
static const char *const kind_names[KINDS] = {"kept", "new", "near end"};

struct times {
    float *us; // (n)
    size_t n, cap;
};

struct measured {
    char name[64];
    double compile_ms, mib; // mib: after the answers
    struct times made;      // masks that were not kept
    double slowest;         // of these
    char before[32];        // the end of the answer where the slowest was made
    int32_t n_states, n_configs;
};

static struct measured all[MAX_SCHEMAS];
static int n_all;
static struct times masks[KINDS];
static uint64_t *closers; // (n_words) tokens that begin with a quote or a closing bracket
static uint64_t *bits;    // (n_words)
static int32_t n_vocab, n_words;

static void times_add(struct times *t, double us) {
    if (t->n == t->cap) t->us = realloc(t->us, (t->cap = t->cap * 2 + 64) * sizeof *t->us);
    t->us[t->n++] = (float)us;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(const struct times *t, int per_mille) { // sorted
    return t->n ? (double)t->us[(t->n - 1) * (size_t)per_mille / 1000] : 0;
}

// --- answers -------------------------------------------------------------------------------------

static void find_closers(void) {
    closers = calloc((size_t)n_words, sizeof *closers);
    for (int32_t id = 0; id < n_vocab; id++) {
        size_t len = 0;
        const char *s = bytes_of(NULL, id, &len);
        if (s && len > 0 && strchr("\"]}", s[0])) closers[id / 64] |= (uint64_t)1 << id % 64;
    }
}

static uint32_t count_bits(const uint64_t *only) {
    uint32_t n = 0;
    for (int32_t k = 0; k < n_words; k++)
        n += (uint32_t)__builtin_popcountll(bits[k] & (only ? only[k] : UINT64_MAX));
    return n;
}

// A token of the mask; -1: none.
static int32_t pick(uint64_t seed, uint64_t i) {
    const uint64_t *only = draw(seed, 4 * i, 4) == 0 ? closers : NULL;
    uint32_t n = count_bits(only);
    if (n == 0 && only) n = count_bits(only = NULL);
    uint32_t nth = n > 0 ? draw(seed, 4 * i + 1, n) : 0;
    for (int32_t k = 0; n > 0 && k < n_words; k++) {
        uint64_t word = bits[k] & (only ? only[k] : UINT64_MAX);
        uint32_t here = (uint32_t)__builtin_popcountll(word);
        if (nth >= here) {
            nth -= here;
            continue;
        }
        for (; nth > 0; nth--) word &= word - 1;
        return 64 * k + __builtin_ctzll(word);
    }
    return -1;
}

// Writes the mask into bits, and its time among those of its kind. True: none of this schema took as long.
static bool time_mask(struct measured *of, struct grammar_matcher *m, int64_t left, bool *may_end) {
    struct err err = {0};
    uint64_t serial;
    double start = now_us();
    const uint64_t *kept = grammar_matcher_kept(m, left, may_end, &serial);
    int rc = kept ? 0 : grammar_matcher_mask(m, left, bits, may_end, &err);
    double us = now_us() - start;
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", of->name, err.text);
        exit(1);
    }
    if (kept) {
        memcpy(bits, kept, (size_t)n_words * sizeof *bits);
        times_add(&masks[KEPT], us);
        return false;
    }
    bool is_kept = grammar_matcher_kept(m, left, may_end, &serial);
    bool slowest = us > of->slowest;
    if (slowest) of->slowest = us;
    times_add(&masks[is_kept ? NEW : NEAR_END], us);
    times_add(&of->made, us);
    return slowest;
}

static void note_text(struct measured *of, const struct buf *text) {
    size_t most = sizeof of->before - 1, n = text->len < most ? text->len : most;
    memcpy(of->before, buf_z(text) + text->len - n, n);
    of->before[n] = 0;
}

static void answer(struct measured *of, struct grammar *g, uint64_t seed) {
    struct err err = {0};
    struct grammar_matcher *m;
    struct buf text;
    int64_t least = (int64_t)grammar_least_tokens(g) + 1, left = MOST_TOKENS;
    bool may_end;
    if (left < least || seed % 4 == 3) left = least + draw(seed, 3, ROOM);
    if (grammar_matcher_new(&m, g, &err) < 0) abort();
    buf_init(&text, 1 << 20);
    for (; left > 0; left--) {
        size_t len;
        if (time_mask(of, m, left, &may_end)) note_text(of, &text);
        int32_t id = pick(seed, (uint64_t)left);
        if (id < 0 || (may_end && draw(seed, 4 * (uint64_t)left + 2, 3) == 0)) break;
        const char *s = bytes_of(NULL, id, &len);
        if (buf_add(&text, s, len) < 0) abort();
        grammar_matcher_accept(m, id);
    }
    buf_release(&text);
    grammar_matcher_free(m);
}

// --- schemas -------------------------------------------------------------------------------------

static void measure(struct grammars *table, const char *name, const char *schema) {
    struct measured *of = &all[n_all];
    const struct grammar_text *text;
    struct grammar *g;
    struct err err = {0};
    if (grammar_text_new(&text, GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &err) < 0) abort();
    double start = now_us();
    int rc = grammars_get(table, 0, text, &g, &err);
    *of = (struct measured){.compile_ms = (now_us() - start) / 1e3};
    snprintf(of->name, sizeof of->name, "%s", name);
    grammar_text_free(text);
    if (rc < 0) {
        printf("%-32s refused after %.1f ms: %s\n", name, of->compile_ms, err.text);
        return;
    }
    for (uint64_t seed = 0; seed < ANSWERS; seed++) answer(of, g, seed);
    qsort(of->made.us, of->made.n, sizeof *of->made.us, by_value);
    of->n_states = g->net.n_states;
    of->n_configs = g->machine.n_configs;
    of->mib =
        (double)(g->fixed_bytes + g->machine.bytes + g->machine.plain_bytes) / (double)(1 << 20);
    grammar_free(g);
    n_all++;
}

static void measure_line(struct grammars *table, const char *line, size_t len) {
    struct err err = {0};
    cJSON *row = json_parse(line, len, &json_limits_message, &err);
    char *schema = row ? json_print(json_member(row, "schema")) : NULL;
    if (!schema || n_all == MAX_SCHEMAS) {
        fprintf(stderr, "%.60s: %s\n", line, schema ? "too many schemas" : err.text);
        exit(1);
    }
    if (!json_member(row, "refused")) measure(table, json_string(row, "from"), schema);
    free(schema);
    cJSON_Delete(row);
}

static void measure_file(struct grammars *table, const char *path) {
    struct buf file;
    struct err err = {0};
    buf_init(&file, 64 << 20);
    if (buf_read_file(&file, path, 64 << 20, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    for (const char *line = buf_z(&file), *end; (end = strchr(line, '\n')); line = end + 1)
        measure_line(table, line, (size_t)(end - line));
    buf_release(&file);
}

// --- tables --------------------------------------------------------------------------------------

static void print_times(const char *name, const struct times *t) {
    size_t above = 0;
    for (size_t i = 0; i < t->n; i++) above += t->us[i] > 1000;
    printf("%-10s %8zu   median %8.1f us   p99 %8.1f us   p99.9 %8.1f us   most %8.1f us   %zu "
           "above 1 ms\n",
           name, t->n, quantile(t, 500), quantile(t, 990), quantile(t, 999), quantile(t, 1000),
           above);
}

static void print_kinds(void) {
    struct times every = {0}, not_kept = {0};
    for (int k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < masks[k].n; i++) {
            times_add(&every, (double)masks[k].us[i]);
            if (k != KEPT) times_add(&not_kept, (double)masks[k].us[i]);
        }
        qsort(masks[k].us, masks[k].n, sizeof *masks[k].us, by_value);
        print_times(kind_names[k], &masks[k]);
    }
    qsort(not_kept.us, not_kept.n, sizeof *not_kept.us, by_value);
    qsort(every.us, every.n, sizeof *every.us, by_value);
    print_times("not kept", &not_kept);
    print_times("all", &every);
    free(every.us);
    free(not_kept.us);
}

static double slowest_mask(const struct measured *m) {
    return m->slowest;
}
static double compile_time(const struct measured *m) {
    return m->compile_ms;
}
static double memory(const struct measured *m) {
    return m->mib;
}

// The schemas with the largest values, by a selection that is short enough for a few.
static void print_worst(const char *title, double (*value)(const struct measured *)) {
    bool printed[MAX_SCHEMAS] = {false};
    printf("\n%s\n", title);
    for (int k = 0; k < WORST && k < n_all; k++) {
        int worst = -1;
        for (int i = 0; i < n_all; i++)
            if (!printed[i] && (worst < 0 || value(&all[i]) > value(&all[worst]))) worst = i;
        const struct measured *m = &all[worst];
        printed[worst] = true;
        printf("%-32s compiled in %6.1f ms, %6d states, %6d configurations, %6.1f MiB; %5zu masks: "
               "median %7.1f us, p99 %7.1f us, most %7.1f us behind '%s'\n",
               m->name, m->compile_ms, m->n_states, m->n_configs, m->mib, m->made.n,
               quantile(&m->made, 500), quantile(&m->made, 990), m->slowest, m->before);
    }
}

static void print_compile_times(void) {
    struct times t = {0};
    for (int i = 0; i < n_all; i++) times_add(&t, all[i].compile_ms);
    qsort(t.us, t.n, sizeof *t.us, by_value);
    printf("%d schemas compiled: median %.2f ms, p99 %.1f ms, most %.1f ms\n", n_all,
           quantile(&t, 500), quantile(&t, 990), quantile(&t, 1000));
    free(t.us);
}

int main(int argc, char **argv) {
    static const char *const files[] = {"tests/fixtures/schemas/sdk.jsonl",
                                        "tests/bench/schemas.jsonl"};
    struct err err = {0};
    struct grammars *table;
    int first = argc > 2 && strcmp(argv[1], "-v") == 0 ? 3 : 1;
    n_vocab = open_vocabulary(first == 3 ? argv[2] : NULL);
    n_words = (n_vocab + 63) / 64;
    bits = malloc((size_t)n_words * sizeof *bits);
    find_closers();
    if (grammars_new(&table, n_vocab, bytes_of, NULL, &err) < 0) abort();
    measure(table, "", "{\"type\":\"null\"}");
    printf("%d tokens; their trie, made with the first schema, took %.0f ms\n", n_vocab,
           all[0].compile_ms);
    free(all[0].made.us);
    n_all = 0;
    for (int k = 0; k < KINDS; k++) masks[k].n = 0;
    for (int i = first; i < argc; i++) measure_file(table, argv[i]);
    for (int i = 0; i < 2 && first == argc; i++) measure_file(table, files[i]);
    grammars_free(table);
    print_compile_times();
    print_kinds();
    print_worst("The slowest masks that were not kept:", slowest_mask);
    print_worst("The longest to compile:", compile_time);
    print_worst("The most memory:", memory);
    for (int i = 0; i < n_all; i++) free(all[i].made.us);
    for (int k = 0; k < KINDS; k++) free(masks[k].us);
    free(bits);
    free(closers);
    return 0;
}
