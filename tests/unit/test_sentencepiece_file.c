// sentencepiece_file: a message written field by field, refusals by name, and real files damaged at
// random.
#include "base/buf.h"
#include "engine/text/sentencepiece_file.h"
#include "engine/text/tokenizer.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

static void put_varint(struct buf *b, uint64_t v) {
    for (; v > 127; v >>= 7) buf_addc(b, (char)((v & 127) | 128));
    buf_addc(b, (char)v);
}

static void put_bytes(struct buf *b, unsigned number, const char *bytes, size_t len) {
    put_varint(b, number << 3 | 2);
    put_varint(b, len);
    buf_add(b, bytes, len);
}

static void put_number(struct buf *b, unsigned number, uint64_t v) {
    put_varint(b, number << 3);
    put_varint(b, v);
}

static void put_piece(struct buf *model, const char *content, float score, int kind) {
    struct buf piece;
    buf_init(&piece, 1 << 20);
    put_bytes(&piece, 1, content, strlen(content));
    put_varint(&piece, 2 << 3 | 5);
    buf_add(&piece, &score, 4);
    if (kind != PIECE_NORMAL) put_number(&piece, 3, (uint64_t)kind);
    put_bytes(model, 1, piece.data, piece.len);
    buf_release(&piece);
}

// A small Unigram model; trainer and normalizer are the bytes of those messages.
static void put_model(struct buf *model, const struct buf *trainer, const struct buf *normalizer) {
    buf_init(model, 1 << 20);
    put_piece(model, "<unk>", 0, PIECE_UNKNOWN);
    put_piece(model, "<s>", 0, PIECE_CONTROL);
    put_piece(model, "</s>", 0, PIECE_CONTROL);
    put_piece(model, "\u2581a", -1, PIECE_NORMAL);
    put_piece(model, "b", -2, PIECE_NORMAL);
    put_piece(model, "\u2581", -3, PIECE_NORMAL);
    if (trainer) put_bytes(model, 2, buf_z(trainer), trainer->len);
    if (normalizer) put_bytes(model, 3, buf_z(normalizer), normalizer->len);
}

static void test_fields(void **state) {
    struct sentencepiece_file f;
    struct err err = {0};
    struct buf trainer, normalizer, model;
    buf_init(&trainer, 1 << 10);
    buf_init(&normalizer, 1 << 10);
    put_number(&trainer, 3, SENTENCEPIECE_BPE);
    put_number(&trainer, 35, 1);
    put_bytes(&trainer, 44, "?", 1);
    put_bytes(&trainer, 46, "<b>", 3);
    put_varint(&trainer, 10 << 3 | 5); // a float that the reader skips
    buf_add(&trainer, "abcd", 4);
    put_varint(&trainer, 11 << 3 | 1);
    buf_add(&trainer, "abcdefgh", 8);
    put_number(&normalizer, 3, 0);
    put_number(&normalizer, 4, 0);
    put_bytes(&normalizer, 2, "map", 3);
    put_model(&model, &trainer, &normalizer);
    assert_int_equal(sentencepiece_file_read(&f, model.data, model.len, &err), 0);
    assert_int_equal(f.n_pieces, 6);
    assert_int_equal(f.pieces[0].kind, PIECE_UNKNOWN);
    assert_int_equal(f.pieces[3].kind, PIECE_NORMAL);
    assert_memory_equal(f.pieces[3].content.bytes, "\u2581a", 4);
    assert_true(f.pieces[3].score == -1);
    assert_int_equal(f.type, SENTENCEPIECE_BPE);
    assert_true(f.byte_fallback && f.escape_whitespaces);
    assert_false(f.add_dummy_prefix || f.remove_extra_whitespaces);
    assert_memory_equal(f.unk_surface.bytes, "?", 1);
    assert_memory_equal(f.bos.bytes, "<b>", 3);
    assert_memory_equal(f.eos.bytes, "</s>", 4);
    assert_memory_equal(f.charsmap.bytes, "map", 3);
    sentencepiece_file_release(&f);
    buf_release(&trainer);
    buf_release(&normalizer);
    buf_release(&model);
}

