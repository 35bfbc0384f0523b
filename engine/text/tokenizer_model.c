// Builds a tokenizer from a SentencePiece model and the special tokens in the files beside it.
#include "base/json.h"
#include "engine/text/decoder_steps.h"
#include "engine/text/sentencepiece_file.h"
#include "engine/text/tokenizer_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XGLM_PAD 1
#define XGLM_MADE_UP 7 // "<madeupword0>" and on, behind the pieces: the embedding has rows for them

// XGLM's ids: <s>, <pad>, </s>, <unk>, then the pieces one later than in the file.
static int32_t id_of(const struct model_options *o, size_t i) {
    static const int32_t first[] = {3, 0, 2};
    return !o->xglm ? (int32_t)i : i < 3 ? first[i] : (int32_t)i + 1;
}

static int check_xglm(const struct sentencepiece_file *f, struct err *err) {
    static const enum piece_kind kinds[] = {PIECE_UNKNOWN, PIECE_CONTROL, PIECE_CONTROL};
    for (size_t i = 0; i < 3; i++)
        if (f->n_pieces < 3 || f->pieces[i].kind != kinds[i])
            return err_set(
                err, E_UNSUPPORTED,
                "the first pieces are not those that XGLMTokenizer's numbering begins with");
    return 0;
}

static int make_room(struct tokenizer *t, const struct sentencepiece_file *f,
                     const struct model_options *o, struct err *err) {
    size_t n = f->n_pieces + (o->xglm ? 1 + XGLM_MADE_UP : 0), most = 2 * n + 65536;
    const cJSON *item;
    cJSON_ArrayForEach(item, o->added) {
        int32_t id;
        TRY(tokenizer_token_id(cJSON_GetObjectItemCaseSensitive(item, "id"), &id, "(added)", err));
        if ((size_t)id > most)
            return err_set(err, E_LIMIT, "token id %d in a vocabulary of %zu pieces", id,
                           f->n_pieces);
        if ((size_t)id >= n) n = (size_t)id + 1;
    }
    n += o->n_special;
    TRY(vocab_init(&t->vocab, (int32_t)n, n, err));
    t->pieces.scores = calloc(n, sizeof *t->pieces.scores);
    t->pieces.kinds = calloc(n, sizeof *t->pieces.kinds);
    if (t->pieces.scores && t->pieces.kinds) return 0;
    return err_set(err, E_NOMEM, "no memory for %zu pieces", n);
}

// --- pieces

static int byte_of(const struct file_piece *p, struct err *err) {
    int byte = decode_byte_token(p->content.bytes, p->content.len);
    return byte >= 0 ? byte
                     : err_set(err, E_FORMAT, "byte piece '%.*s' is not <0x00> to <0xFF>",
                               p->content.len < 20 ? (int)p->content.len : 20, p->content.bytes);
}

static int set_bytes(struct tokenizer *t, const struct sentencepiece_file *f,
                     const struct file_piece *p, int32_t id, struct buf *scratch, struct err *err) {
    int byte = p->kind == PIECE_BYTE ? byte_of(p, err) : 0;
    TRY(byte);
    buf_reset(scratch);
    if (p->kind == PIECE_BYTE)
        buf_addc(scratch, (char)byte);
    else if (p->kind == PIECE_UNKNOWN)
        buf_add(scratch, f->unk_surface.bytes, f->unk_surface.len);
    else
        decode_replace(scratch, p->content.bytes, p->content.len, "\u2581", " ");
    if (scratch->error) return err_set(err, scratch->error, "no memory for a piece");
    return vocab_set_bytes(&t->vocab, id, buf_z(scratch), scratch->len, err);
}

