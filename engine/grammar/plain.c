// See plain.h.
#include "engine/grammar/plain.h"
#include <stdlib.h>
#include <string.h>

// Of fewer characters few tokens consist, and a walk finds these fast: the digits of base 16 in particular, which every
// JSON string has behind \u.
enum { LEAST_ASCII = 23 };

const struct utf8_form utf8_forms[UTF8_FORMS] = {
    {1, {0x20}, {0x21}},
    {1, {0x23}, {0x5b}},
    {1, {0x5d}, {0x7e}},
    {2, {0xc2, 0x80}, {0xdf, 0xbf}},
    {3, {0xe0, 0xa0, 0x80}, {0xe0, 0xbf, 0xbf}},
    {3, {0xe1, 0x80, 0x80}, {0xec, 0xbf, 0xbf}},
    {3, {0xed, 0x80, 0x80}, {0xed, 0x9f, 0xbf}},
    {3, {0xee, 0x80, 0x80}, {0xef, 0xbf, 0xbf}},
    {4, {0xf0, 0x90, 0x80, 0x80}, {0xf0, 0xbf, 0xbf, 0xbf}},
    {4, {0xf1, 0x80, 0x80, 0x80}, {0xf3, 0xbf, 0xbf, 0xbf}},
    {4, {0xf4, 0x80, 0x80, 0x80}, {0xf4, 0x8f, 0xbf, 0xbf}},
};

static bool leads(struct machine *m, int32_t config, const struct utf8_form *f, int at,
                  int32_t *to) {
    int last_class = -1;
    if (at >= 4) return false; // no form is longer
    for (int b = f->lo[at]; b <= f->hi[at]; b++) {
        if (m->net->byte_class[b] == last_class) continue;
        last_class = m->net->byte_class[b];
        int32_t next = machine_step(m, config, (uint8_t)b);
        if (next == MACHINE_DEAD) return false;
        if (at + 1 < f->n) {
            if (!leads(m, next, f, at + 1, to)) return false;
            continue;
        }
        if (*to == MACHINE_UNKNOWN) *to = next;
        if (*to != next) return false;
    }
    return true;
}

bool plain_form_leads(struct machine *m, int32_t config, const struct utf8_form *f, int32_t *to) {
    return leads(m, config, f, 0, to);
}

// --- the tables of a set -------------------------------------------------------------------------

void plain_class_free(struct plain_class *p) {
    if (!p) return;
    free(p->exact);
    free(p->upto);
    tails_free(p->tails);
    free(p);
}

static bool has_ascii(const struct plain_set *s, int b) {
    return s->ascii[b >> 6] >> (b & 63) & 1;
}

// For each lead byte: 1 for an ASCII character of the set, the number of a form of the set, else 0.
static void make_kinds(const struct plain_set *set, uint8_t *kinds) {
    memset(kinds, 0, 256);
    for (int b = 0; b < 128; b++) kinds[b] = has_ascii(set, b);
    for (int f = UTF8_ASCII_FORMS; f < UTF8_FORMS; f++)
        for (int b = utf8_forms[f].lo[0]; b <= utf8_forms[f].hi[0] && set->forms >> f & 1; b++)
            kinds[b] = (uint8_t)f;
}

// The leading characters of the set in s.
static struct tail_lead leading(const uint8_t *kinds, const uint8_t *s, int32_t len) {
    struct tail_lead lead = {0};
    for (int32_t at = 0; at < len && kinds[s[at]]; lead.chars++) {
        const struct utf8_form *form = &utf8_forms[kinds[s[at]]];
        bool whole = len - at >= form->n;
        for (int i = 1; i < form->n && whole; i++)
            whole = s[at + i] >= form->lo[i] && s[at + i] <= form->hi[i];
        if (!whole) break;
        at += form->n;
        lead.bytes = (uint16_t)at;
    }
    return lead;
}

// The tokens of the set alone, by their number of characters.
static void fill_rows(struct plain_class *p, const struct token_trie *v,
                      const struct tail_lead *leads) {
    size_t words = (size_t)v->n_words;
    for (int32_t id = 0; id < v->n; id++) {
        size_t chars = leads[id].chars;
        if (v->bytes[id] && leads[id].bytes == v->len[id] && chars <= PLAIN_CHARS)
            p->exact[chars * words + (size_t)(id >> 6)] |= (uint64_t)1 << (id & 63);
    }
    for (size_t i = words; i < (PLAIN_CHARS + 1) * words; i++)
        p->upto[i] = p->upto[i - words] | p->exact[i];
}

static struct plain_class *class_new(const struct plain_set *set, const struct token_trie *v) {
    uint8_t kinds[256];
    size_t words = (size_t)v->n_words, rows = PLAIN_CHARS + 1;
    struct plain_class *p = calloc(1, sizeof *p);
    struct tail_lead *leads = calloc((size_t)v->n + 1, sizeof *leads);
    if (p && leads) {
        make_kinds(set, kinds);
        for (int32_t id = 0; id < v->n; id++)
            if (v->bytes[id]) leads[id] = leading(kinds, v->bytes[id], v->len[id]);
        p->set = *set;
        p->exact = calloc(rows * words, sizeof *p->exact);
        p->upto = calloc(rows * words, sizeof *p->upto);
        p->tails = tails_new(v, leads, PLAIN_CHARS);
    }
    if (p && p->exact && p->upto && p->tails) {
        fill_rows(p, v, leads);
        p->size = (int64_t)(sizeof *p + 2 * rows * words * sizeof *p->exact) + p->tails->size;
    } else {
        plain_class_free(p);
        p = NULL;
    }
    free(leads);
    return p;
}

