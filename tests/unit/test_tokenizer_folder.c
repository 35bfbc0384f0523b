// tokenizer_folder: which of a folder's files is used, special tokens from the files beside a
// SentencePiece model and GPT-2's two files, and refusals.
#include "tests/cmocka.h"
#include "tests/unit/tokenizer_ids.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILES 6
#define LLAMA "@tests/fixtures/text/llama2_spm/tokenizer.model"
#define XGLM "@tests/fixtures/text/xglm_spm/sentencepiece.bpe.model"

struct file {
    const char *name;
    const char *text; // or @ and the path of a file to link to
};

static int open_folder(struct tokenizer **t, const struct file files[MAX_FILES], struct err *err) {
    char dir[] = "/tmp/parley-folder-XXXXXX", path[4096];
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < MAX_FILES && files[i].name; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        if (*files[i].text == '@') {
            char *real = realpath(files[i].text + 1, NULL);
            assert_int_equal(symlink(real, path), 0);
            free(real);
        } else {
            FILE *f = fopen(path, "w");
            assert_non_null(f);
            fputs(files[i].text, f);
            fclose(f);
        }
    }
    int rc = tokenizer_open(t, dir, err);
    for (int i = 0; i < MAX_FILES && files[i].name; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        unlink(path);
    }
    rmdir(dir);
    return rc;
}

static struct tokenizer *opened(const struct file files[MAX_FILES]) {
    struct tokenizer *t;
    struct err err = {0};
    if (open_folder(&t, files, &err) < 0) fail_msg("%s", err.text);
    return t;
}

static const char *decoded(const struct tokenizer *t, const int32_t *ids, size_t n,
                           bool skip_special) {
    static struct buf out;
    struct err err = {0};
    buf_release(&out);
    buf_init(&out, 1 << 16);
    if (tokenizer_decode(t, ids, n, skip_special, &out, &err) < 0) fail_msg("%s", err.text);
    return buf_z(&out);
}

// A model by itself knows no special tokens in text; in a model's folder they are found.
static void test_special_tokens(void **state) {
    struct tokenizer *t = opened((struct file[MAX_FILES]){{"tokenizer.model", LLAMA}});
    assert_string_equal(encoded(t, "<s>a", NULL), "1432 63 1441 65 1435");
    assert_string_equal(tokenizer_bos(t), "<s>");
    assert_string_equal(tokenizer_eos(t), "</s>");
    assert_true(tokenizer_is_special(t, 1));
    assert_string_equal(decoded(t, (int32_t[]){1, 260, 0, 2}, 4, false), "<s> a \u2047 </s>");
    assert_string_equal(decoded(t, (int32_t[]){1, 260, 0, 2}, 4, true), "a");
    tokenizer_close(t);
    t = opened((struct file[MAX_FILES]){{"tokenizer.model", LLAMA},
                                        {"config.json", "{\"model_type\":\"llama\"}"}});
    assert_string_equal(encoded(t, "<s>a</s>", NULL), "1 260 2");
    assert_string_equal(encoded(t, "<s>a", &(struct encode_options){.no_special = true}),
                        "1432 63 1441 65 1435");
    struct text_span typed = {0, 3};
    assert_string_equal(encoded(t, "<s>a", &(struct encode_options){.plain = &typed, .n_plain = 1}),
                        "1432 63 1441 65 1435");
    tokenizer_close(t);
}

