// See vocab.h. All strings lie in one arena; 32-bit offsets into it keep a token at 20 bytes.
#include "engine/text/vocab.h"
#include "engine/text/byte_alphabet.h"
#include <stdlib.h>
#include <string.h>

int vocab_init(struct vocab *v, int32_t n_ids, size_t n_expected, struct err *err) {
    *v = (struct vocab){.n_ids = n_ids};
    buf_init(&v->arena, UINT32_MAX);
    v->tokens = calloc((size_t)n_ids, sizeof *v->tokens);
    if (!v->tokens) return err_set(err, E_NOMEM, "no memory for %d tokens", n_ids);
    int rc = string_table_init(&v->by_content, n_expected);
    return rc < 0 ? err_set(err, rc, "no table for %zu tokens", n_expected) : 0;
}

void vocab_release(struct vocab *v) {
    free(v->tokens);
    buf_release(&v->arena);
    string_table_release(&v->by_content);
    *v = (struct vocab){0};
}

// The bytes behind a content: spelled in the byte alphabet, or else the content itself (Hugging
// Face's ByteLevel decoder makes this choice for each token, added ones included).
static int add_bytes(struct vocab *v, struct token *t) {
    struct buf *arena = &v->arena;
    TRY(buf_reserve(arena, t->content_len));
    ptrdiff_t n =
        byte_alphabet_decode(arena->data + t->content, t->content_len, arena->data + arena->len);
    t->bytes = t->content;
    t->bytes_len = t->content_len;
    if (n < 0) return 0;
    t->flags |= TOKEN_ALPHABET;
    if ((size_t)n == t->content_len) return 0; // plain ASCII: stored once
    t->bytes = (uint32_t)arena->len;
    t->bytes_len = (uint32_t)n;
    arena->len += (size_t)n;
    return 0;
}

int vocab_add(struct vocab *v, const char *content, int32_t id, unsigned flags, struct err *err) {
    struct token *t = &v->tokens[id];
    size_t len = strlen(content);
    if (t->flags) {
        if (t->content_len != len || memcmp(vocab_content(v, t), content, len) != 0)
            return err_set(err, E_FORMAT, "id %d is given to '%.40s' and to '%.40s'", id,
                           vocab_content(v, t), content);
        t->flags |= (uint8_t)flags;
        return 0;
    }
    uint32_t offset = (uint32_t)v->arena.len;
    int32_t existing = -1;
    int rc = buf_add(&v->arena, content, len + 1);
    if (rc == 0)
        rc = string_table_add(&v->by_content, v->arena.data, offset, (uint32_t)len, id, &existing);
    if (rc == 0 && existing >= 0)
        return err_set(err, E_FORMAT, "'%.40s' has two ids, %d and %d", content, existing, id);
    *t = (struct token){.content = offset, .content_len = (uint32_t)len, .flags = (uint8_t)flags};
    if (rc == 0) rc = add_bytes(v, t);
    if (rc < 0) return err_set(err, rc, "no room for the token '%.40s'", content);
    v->n_tokens++;
    return 0;
}

int vocab_set_bytes(struct vocab *v, int32_t id, const char *bytes, size_t len, struct err *err) {
    struct token *t = &v->tokens[id];
    t->bytes = t->content;
    t->bytes_len = t->content_len;
    if (len == t->content_len && memcmp(vocab_content(v, t), bytes, len) == 0) return 0;
    t->bytes = (uint32_t)v->arena.len;
    t->bytes_len = (uint32_t)len;
    int rc = buf_add(&v->arena, bytes, len);
    return rc < 0 ? err_set(err, rc, "no memory for the vocabulary's bytes") : 0;
}

int32_t vocab_find(const struct vocab *v, const char *content, size_t len) {
    return string_table_find(&v->by_content, v->arena.data, content, len);
}

int32_t vocab_find_model(const struct vocab *v, const char *content, size_t len) {
    int32_t id = vocab_find(v, content, len);
    return id >= 0 && v->tokens[id].flags & TOKEN_MODEL ? id : -1;
}

const struct token *vocab_token(const struct vocab *v, int64_t id) {
    if (id < 0 || id >= v->n_ids || !v->tokens[id].flags) return NULL;
    return &v->tokens[id];
}