// The machine's class of this set, made if there is room for it. -1: none.
static int find_class(struct machine *m, const struct token_trie *v, const struct plain_set *set) {
    for (int i = 0; i < m->n_plain; i++)
        if (memcmp(&m->plain[i]->set, set, sizeof *set) == 0) return i;
    if (m->n_plain == MACHINE_PLAIN) return -1;
    struct plain_class *p = class_new(set, v);
    if (!p) return -1; // a walk needs none
    m->plain[m->n_plain] = p;
    m->plain_bytes += p->size;
    m->effort -= v->n; // some ten milliseconds for a large vocabulary
    return m->n_plain++;
}

// --- the chain -----------------------------------------------------------------------------------

// The ASCII characters of the set that leads where most of them lead. False: these are too few.
static bool choose_ascii(struct machine *m, int32_t config, struct plain_set *set, int32_t *to) {
    int32_t next[128];
    int best = 0;
    memset(set, 0, sizeof *set);
    for (int b = 0; b < 128; b++) next[b] = machine_step(m, config, (uint8_t)b);
    for (int b = 0; b < 128; b++) {
        int n = 0;
        if (next[b] == MACHINE_DEAD || (b > 0 && next[b] == next[b - 1])) continue;
        for (int k = 0; k < 128; k++) n += next[k] == next[b];
        if (n <= best) continue;
        best = n;
        *to = next[b];
    }
    if (best < LEAST_ASCII || m->error != 0) return false;
    for (int b = 0; b < 128; b++)
        if (next[b] == *to) set->ascii[b >> 6] |= (uint64_t)1 << (b & 63);
    return true;
}

static bool choose_forms(struct machine *m, int32_t config, struct plain_set *set, int32_t to) {
    for (int f = UTF8_ASCII_FORMS; f < UTF8_FORMS; f++) {
        int32_t where = to;
        if (plain_form_leads(m, config, &utf8_forms[f], &where)) set->forms |= 1u << f;
    }
    return m->error == 0;
}

enum { MIXED = -3 };

// Where all characters of the set lead: a configuration, MACHINE_DEAD, or MIXED.
static int32_t follow(struct machine *m, int32_t config, const struct plain_set *set) {
    int32_t to = MACHINE_UNKNOWN;
    for (int b = 0; b < 128; b++) {
        if (!has_ascii(set, b)) continue;
        int32_t next = machine_step(m, config, (uint8_t)b);
        if (to == MACHINE_UNKNOWN) to = next;
        if (to != next) return MIXED;
    }
    for (int f = UTF8_ASCII_FORMS; f < UTF8_FORMS; f++) {
        if (!(set->forms >> f & 1)) continue;
        const struct utf8_form *form = &utf8_forms[f];
        if (to != MACHINE_DEAD) {
            if (!plain_form_leads(m, config, form, &to)) return MIXED;
            continue;
        }
        for (int b = form->lo[0]; b <= form->hi[0]; b++)
            if (machine_step(m, config, (uint8_t)b) != MACHINE_DEAD) return MIXED;
    }
    return to;
}

static int32_t follow_class(struct machine *m, int32_t config, int class) {
    struct machine_config *c = &m->configs[config];
    if (c->plain == class) return c->plain_to;
    int32_t to = follow(m, config, &m->plain[class]->set);
    c = &m->configs[config]; // they may have moved
    if (m->error != 0) return MIXED;
    c->plain = (int8_t) class;
    c->plain_to = to;
    return to;
}

// Whether config lies in the chain of a class that has its ASCII characters: then that one is its class too. Its further
// characters have been followed, which takes long for those of \p.
static bool continues(const struct machine *m, int32_t config, const struct plain_set *set,
                      int32_t to) {
    const struct machine_config *c = &m->configs[config];
    return c->plain >= 0 && c->plain_to == to &&
           memcmp(m->plain[c->plain]->set.ascii, set->ascii, sizeof set->ascii) == 0;
}

// The class of config, chosen at first use. A configuration in the chain of another one may have another class: behind
// the last of few characters there may be a text of many.
static int class_of(struct machine *m, const struct token_trie *v, int32_t config) {
    struct plain_set set;
    int32_t to = MACHINE_DEAD, class = m->configs[config].plain_own;
    if (class != PLAIN_UNKNOWN) return class;
    class = PLAIN_NONE;
    if (choose_ascii(m, config, &set, &to)) {
        if (continues(m, config, &set, to))
            class = m->configs[config].plain;
        else if (choose_forms(m, config, &set, to))
            class = find_class(m, v, &set);
    }
    if (m->error != 0) return PLAIN_NONE;
    struct machine_config *c = &m->configs[config];
    c->plain_own = (int8_t)(class < 0 ? PLAIN_NONE : class);
    if (class < 0) return PLAIN_NONE;
    c->plain = c->plain_own;
    c->plain_to = to;
    return class;
}

int32_t plain_chain(struct machine *m, const struct token_trie *v, int32_t config,
                    const struct plain_class **class, int32_t at[PLAIN_CHARS + 1]) {
    int which = class_of(m, v, config);
    int32_t n = 0;
    if (which < 0) return 0;
    *class = m->plain[which];
    for (at[0] = config; n < PLAIN_CHARS; n++) {
        int32_t next = follow_class(m, at[n], which);
        if (next == MIXED) return 0;
        if (next == MACHINE_DEAD) break;
        at[n + 1] = next;
    }
    return n;
}