// A model that is refused: bytes added to its parts, and a part of the error's sentence.
struct refused {
    unsigned trainer_field;
    uint64_t trainer_value;
    unsigned normalizer_field;
    const char *normalizer_bytes;
    const char *piece;
    float score;
    int kind, rc;
    const char *says;
};
static const struct refused refused[] = {
    {.trainer_field = 3, .trainer_value = 3, .rc = E_UNSUPPORTED, .says = "model_type 3"},
    {.trainer_field = 24,
     .trainer_value = 1,
     .rc = E_UNSUPPORTED,
     .says = "treat_whitespace_as_suffix"},
    {.trainer_field = 35,
     .trainer_value = 1,
     .rc = E_FORMAT,
     .says = "byte 0x00"}, // there are no byte pieces
    {.normalizer_field = 2,
     .normalizer_bytes = "map",
     .rc = E_FORMAT,
     .says = "precompiled_charsmap"},
    {.piece = "x", .kind = 7, .rc = E_FORMAT, .says = "unknown type"},
    {.piece = "x", .kind = PIECE_UNKNOWN, .rc = E_FORMAT, .says = "unknown one"},
    {.piece = "x", .kind = PIECE_BYTE, .rc = E_FORMAT, .says = "byte piece 'x'"},
    {.piece = "\xff", .kind = 1, .rc = E_FORMAT, .says = "UTF-8"},
    {.piece = "", .kind = 1, .rc = E_FORMAT, .says = "without content"},
    {.piece = "b", .kind = 1, .rc = E_FORMAT, .says = "two ids"},
    {.piece = "x", .kind = 1, .score = 1e38f * 10, .rc = E_FORMAT, .says = "not a number"},
};

static void test_refused(void **state) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct refused *r = &refused[i];
        struct buf trainer, normalizer, model;
        struct tokenizer *t;
        struct err err = {0};
        buf_init(&trainer, 1 << 10);
        buf_init(&normalizer, 1 << 10);
        if (r->trainer_field) put_number(&trainer, r->trainer_field, r->trainer_value);
        if (r->normalizer_field)
            put_bytes(&normalizer, r->normalizer_field, r->normalizer_bytes,
                      strlen(r->normalizer_bytes));
        put_model(&model, &trainer, &normalizer);
        if (r->piece) put_piece(&model, r->piece, r->score, r->kind);
        int rc = tokenizer_open_model(&t, model.data, model.len, &err);
        if (rc != r->rc || !strstr(err.text, r->says)) fail_msg("%zu: %d %s", i, rc, err.text);
        assert_null(t);
        buf_release(&trainer);
        buf_release(&normalizer);
        buf_release(&model);
    }
}

static void test_wire_errors(void **state) {
    static const struct {
        const char *bytes;
        size_t len;
        const char *says;
    } rows[] = {{"", 0, "no pieces"},
                {"\x0a\x05", 2, "over the end"},
                {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "over the end"},
                {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11, "ten bytes"},
                {"\x0b", 1, "unknown type"},
                {"\x02\x00", 2, "without a number"},
                {"\x0d\x01\x02", 3, "over the end"},
                {"\x09\x01\x02", 3, "over the end"},
                {"\x08\x01", 2, "wrong type"},          // a piece that is a number
                {"\x0a\x02\x08\x01", 4, "wrong type"}}; // its content a number
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t;
        struct err err = {0};
        assert_int_equal(tokenizer_open_model(&t, rows[i].bytes, rows[i].len, &err), E_FORMAT);
        if (!strstr(err.text, rows[i].says)) fail_msg("%zu: %s", i, err.text);
    }
}

static void encode_some(struct tokenizer *t) {
    static const char text[] =
        "a b  ab\u3000\uff21\ufb01 e\u0301 <s>\u4e2d\U0001F600 caf\u00e9 \r\n x";
    struct token_list ids;
    struct buf back;
    token_list_init(&ids);
    buf_init(&back, 1 << 16);
    tokenizer_encode(t, text, sizeof text - 1, NULL, &ids, NULL);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.len, false, &back, NULL), 0);
    token_list_release(&ids);
    buf_release(&back);
}

// A file that is cut short or changed anywhere is refused with a sentence or works.
static void test_damaged(void **state) {
    static const char *const paths[] = {"tests/fixtures/text/llama2_spm/tokenizer.model",
                                        "tests/fixtures/text/pieces_unigram/tokenizer.model",
                                        "tests/fixtures/text/pieces_unused/tokenizer.model",
                                        "tests/fixtures/text/xglm_spm/sentencepiece.bpe.model"};
    srand(11);
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        struct buf file;
        struct err err = {0};
        assert_int_equal(buf_read_file(&file, paths[k], 1 << 24, &err), 0);
        for (int i = 0; i < 150; i++) {
            struct tokenizer *t;
            size_t len = i % 3 ? file.len : (size_t)rand() % file.len, n = 1 + (size_t)rand() % 8;
            // A block of its own, so that the sanitizer sees reads past its end
            char *copy = malloc(len + 1);
            memcpy(copy, file.data, len);
            for (; i % 3 && n > 0; n--) copy[(size_t)rand() % len] = (char)rand();
            err = (struct err){0};
            if (tokenizer_open_model(&t, copy, len, &err) == 0) {
                free(copy);
                encode_some(t); // the file's bytes are freed by now and no longer needed
                tokenizer_close(t);
            } else {
                free(copy);
                assert_null(t);
                assert_true(strlen(err.text) > 0);
            }
        }
        buf_release(&file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_wire_errors),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