static int add_piece(struct tokenizer *t, const struct sentencepiece_file *f,
                     const struct file_piece *p, int32_t id, struct buf *scratch, struct err *err) {
    struct pieces *pieces = &t->pieces;
    unsigned flags = TOKEN_MODEL;
    if (p->kind == PIECE_CONTROL || p->kind == PIECE_UNKNOWN) flags |= TOKEN_SPECIAL;
    if (p->kind == PIECE_BYTE) flags |= TOKEN_BYTE;
    buf_reset(scratch);
    if (buf_add(scratch, p->content.bytes, p->content.len) < 0)
        return err_set(err, E_NOMEM, "no memory for a piece");
    TRY(vocab_add(&t->vocab, buf_z(scratch), id, flags, err));
    TRY(set_bytes(t, f, p, id, scratch, err));
    pieces->scores[id] = p->score;
    pieces->kinds[id] = (unsigned char)p->kind;
    if (p->kind == PIECE_UNUSED) pieces->has_unused = true;
    if (p->kind == PIECE_BYTE) pieces->byte_ids[byte_of(p, err)] = id;
    if (p->kind != PIECE_UNKNOWN) return 0;
    if (pieces->unk_id >= 0)
        return err_set(err, E_FORMAT, "two pieces are the unknown one, %d and %d", pieces->unk_id,
                       id);
    pieces->unk_id = id;
    return 0;
}

static int add_pieces(struct tokenizer *t, const struct sentencepiece_file *f,
                      const struct model_options *o, struct err *err) {
    struct buf scratch;
    int rc = 0;
    buf_init(&scratch, SIZE_MAX);
    t->pieces.unk_id = -1;
    for (int byte = 0; byte < 256; byte++) t->pieces.byte_ids[byte] = -1;
    for (size_t i = 0; i < f->n_pieces && rc == 0; i++)
        rc = add_piece(t, f, &f->pieces[i], id_of(o, i), &scratch, err);
    buf_release(&scratch);
    TRY(rc);
    if (t->pieces.unk_id < 0) return err_set(err, E_FORMAT, "no piece is the unknown one");
    t->pieces.byte_fallback = f->byte_fallback;
    for (int byte = 0; byte < 256 && f->byte_fallback; byte++)
        if (t->pieces.byte_ids[byte] < 0)
            return err_set(err, E_FORMAT,
                           "trainer_spec.byte_fallback, but no piece is the byte 0x%02x",
                           (unsigned)byte);
    return 0;
}

static int find_symbols(struct tokenizer *t, struct err *err) {
    struct trie_key *keys = malloc(((size_t)t->vocab.n_ids + 1) * sizeof *keys);
    if (!keys) return err_set(err, E_NOMEM, "no memory for the user-defined symbols");
    size_t n = 0;
    for (int32_t id = 0; id < t->vocab.n_ids; id++) {
        const struct token *token = &t->vocab.tokens[id];
        if (t->pieces.kinds[id] == PIECE_USER_DEFINED)
            keys[n++] = (struct trie_key){vocab_content(&t->vocab, token), token->content_len, id};
    }
    int rc = trie_build(&t->pieces.symbols.trie, keys, n, err);
    free(keys);
    return rc;
}

// --- special tokens

static int add_special(struct tokenizer *t, const char *content, int32_t id, struct err *err) {
    struct added_token token = {.id = id, .special = true};
    TRY(vocab_add(&t->vocab, content, id, TOKEN_ADDED | TOKEN_SPECIAL, err));
    int rc = added_tokens_add(&t->added, content, strlen(content), &token);
    return rc < 0 ? err_set(err, rc, "the special token '%.40s' is too long, or memory is out",
                            content)
                  : 0;
}

// The id behind the last one in use.
static int32_t next_id(const struct tokenizer *t) {
    int32_t n = t->vocab.n_ids;
    while (n > 0 && !t->vocab.tokens[n - 1].flags) n--;
    return n;
}

static int add_xglm(struct tokenizer *t, struct err *err) {
    char content[32];
    TRY(add_special(t, "<pad>", XGLM_PAD, err));
    for (int i = 0; i < XGLM_MADE_UP; i++) {
        snprintf(content, sizeof content, "<madeupword%d>", i);
        TRY(add_special(t, content, next_id(t), err));
    }
    return 0;
}