// New tokens from the files: with their ids, by the next ids, and pieces that become special.
static void test_added_tokens(void **state) {
    struct tokenizer *t = opened((struct file[MAX_FILES]){
        {"tokenizer.model", LLAMA},
        {"tokenizer_config.json",
         "{\"eos_token\":{\"content\":\"<e>\"},\"pad_token\":\"[PAD]\",\"added_tokens_decoder\":{"
         "\"1500\":{\"content\":\"<e>\",\"lstrip\":false,\"normalized\":true,\"rstrip\":true,"
         "\"single_word\":false,\"special\":true},"
         "\"1501\":{\"content\":\"<|x|>\",\"special\":false}}}"}});
    assert_string_equal(tokenizer_eos(t), "<e>");
    assert_string_equal(encoded(t, "a<e>  a<|x|>[PAD]", NULL), "260 1500 260 1501 1502");
    assert_int_equal(tokenizer_n_tokens(t), 1503);
    assert_true(tokenizer_is_special(t, 1502));
    assert_false(tokenizer_is_special(t, 1501));
    assert_string_equal(decoded(t, (int32_t[]){260, 1501, 260}, 3, true), "a<|x|> a");
    tokenizer_close(t);
    t = opened((struct file[MAX_FILES]){
        {"tokenizer.model", LLAMA},
        {"added_tokens.json", "{\"<p>\":1500,\"<q>\":1501}"},
        {"special_tokens_map.json", "{\"pad_token\":\"<p>\",\"bos_token\":\"<s>\"}"}});
    assert_string_equal(encoded(t, "<p><q><s>", NULL), "1500 1501 1");
    assert_true(tokenizer_is_special(t, 1500));
    assert_false(tokenizer_is_special(t, 1501));
    tokenizer_close(t);
}

static void test_prefix(void **state) {
    struct tokenizer *t =
        opened((struct file[MAX_FILES]){{"tokenizer.model", LLAMA}, {"config.json", "{}"}});
    assert_string_equal(encoded(t, "a<s>a", NULL), "260 1 260"); // a space is put before each piece
    tokenizer_close(t);
    t = opened((struct file[MAX_FILES]){{"tokenizer.model", LLAMA},
                                        {"tokenizer_config.json", "{\"legacy\":false}"}});
    // A space is put only before the text
    assert_string_equal(encoded(t, "a<s>a", NULL), "260 1 1435");
    assert_string_equal(encoded(t, "<s>a", NULL), "1 1435");
    assert_string_equal(encoded(t, "a", &(struct encode_options){.continues = true}), "1435");
    tokenizer_close(t);
    t = opened((struct file[MAX_FILES]){{"tokenizer.model", LLAMA},
                                        {"tokenizer_config.json", "{\"add_prefix_space\":false}"}});
    assert_string_equal(encoded(t, "a", NULL), "1435");
    tokenizer_close(t);
}

// XGLM numbers its ids differently from its file: <s> <pad> </s> <unk>, then the pieces, then seven
// untrained ones.
static void test_xglm(void **state) {
    static const struct file by_class[MAX_FILES] = {
        {"sentencepiece.bpe.model", XGLM},
        {"tokenizer_config.json", "{\"tokenizer_class\":\"XGLMTokenizer\"}"}};
    static const struct file by_type[MAX_FILES] = {{"sentencepiece.bpe.model", XGLM},
                                                   {"config.json", "{\"model_type\":\"xglm\"}"}};
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = opened(i ? by_type : by_class);
        assert_string_equal(encoded(t, "a</s>\u4e2d<pad><madeupword6>", NULL), "9 2 19 3 1 1507");
        assert_int_equal(tokenizer_n_tokens(t), 1508);
        assert_int_equal(tokenizer_find(t, "<s>"), 0);
        tokenizer_close(t);
    }
}

