// See bpe_chars.h. Without a pre-tokeniser, as in Llama, a text is one word. Where the vocabulary
// allows it, such a text is cut at spaces, so that most of its words are short and need no heap.
#include "engine/text/bpe_chars.h"
#include "engine/text/char_class.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE_SYMBOL "\u2581"
#define SPACE_LEN 3

void bpe_chars_release(struct bpe_chars *b) {
    bpe_release(&b->bpe);
    free(b->prefix);
    free(b->suffix);
    free(b->unk);
    *b = (struct bpe_chars){0};
}

void vocab_byte_tokens(const struct vocab *v, int32_t ids[256]) {
    for (int byte = 0; byte < 256; byte++) {
        char content[8];
        snprintf(content, sizeof content, "<0x%02X>", (unsigned)byte);
        ids[byte] = vocab_find_model(v, content, 6);
    }
}

bool content_starts_words(const char *content, size_t len) {
    for (size_t i = 1; i + SPACE_LEN <= len; i++)
        if (memcmp(content + i, SPACE_SYMBOL, SPACE_LEN) == 0 &&
            (i < SPACE_LEN || memcmp(content + i - SPACE_LEN, SPACE_SYMBOL, SPACE_LEN) != 0))
            return false;
    return true;
}

size_t next_word_start(const char *text, size_t len, size_t from) {
    size_t at = from;
    while (at + SPACE_LEN <= len && memcmp(text + at, SPACE_SYMBOL, SPACE_LEN) == 0)
        at += SPACE_LEN;
    if (at == len) return len;
    const char *next = char_find(text + at, len - at, SPACE_SYMBOL, SPACE_LEN);
    return next ? (size_t)(next - text) : len;
}

// --- first symbols

struct symbols {
    int32_t *ids;
    size_t n;
    bool unknown; // an unknown symbol waits: it fuses with following ones, and follows the bytes of
                  // the next character (as in Hugging Face)
};

static void flush_unknown(const struct bpe_chars *b, struct symbols *s) {
    if (s->unknown) s->ids[s->n++] = b->unk_id;
    s->unknown = false;
}

static bool push_bytes(const struct bpe_chars *b, struct symbols *s, const char *bytes,
                       size_t len) {
    for (size_t i = 0; i < len; i++)
        if (b->byte_tokens[(unsigned char)bytes[i]] < 0) return false;
    for (size_t i = 0; i < len; i++) s->ids[s->n++] = b->byte_tokens[(unsigned char)bytes[i]];
    return true;
}

static int push_character(const struct bpe_chars *b, const struct vocab *v, struct symbols *s,
                          const char *spelled, size_t len) {
    int32_t id = len == 1 && !((unsigned char)*spelled & 0x80) ? b->ascii[(unsigned char)*spelled]
                                                               : vocab_find_model(v, spelled, len);
    if (id >= 0) {
        flush_unknown(b, s);
        s->ids[s->n++] = id;
        return 0;
    }
    if (push_bytes(b, s, spelled, len) || !b->unk) return 0;
    if (b->unk_id < 0) return E_INVAL;
    if (!b->fuse_unk) flush_unknown(b, s);
    s->unknown = true;
    return 0;
}

// The character with its marks, in spelled.
static size_t spell(const struct bpe_chars *b, const char *c, size_t len, bool first, bool last,
                    char *spelled) {
    size_t n = 0;
    if (!first && b->prefix) n = (size_t)(stpcpy(spelled, b->prefix) - spelled);
    memcpy(spelled + n, c, len);
    n += len;
    if (last && b->suffix) n = (size_t)(stpcpy(spelled + n, b->suffix) - spelled);
    return n;
}

static int merge_word(const struct bpe_chars *b, const struct vocab *v, const char *word,
                      size_t len, struct bpe_scratch *scratch, struct token_list *out) {
    // Under byte fallback a character becomes as many symbols as it has bytes, its marks included.
    size_t marks = (b->prefix ? strlen(b->prefix) * len : 0) + (b->suffix ? strlen(b->suffix) : 0);
    struct symbols s = {.ids = bpe_first_symbols(scratch, len + marks)};
    char spelled[2 * BPE_AFFIX_MAX + 8];
    bool marked = b->prefix || b->suffix;
    if (!s.ids) return E_NOMEM;
    for (size_t i = 0, n; i < len; i += n) {
        n = char_utf8_len(word + i);
        size_t size = marked ? spell(b, word + i, n, i == 0, i + n == len, spelled) : n;
        TRY(push_character(b, v, &s, marked ? spelled : word + i, size));
    }
    flush_unknown(b, &s);
    return bpe_merge(&b->bpe, s.ids, s.n, scratch, out);
}

