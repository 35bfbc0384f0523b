// Real and small vocabularies against Hugging Face tokenizers' own results, and SentencePiece's
// (tests/fixtures/text). Run from the repository's root.
#include "tests/golden/text_golden.h"
#include <stdio.h>
#include <unistd.h>

struct golden {
    const char *dir, *results;
    const char *description;
    int n_cases;
    const char *const *only; // these files of dir alone, ends with NULL; NULL: the folder as it is
};
static const char *const two_files[] = {"vocab.json", "merges.txt", NULL};

static const struct golden goldens[] = {
    {"tests/fixtures/text/gpt2", "tests/fixtures/text/gpt2.golden.json",
     "byte-level BPE, 50,257 tokens", 203, NULL},
    {"tests/fixtures/text/gpt2", "tests/fixtures/text/gpt2.golden.json",
     "byte-level BPE, 50,257 tokens", 203, two_files},
    {"tests/fixtures/text/gpt_neox", "tests/fixtures/text/gpt_neox.golden.json",
     "byte-level BPE, 50,277 tokens", 203, NULL},
    {"tests/fixtures/text/bloom", "tests/fixtures/text/bloom.golden.json",
     "byte-level BPE, 2,000 tokens", 203, NULL},
    {"tests/fixtures/text/llama3", "tests/fixtures/text/llama3.golden.json",
     "byte-level BPE, 2,000 tokens", 203, NULL},
    {"tests/fixtures/text/xglm_json", "tests/fixtures/text/xglm_json.golden.json",
     "Unigram, 1,500 tokens", 203, NULL},
    {"tests/fixtures/text/xglm_spm", "tests/fixtures/text/xglm_spm.golden.json",
     "SentencePiece Unigram, 1,500 tokens", 203, NULL},
    {"tests/fixtures/text/llama2_spm", "tests/fixtures/text/llama2_spm.golden.json",
     "SentencePiece BPE, 1,500 tokens", 203, NULL},
    {"tests/fixtures/text/pieces_bpe", "tests/fixtures/text/pieces_bpe.golden.json",
     "SentencePiece BPE, 700 tokens", 91, NULL},
    {"tests/fixtures/text/pieces_unigram", "tests/fixtures/text/pieces_unigram.golden.json",
     "SentencePiece Unigram, 700 tokens", 91, NULL},
    {"tests/fixtures/text/pieces_unused", "tests/fixtures/text/pieces_unused.golden.json",
     "SentencePiece BPE, 1,200 tokens", 91, NULL},
    {"configs/demo-model", "tests/fixtures/text/demo.golden.json", "byte-level BPE, 4,096 tokens",
     203, NULL},
};

static void open_golden(const struct golden *g, struct tokenizer **t) {
    struct err err = {0};
    char dir[] = "/tmp/parley-golden-XXXXXX", from[4096], to[4096], *here = realpath(g->dir, NULL);
    if (!g->only) {
        if (tokenizer_open(t, g->dir, &err) < 0) fail_msg("%s", err.text);
        free(here);
        return;
    }
    assert_non_null(mkdtemp(dir));
    for (int i = 0; g->only[i]; i++) {
        snprintf(from, sizeof from, "%s/%s", here, g->only[i]);
        snprintf(to, sizeof to, "%s/%s", dir, g->only[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    int rc = tokenizer_open(t, dir, &err);
    for (int i = 0; g->only[i]; i++) {
        snprintf(to, sizeof to, "%s/%s", dir, g->only[i]);
        unlink(to);
    }
    rmdir(dir);
    free(here);
    if (rc < 0) fail_msg("%s", err.text);
}

static void test_golden(void **state) {
    const struct golden *g = *state;
    struct tokenizer *t;
    open_golden(g, &t);
    assert_string_equal(tokenizer_description(t), g->description);
    cJSON *root = read_results(g->results);
    assert_int_equal(check_cases(t, g->dir, cJSON_GetObjectItemCaseSensitive(root, "cases")),
                     g->n_cases);
    cJSON_Delete(root);
    tokenizer_close(t);
}

// --- the parts of a tokenizer.json, one by one

// The model that most of them stand on: no character is a token, so the ids are the bytes of the
// words, and "</w>" shows where each ends.
static cJSON *bytes_model(void) {
    cJSON *model = cJSON_CreateObject(), *vocab = cJSON_AddObjectToObject(model, "vocab");
    for (int byte = 0; byte < 256; byte++) {
        char content[8];
        snprintf(content, sizeof content, "<0x%02X>", (unsigned)byte);
        cJSON_AddNumberToObject(vocab, content, byte);
    }
    cJSON_AddNumberToObject(vocab, "<unk>", 256);
    cJSON_AddStringToObject(model, "type", "BPE");
    cJSON_AddStringToObject(model, "unk_token", "<unk>");
    cJSON_AddStringToObject(model, "end_of_word_suffix", "</w>");
    cJSON_AddBoolToObject(model, "byte_fallback", true);
    cJSON_AddArrayToObject(model, "merges");
    return model;
}

static void replace_part(cJSON *tokenizer, const char *key, const char *name, cJSON *part) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tokenizer, key);
    if (cJSON_IsString(item) && strcmp(item->valuestring, name) == 0)
        cJSON_ReplaceItemInObjectCaseSensitive(tokenizer, key, part);
    else
        cJSON_Delete(part);
}

static cJSON *xglm_charsmap(void) {
    struct err err;
    cJSON *xglm =
        json_parse_file("tests/fixtures/text/xglm_json/tokenizer.json", &json_limits_file, &err);
    cJSON *sequence = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(xglm, "normalizer"), "normalizers");
    cJSON *charsmap = cJSON_DetachItemFromArray(sequence, 0);
    assert_non_null(charsmap);
    cJSON_Delete(xglm);
    return charsmap;
}

static void test_parts(void **state) {
    cJSON *root = read_results("tests/fixtures/text/parts.golden.json"), *item;
    int n = 0, n_cases = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, "entries")) {
        const char *name = cJSON_GetObjectItemCaseSensitive(item, "name")->valuestring;
        cJSON *tokenizer = cJSON_GetObjectItemCaseSensitive(item, "tokenizer");
        struct tokenizer *t;
        struct err err = {0};
        replace_part(tokenizer, "model", "bytes", bytes_model());
        replace_part(tokenizer, "normalizer", "xglm", xglm_charsmap());
        char *json = cJSON_PrintUnformatted(tokenizer);
        if (tokenizer_open_json(&t, json, strlen(json), &err) < 0)
            fail_msg("%s: %s", name, err.text);
        n_cases += check_cases(t, name, cJSON_GetObjectItemCaseSensitive(item, "cases"));
        cJSON_free(json);
        tokenizer_close(t);
        n++;
    }
    assert_int_equal(n, 91);
    assert_int_equal(n_cases, 2982);
    cJSON_Delete(root);
}

int main(void) {
    enum { N = sizeof goldens / sizeof *goldens };
    struct CMUnitTest tests[N + 1];
    for (size_t i = 0; i < N; i++)
        tests[i] =
            (struct CMUnitTest){goldens[i].dir, test_golden, NULL, NULL, (void *)&goldens[i]};
    tests[N] = (struct CMUnitTest)cmocka_unit_test(test_parts);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