static void test_gpt2(void **state) {
    static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}";
    struct tokenizer *t;
    struct err err = {0};
    const struct file few[MAX_FILES] = {{"vocab.json", vocab},
                                        {"merges.txt", "#version: 0.2\r\na b\r\n\r\n"}};
    // Some of the 256 bytes have no token
    assert_int_equal(open_folder(&t, few, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "vocab.json, merges.txt"));
    const struct file wrong[MAX_FILES] = {{"vocab.json", vocab},
                                          {"merges.txt", "#version: 0.2\na c\n"}};
    assert_int_equal(open_folder(&t, wrong, &err), E_FORMAT);
    assert_non_null(strstr(err.text, "'a' + 'c'"));
    t = opened((struct file[MAX_FILES]){{"vocab.json", "@tests/fixtures/text/gpt2/vocab.json"},
                                        {"merges.txt", "@tests/fixtures/text/gpt2/merges.txt"},
                                        {"added_tokens.json", "{\"<|sep|>\":50257}"},
                                        {"tokenizer_config.json",
                                         "{\"add_prefix_space\":true,\"pad_token\":\"[PAD]\","
                                         "\"bos_token\":\"<|endoftext|>\"}"}});
    assert_string_equal(encoded(t, "hello<|endoftext|><|sep|>[PAD]", NULL),
                        "23748 50256 50257 50258");
    assert_string_equal(tokenizer_bos(t), "<|endoftext|>");
    tokenizer_close(t);
    // Qwen2's way to cut, for Qwen2's two files: digits one by one.
    t = opened((struct file[MAX_FILES]){
        {"vocab.json", "@tests/fixtures/text/gpt2/vocab.json"},
        {"merges.txt", "@tests/fixtures/text/gpt2/merges.txt"},
        {"tokenizer_config.json", "{\"tokenizer_class\":\"Qwen2Tokenizer\"}"}});
    assert_string_equal(encoded(t, "2024", NULL), "17 15 17 19");
    tokenizer_close(t);
}

// The token before a text of its own: add_bos_token decides, else the class of a SentencePiece model, else the
// post-processor of a tokenizer.json.
static void test_start(void **state) {
#define JSON(processor)                                                                            \
    "{\"added_tokens\":[{\"id\":1,\"content\":\"<b>\",\"special\":true}],\"post_"                  \
    "processor\":" processor ",\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":"  \
    "\"<u>\",\"vocab\":{\"<u>\":0},"                                                               \
    "\"merges\":[]}}"
#define TEMPLATE                                                                                   \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<b>\",\"type_id\":"  \
    "0}},{"                                                                                        \
    "\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}"
    static const struct {
        const char *name, *model, *config;
        int start;
    } cases[] = {
        {"tokenizer.model", LLAMA, "{}", -1},
        {"tokenizer.model", LLAMA, "{\"tokenizer_class\":\"LlamaTokenizer\"}", 1},
        {"tokenizer.model", LLAMA, "{\"add_bos_token\":true}", 1},
        {"tokenizer.model", LLAMA,
         "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":false}", -1},
        {"tokenizer.json", JSON("null"), "{}", -1},
        {"tokenizer.json", JSON("null"), "{\"bos_token\":\"<b>\",\"add_bos_token\":true}", 1},
        {"tokenizer.json", JSON(TEMPLATE), "{}", 1},
        {"tokenizer.json", JSON(TEMPLATE), "{\"bos_token\":\"<b>\",\"add_bos_token\":false}", -1},
        {"tokenizer.json",
         JSON("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE "]}"),
         "{}", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct file files[MAX_FILES] = {{cases[i].name, cases[i].model},
                                              {"tokenizer_config.json", cases[i].config}};
        struct tokenizer *t = opened(files);
        if (tokenizer_start(t) != cases[i].start) fail_msg("case %zu: %d", i, tokenizer_start(t));
        tokenizer_close(t);
    }
}

