// See added_tokens.h.
#include "engine/text/added_tokens.h"
#include "engine/text/char_class.h"
#include <stdlib.h>
#include <string.h>

void added_tokens_init(struct added_tokens *a) {
    *a = (struct added_tokens){0};
    for (int i = 0; i < 256; i++) a->roots[i] = -1;
}

void added_tokens_release(struct added_tokens *a) {
    free(a->tokens);
    free(a->nodes);
    added_tokens_init(a);
}

static int new_node(struct added_tokens *a, unsigned char byte, int32_t sibling, int32_t *node) {
    if (a->n_nodes == a->cap_nodes) {
        size_t cap = a->cap_nodes ? 2 * a->cap_nodes : 64;
        if (cap > INT32_MAX) return E_LIMIT;
        struct added_node *nodes = realloc(a->nodes, cap * sizeof *nodes);
        if (!nodes) return E_NOMEM;
        a->nodes = nodes;
        a->cap_nodes = cap;
    }
    *node = (int32_t)a->n_nodes++;
    a->nodes[*node] =
        (struct added_node){.child = -1, .sibling = sibling, .token = -1, .byte = byte};
    return 0;
}

static int32_t find_sibling(const struct added_tokens *a, int32_t node, unsigned char byte) {
    while (node >= 0 && a->nodes[node].byte != byte) node = a->nodes[node].sibling;
    return node;
}

int added_tokens_add(struct added_tokens *a, const char *content, size_t len,
                     const struct added_token *token) {
    if (len == 0 || len > ADDED_TOKEN_MAX_BYTES) return E_LIMIT;
    if (a->n_tokens == a->cap_tokens) {
        size_t cap = a->cap_tokens ? 2 * a->cap_tokens : 16;
        struct added_token *tokens = realloc(a->tokens, cap * sizeof *tokens);
        if (!tokens) return E_NOMEM;
        a->tokens = tokens;
        a->cap_tokens = cap;
    }
    int32_t node = a->roots[(unsigned char)*content];
    if (node < 0) {
        TRY(new_node(a, (unsigned char)*content, -1, &node));
        a->roots[(unsigned char)*content] = node;
    }
    for (size_t i = 1; i < len; i++) {
        unsigned char byte = (unsigned char)content[i];
        int32_t child = find_sibling(a, a->nodes[node].child, byte);
        if (child < 0) {
            TRY(new_node(a, byte, a->nodes[node].child, &child));
            a->nodes[node].child = child;
        }
        node = child;
    }
    if (a->nodes[node].token >= 0) return 0;
    a->nodes[node].token = (int32_t)a->n_tokens;
    struct added_token *kept = &a->tokens[a->n_tokens++];
    *kept = *token;
    kept->blank = true;
    for (const char *p = content; p < content + len; p += char_utf8_len(p))
        if (!char_is_space(char_decode(p))) kept->blank = false;
    return 0;
}

void added_scan_init(struct added_scan *s, const struct added_tokens *a, const char *text,
                     size_t len, const struct text_span *plain, size_t n_plain, bool no_special) {
    *s = (struct added_scan){.tokens = a,
                             .text = text,
                             .len = len,
                             .plain = plain,
                             .n_plain = n_plain,
                             .no_special = no_special};
}

// The longest token at `from`, or NULL. A token that touches plain bytes counts only if it is
// blank.
static const struct added_token *longest(const struct added_scan *s, size_t from, size_t *to) {
    const struct added_tokens *a = s->tokens;
    const struct added_token *best = NULL;
    size_t plain_from = s->n_plain ? s->plain[0].from : s->len;
    int32_t node = a->roots[(unsigned char)s->text[from]];
    for (size_t end = from + 1; node >= 0; end++) {
        const struct added_token *t =
            a->nodes[node].token < 0 ? NULL : &a->tokens[a->nodes[node].token];
        if (t && (t->blank || end <= plain_from) && !(t->special && s->no_special)) {
            best = t;
            *to = end;
        }
        if (end == s->len) break;
        node = find_sibling(a, a->nodes[node].child, (unsigned char)s->text[end]);
    }
    return best;
}

static bool touches_word(const struct added_scan *s, size_t from, size_t to) {
    const char *start;
    return (from > 0 && char_is_word(char_decode_back(s->text + from, &start))) ||
           (to < s->len && char_is_word(char_decode(s->text + to)));
}

static void strip(const struct added_scan *s, struct added_match *m) {
    const char *floor = s->text + s->done, *p = s->text + m->from, *before;
    while (m->token->lstrip && p > floor && char_is_space(char_decode_back(p, &before))) p = before;
    m->from = (size_t)(p - s->text);
    while (m->token->rstrip && m->to < s->len && char_is_space(char_decode(s->text + m->to)))
        m->to += char_utf8_len(s->text + m->to);
}

// The next token from `done` on.
static bool find(struct added_scan *s, struct added_match *m) {
    for (size_t i = s->done; i < s->len; i++) {
        if (s->tokens->roots[(unsigned char)s->text[i]] < 0) continue;
        while (s->n_plain && s->plain[0].to <= i) {
            s->plain++;
            s->n_plain--;
        }
        *m = (struct added_match){.from = i};
        m->token = longest(s, i, &m->to);
        if (!m->token) continue;
        if (m->token->single_word && touches_word(s, m->from, m->to)) {
            i = m->to - 1; // passed over as a whole
            continue;
        }
        strip(s, m);
        return true;
    }
    return false;
}

bool added_scan_next(struct added_scan *s, struct added_match *m) {
    if (s->queued.token) {
        *m = s->queued;
        s->queued.token = NULL;
    } else if (s->done == s->len) {
        return false;
    } else if (!find(s, m)) {
        *m = (struct added_match){.from = s->done, .to = s->len};
    } else if (m->from > s->done) {
        s->queued = *m;
        *m = (struct added_match){.from = s->done, .to = m->from};
    }
    s->done = m->to;
    return true;
}
