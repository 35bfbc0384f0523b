// The normaliser's steps that use SentencePiece's table of rules. Two programs read it differently.
// SentencePiece applies the longest rule at each position. Hugging Face tokenizers works on extended
// grapheme clusters: in a cluster of at most five bytes, the shortest rule at its start replaces the
// whole cluster; in a longer one, each code point is looked up separately. This file repeats both
// exactly, because vocabularies were trained with them.
#include "engine/text/char_class.h"
#include "engine/text/normalizer.h"
#include <string.h>
#include <utf8proc.h>

#define SPACE_SYMBOL "\u2581"
#define WHOLE_CLUSTER_MAX 5 // bytes

static size_t cluster_len(const char *s, size_t len) {
    utf8proc_int32_t state = 0;
    size_t n = char_utf8_len(s);
    if (n == 1 && *s != '\r' && (len == 1 || !((unsigned char)s[1] & 0x80))) return 1;
    for (uint32_t last = char_decode(s), next; n < len; n += char_utf8_len(s + n), last = next) {
        next = char_decode(s + n);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)next,
                                             &state))
            break;
    }
    return n;
}

// The next n bytes of the text by the shortest rule at their start; 0 where there is none.
static int by_rule(const struct charsmap *c, struct rewrite *r, size_t n, bool *found) {
    size_t key_len;
    const char *content = charsmap_find(c, r->text + r->done, n, false, &key_len);
    *found = content != NULL;
    return content ? rewrite_put(r, n, content, strlen(content)) : 0;
}

int normalize_charsmap(const struct normalize_step *s, struct rewrite *r) {
    while (r->done < r->len) {
        size_t n = cluster_len(r->text + r->done, r->len - r->done), end = r->done + n;
        bool found = false;
        if (n <= WHOLE_CLUSTER_MAX) TRY(by_rule(&s->charsmap, r, n, &found));
        while (!found && r->done < end) {
            n = char_utf8_len(r->text + r->done);
            TRY(by_rule(&s->charsmap, r, n, &found));
            if (!found) TRY(rewrite_copy(r, n));
            found = false;
        }
    }
    return 0;
}

// --- SentencePiece

// Bytes of the longest user-defined symbol at the place reached, or 0. The span that has begun has
// its start moved already.
static size_t user_defined(const struct normalize_step *s, const struct rewrite *r) {
    size_t len = r->len - r->done, room = len;
    int32_t id;
    if (!s->symbols || !s->symbols->trie.roots[(unsigned char)r->text[r->done]]) return 0;
    for (size_t i = r->next / 2; i < r->n / 2; i++) {
        if (r->spans[i].to <= r->done) continue;
        bool inside = (i == r->next / 2 && r->next % 2) || r->spans[i].from <= r->done;
        size_t plain = inside ? 0 : r->spans[i].from - r->done;
        if (plain < room) room = plain;
        break;
    }
    return user_symbols_find(s->symbols, r->text + r->done, len, room, &id);
}

struct unit { // the result for the next bytes of the text
    const char *text;
    size_t len, consumed;
};

static struct unit next_unit(const struct normalize_step *s, const struct rewrite *r) {
    const char *text = r->text + r->done, *found;
    struct unit u = {.text = text, .len = user_defined(s, r)};
    u.consumed = u.len;
    if (u.len) return u;
    if (s->charsmap.units && s->charsmap.begins[(unsigned char)*text] &&
        (found = charsmap_find(&s->charsmap, text, r->len - r->done, true, &u.consumed))) {
        u.text = found;
        u.len = strlen(found);
        return u;
    }
    u.len = u.consumed = char_utf8_len(text);
    return u;
}

// Bytes from the place reached on that no rule, symbol or space concerns.
static size_t untouched(const struct normalize_step *s, const struct rewrite *r) {
    const char *p = r->text + r->done, *end = r->text + r->len;
    for (; p < end; p += char_utf8_len(p)) {
        unsigned char byte = (unsigned char)*p;
        if (byte == ' ' || s->charsmap.begins[byte] || (s->symbols && s->symbols->trie.roots[byte]))
            break;
    }
    return (size_t)(p - r->text) - r->done;
}

static int put_unit(const struct normalize_step *s, struct rewrite *r, const struct unit *u,
                    struct buf *escaped) {
    if (!s->escape_whitespaces || !memchr(u->text, ' ', u->len))
        return u->text == r->text + r->done && u->len == u->consumed
                   ? rewrite_copy(r, u->len)
                   : rewrite_put(r, u->consumed, u->text, u->len);
    buf_reset(escaped);
    for (size_t i = 0; i < u->len; i++)
        if (u->text[i] == ' ')
            buf_addz(escaped, SPACE_SYMBOL);
        else
            buf_addc(escaped, u->text[i]);
    return escaped->error ? escaped->error
                          : rewrite_put(r, u->consumed, buf_z(escaped), escaped->len);
}

// Spaces at the end go, and with them the ends of spans that reached into them.
static void strip_end(const char *space, struct rewrite *r, struct text_span *spans,
                      size_t n_spans) {
    size_t size = strlen(space);
    struct buf *out = r->out;
    while (out->len >= size && memcmp(out->data + out->len - size, space, size) == 0)
        out->len -= size;
    if (out->data) out->data[out->len] = '\0';
    for (size_t i = n_spans; i-- > 0 && spans[i].to > out->len;) {
        spans[i].to = out->len;
        if (spans[i].from > out->len) spans[i].from = out->len;
    }
}

int normalize_sentencepiece(const struct normalize_step *s, struct rewrite *r) {
    const char *space = s->escape_whitespaces ? SPACE_SYMBOL : " ";
    struct buf escaped;
    bool after_space = s->remove_extra_whitespaces;
    size_t start = r->done;
    int rc = 0;
    buf_init(&escaped, SIZE_MAX);
    while (s->remove_extra_whitespaces && r->done < r->len) {
        struct unit u = next_unit(s, r);
        if (u.len != 1 || *u.text != ' ') break;
        TRY(rewrite_put(r, u.consumed, "", 0));
    }
    // In the midst of a text a space is put only for those that went.
    if (r->done < r->len && s->add_dummy_prefix && (!r->bare || r->done > start) &&
        (r->at_start || !s->prefix_first_only))
        TRY(rewrite_put(r, 0, space, strlen(space)));
    while (r->done < r->len && rc == 0) {
        size_t same = untouched(s, r);
        if (same) {
            after_space = false;
            rc = rewrite_copy(r, same);
            continue;
        }
        struct unit u = next_unit(s, r);
        while (after_space && u.len > 0 && *u.text == ' ') {
            u.text++;
            u.len--;
        }
        if (u.len > 0) after_space = s->remove_extra_whitespaces && u.text[u.len - 1] == ' ';
        rc = put_unit(s, r, &u, &escaped);
    }
    buf_release(&escaped);
    if (rc == 0) rc = rewrite_end(r);
    if (rc == 0 && s->remove_extra_whitespaces) strip_end(space, r, r->spans, r->n / 2);
    return rc;
}
