// See grammars.h.
#include "base/hash.h"
#include "base/xxh64.h"
#include "engine/grammar/grammar_internal.h"
#include "engine/grammar/notations.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define GRAMMARS_BYTES ((int64_t)256 << 20)

struct kept {                // a grammar that is kept for an owner
    struct grammar *grammar; // held
    int64_t bytes;           // when counted last
    // Of the owner, the least recently used first; or in the list of those dropped.
    struct kept *prev, *next;
    UT_hash_handle hh; // of the owner, by the text's hash
};

struct keeper { // an owner for whom grammars are kept
    uint64_t owner;
    struct kept *kept, *by_hash;
    int64_t bytes; // of all of them, when counted last
    UT_hash_handle hh;
};

struct table { // of a vocabulary
    uint64_t vocabulary;
    int32_t n_vocab, n_engines; // n_engines: under the lock of all tables
    struct table *prev, *next;

    pthread_mutex_t lock; // of the keepers
    struct keeper *keepers;
    int64_t most_bytes;

    pthread_mutex_t vocab_lock; // another one, since the net thread takes `lock` in grammars_find
    struct token_trie *vocab;   // made with the first grammar
};

struct grammars {
    struct table *table;
    token_bytes_fn bytes;
    void *ctx;
};

static struct {
    pthread_mutex_t lock;
    struct table *list;
} tables = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int compile_notation(struct net *net, enum grammar_kind kind, const char *text, size_t len,
                            struct err *err) {
    switch (kind) {
    case GRAMMAR_JSON_SCHEMA:
        return schema_compile(net, text, len, err);
    case GRAMMAR_GBNF:
        return gbnf_compile(net, text, len, err);
    case GRAMMAR_REGEX:
        return regex_compile(net, text, len, err);
    case GRAMMAR_CHOICE:
        return choice_compile(net, text, len, err);
    case GRAMMAR_KINDS:
        break;
    }
    return err_set(err, E_INTERNAL, "a grammar of no kind");
}

int grammar_compile(struct net *net, enum grammar_kind kind, const char *text, size_t len,
                    const bool *writes, struct err *err) {
    TRY(compile_notation(net, kind, text, len, err));
    return net_finish(net, writes, err);
}

// --- one grammar ---------------------------------------------------------------------------------

struct grammar *grammar_hold(struct grammar *g) {
    if (g) atomic_fetch_add(&g->n_holders, 1);
    return g;
}

