// How text is cut by each `tokenizer.ggml.pre` of a GGUF file: the ids that llama.cpp gives, or, where those differ
// (the file says why), the ids of Hugging Face's tokenizers by the model's own pattern. fixtures/make_pre.mjs made them.
#include "base/json.h"
#include "engine/text/tokenizer.h"
#include "tests/unit/in_tmp_dir.h"

// --- the vocabulary: single bytes, and an eighth of all pairs, merged in a scattered order ---

static struct buf file;

static void put_uint(uint64_t v, int n) {
    for (int i = 0; i < n; i++) {
        char byte = (char)(v >> (8 * i));
        buf_add(&file, &byte, 1);
    }
}
static void put_text(const char *s) {
    put_uint(strlen(s), 8);
    buf_add(&file, s, strlen(s));
}
static void put_key(const char *key, uint32_t type) {
    put_text(key);
    put_uint(type, 4);
}

// The character that stands for each byte in a byte-level vocabulary.
static char alphabet[256][3];

static void fill_alphabet(void) {
    unsigned other = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        unsigned c = printable ? b : other++;
        if (c < 128)
            snprintf(alphabet[b], 3, "%c", (char)c);
        else
            snprintf(alphabet[b], 3, "%c%c", (char)(0xc0 | c >> 6), (char)(0x80 | (c & 63)));
    }
}

static unsigned left_out; // no token has this byte; 0: all bytes have one

static int next_pair(uint32_t *i) {
    while (*i < 65536) {
        uint32_t pair = *i * 40503u & 0xffff;
        ++*i;
        if (left_out && (pair >> 8 == left_out || (pair & 255) == left_out)) continue;
        if (pair * 2654435761u >> 29 == 0) return (int)pair;
    }
    return -1;
}

static void put_pairs(const char *between) {
    char text[8];
    uint32_t i = 0;
    for (int pair; (pair = next_pair(&i)) >= 0;) {
        snprintf(text, sizeof text, "%s%s%s", alphabet[pair >> 8], between, alphabet[pair & 255]);
        put_text(text);
    }
}

static const char *write_file(const char *pre) {
    uint64_t n_pairs = 0;
    uint32_t i = 0;
    while (next_pair(&i) >= 0) n_pairs++;
    buf_reset(&file);
    buf_add(&file, "GGUF", 4);
    put_uint(3, 4);
    put_uint(0, 8);
    put_uint(4, 8);
    put_key("tokenizer.ggml.model", 8);
    put_text("gpt2");
    put_key("tokenizer.ggml.pre", 8);
    put_text(pre);
    put_key("tokenizer.ggml.tokens", 9);
    put_uint(8, 4);
    put_uint(256 + n_pairs + 1, 8);
    for (int b = 0; b < 256; b++)
        put_text(left_out && b == (int)left_out ? "<|none|>" : alphabet[b]);
    put_pairs("");
    put_text("<|end|>");
    put_key("tokenizer.ggml.merges", 9);
    put_uint(8, 4);
    put_uint(n_pairs, 8);
    put_pairs(" ");
    while (file.len % 32) buf_add(&file, "", 1);
    assert_int_equal(file.error, 0);
    tmp_write(&dir, "pre.gguf", file.data, file.len);
    return tmp_path(&dir, "pre.gguf");
}

// --- the ids ---

static void hash_of(const struct token_list *ids, char out[4]) {
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t h = 0x811c9dc5;
    for (size_t i = 0; i < ids->len; i++)
        for (int shift = 0; shift < 32; shift += 8)
            h = (h ^ ((uint32_t)ids->ids[i] >> shift & 255)) * 0x01000193;
    h >>= 14;
    out[0] = base64[h >> 12];
    out[1] = base64[h >> 6 & 63];
    out[2] = base64[h & 63];
    out[3] = '\0';
}

static int check_name(const char *pre, const cJSON *texts, const char *expected) {
    struct tokenizer *t;
    struct err err = {0};
    const cJSON *text;
    int n = 0;
    if (tokenizer_open(&t, write_file(pre), &err) < 0) fail_msg("%s: %s", pre, err.text);
    cJSON_ArrayForEach(text, texts) {
        struct token_list ids = {0};
        char hash[4];
        const char *s = text->valuestring;
        if (tokenizer_encode(t, s, strlen(s), NULL, &ids, &err) < 0)
            fail_msg("%s: %s", pre, err.text);
        hash_of(&ids, hash);
        token_list_release(&ids);
        if (strncmp(hash, expected + (size_t)n * 3, 3) != 0)
            fail_msg("'%s' cuts text %d otherwise: '%s'", pre, n, s);
        n++;
    }
    tokenizer_close(t);
    return n;
}

