// See mask.h.
#include "engine/grammar/mask.h"
#include "engine/grammar/plain.h"
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// What steps of other loops take, in the time that a pair takes: NODES of a trie; the tokens that a text begins
// with at one place; WORDS of a row of the vocabulary.
enum { NODES = 4, PREFIXES_EFFORT = 4, WORDS = 64 };

// --- the cheapest end ----------------------------------------------------------------------------

struct cut { // of a text into the fewest tokens
    int32_t *cost, *token,
        *len; // (n + 1) of the text from each byte on; the first token and its bytes
    int32_t at;
};

static void consider(void *ctx, int32_t id, int32_t n_bytes) {
    struct cut *c = ctx;
    int32_t rest = c->cost[c->at + n_bytes];
    // The longest of equals: calls come shortest first.
    if (rest == INT32_MAX || rest + 1 > c->cost[c->at]) return;
    c->cost[c->at] = rest + 1;
    c->token[c->at] = id;
    c->len[c->at] = n_bytes;
}

// Cuts a shortest end of the configuration. cut->cost is what to free; NULL: no memory, or no end.
static void cut_end(struct machine *m, const struct token_trie *v, int32_t config, struct cut *c) {
    int32_t n = m->configs[config].least;
    *c = (struct cut){0};
    if (n >= NET_NEVER / 8) return;
    size_t each = (size_t)n + 1;
    int32_t *all = malloc(4 * each * sizeof *all);
    if (!all) return;
    uint8_t *text = (uint8_t *)(all + 3 * each);
    if (machine_shortest(m, config, text, n) != n) {
        free(all);
        return;
    }
    *c = (struct cut){.cost = all, .token = all + each, .len = all + 2 * each};
    c->cost[n] = 0;
    for (c->at = n - 1; c->at >= 0; c->at--) {
        c->cost[c->at] = INT32_MAX;
        token_trie_prefixes(v, text + c->at, n - c->at, consider, c);
    }
    m->effort -= (int64_t)n * PREFIXES_EFFORT;
}

int32_t mask_cost(struct machine *m, const struct token_trie *v, int32_t config) {
    struct cut c;
    if (m->configs[config].cost >= 0) return m->configs[config].cost;
    if (!machine_may_spend(m)) return INT32_MAX;
    cut_end(m, v, config, &c);
    int32_t cost = c.cost ? c.cost[0] : INT32_MAX;
    free(c.cost);
    if (m->error == 0) m->configs[config].cost = cost;
    return cost;
}

int32_t *mask_plan(struct machine *m, const struct token_trie *v, int32_t config, int32_t *n) {
    struct cut c;
    int32_t *plan = NULL;
    *n = 0;
    cut_end(m, v, config, &c);
    if (c.cost && c.cost[0] < INT32_MAX) plan = malloc(((size_t)c.cost[0] + 1) * sizeof *plan);
    for (int32_t at = 0; plan && *n < c.cost[0]; at += c.len[at]) plan[(*n)++] = c.token[at];
    free(c.cost);
    return plan;
}

// Whether the text can be closed with `left` further tokens.
static bool closes(struct machine *m, const struct token_trie *v, int32_t config, int32_t left) {
    int32_t least = m->configs[config].least;
    if (least <= left) return true;
    if (left < 0 || (int64_t)left * v->longest < least) return false;
    return mask_cost(m, v, config) <= left;
}

// --- harmless characters -------------------------------------------------------------------------

// Where every harmless character leads from here, if all lead to one place; else MACHINE_DEAD.
static int32_t uniform(struct machine *m, int32_t config) {
    int32_t to = m->configs[config].uniform;
    if (to != MACHINE_UNKNOWN) return to;
    for (int i = 0; i < UTF8_FORMS && to != MACHINE_DEAD; i++)
        if (!plain_form_leads(m, config, &utf8_forms[i], &to)) to = MACHINE_DEAD;
    if (m->error == 0) m->configs[config].uniform = to;
    return to;
}

static bool takes_harmless(struct machine *m, int32_t config) {
    for (int i = 0; i < UTF8_FORMS; i++)
        for (int b = utf8_forms[i].lo[0]; b <= utf8_forms[i].hi[0]; b++)
            if (machine_step(m, config, (uint8_t)b) != MACHINE_DEAD) return true;
    return false;
}

// --- walks ---------------------------------------------------------------------------------------

struct walk {
    struct machine *m;
    const struct token_trie *v;
    int32_t left; // tokens to close with; -1: no limit
    struct mask_making *making;
    uint64_t *bits;  // of the mask that is being made
    int64_t n_walks; // of tails
};

static bool allowed(struct walk *w, int32_t config) {
    if (w->left >= 0 && !closes(w->m, w->v, config, w->left)) return false;
    int32_t least = w->m->configs[config].least;
    if (least > w->making->mask->most_least) w->making->mask->most_least = least;
    return true;
}

// --- chains --------------------------------------------------------------------------------------

