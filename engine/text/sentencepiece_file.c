// See sentencepiece_file.h. The wire format: a message is a sequence of fields. A field is a varint
// (number << 3 | type) and a value; the value of type 0 is a varint, of 1 eight bytes, of 2 a length
// and that many bytes, of 5 four bytes. Field numbers are those of sentencepiece_model.proto.
#include "engine/text/sentencepiece_file.h"
#include "base/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct message {
    const char *start, *p, *end; // start: of the file, for error sentences
    struct err *err;
};
struct field {
    unsigned number, type;
    uint64_t value;           // types 0 and 5
    struct file_string bytes; // type 2
};

static int damaged(const struct message *m, const char *at, const char *what) {
    return err_set(m->err, E_FORMAT, "byte %td: %s", at - m->start, what);
}

static int varint(struct message *m, uint64_t *out) {
    const char *from = m->p;
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (m->p == m->end) return damaged(m, from, "a number runs over the end");
        unsigned char byte = (unsigned char)*m->p++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return 0;
    }
    return damaged(m, from, "a number of more than ten bytes");
}

static int fixed(struct message *m, size_t size, uint64_t *out) {
    if ((size_t)(m->end - m->p) < size) return damaged(m, m->p, "a number runs over the end");
    *out = 0;
    memcpy(out, m->p, size);
    m->p += size;
    return 0;
}

// 1 with the next field, 0 at the end.
static int next_field(struct message *m, struct field *f) {
    if (m->p == m->end) return 0;
    const char *from = m->p;
    uint64_t tag;
    TRY(varint(m, &tag));
    *f = (struct field){.number = (unsigned)(tag >> 3), .type = tag & 7};
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return damaged(m, from, "a field without a number");
    switch (f->type) {
    case 0:
        TRY(varint(m, &f->value));
        return 1;
    case 1:
        TRY(fixed(m, 8, &f->value));
        return 1;
    case 5:
        TRY(fixed(m, 4, &f->value));
        return 1;
    case 2:
        TRY(varint(m, &f->value));
        if (f->value > (uint64_t)(m->end - m->p))
            return damaged(m, from, "a field runs over the end");
        f->bytes = (struct file_string){m->p, (size_t)f->value};
        m->p += f->value;
        return 1;
    default:
        return damaged(m, from, "a field of an unknown type");
    }
}

static struct message inner(const struct message *m, const struct field *f) {
    return (struct message){m->start, f->bytes.bytes, f->bytes.bytes + f->bytes.len, m->err};
}

static int expect(const struct message *m, const struct field *f, unsigned type, const char *name) {
    if (f->type == type) return 0;
    return err_set(m->err, E_FORMAT, "%s before byte %td has the wrong type", name,
                   m->p - m->start);
}

static int string(const struct message *m, const struct field *f, const char *name,
                  struct file_string *out) {
    TRY(expect(m, f, 2, name));
    if (!utf8_valid(f->bytes.bytes, f->bytes.len) || memchr(f->bytes.bytes, '\0', f->bytes.len))
        return err_set(m->err, E_FORMAT, "%s at byte %td is not UTF-8", name,
                       f->bytes.bytes - m->start);
    *out = f->bytes;
    return 0;
}

static int boolean(const struct message *m, const struct field *f, const char *name, bool *out) {
    *out = f->value != 0;
    return expect(m, f, 0, name);
}

// --- the messages

static int read_piece(struct message m, struct file_piece *p) {
    struct field f;
    int rc;
    *p = (struct file_piece){.kind = PIECE_NORMAL};
    while ((rc = next_field(&m, &f)) > 0) {
        if (f.number == 1) TRY(string(&m, &f, "a piece", &p->content));
        if (f.number == 2) {
            uint32_t bits = (uint32_t)f.value;
            TRY(expect(&m, &f, 5, "a piece's score"));
            memcpy(&p->score, &bits, 4);
        }
        if (f.number == 3) {
            TRY(expect(&m, &f, 0, "a piece's type"));
            if (f.value < PIECE_NORMAL || f.value > PIECE_BYTE)
                return damaged(&m, m.p, "a piece of an unknown type ends here");
            p->kind = (enum piece_kind)f.value;
        }
    }
    TRY(rc);
    if (p->content.len == 0) return damaged(&m, m.p, "a piece without content ends here");
    if (p->content.len > PIECE_MAX_BYTES)
        return err_set(m.err, E_LIMIT, "piece '%.40s...' is longer than %d bytes", p->content.bytes,
                       PIECE_MAX_BYTES);
    return isfinite(p->score) ? 0
                              : damaged(&m, m.p, "a piece whose score is not a number ends here");
}