static void every_pre_cuts_as_its_model(void **state) {
    struct err err = {0};
    cJSON *root;
    const cJSON *row, *name;
    int n_names = 0;
    if (buf_read_file(&file, "tests/fixtures/text/pre.json", 1 << 20, &err) < 0)
        fail_msg("%s", err.text);
    assert_non_null(root = cJSON_ParseWithLength(file.data, file.len));
    buf_release(&file);
    const cJSON *texts = json_member(root, "texts");
    fill_alphabet();
    buf_init(&file, 1 << 20);
    cJSON_ArrayForEach(row, json_member(root, "rows")) {
        const char *own = json_string(row, "own");
        assert_true(!own || json_string(row, "why"));
        const char *expected = own ? own : json_string(row, "llamacpp");
        assert_int_equal(strlen(expected), 3 * cJSON_GetArraySize(texts));
        cJSON_ArrayForEach(name, json_member(row, "pre")) {
            assert_int_equal(check_name(name->valuestring, texts, expected), 420);
            n_names++;
        }
    }
    assert_int_equal(n_names, 70);
    buf_release(&file);
    cJSON_Delete(root);
}

static void append_ids(const struct tokenizer *t, const char *text, struct token_list *out) {
    struct err err = {0};
    if (tokenizer_encode(t, text, strlen(text), NULL, out, &err) < 0) fail_msg("%s", err.text);
}

// Falcon's and StarCoder's vocabularies lack bytes that no text of their training had.
static void bytes_without_a_token_are_left_out(void **state) {
    struct tokenizer *t;
    struct err err = {0};
    struct token_list all = {0}, parts = {0};
    fill_alphabet();
    buf_init(&file, 1 << 20);
    left_out = 3;
    if (tokenizer_open(&t, write_file("gpt-2"), &err) < 0) fail_msg("%s", err.text);
    append_ids(t,
               "word\x03"
               " \x03!\x03\x03",
               &all);
    append_ids(t, "word", &parts);
    append_ids(t, " ", &parts);
    append_ids(t, "!", &parts);
    assert_int_equal(all.len, parts.len);
    assert_memory_equal(all.ids, parts.ids, all.len * sizeof *all.ids);
    assert_int_equal(tokenizer_longest_token(t),
                     0); // a text may have fewer tokens than bytes ask for
    tokenizer_close(t);
    left_out = 'e';
    assert_int_equal(tokenizer_open(&t, write_file("gpt-2"), &err), E_UNSUPPORTED);
    left_out = 0;
    assert_non_null(strstr(err.text, "no token for the byte 0x65"));
    token_list_release(&all);
    token_list_release(&parts);
    buf_release(&file);
}

// --- tokens of which metadata do not say all ---

// The file has no types, so that all are normal ones.
static void tokens_that_end_answers_are_special_whatever_their_type(void **state) {
    struct tokenizer *t;
    struct err err = {0};
    struct token_list ids = {0};
    fill_alphabet();
    buf_init(&file, 1 << 20);
    if (tokenizer_open(&t, write_file("gpt-2"), &err) < 0) fail_msg("%s", err.text);
    const int32_t end = tokenizer_find(t, "<|end|>");
    append_ids(t, "a<|end|>", &ids);
    assert_int_equal(ids.len, 2);
    assert_int_equal(ids.ids[1], end);
    assert_true(tokenizer_is_special(t, end));
    tokenizer_close(t);
    token_list_release(&ids);
    buf_release(&file);
}

struct token {
    const char *text;
    uint32_t type; // 1 normal, 2 unknown, 3 control
};