// A special token that is not a piece gets the next id, as in Hugging Face.
static int add_specials(struct tokenizer *t, const struct model_options *o, struct err *err) {
    if (o->xglm) TRY(add_xglm(t, err));
    TRY(tokenizer_read_added(t, o->added, err));
    for (size_t i = 0; i < o->n_special; i++) {
        int32_t id = vocab_find(&t->vocab, o->special[i], strlen(o->special[i]));
        TRY(add_special(t, o->special[i], id >= 0 ? id : next_id(t), err));
    }
    for (int32_t id = 0; id < t->vocab.n_ids && o->known; id++)
        if (t->pieces.kinds[id] == PIECE_CONTROL || t->pieces.kinds[id] == PIECE_UNKNOWN)
            TRY(add_special(t, vocab_content(&t->vocab, &t->vocab.tokens[id]), id, err));
    t->vocab.n_ids = next_id(t);
    return 0;
}

static int name(struct tokenizer *t, const struct file_string *s, char **out, struct err *err) {
    int32_t id = vocab_find_model(&t->vocab, s->bytes, s->len);
    if (*out || id < 0 || t->pieces.kinds[id] != PIECE_CONTROL) return 0;
    *out = strdup(vocab_content(&t->vocab, &t->vocab.tokens[id]));
    return *out ? 0 : err_set(err, E_NOMEM, "no memory for a special token");
}

// --- the whole

static int set_rules(struct tokenizer *t, const struct sentencepiece_file *f,
                     const struct model_options *o, struct err *err) {
    struct normalize_step *n = &t->normalizer.steps[t->normalizer.n_steps++];
    struct decode_step *d = &t->decoder.steps[t->decoder.n_steps++];
    *n = (struct normalize_step){.kind = NORMALIZE_SENTENCEPIECE,
                                 .symbols = &t->pieces.symbols,
                                 .prefix_first_only = o->prefix_first_only,
                                 .add_dummy_prefix = f->add_dummy_prefix && !o->no_prefix,
                                 .remove_extra_whitespaces = f->remove_extra_whitespaces,
                                 .escape_whitespaces = f->escape_whitespaces};
    *d = (struct decode_step){.kind = DECODE_SENTENCEPIECE,
                              .flag = n->add_dummy_prefix || n->remove_extra_whitespaces,
                              .all = n->remove_extra_whitespaces};
    return f->charsmap.len ? charsmap_init(&n->charsmap, f->charsmap.bytes, f->charsmap.len, err)
                           : 0;
}

static int build(struct tokenizer *t, const struct sentencepiece_file *f,
                 const struct model_options *o, struct err *err) {
    if (o->xglm) TRY(check_xglm(f, err));
    TRY(make_room(t, f, o, err));
    TRY(add_pieces(t, f, o, err));
    TRY(add_specials(t, o, err));
    TRY(find_symbols(t, err));
    TRY(set_rules(t, f, o, err));
    TRY(name(t, &f->bos, &t->bos, err));
    TRY(name(t, &f->eos, &t->eos, err));
    if (f->type == SENTENCEPIECE_BPE) {
        t->kind = TOKENIZER_PIECE_BPE;
        TRY(bpe_pieces_init(&t->piece_bpe, &t->vocab, &t->pieces, err));
    } else {
        t->kind = TOKENIZER_PIECE_UNIGRAM;
        TRY(unigram_init_pieces(&t->unigram, &t->vocab, &t->pieces, err));
    }
    return 0;
}

int tokenizer_read_model(struct tokenizer *t, const char *bytes, size_t len,
                         const struct model_options *o, struct err *err) {
    struct sentencepiece_file f;
    int rc = sentencepiece_file_read(&f, bytes, len, err);
    if (rc == 0) rc = build(t, &f, o, err);
    sentencepiece_file_release(&f);
    return rc;
}
