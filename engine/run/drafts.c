// See drafts.h.
//
// The number of drafts depends on the length of the match and on how many of the last drafts were accepted. A
// match of two tokens often misleads, and each rejected draft costs a row of the step; in copied text,
// matches are long and nearly all drafts are right.
#include "engine/run/drafts.h"
#include "engine/model/prompt.h"
#include <stdlib.h>
#include <string.h>

enum {
    PAIR = 2,         // tokens of the shortest match
    LONGEST = 32,     // matches are not compared further
    MOST_PLACES = 64, // of one search
    TEXT_LEAD = 4,    // the log's tokens before an expected answer, so that its beginning is found
    LEAST_BITS = 8,
    MOST_BITS = 16,
};

// --- the index -----------------------------------------------------------------------------------

static uint32_t hash_of(const struct ngrams *g, const int32_t *pair) {
    uint32_t h = (uint32_t)pair[0] * 0x9e3779b1u ^ (uint32_t)pair[1] * 0x85ebca6bu;
    return (h ^ h >> 15) * 0xc2b2ae35u >> (32 - g->bits);
}

static int ngrams_init(struct ngrams *g, int64_t cap) {
    g->bits = LEAST_BITS;
    while (g->bits < MOST_BITS && (INT64_C(1) << g->bits) < cap) g->bits++;
    g->cap = (int32_t)cap;
    g->heads = malloc(((size_t)1 << g->bits) * sizeof *g->heads);
    g->prev = malloc((size_t)(cap > 0 ? cap : 1) * sizeof *g->prev);
    if (!g->heads || !g->prev) return E_NOMEM;
    memset(g->heads, 0xff, ((size_t)1 << g->bits) * sizeof *g->heads);
    return 0;
}

// Adds the places before n.
static void ngrams_add(struct ngrams *g, const int32_t *ids, int64_t n) {
    if (n > g->cap) n = g->cap;
    for (; g->n < n; g->n++) {
        if (g->n + 1 < PAIR) continue;
        int32_t *head = &g->heads[hash_of(g, ids + g->n + 1 - PAIR)];
        g->prev[g->n] = *head;
        *head = g->n;
    }
}

struct match {
    int32_t len; // in tokens; below PAIR: none
    int64_t end; // the place after it
};

// The longest match of the log's last tokens; of equals the latest.
static struct match ngrams_find(const struct ngrams *g, const int32_t *ids, const int32_t *log,
                                int64_t n_log) {
    struct match best = {0};
    int32_t at = n_log < PAIR ? -1 : g->heads[hash_of(g, log + n_log - PAIR)];
    for (int i = 0; at >= 0 && i < MOST_PLACES && best.len < LONGEST; i++, at = g->prev[at]) {
        int32_t len = 0;
        while (len < LONGEST && len <= at && len < n_log && ids[at - len] == log[n_log - 1 - len])
            len++;
        if (len >= PAIR && len > best.len) best = (struct match){len, at + 1};
    }
    return best;
}

// --- drafts --------------------------------------------------------------------------------------

static int expect(struct drafts *d, const int32_t *log, int64_t n_log, const int32_t *expected,
                  int32_t n) {
    int32_t lead = n_log < TEXT_LEAD ? (int32_t)n_log : TEXT_LEAD;
    d->n_text = lead + n;
    d->text_ids = malloc((size_t)d->n_text * sizeof *d->text_ids);
    if (!d->text_ids || ngrams_init(&d->text, d->n_text) < 0) return E_NOMEM;
    memcpy(d->text_ids, log + n_log - lead, (size_t)lead * sizeof *log);
    memcpy(d->text_ids + lead, expected, (size_t)n * sizeof *expected);
    ngrams_add(&d->text, d->text_ids, d->n_text);
    return 0;
}

int drafts_new(struct drafts **out, int32_t most, int64_t cap, const int32_t *log, int64_t n_log,
               const int32_t *expected, int32_t n_expected, struct err *err) {
    struct drafts *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d || ngrams_init(&d->log, cap) < 0 ||
        (n_expected > 0 && expect(d, log, n_log, expected, n_expected) < 0)) {
        drafts_free(d);
        return err_set(err, E_NOMEM, "no memory for drafts of a log of %lld tokens",
                       (long long)cap);
    }
    d->most = d->expects = most;
    *out = d;
    return 0;
}

void drafts_free(struct drafts *d) {
    if (!d) return;
    free(d->log.heads);
    free(d->log.prev);
    free(d->text.heads);
    free(d->text.prev);
    free(d->text_ids);
    free(d);
}

int drafts_check(const int32_t *expected, int32_t n, int32_t n_vocab, struct err *err) {
    for (int32_t i = 0; i < n; i++)
        if (expected[i] < 0 || expected[i] >= n_vocab)
            return err_set(err, E_INVAL, "expected: token %d at place %d is not in the vocabulary",
                           expected[i], i);
    return 0;
}

int32_t drafts_find(struct drafts *d, int32_t *ids, int64_t n, int64_t room) {
    ngrams_add(&d->log, ids, n - 1); // the log's end must not match itself
    struct match in_log = ngrams_find(&d->log, ids, ids, n), in_text = {0};
    if (d->text_ids) in_text = ngrams_find(&d->text, d->text_ids, ids, n);
    bool from_text = in_text.len >= in_log.len;
    struct match m = from_text ? in_text : in_log;
    if (m.len < PAIR) return 0;
    int64_t most = m.len - PAIR > d->expects ? m.len - PAIR : d->expects;
    if (most > d->most) most = d->most;
    if (most > room) most = room;
    if (from_text && most > d->n_text - m.end) most = d->n_text - m.end;
    // A draft from the log may go on into the drafts themselves, where text repeats.
    const int32_t *from = (from_text ? d->text_ids : ids) + m.end;
    int32_t found = 0;
    for (; found < most && !prompt_is_virtual(from[found]); found++) ids[n + found] = from[found];
    return found;
}

void drafts_checked(struct drafts *d, int32_t n_drafted, int32_t n_accepted) {
    d->n_drafted += n_drafted;
    d->n_accepted += n_accepted;
    d->expects = n_accepted < n_drafted ? n_accepted : 2 * n_drafted + 1;
    if (d->expects > d->most) d->expects = d->most;
}