// Characters that all lead to one place: the configurations after each number of them, and the vocabulary by them.
struct chain {
    int32_t n, at[PLAIN_CHARS + 1];
    // (PLAIN_CHARS + 1, n_words) tokens of these alone: of k characters, of 1 to k
    const uint64_t *exact, *upto;
    const struct tails *tails; // of the others
};

// The chain of harmless characters. False: they lead to several places.
static bool harmless_chain(struct walk *w, int32_t config, struct chain *c) {
    *c = (struct chain){.exact = w->v->harmless, .upto = w->v->any_harmless, .tails = w->v->tails};
    for (c->at[0] = config; c->n < HARMLESS_CHARS; c->n++) {
        int32_t next = uniform(w->m, c->at[c->n]);
        if (next == MACHINE_DEAD && (c->n == 0 || takes_harmless(w->m, c->at[c->n]))) return false;
        if (next == MACHINE_DEAD) break;
        c->at[c->n + 1] = next;
    }
    return w->m->error == 0;
}

static bool class_chain(struct walk *w, int32_t config, struct chain *c) {
    const struct plain_class *p;
    c->n = plain_chain(w->m, w->v, config, &p, c->at);
    if (c->n == 0 || w->m->error != 0) return false;
    c->exact = p->exact;
    c->upto = p->upto;
    c->tails = p->tails;
    return true;
}

static void add_row(struct walk *w, const uint64_t *rows, int32_t k) {
    const uint64_t *row = rows + (size_t)k * (size_t)w->v->n_words;
    for (int32_t i = 0; i < w->v->n_words; i++) w->bits[i] |= row[i];
}

// One walk for all tokens with the tail that come from the same configuration.
static void add_tail(struct walk *w, const struct chain *c, int32_t run) {
    const struct tail_token *t = &c->tails->tokens[c->tails->runs[run]],
                            *end = &c->tails->tokens[c->tails->runs[run + 1]];
    const uint8_t *tail = w->v->bytes[t->id] + t->bytes;
    int32_t len = w->v->len[t->id] - t->bytes, from = MACHINE_UNKNOWN;
    bool fits = false;
    for (; t < end && t->chars <= c->n; t++) {
        if (c->at[t->chars] != from) {
            int32_t to = from = c->at[t->chars];
            for (int32_t b = 0; b < len && to >= 0; b++) to = machine_step(w->m, to, tail[b]);
            fits = to >= 0 && allowed(w, to);
            if (w->m->error != 0) return;
            w->n_walks++;
        }
        if (fits) w->bits[t->id >> 6] |= (uint64_t)1 << (t->id & 63);
    }
}

static void add_tails(struct walk *w, const struct chain *c) {
    struct machine *m = w->m;
    const uint8_t *classes = m->net->byte_class;
    bool goes_on[256] = {false};
    for (int i = 0; i < m->net->n_classes; i++)
        for (int32_t k = 0; k <= c->n && !goes_on[i]; k++)
            goes_on[i] = (k == 0 || c->at[k] != c->at[k - 1]) &&
                         machine_step(m, c->at[k], m->net->class_byte[i]) != MACHINE_DEAD;
    for (int b = 0; b < 256; b++) {
        int32_t last = goes_on[classes[b]] ? c->tails->first[b + 1] : 0;
        for (int32_t run = c->tails->first[b]; run < last && m->error == 0; run++)
            add_tail(w, c, run);
    }
}

static void add_chain(struct walk *w, const struct chain *c) {
    int32_t good = 0;
    for (int32_t k = 1; k <= c->n; k++) {
        bool fits = allowed(w, c->at[k]);
        if (fits && good == k - 1)
            good = k;
        else if (fits)
            add_row(w, c->exact, k);
    }
    if (good > 0) add_row(w, c->upto, good);
    if (w->m->error == 0) add_tails(w, c);
    // At the end: a slice repeats what the last one did, and would never come further.
    w->m->effort -= w->n_walks + w->v->n_words / WORDS;
}

// --- the trie ------------------------------------------------------------------------------------

// From the node on that it stopped at before.
static void walk_trie(struct walk *w, int32_t config) {
    const struct trie_part *t = &w->v->all;
    struct machine *m = w->m;
    const uint8_t *classes = m->net->byte_class;
    int32_t *path = w->making->path, i = w->making->at, visited = 0;
    path[0] = config;
    while (i < t->n) {
        visited++;
        const struct trie_node *node = &t->nodes[i];
        const int32_t *row = m->configs[path[node->depth - 1]].row;
        int32_t to = row ? row[classes[node->byte]] : MACHINE_UNKNOWN;
        if (to == MACHINE_UNKNOWN) to = machine_step(m, path[node->depth - 1], node->byte);
        bool takes = to != MACHINE_DEAD && node->token >= 0 && allowed(w, to);
        if (m->error != 0) break;
        if (to == MACHINE_DEAD) {
            i = node->after;
            continue;
        }
        path[node->depth] = to;
        for (int32_t id = takes ? node->token : -1; id >= 0; id = w->v->same[id])
            w->bits[id >> 6] |= (uint64_t)1 << (id & 63);
        i++;
    }
    m->effort -= visited / NODES; // not those that were skipped
    w->making->at = i;
}

