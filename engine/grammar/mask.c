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
        *len;         // (n + 1) of the text from each byte on; the first token and its bytes
    int32_t *configs; // (n + 1) before each byte
    uint8_t *text;    // (n)
    int32_t n, at;
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

// The text of a shortest end, up to n bytes. With `known`, only up to where the costs of the next `enough`
// configurations are known, because the cost of a configuration is that of the rest of this text: no token is longer.
static bool write_end(struct machine *m, int32_t config, bool known, int32_t enough,
                      struct cut *c) {
    int32_t n = c->n, n_known = 0;
    int64_t looked_at = 0; // spent at the end, as in machine_shortest
    c->n = 0;
    c->configs[0] = config;
    while (config >= 0 && m->configs[config].least > 0 && c->n < n && n_known < enough) {
        n_known = known && m->configs[config].cost >= 0 ? n_known + 1 : 0;
        looked_at += m->configs[config].n;
        config = machine_shorten(m, config, &c->text[c->n]);
        c->configs[++c->n] = config;
    }
    m->effort -= looked_at;
    return config >= 0 && (m->configs[config].least == 0 || n_known == enough);
}

// Cuts a shortest end of the configuration. c->cost is what to free; NULL: no memory, or no end. With `known`, the
// costs of the configurations on the way are kept with them, and used.
static void cut_end(struct machine *m, const struct token_trie *v, int32_t config, bool known,
                    struct cut *c) {
    int32_t n = m->configs[config].least;
    *c = (struct cut){.n = n};
    if (n >= NET_NEVER / 8) return;
    size_t each = (size_t)n + 1;
    int32_t *all = malloc(5 * each * sizeof *all);
    if (!all) return;
    c->token = all + each;
    c->len = all + 2 * each;
    c->configs = all + 3 * each;
    c->text = (uint8_t *)(all + 4 * each);
    if (!write_end(m, config, known, v->longest, c)) {
        free(all);
        return;
    }
    c->cost = all;
    int64_t n_cut = 0;
    c->cost[c->n] = m->configs[c->configs[c->n]].least == 0 ? 0 : INT32_MAX; // or out of reach
    for (c->at = c->n - 1; c->at >= 0; c->at--) {
        struct machine_config *of = &m->configs[c->configs[c->at]];
        c->cost[c->at] = INT32_MAX;
        if (known && of->cost >= 0) {
            c->cost[c->at] = of->cost;
            continue;
        }
        token_trie_prefixes(v, c->text + c->at, c->n - c->at, consider, c);
        if (known) of->cost = c->cost[c->at];
        n_cut++;
    }
    m->effort -= n_cut * PREFIXES_EFFORT;
}

int32_t mask_cost(struct machine *m, const struct token_trie *v, int32_t config) {
    struct cut c;
    if (m->configs[config].cost >= 0) return m->configs[config].cost;
    if (!machine_may_spend(m)) return INT32_MAX;
    cut_end(m, v, config, true, &c);
    int32_t cost = c.cost ? c.cost[0] : INT32_MAX;
    free(c.cost);
    if (m->error == 0) m->configs[config].cost = cost;
    return cost;
}

int32_t *mask_plan(struct machine *m, const struct token_trie *v, int32_t config, int32_t *n) {
    struct cut c;
    int32_t *plan = NULL;
    *n = 0;
    cut_end(m, v, config, false, &c);
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
    uint64_t *bits;           // of the mask that is being made
    int64_t n_walks, n_nodes; // of tails; of the trie
};

static bool allowed(struct walk *w, int32_t config) {
    if (w->left >= 0 && !closes(w->m, w->v, config, w->left)) return false;
    int32_t least = w->m->configs[config].least;
    if (least > w->making->mask->most_least) w->making->mask->most_least = least;
    return true;
}

// --- the trie ------------------------------------------------------------------------------------

static void set_tokens(struct walk *w, int32_t id) {
    for (; id >= 0; id = w->v->same[id]) w->bits[id >> 6] |= (uint64_t)1 << (id & 63);
}

// From node i on up to node `end`, both at the top or i within a walk that the making's path is of. Returns where it
// stopped: before `end` where the effort is spent, or after an error.
static int32_t walk_nodes(struct walk *w, int32_t config, int32_t i, int32_t end) {
    const struct trie_part *t = &w->v->all;
    struct machine *m = w->m;
    const uint8_t *classes = m->net->byte_class;
    int32_t *path = w->making->path;
    path[0] = config;
    while (i < end) {
        w->n_nodes++;
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
        if (takes) set_tokens(w, node->token);
        i++;
    }
    return i;
}