// --- words

static int look_up_or_merge(const struct bpe_chars *b, const struct vocab *v, const char *word,
                            size_t len, struct bpe_scratch *s, struct token_list *out) {
    int32_t id = string_table_find(&b->bpe.words, v->arena.data, word, len);
    return id >= 0 ? token_list_push(out, id) : merge_word(b, v, word, len, s, out);
}

static int encode_part(const struct bpe_chars *b, const struct vocab *v, const char *word,
                       size_t len, struct bpe_scratch *s, struct token_list *out) {
    struct cached_word *c;
    if (!s->cache || len > CACHED_WORD_MAX_BYTES) return look_up_or_merge(b, v, word, len, s, out);
    if (word_cache_find(s->cache, word, len, &c)) return token_list_append(out, c->ids, c->n);
    size_t before = out->len;
    TRY(look_up_or_merge(b, v, word, len, s, out));
    word_cache_fill(c, len, out, before);
    return 0;
}

int bpe_chars_encode(const struct bpe_chars *b, const struct vocab *v, const char *word, size_t len,
                     struct bpe_scratch *s, struct token_list *out) {
    int32_t id = b->ignore_merges ? vocab_find_model(v, word, len) : -1;
    if (id >= 0) return token_list_push(out, id);
    for (size_t from = 0, to; from < len; from = to) {
        to = b->cuts ? next_word_start(word, len, from) : len;
        TRY(encode_part(b, v, word + from, to - from, s, out));
    }
    return 0;
}

static bool may_cut(const struct bpe_chars *b, const struct vocab *v) {
    if (b->prefix || b->suffix || b->ignore_merges ||
        vocab_find_model(v, SPACE_SYMBOL, SPACE_LEN) < 0)
        return false;
    for (size_t i = 0; i <= b->bpe.mask; i++) {
        if (b->bpe.merges[i].rank == UINT32_MAX) continue;
        const struct token *t = vocab_token(v, b->bpe.merges[i].merged);
        if (!content_starts_words(vocab_content(v, t), t->content_len)) return false;
    }
    return true;
}

// The words that are one token: those whose merging ends in it.
static int find_words(struct bpe_chars *b, const struct vocab *v, struct bpe_scratch *s,
                      struct token_list *ids) {
    TRY(string_table_init(&b->bpe.words, (size_t)v->n_tokens));
    for (int32_t id = 0; id < v->n_ids; id++) {
        const struct token *t = &v->tokens[id];
        int32_t existing;
        if (!(t->flags & TOKEN_MODEL) || t->content_len == 0) continue;
        ids->len = 0;
        int rc = merge_word(b, v, vocab_content(v, t), t->content_len, s, ids);
        if (rc < 0 && rc != E_INVAL) return rc;
        if (rc == 0 && ids->len == 1 && ids->ids[0] == id)
            TRY(string_table_add(&b->bpe.words, v->arena.data, t->content, t->content_len, id,
                                 &existing));
    }
    return 0;
}

int bpe_chars_finish(struct bpe_chars *b, const struct vocab *v, bool byte_fallback,
                     struct err *err) {
    struct bpe_scratch scratch = {0};
    struct token_list ids;
    for (int c = 0; c < 128; c++) b->ascii[c] = vocab_find_model(v, (const char[]){(char)c}, 1);
    for (int byte = 0; byte < 256; byte++) b->byte_tokens[byte] = -1;
    if (byte_fallback) vocab_byte_tokens(v, b->byte_tokens);
    b->unk_id = b->unk ? vocab_find_model(v, b->unk, strlen(b->unk)) : -1;
    b->cuts = may_cut(b, v);
    token_list_init(&ids);
    int rc = find_words(b, v, &scratch, &ids);
    token_list_release(&ids);
    bpe_scratch_release(&scratch);
    return rc < 0 ? err_set(err, rc, "no memory for the vocabulary's words") : 0;
}