static int read_trainer(struct message m, struct sentencepiece_file *s) {
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f)) > 0) {
        if (f.number == 3) {
            TRY(expect(&m, &f, 0, "trainer_spec.model_type"));
            if (f.value != SENTENCEPIECE_UNIGRAM && f.value != SENTENCEPIECE_BPE)
                return err_set(
                    m.err, E_UNSUPPORTED,
                    "trainer_spec.model_type %llu: only UNIGRAM (1) and BPE (2) are read",
                    (unsigned long long)f.value);
            s->type = (enum sentencepiece_type)f.value;
        }
        if (f.number == 24)
            TRY(boolean(&m, &f, "trainer_spec.treat_whitespace_as_suffix",
                        &s->treat_whitespace_as_suffix));
        if (f.number == 35) TRY(boolean(&m, &f, "trainer_spec.byte_fallback", &s->byte_fallback));
        if (f.number == 44) TRY(string(&m, &f, "trainer_spec.unk_surface", &s->unk_surface));
        if (f.number == 46) TRY(string(&m, &f, "trainer_spec.bos_piece", &s->bos));
        if (f.number == 47) TRY(string(&m, &f, "trainer_spec.eos_piece", &s->eos));
    }
    return rc;
}

static int read_normalizer(struct message m, struct sentencepiece_file *s) {
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f)) > 0) {
        if (f.number == 2) {
            TRY(expect(&m, &f, 2, "normalizer_spec.precompiled_charsmap"));
            s->charsmap = f.bytes;
        }
        if (f.number == 3)
            TRY(boolean(&m, &f, "normalizer_spec.add_dummy_prefix", &s->add_dummy_prefix));
        if (f.number == 4)
            TRY(boolean(&m, &f, "normalizer_spec.remove_extra_whitespaces",
                        &s->remove_extra_whitespaces));
        if (f.number == 5)
            TRY(boolean(&m, &f, "normalizer_spec.escape_whitespaces", &s->escape_whitespaces));
    }
    return rc;
}

static int read_denormalizer(struct message m) {
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f)) > 0)
        if (f.number == 2 && f.type == 2 && f.bytes.len > 0)
            return err_set(m.err, E_UNSUPPORTED,
                           "denormalizer_spec.precompiled_charsmap is not supported");
    return rc;
}

static int count_pieces(struct message m, size_t *n) {
    struct field f;
    int rc;
    *n = 0;
    while ((rc = next_field(&m, &f)) > 0) *n += f.number == 1;
    return rc;
}

static int read_model(struct message m, struct sentencepiece_file *s) {
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f)) > 0) {
        if (f.number == 0 || f.number > 5) continue; // extensions
        if (f.number != 4) TRY(expect(&m, &f, 2, "a part of the model"));
        if (f.number == 1) TRY(read_piece(inner(&m, &f), &s->pieces[s->n_pieces++]));
        if (f.number == 2) TRY(read_trainer(inner(&m, &f), s));
        if (f.number == 3) TRY(read_normalizer(inner(&m, &f), s));
        if (f.number == 5) TRY(read_denormalizer(inner(&m, &f)));
    }
    return rc;
}

#define STRING(literal) ((struct file_string){literal, sizeof literal - 1})

int sentencepiece_file_read(struct sentencepiece_file *s, const char *bytes, size_t len,
                            struct err *err) {
    struct message m = {bytes, bytes, bytes + len, err};
    size_t n;
    *s = (struct sentencepiece_file){.type = SENTENCEPIECE_UNIGRAM,
                                     .unk_surface = STRING(" \u2047 "),
                                     .bos = STRING("<s>"),
                                     .eos = STRING("</s>"),
                                     .add_dummy_prefix = true,
                                     .remove_extra_whitespaces = true,
                                     .escape_whitespaces = true};
    TRY(count_pieces(m, &n));
    if (n == 0) return err_set(err, E_FORMAT, "no pieces: not a SentencePiece model");
    if (n > INT32_MAX / 4) return err_set(err, E_LIMIT, "%zu pieces are too many", n);
    s->pieces = malloc(n * sizeof *s->pieces);
    if (!s->pieces) return err_set(err, E_NOMEM, "no memory for %zu pieces", n);
    TRY(read_model(m, s));
    if (s->treat_whitespace_as_suffix)
        return err_set(err, E_UNSUPPORTED,
                       "trainer_spec.treat_whitespace_as_suffix is not supported");
    return 0;
}

void sentencepiece_file_release(struct sentencepiece_file *s) {
    free(s->pieces);
    *s = (struct sentencepiece_file){0};
}