static struct tokenizer *open_small(const char *name, const char *model, const struct token *tokens,
                                    int n) {
    struct tokenizer *t;
    struct err err = {0};
    buf_init(&file, 1 << 20);
    buf_add(&file, "GGUF", 4);
    put_uint(3, 4);
    put_uint(0, 8);
    put_uint(7, 8);
    put_key("general.architecture", 8);
    put_text("llama");
    put_key("general.name", 8);
    put_text(name);
    put_key("tokenizer.ggml.model", 8);
    put_text(model);
    put_key("tokenizer.ggml.tokens", 9);
    put_uint(8, 4);
    put_uint((uint64_t)n, 8);
    for (int i = 0; i < n; i++) put_text(tokens[i].text);
    put_key("tokenizer.ggml.token_type", 9);
    put_uint(5, 4);
    put_uint((uint64_t)n, 8);
    for (int i = 0; i < n; i++) put_uint(tokens[i].type, 4);
    put_key("tokenizer.ggml.scores", 9);
    put_uint(6, 4);
    put_uint((uint64_t)n, 8);
    for (int i = 0; i < n; i++) put_uint(0, 4);
    put_key("tokenizer.ggml.merges", 9);
    put_uint(8, 4);
    put_uint(0, 8);
    while (file.len % 32) buf_add(&file, "", 1);
    tmp_write(&dir, "small.gguf", file.data, file.len);
    buf_release(&file);
    if (tokenizer_open(&t, tmp_path(&dir, "small.gguf"), &err) < 0) fail_msg("%s", err.text);
    return t;
}

static void check_small(const struct tokenizer *t, const char *text, const char *expected) {
    struct token_list ids = {0};
    struct err err = {0};
    char got[64] = "";
    if (tokenizer_encode(t, text, strlen(text), NULL, &ids, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < ids.len; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", ids.ids[i]);
    token_list_release(&ids);
    assert_string_equal(got, expected);
}

// As llama.cpp does it: the tokenizers of these models say it, but GGUF has no place for it.
static void marks_of_phi3_take_the_space_behind_them(void **state) {
    static const struct token tokens[] = {{"<s>", 3}, {"<|user|>", 3},
                                          {"a", 1},   {"\xe2\x96\x81", 1},
                                          {"\n", 1},  {"<|endoftext|>", 3}};
    struct tokenizer *t = open_small("Phi-3 Mini 4K Instruct", "gemma4", tokens, 6);
    check_small(t, "<|user|>\n a<|user|> ", "1 2 1");
    check_small(t, "<s> a<|endoftext|>\n", "0 3 2 5 4");
    tokenizer_close(t);
    t = open_small("Another", "gemma4", tokens, 6);
    check_small(t, "<|user|>\n a<|user|> ", "1 4 3 2 1 3");
    tokenizer_close(t);
}

static void line_ends_in_a_row_are_tokens_of_gemma4(void **state) {
    static const struct token tokens[] = {{"<unk>", 2}, {"a", 1},      {"\n", 1},
                                          {"\n\n", 1},  {"\n\n\n", 1}, {"\xe2\x96\x81", 1}};
    struct tokenizer *t = open_small("Gemma 4", "gemma4", tokens, 6);
    check_small(t, "a\n\na\n \n\n\na\n", "1 3 1 2 5 4 1 2");
    assert_false(tokenizer_is_special(t, 3));
    tokenizer_close(t);
}

// Phi-3's file: "<unk>" is a control token, and what fills the vocabulary up is of the unknown type.
static void one_of_several_unknown_pieces_is_unknown(void **state) {
    struct token tokens[6 + 256] = {{"<unk>", 3},  {"<s>", 3}, {"[PAD2]", 2},
                                    {"[PAD3]", 2}, {"a", 1},   {"\xe2\x96\x81", 1}};
    char bytes[256][8];
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i);
        tokens[6 + i] = (struct token){bytes[i], 6};
    }
    struct tokenizer *t = open_small("Pieces", "llama", tokens, 6 + 256);
    check_small(t, "a[PAD3]b<unk>", "5 4 3 5 104 0");
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pre_cuts_as_its_model),
        cmocka_unit_test(bytes_without_a_token_are_left_out),
        cmocka_unit_test(tokens_that_end_answers_are_special_whatever_their_type),
        cmocka_unit_test(one_of_several_unknown_pieces_is_unknown),
        cmocka_unit_test(marks_of_phi3_take_the_space_behind_them),
        cmocka_unit_test(line_ends_in_a_row_are_tokens_of_gemma4),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
