// See grammars.h.
#include "engine/grammar/grammar_internal.h"
#include "engine/grammar/notations.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define GRAMMARS_BYTES ((int64_t)256 << 20)

struct grammars {
    pthread_mutex_t lock;
    struct grammar *list;     // each held once
    struct token_trie *vocab; // made with the first grammar
    int32_t n_vocab;
    token_bytes_fn bytes;
    void *ctx;
};

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
    atomic_store(&g->bytes, g->machine.bytes + g->machine.plain_bytes + g->net.bytes);
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
        if (g->machine.error == 0 && g->least_tokens == INT32_MAX)
            return err_set(err, E_INVAL, "%s: the model's tokens cannot write any answer", name);
        g->machine.work = 0;
        (void)mask_of(&g->machine, g->vocab, start);
        if (g->machine.error == 0) prepare(g, start);
    }
    if (start >= 0 && g->machine.error == 0) return 0;
    if (g->machine.error == E_NOMEM) return err_set(err, E_NOMEM, "%s: no memory for it", name);
    return err_set(err, E_LIMIT, "%s is too ambiguous: its texts go on in too many ways at once",
                   name);
}

static int grammar_new(struct grammar **out, const struct grammar_text *text,
                       const struct token_trie *vocab, struct err *err) {
    size_t len;
    const char *s = grammar_text_string(text, &len);
    const char *name = grammar_kind_name(grammar_text_kind(text));
    struct err why = {0};
    struct grammar *g = calloc(1, sizeof *g);
    if (!g) return err_set(err, E_NOMEM, "no memory for %s", name);
    atomic_init(&g->n_holders, 1);
    g->text = grammar_text_hold(text);
    g->vocab = vocab;
    pthread_mutex_init(&g->lock, NULL);
    net_init(&g->net);
    int rc = grammar_compile(&g->net, grammar_text_kind(text), s, len, vocab->writes, &why);
    if (rc < 0) err_set(err, rc, "%s: %s", name, why.text);
    if (rc == 0) rc = machine_init(&g->machine, &g->net, err);
    if (rc == 0) rc = measure(g, err);
    if (rc < 0) {
        grammar_free(g);
        return rc;
    }
    grammar_tidy(g);
    *out = g;
    return 0;
}

// --- the table -----------------------------------------------------------------------------------

int grammars_new(struct grammars **out, int32_t n_vocab, token_bytes_fn bytes, void *ctx,
                 struct err *err) {
    struct grammars *g = calloc(1, sizeof *g);
    if (!g) return err_set(err, E_NOMEM, "no memory for grammars");
    pthread_mutex_init(&g->lock, NULL);
    g->n_vocab = n_vocab;
    g->bytes = bytes;
    g->ctx = ctx;
    *out = g;
    return 0;
}

void grammars_free(struct grammars *g) {
    struct grammar *each, *next;
    if (!g) return;
    DL_FOREACH_SAFE(g->list, each, next) grammar_free(each);
    token_trie_free(g->vocab);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static bool equal(const struct grammar_text *a, const struct grammar_text *b) {
    size_t n, m;
    const char *s = grammar_text_string(a, &n), *t = grammar_text_string(b, &m);
    return grammar_text_kind(a) == grammar_text_kind(b) && n == m && memcmp(s, t, n) == 0;
}

// Under the lock. The one found becomes the last to be dropped.
static struct grammar *find(struct grammars *g, const struct grammar_text *text) {
    struct grammar *each;
    DL_FOREACH(g->list, each) {
        if (!equal(each->text, text)) continue;
        DL_DELETE(g->list, each);
        DL_APPEND(g->list, each);
        return each;
    }
    return NULL;
}

// Drops what no turn holds, the least recently used first, until the rest fits. Under the lock.
static void make_room(struct grammars *g) {
    int64_t bytes = 0;
    struct grammar *each, *next;
    DL_FOREACH(g->list, each) bytes += atomic_load(&each->bytes);
    DL_FOREACH_SAFE(g->list, each, next) {
        if (bytes <= GRAMMARS_BYTES) return;
        if (atomic_load(&each->n_holders) > 1) continue;
        bytes -= atomic_load(&each->bytes);
        DL_DELETE(g->list, each);
        grammar_free(each);
    }
}

static int need_vocab(struct grammars *g, struct err *err) {
    pthread_mutex_lock(&g->lock);
    int rc = g->vocab ? 0 : token_trie_new(&g->vocab, g->n_vocab, g->bytes, g->ctx, err);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

bool grammars_has(struct grammars *g, const struct grammar_text *text) {
    pthread_mutex_lock(&g->lock);
    bool has = find(g, text);
    pthread_mutex_unlock(&g->lock);
    return has;
}

int grammars_get(struct grammars *g, const struct grammar_text *text, struct grammar **out,
                 struct err *err) {
    struct grammar *made = NULL;
    TRY(need_vocab(g, err));
    pthread_mutex_lock(&g->lock);
    *out = grammar_hold(find(g, text));
    pthread_mutex_unlock(&g->lock);
    if (*out) return 0;
    TRY(grammar_new(&made, text, g->vocab, err)); // without the lock: others go on meanwhile
    pthread_mutex_lock(&g->lock);
    struct grammar *other = find(g, text); // two threads compiled it at once
    if (other) {
        grammar_free(made);
        made = other;
    } else {
        DL_APPEND(g->list, made);
    }
    *out = grammar_hold(made);
    make_room(g);
    pthread_mutex_unlock(&g->lock);
    return 0;
}