// From the node on that it stopped at before.
static void walk_trie(struct walk *w, int32_t config) {
    w->making->at = walk_nodes(w, config, w->making->at, w->v->all.n);
    w->m->effort -= w->n_nodes / NODES; // not those that were skipped
}

// The tokens that begin with the byte.
static void walk_byte(struct walk *w, int32_t config, int byte) {
    int32_t i = w->v->singles[byte];
    if (i >= 0) (void)walk_nodes(w, config, i, w->v->all.nodes[i].after);
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

// The walks of tails from one configuration of the chain. Tails are sorted, so most of a walk is that of the tail before.
enum { LANE_DEPTH = 48 }; // further bytes of a tail are walked each time
struct lane {
    int32_t valid;              // bytes of the current tail that `at` is known for
    int32_t at[LANE_DEPTH + 1]; // the configuration behind each number of them
};
struct lanes {
    struct lane lane[PLAIN_CHARS + 1]; // (n) those of equal configurations are one
    int8_t of[PLAIN_CHARS + 1];        // each number of characters
    int32_t n;
    uint8_t tail[UINT16_MAX]; // the current one
};

static void lanes_init(struct lanes *l, const struct chain *c) {
    l->n = 0;
    for (int32_t k = 0; k <= c->n; k++) {
        if (k == 0 || c->at[k] != c->at[k - 1]) {
            l->lane[l->n].valid = 0;
            l->lane[l->n++].at[0] = c->at[k];
        }
        l->of[k] = (int8_t)(l->n - 1);
    }
}

static void next_tail(struct lanes *l, const struct tail_run *run, const uint8_t *rest) {
    memcpy(l->tail + run->shared, rest, (size_t)(run->len - run->shared));
    for (int32_t i = 0; i < l->n; i++)
        if (l->lane[i].valid > run->shared) l->lane[i].valid = run->shared;
}

// Where the tail leads from the lane's configuration. Stops behind the byte that leads nowhere.
static int32_t walk_tail(struct machine *m, struct lane *lane, const uint8_t *tail, int32_t len) {
    const uint8_t *classes = m->net->byte_class;
    int32_t i = lane->valid, to = lane->at[i];
    for (; i < len && to >= 0; i++) {
        const int32_t *row = m->configs[to].row;
        int32_t next = row ? row[classes[tail[i]]] : MACHINE_UNKNOWN;
        to = next == MACHINE_UNKNOWN ? machine_step(m, to, tail[i]) : next;
        if (i >= LANE_DEPTH) continue;
        lane->valid = i + 1;
        lane->at[i + 1] = to;
    }
    return to;
}

// One walk for all tokens with the tail that come from the same configuration.
static void add_tail(struct walk *w, const struct chain *c, struct lanes *l, int32_t run) {
    const struct tail_run *r = &c->tails->runs[run];
    const struct tail_token *t = &c->tails->tokens[r->first], *end = &c->tails->tokens[r[1].first];
    int32_t walked = -1;
    bool fits = false;
    for (; t < end && t->chars <= c->n; t++) {
        int32_t lane = l->of[t->chars];
        if (lane != walked) {
            int32_t to = walk_tail(w->m, &l->lane[lane], l->tail, r->len);
            fits = to >= 0 && allowed(w, to);
            if (w->m->error != 0) return;
            walked = lane;
            w->n_walks++;
        }
        if (fits) w->bits[t->id >> 6] |= (uint64_t)1 << (t->id & 63);
    }
}

static void add_tails(struct walk *w, const struct chain *c) {
    struct machine *m = w->m;
    const struct tails *tails = c->tails;
    const uint8_t *classes = m->net->byte_class;
    struct lanes lanes;
    bool goes_on[256] = {false};
    for (int i = 0; i < m->net->n_classes; i++)
        for (int32_t k = 0; k <= c->n && !goes_on[i]; k++)
            goes_on[i] = (k == 0 || c->at[k] != c->at[k - 1]) &&
                         machine_step(m, c->at[k], m->net->class_byte[i]) != MACHINE_DEAD;
    for (int b = 0; b < 256 && m->error == 0; b++) {
        int32_t last = goes_on[classes[b]] ? tails->first[b + 1] : 0;
        if (tails->whole[b] && goes_on[classes[b]]) walk_byte(w, c->at[0], b);
        const uint8_t *text = tails->text + tails->begin[b];
        lanes_init(&lanes, c);
        for (int32_t run = tails->first[b]; run < last && m->error == 0; run++) {
            next_tail(&lanes, &tails->runs[run], text);
            text += tails->runs[run].len - tails->runs[run].shared;
            add_tail(w, c, &lanes, run);
        }
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
    w->m->effort -= w->n_walks + w->n_nodes / NODES + w->v->n_words / WORDS;
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