void grammar_free(struct grammar *g) {
    if (!g || atomic_fetch_sub(&g->n_holders, 1) > 1) return;
    grammar_text_free(g->text);
    machine_release(&g->machine);
    net_release(&g->net);
    token_trie_free(g->vocab);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

int32_t grammar_least_tokens(const struct grammar *g) {
    return g->least_tokens;
}

void grammar_tidy(struct grammar *g) {
    g->machine.work = 0;
    int64_t most = g->maker ? MACHINE_MOST_BYTES - MACHINE_BYTES : MACHINE_BYTES;
    if (g->machine.bytes > most || g->machine.error < 0)
        (void)machine_collect(&g->machine); // a failure shows with the next step
    atomic_store(&g->bytes, g->fixed_bytes + g->machine.bytes + g->machine.plain_bytes);
}

// What the first steps with the grammar would be slow without. It may fail: then they make it.
static void prepare(struct grammar *g, int32_t start) {
    struct machine_root root;
    machine_hold(&g->machine, &root, start);
    mask_prepare(&g->machine, g->vocab, start);
    if (g->machine.error < 0) (void)machine_collect(&g->machine);
    machine_drop(&g->machine, &root);
    g->machine.work = 0;
}

// Walks the beginning once: what is too costly is refused here, on a worker.
static int measure(struct grammar *g, struct err *err) {
    const char *name = grammar_kind_name(grammar_text_kind(g->text));
    int32_t start = machine_start(&g->machine);
    if (start >= 0) {
        g->least_tokens = mask_cost(&g->machine, g->vocab, start);
        if (g->machine.error == 0 && g->least_tokens == INT32_MAX && !g->machine.crowded)
            return err_set(err, E_INVAL, "%s: the model's tokens cannot write any answer", name);
        g->machine.work = 0;
        (void)mask_of(&g->machine, g->vocab, start);
        if (g->machine.error == 0) prepare(g, start);
    }
    bool none = start < 0 || g->least_tokens == INT32_MAX;
    if (g->machine.crowded && none && g->machine.error == 0)
        return err_set(err, E_LIMIT,
                       "%s: its texts go on in more than %d ways at one place (alternatives, or "
                       "repetitions in each other); a list of texts can be a choice",
                       name, MACHINE_MAX_PAIRS);
    if (start >= 0 && g->machine.error == 0) return 0;
    if (g->machine.error == E_NOMEM) return err_set(err, E_NOMEM, "%s: no memory for it", name);
    return err_set(err, E_LIMIT, "%s is too ambiguous: its texts go on in too many ways at once",
                   name);
}

static int grammar_new(struct grammar **out, const struct grammar_text *text,
                       const struct table *of, struct err *err) {
    size_t len;
    const char *s = grammar_text_string(text, &len);
    const char *name = grammar_kind_name(grammar_text_kind(text));
    struct err why = {0};
    struct grammar *g = calloc(1, sizeof *g);
    if (!g) return err_set(err, E_NOMEM, "no memory for %s", name);
    atomic_init(&g->n_holders, 1);
    g->text = grammar_text_hold(text);
    g->vocab = token_trie_hold(of->vocab);
    g->vocabulary = of->vocabulary;
    pthread_mutex_init(&g->lock, NULL);
    net_init(&g->net);
    int rc = grammar_compile(&g->net, grammar_text_kind(text), s, len, g->vocab->writes, &why);
    if (rc < 0) err_set(err, rc, "%s: %s", name, why.text);
    if (rc == 0) rc = machine_init(&g->machine, &g->net, err);
    if (rc == 0) rc = measure(g, err);
    if (rc < 0) {
        grammar_free(g);
        return rc;
    }
    g->fixed_bytes = (int64_t)(sizeof *g + len) + g->net.bytes;
    grammar_tidy(g);
    *out = g;
    return 0;
}

// --- keepers, under the lock ---------------------------------------------------------------------

static bool equal(const struct grammar_text *a, const struct grammar_text *b) {
    size_t n, m;
    const char *s = grammar_text_string(a, &n), *t = grammar_text_string(b, &m);
    return grammar_text_kind(a) == grammar_text_kind(b) && n == m && memcmp(s, t, n) == 0;
}

static struct keeper *keeper_of(const struct table *t, uint64_t owner) {
    struct keeper *o;
    HASH_FIND(hh, t->keepers, &owner, sizeof owner, o);
    return o;
}

static struct kept *find_of(const struct keeper *o, const struct grammar_text *text) {
    struct kept *k;
    const char *hash = grammar_text_hash(text);
    HASH_FIND(hh, o->by_hash, hash, strlen(hash), k);
    return k && equal(k->grammar->text, text) ? k : NULL;
}

// The grammar that is kept for the owner, or NULL. It becomes the last one to be dropped.
static struct grammar *find(const struct table *t, uint64_t owner,
                            const struct grammar_text *text) {
    struct keeper *o = keeper_of(t, owner);
    struct kept *k = o ? find_of(o, text) : NULL;
    if (!k) return NULL;
    DL_DELETE(o->kept, k);
    DL_APPEND(o->kept, k);
    return k->grammar;
}

// An equal grammar that is kept for any owner, or NULL.
static struct grammar *find_any(const struct table *t, const struct grammar_text *text) {
    for (const struct keeper *o = t->keepers; o; o = o->hh.next) {
        const struct kept *k = find_of(o, text);
        if (k) return k->grammar;
    }
    return NULL;
}

static struct keeper *need_keeper(struct table *t, uint64_t owner) {
    struct keeper *o = keeper_of(t, owner);
    if (o || !(o = calloc(1, sizeof *o))) return o;
    o->owner = owner;
    HASH_ADD(hh, t->keepers, owner, sizeof o->owner, o);
    if (hash_added(&o->hh)) return o;
    free(o);
    return NULL;
}

static void free_if_empty(struct table *t, struct keeper *o) {
    if (o->kept) return;
    HASH_DELETE(hh, t->keepers, o);
    free(o);
}

static void drop(struct keeper *o, struct kept *k, struct kept **dropped) {
    HASH_DELETE(hh, o->by_hash, k);
    DL_DELETE(o->kept, k);
    k->grammar->n_keepers--;
    LL_PREPEND(*dropped, k);
}

static bool keep(struct table *t, uint64_t owner, struct grammar *made) {
    const char *hash = grammar_text_hash(made->text);
    struct keeper *o = need_keeper(t, owner);
    struct kept *k = o ? calloc(1, sizeof *k) : NULL;
    if (k) HASH_ADD_KEYPTR(hh, o->by_hash, hash, strlen(hash), k);
    if (k && hash_added(&k->hh)) {
        k->grammar = grammar_hold(made);
        made->n_keepers++;
        DL_APPEND(o->kept, k);
        return true;
    }
    free(k);
    if (o) free_if_empty(t, o);
    return false;
}

// --- room, under the lock ------------------------------------------------------------------------

// Counts each owner's grammars, and returns the memory of all: one that several owners use is there once.
static int64_t count(struct table *t) {
    int64_t bytes = 0;
    for (struct keeper *o = t->keepers; o; o = o->hh.next) {
        struct kept *k;
        o->bytes = 0;
        DL_FOREACH(o->kept, k) {
            k->bytes = atomic_load(&k->grammar->bytes);
            o->bytes += k->bytes;
            bytes += k->bytes / k->grammar->n_keepers;
        }
    }
    return bytes;
}

// The owner's least recently used grammar that no turn uses, or NULL.
static struct kept *first_unused(const struct keeper *o) {
    struct kept *k;
    DL_FOREACH(o->kept, k) {
        if (atomic_load(&k->grammar->n_holders) == k->grammar->n_keepers) return k;
    }
    return NULL;
}

// The owner that has most, beyond its share, and an unused grammar; or NULL.
static struct keeper *greediest(const struct table *t) {
    struct keeper *most = NULL;
    int64_t share = t->most_bytes / (int64_t)HASH_COUNT(t->keepers);
    for (struct keeper *o = t->keepers; o; o = o->hh.next) {
        if (o->bytes <= share || (most && o->bytes <= most->bytes)) continue;
        if (first_unused(o)) most = o;
    }
    return most;
}

static void make_room(struct table *t, struct kept **dropped) {
    struct keeper *o;
    int64_t bytes = count(t);
    while (bytes > t->most_bytes && (o = greediest(t))) {
        struct kept *k = first_unused(o);
        if (k->grammar->n_keepers == 1) bytes -= k->bytes;
        o->bytes -= k->bytes;
        drop(o, k, dropped);
        free_if_empty(t, o);
    }
}

// --- the tables ----------------------------------------------------------------------------------

static uint64_t hash_vocabulary(int32_t n_vocab, token_bytes_fn bytes, void *ctx) {
    uint64_t hash = (uint64_t)n_vocab;
    for (int32_t id = 0; id < n_vocab; id++) {
        size_t len = 0;
        const char *s = bytes(ctx, id, &len);
        hash = xxh64(s ? s : "", s ? len : 0, hash);
    }
    return hash;
}

static struct table *table_hold(uint64_t vocabulary, int32_t n_vocab) {
    struct table *t;
    pthread_mutex_lock(&tables.lock);
    DL_FOREACH(tables.list, t) {
        if (t->vocabulary == vocabulary && t->n_vocab == n_vocab) break;
    }
    if (!t && (t = calloc(1, sizeof *t))) {
        t->vocabulary = vocabulary;
        t->n_vocab = n_vocab;
        t->most_bytes = GRAMMARS_BYTES;
        pthread_mutex_init(&t->lock, NULL);
        pthread_mutex_init(&t->vocab_lock, NULL);
        DL_APPEND(tables.list, t);
    }
    if (t) t->n_engines++;
    pthread_mutex_unlock(&tables.lock);
    return t;
}

static void free_dropped(struct kept *dropped) {
    struct kept *k, *next;
    LL_FOREACH_SAFE(dropped, k, next) {
        grammar_free(k->grammar);
        free(k);
    }
}

static void table_free(struct table *t) {
    struct keeper *o, *next;
    struct kept *dropped = NULL;
    pthread_mutex_lock(&tables.lock);
    bool used = --t->n_engines > 0;
    if (!used) DL_DELETE(tables.list, t);
    pthread_mutex_unlock(&tables.lock);
    if (used) return;
    HASH_ITER(hh, t->keepers, o, next) {
        while (o->kept) drop(o, o->kept, &dropped);
        free_if_empty(t, o);
    }
    free_dropped(dropped);
    token_trie_free(t->vocab);
    pthread_mutex_destroy(&t->vocab_lock);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

int grammars_new(struct grammars **out, int32_t n_vocab, token_bytes_fn bytes, void *ctx,
                 struct err *err) {
    struct grammars *g = calloc(1, sizeof *g);
    if (g) g->table = table_hold(hash_vocabulary(n_vocab, bytes, ctx), n_vocab);
    if (!g || !g->table) {
        free(g);
        return err_set(err, E_NOMEM, "no memory for grammars");
    }
    g->bytes = bytes;
    g->ctx = ctx;
    *out = g;
    return 0;
}

void grammars_free(struct grammars *g) {
    if (!g) return;
    table_free(g->table);
    free(g);
}

uint64_t grammars_vocabulary(const struct grammars *g) {
    return g->table->vocabulary;
}

static int need_vocab(const struct grammars *g, struct err *err) {
    struct table *t = g->table;
    pthread_mutex_lock(&t->vocab_lock);
    int rc = t->vocab ? 0 : token_trie_new(&t->vocab, t->n_vocab, g->bytes, g->ctx, err);
    pthread_mutex_unlock(&t->vocab_lock);
    return rc;
}

struct grammar *grammars_find(const struct grammars *g, uint64_t owner,
                              const struct grammar_text *text) {
    struct table *t = g->table;
    pthread_mutex_lock(&t->lock);
    struct grammar *found = grammar_hold(find(t, owner, text));
    pthread_mutex_unlock(&t->lock);
    return found;
}

bool grammars_fit(const struct grammars *g, const struct grammar *made,
                  const struct grammar_text *text) {
    return made->vocabulary == g->table->vocabulary && equal(made->text, text);
}

int grammars_get(struct grammars *g, uint64_t owner, const struct grammar_text *text,
                 struct grammar **out, struct err *err) {
    struct table *t = g->table;
    struct grammar *made = NULL;
    struct kept *dropped = NULL;
    TRY(need_vocab(g, err));
    if ((*out = grammars_find(g, owner, text))) return 0;
    TRY(grammar_new(&made, text, t, err)); // without the lock: others go on meanwhile
    pthread_mutex_lock(&t->lock);
    bool kept = find(t, owner, text); // two threads compiled it at once
    *out = grammar_hold(find_any(t, text));
    if (!*out) *out = grammar_hold(made);
    if (!kept) kept = keep(t, owner, *out);
    make_room(t, &dropped);
    pthread_mutex_unlock(&t->lock);
    // What is not used is freed without the lock: it may take milliseconds.
    free_dropped(dropped);
    grammar_free(made);
    if (kept) return 0;
    grammar_free(*out);
    *out = NULL;
    return err_set(err, E_NOMEM, "no memory for %s", grammar_kind_name(grammar_text_kind(text)));
}