static void test_refused(void **state) {
    static const struct {
        struct file files[MAX_FILES];
        int rc;
        const char *says;
    } rows[] = {
        {{{"config.json", "{}"}}, E_NOTFOUND, "tokenizer.model"},
        {{{"vocab.json", "{}"}}, E_NOTFOUND, "no tokenizer"},
        {{{"tokenizer.model", "x"}}, E_FORMAT, "tokenizer.model: byte 1"},
        {{{"tokenizer.json", "{}"}, {"tokenizer.model", LLAMA}},
         E_FORMAT,
         "tokenizer.json: no model"},
        {{{"tokenizer.model", LLAMA},
          {"tokenizer_config.json", "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}"}},
         E_UNSUPPORTED,
         "XLMRobertaTokenizer"},
        {{{"vocab.json", "{}"},
          {"merges.txt", ""},
          {"tokenizer_config.json", "{\"tokenizer_class\":\"BartTokenizer\"}"}},
         E_UNSUPPORTED,
         "BartTokenizer"},
        {{{"vocab.json", "{}"}, {"merges.txt", ""}}, E_FORMAT, "model.vocab is empty"},
        {{{"vocab.json", "[]"}, {"merges.txt", ""}}, E_FORMAT, "vocab.json: not an object"},
        {{{"tokenizer.model", LLAMA}, {"added_tokens.json", "{\"<x>\":3}"}}, E_FORMAT, "id 3"},
        {{{"tokenizer.model", LLAMA}, {"added_tokens.json", "{\"<x>\":900000}"}},
         E_LIMIT,
         "900000"},
        {{{"tokenizer.model", LLAMA}, {"added_tokens.json", "{\"<x>\":-1}"}}, E_FORMAT, "id"},
        {{{"tokenizer.model", LLAMA}, {"tokenizer_config.json", "{\"legacy\":7}"}},
         E_INVAL,
         "legacy"},
        {{{"tokenizer.model", LLAMA}, {"tokenizer_config.json", "{\"pad_token\":7}"}},
         E_FORMAT,
         "pad_token"},
        {{{"tokenizer.model", LLAMA},
          {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}"}},
         E_FORMAT,
         "added_tokens_decoder"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t;
        struct err err = {0};
        int rc = open_folder(&t, rows[i].files, &err);
        if (rc != rows[i].rc || !strstr(err.text, rows[i].says))
            fail_msg("%zu: %d %s", i, rc, err.text);
        assert_null(t);
    }
}

// Markup that a vocabulary's author defined as pieces is found in a template's text, not in what
// people type; runs of spaces are no markup.
static void test_user_defined_symbols(void **state) {
    static const char *const folders[] = {"tests/fixtures/text/pieces_bpe",
                                          "tests/fixtures/text/pieces_unigram"};
    for (int k = 0; k < 2; k++) {
        struct tokenizer *t;
        struct err err = {0};
        if (tokenizer_open(&t, folders[k], &err) < 0) fail_msg("%s", err.text);
        int32_t x = tokenizer_find(t, "<x>"), blank = tokenizer_find(t, "\u2581\u2581");
        const char *text = "<x>a<x>  b<x>";
        struct text_span typed[] = {{4, 10}};
        struct encode_options opt = {.plain = typed, .n_plain = 1};
        char begin[16], end[16], spaces[16];
        snprintf(begin, sizeof begin, "%d ", x);
        snprintf(end, sizeof end, " %d", x);
        snprintf(spaces, sizeof spaces, " %d ", blank);
        const char *ids = encoded(t, text, &opt);
        // Unigram puts a space in front
        bool at_start = strncmp(ids, begin, strlen(begin)) == 0 || k == 1;
        bool at_end = strcmp(ids + strlen(ids) - strlen(end), end) == 0;
        int n = 0;
        for (const char *p = ids; (p = strstr(p, end)); p++)
            n += p[strlen(end)] == ' ' || p[strlen(end)] == '\0';
        if (!at_start || !at_end || n != (k == 1 ? 2 : 1))
            fail_msg("%s: %s (<x> is %d)", folders[k], ids, x);
        if (k == 0) assert_non_null(strstr(ids, spaces));
        opt.n_plain = 0;
        ids = encoded(t, text, &opt);
        n = strncmp(ids, begin, strlen(begin)) == 0;
        for (const char *p = ids; (p = strstr(p, end)); p++)
            n += p[strlen(end)] == ' ' || p[strlen(end)] == '\0';
        if (n != 3) fail_msg("%s: %s (<x> is %d)", folders[k], ids, x);
        tokenizer_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_special_tokens), cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_prefix),         cmocka_unit_test(test_xglm),
        cmocka_unit_test(test_gpt2),           cmocka_unit_test(test_start),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_user_defined_symbols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