// Text outside of JSON strings: a quote is a character like others, so the tails of harmless characters are many that
// may follow. A class of its own has the quote.
static bool is_free_text(struct machine *m, int32_t config) {
    int32_t to = uniform(m, config);
    return to != MACHINE_DEAD && machine_step(m, config, '"') == to;
}

// Everything before the walk of the trie is short once its transitions are known, so each slice repeats it.
static void make(struct walk *w, int32_t config) {
    struct chain c;
    bool chained = (!is_free_text(w->m, config) && harmless_chain(w, config, &c)) ||
                   (w->m->error == 0 && class_chain(w, config, &c));
    if (w->m->error != 0) return;
    if (chained)
        add_chain(w, &c);
    else
        walk_trie(w, config);
}

static bool begin_making(const struct token_trie *v, struct mask_making *k) {
    size_t bytes = sizeof(struct mask) + (size_t)v->n_words * sizeof(uint64_t);
    if (!k->mask) k->mask = calloc(1, bytes);
    if (!k->path) k->path = malloc(((size_t)v->all.depth + 1) * sizeof *k->path);
    if (k->mask) k->mask->bytes = (int32_t)bytes;
    return k->mask && k->path;
}

void mask_making_release(struct mask_making *k) {
    free(k->mask);
    free(k->path);
    *k = (struct mask_making){0};
}

static atomic_ullong n_made;

int mask_make(struct machine *m, const struct token_trie *v, int32_t config, int32_t left,
              struct mask_making *k) {
    if (!begin_making(v, k)) return E_NOMEM;
    struct walk w = {.m = m, .v = v, .left = left, .making = k, .bits = k->mask->bits};
    if (k->collected != m->n_collected) k->at = 0; // the bits stay right
    k->collected = m->n_collected;
    m->work += k->work;
    int64_t before = m->work - k->work;
    make(&w, config);
    k->work = m->work - before;
    if (m->error != 0) return m->error;
    k->mask->serial = 1 + atomic_fetch_add(&n_made, 1);
    return 0;
}

void mask_keep(struct machine *m, int32_t config, struct mask *mask) {
    m->configs[config].mask = mask;
    m->bytes += mask->bytes;
}

const struct mask *mask_of(struct machine *m, const struct token_trie *v, int32_t config) {
    struct mask_making k = {0};
    if (m->configs[config].mask) return m->configs[config].mask;
    if (mask_make(m, v, config, -1, &k) == 0) {
        mask_keep(m, config, k.mask);
        k.mask = NULL;
    }
    mask_making_release(&k);
    return m->configs[config].mask;
}

// Configurations that mask_prepare looks at, and pairs that it may reach for them: some 20 ms.
enum { PREPARED_CONFIGS = 4096, PREPARED_WORK = MACHINE_MOST_WORK / 10 };

void mask_prepare(struct machine *m, const struct token_trie *v, int32_t config) {
    int32_t *found = malloc((PREPARED_CONFIGS + 1) * sizeof *found), n = 0, at[PLAIN_CHARS + 1];
    bool *seen = calloc(PREPARED_CONFIGS * 4, sizeof *seen);
    const struct plain_class *class;
    bool all = true; // are known
    int32_t done = 0;
    if (found && seen) found[n++] = config;
    for (int32_t i = 0; i < n && m->n_plain < MACHINE_PLAIN; i++) {
        if (m->error < 0 || m->work > PREPARED_WORK) break;
        // Where plain text leads to one place, the vocabulary has the tables.
        if (uniform(m, found[i]) == MACHINE_DEAD || is_free_text(m, found[i]))
            (void)plain_chain(m, v, found[i], &class, at);
        for (int c = 0; c < m->net->n_classes && n < PREPARED_CONFIGS; c++) {
            int32_t to = machine_step(m, found[i], m->net->class_byte[c]);
            all = all && to < PREPARED_CONFIGS * 4;
            if (to < 0 || to >= PREPARED_CONFIGS * 4 || seen[to]) continue;
            seen[to] = true;
            found[n++] = to;
        }
        done = i + 1;
    }
    m->explored = all && done == n && n > 0 && n < PREPARED_CONFIGS && m->error == 0;
    free(found);
    free(seen);
}

bool mask_within(struct machine *m, const struct token_trie *v, int32_t config, int32_t left,
                 uint64_t *bits) {
    struct mask_making k = {0};
    memset(bits, 0, (size_t)v->n_words * sizeof *bits);
    if (left < 0) return true;
    bool good = mask_make(m, v, config, left, &k) == 0;
    if (good) memcpy(bits, k.mask->bits, (size_t)v->n_words * sizeof *bits);
    mask_making_release(&k);
    return good;
}
