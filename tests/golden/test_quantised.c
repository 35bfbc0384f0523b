// Models of few bits against the same model in F32: files and folders here, each with the logits that its exact values
// give (tests/fixtures/quantised), and the tokenizers of GGUF files.
//
// PARLEY_TEST_PAIRS=FOLDER: instead, the pairs of quantised model and reference that FOLDER/pairs.json lists, each
// model loaded; those that Parley refuses are printed with their sentence. With PARLEY_TEST_TP these are no failure, since
// ranks cannot cut all blocks of scales. With PARLEY_TEST_RECORD=FILE the references' logits are written, as
// golden.safetensors of the fixtures here has them.
#include "base/path.h"
#include "engine/convert/gguf_writer.h"
#include "tests/golden/model_golden.h"
#include "tests/unit/tmp_dir.h"

#define FIXTURES "tests/fixtures/quantised"
enum { MAX_CASES = 64, MAX_IDS = 512, RECORDED_IDS = 24 };
// In F32, of the spread: rounding of products alone.
#define BOUND 2e-3

// Whether the model can be loaded by as many ranks as the tests have; *why says why not.
static bool loads(const char *path, struct err *why) {
    struct engine_options o;
    struct engine *e;
    engine_options_init(&o);
    o.model_dir = path;
    o.compute_dtype = "f32";
    o.tensor_parallel = test_ranks("PARLEY_TEST_TP");
    o.pipeline_parallel = test_ranks("PARLEY_TEST_PP");
    o.kv_cache_bytes = 1 << 20;
    if (engine_open_manual(&e, &o, &clock_system, why) < 0) return false;
    engine_close(e);
    return true;
}

static struct rows logits_of(const char *path, const int32_t *ids, int64_t n) {
    struct engine *e = engine_for(path, 96, 8, 0);
    struct rows rows = rows_new(e->info.n_vocab);
    struct outcome o;
    struct engine_turn turn = turn_for(e, 1, ids, n, 0, 0);
    turn.score_only = true;
    turn.on_logits = rows_keep;
    turn.on_logits_ctx = &rows;
    run_turn(e, &turn, &o);
    assert_int_equal(o.finish, FINISH_LENGTH);
    assert_int_equal(rows.n_seen, n);
    engine_close(e);
    return rows;
}

static double off(const float *got, const float *want, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(got[i]));
        worst = fmax(worst, fabs((double)got[i] - want[i]));
    }
    return worst / spread(want, n);
}

// --- the fixtures here ---

static void test_fixtures(void **state) {
    struct safetensors *golden;
    struct err err = {0};
    int n_files = 0;
    if (safetensors_open(&golden, FIXTURES "/golden.safetensors", &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < safetensors_count(golden); i++) {
        const struct tensor *want = safetensors_at(golden, i), *ids;
        char name[128], path[256];
        snprintf(name, sizeof name, "%s.ids", want->name);
        ids = safetensors_find(golden, name);
        if (!ids) continue; // it is ids itself
        snprintf(path, sizeof path, FIXTURES "/%s", want->name);
        struct rows rows = logits_of(path, ids->data, ids->shape[0]);
        assert_int_equal(want->shape[1], rows.vocab);
        double worst = off(rows.data, want->data, want->bytes / sizeof(float));
        if (getenv("PARLEY_TEST_SHOW")) print_message("%s: %.3g\n", want->name, worst);
        if (worst > BOUND && test_is_exact())
            fail_msg("%s: off by %.3g of the spread", path, worst);
        free(rows.data);
        n_files++;
    }
    assert_true(n_files >= 24);
    safetensors_close(golden);
}

// --- architectures of GGUF files ---

// Each file has the weights of a folder of ours, which are exact: see tests/fixtures/README.md.
static void test_architectures(void **state) {
    // The last column: why several ranks refuse it; NULL: they do not.
    static const char *const refs[][3] = {
        // q, k and v in one tensor, with biases
        {"chatglm", "variants/glm", "3 heads do not divide by "},
        // norms that are stored plus one, two rotations
        {"gemma3_scaled", "later/gemma3_scaled", NULL},
        // shapes by layer, experts beside a dense feed-forward
        {"gemma4_moe", "later/gemma4_moe", NULL},
        // gate and up in one tensor, norms behind sub-layers
        {"glm4", "later/glm4", NULL},
        // latent attention from two tensors, layers that are dense
        {"glm4_moe_lite", "later/glm4_moe_lite", NULL},
        // experts with biases, sinks, unrounded yarn
        {"gpt_oss", "models/gpt_oss", NULL},
        // multipliers, rows of heads in pairs
        {"granite", "later/granite", NULL},
        // a list of windows, yarn on the full layers alone
        {"olmo3_yarn", "later/olmo3_yarn", "a norm over all heads of q and k"},
    };
    int32_t ids[48];
    for (int32_t i = 0; i < 48; i++) ids[i] = 3 + i * 37 % 36;
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
        char path[256];
        struct err why = {0};
        snprintf(path, sizeof path, "tests/fixtures/gguf/%s.gguf", refs[i][0]);
        if (test_ranks("PARLEY_TEST_TP") > 1 && refs[i][2]) {
            assert_false(loads(path, &why));
            assert_non_null(strstr(why.text, refs[i][2]));
            continue;
        }
        struct rows got = logits_of(path, ids, 48);
        snprintf(path, sizeof path, "tests/fixtures/%s", refs[i][1]);
        struct rows want = logits_of(path, ids, 48);
        assert_int_equal(got.vocab, want.vocab);
        double worst = off(got.data, want.data, 48 * (size_t)want.vocab);
        if (worst > BOUND && test_is_exact())
            fail_msg("%s: off by %.3g of the spread", refs[i][0], worst);
        free(got.data);
        free(want.data);
    }
}

// --- types of 1 to 3 bits ---

// A Llama of one layer with random blocks of all these types, and the same values in F32. Of the output's and of down's
// columns two ranks have halves, of which those of the output, 128, begin within a block.
enum { IQ_WIDTH = 256, IQ_FFN = 512, IQ_VOCAB = 64 };
static const uint32_t iq_types[] = {16, 17, 18, 19, 21, 22, 29};
static const struct {
    const char *name;
    int32_t rows, cols;
    int type; // of iq_types, one further in each file; -1: F32
} iq_tensors[] = {
    {"token_embd.weight", IQ_VOCAB, IQ_WIDTH, 0},
    {"output.weight", IQ_VOCAB, IQ_WIDTH, 1},
    {"output_norm.weight", 0, IQ_WIDTH, -1},
    {"blk.0.attn_norm.weight", 0, IQ_WIDTH, -1},
    {"blk.0.ffn_norm.weight", 0, IQ_WIDTH, -1},
    {"blk.0.attn_q.weight", IQ_WIDTH, IQ_WIDTH, 2},
    {"blk.0.attn_k.weight", IQ_WIDTH, IQ_WIDTH, 2},
    {"blk.0.attn_v.weight", IQ_WIDTH, IQ_WIDTH, 3},
    {"blk.0.attn_output.weight", IQ_WIDTH, IQ_WIDTH, 4},
    {"blk.0.ffn_gate.weight", IQ_FFN, IQ_WIDTH, 5},
    {"blk.0.ffn_up.weight", IQ_FFN, IQ_WIDTH, 6},
    {"blk.0.ffn_down.weight", IQ_WIDTH, IQ_FFN, 0},
};
enum {
    N_IQ_TYPES = sizeof iq_types / sizeof *iq_types,
    N_IQ_TENSORS = sizeof iq_tensors / sizeof *iq_tensors
};
static uint32_t iq_state;

static uint8_t iq_byte(void) {
    iq_state = iq_state * 1664525u + 1013904223u;
    return (uint8_t)(iq_state >> 24);
}

// Any bytes, but a scale of all of about 2^-10, so that no layer is far larger than another.
static void iq_block(const struct block_type *t, uint8_t *b) {
    for (int i = 0; i < t->bytes; i++) b[i] = iq_byte();
    if (strcmp(t->name, "IQ1_M") == 0)
        for (int i = 0; i < 4; i++)
            b[49 + 2 * i] = (uint8_t)((b[49 + 2 * i] & 15) | (i == 3 ? 0x10 : iq_byte() & 0xf0));
    else
        b[1] = (uint8_t)((b[1] & 0x80) | 0x14);
}

static void iq_keys(struct gguf_writer *w) {
    gguf_put_string(w, "general.architecture", "llama");
    gguf_put_u32(w, "llama.block_count", 1);
    gguf_put_u32(w, "llama.context_length", 64);
    gguf_put_u32(w, "llama.embedding_length", IQ_WIDTH);
    gguf_put_u32(w, "llama.feed_forward_length", IQ_FFN);
    gguf_put_u32(w, "llama.attention.head_count", 4);
    gguf_put_u32(w, "llama.attention.head_count_kv", 4);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_put_u32(w, "llama.vocab_size", IQ_VOCAB);
}

// The tensor's types in file number `turn`, as blocks or as the numbers that they hold.
static void iq_write_tensor(struct gguf_writer *w, const struct block_type *type, int64_t n,
                            bool plain, struct err *err) {
    uint8_t block[256];
    float values[256];
    for (int64_t k = 0; k < n; k += 256) {
        for (int i = 0; i < 256; i++) values[i] = 1;
        if (type) iq_block(type, block);
        if (type) type->decode(values, block);
        int rc = plain || !type ? gguf_writer_write(w, values, sizeof values, err)
                                : gguf_writer_write(w, block, (size_t)type->bytes, err);
        if (rc < 0) fail_msg("%s", err->text);
    }
    assert_int_equal(gguf_writer_end_tensor(w, err), 0);
}

static void iq_write(const char *path, size_t turn, bool plain) {
    struct gguf_out_tensor list[N_IQ_TENSORS] = {0};
    const struct block_type *types[N_IQ_TENSORS] = {0};
    struct gguf_writer *w;
    struct err err = {0};
    assert_int_equal(gguf_writer_new(&w, path, &err), 0);
    iq_keys(w);
    for (size_t i = 0; i < N_IQ_TENSORS; i++) {
        const int rows = iq_tensors[i].rows, cols = iq_tensors[i].cols;
        if (iq_tensors[i].type >= 0)
            types[i] = block_type_find(iq_types[((size_t)iq_tensors[i].type + turn) % N_IQ_TYPES]);
        snprintf(list[i].name, sizeof list[i].name, "%s", iq_tensors[i].name);
        list[i].type = plain || !types[i] ? block_type_find(0) : types[i];
        list[i].n_dims = rows > 0 ? 2 : 1;
        list[i].shape[0] = rows > 0 ? rows : cols;
        list[i].shape[1] = rows > 0 ? cols : 0;
        list[i].bytes = (uint64_t)(rows > 0 ? rows : 1) * (uint64_t)cols /
                        (uint64_t)list[i].type->values * (uint64_t)list[i].type->bytes;
    }
    if (gguf_writer_begin(w, list, N_IQ_TENSORS, &err) < 0) fail_msg("%s", err.text);
    iq_state = (uint32_t)turn;
    for (size_t i = 0; i < N_IQ_TENSORS; i++)
        iq_write_tensor(w, types[i],
                        (iq_tensors[i].rows ? iq_tensors[i].rows : 1) * iq_tensors[i].cols, plain,
                        &err);
    assert_int_equal(gguf_writer_finish(w, &err), 0);
    gguf_writer_free(w);
}

static void test_iq_types(void **state) {
    struct tmp_dir folder;
    int32_t ids[40];
    for (int32_t i = 0; i < 40; i++) ids[i] = i * 37 % IQ_VOCAB;
    tmp_dir_open(&folder);
    for (size_t turn = 0; turn < N_IQ_TYPES; turn++) {
        iq_write(tmp_path(&folder, "iq.gguf"), turn, false);
        iq_write(tmp_path(&folder, "f32.gguf"), turn, true);
        struct rows got = logits_of(tmp_path(&folder, "iq.gguf"), ids, 40);
        struct rows want = logits_of(tmp_path(&folder, "f32.gguf"), ids, 40);
        const double worst = off(got.data, want.data, 40 * (size_t)want.vocab);
        if (getenv("PARLEY_TEST_SHOW")) print_message("iq %zu: %.3g\n", turn, worst);
        if (worst > BOUND && test_is_exact())
            fail_msg("file %zu: off by %.3g of the spread", turn, worst);
        free(got.data);
        free(want.data);
        remove(tmp_path(&folder, "iq.gguf"));
        remove(tmp_path(&folder, "f32.gguf"));
    }
    tmp_dir_close(&folder);
}

// --- tokenizers ---

// cJSON's strings cannot hold NUL: read_cases puts U+E000 in its place.
#define NUL_MARK "\xee\x80\x80"
static size_t text_of(const cJSON *one, char out[4096]) {
    size_t len = 0;
    for (const char *p = json_string(one, "text"); *p; len++) {
        bool is_nul = strncmp(p, NUL_MARK, 3) == 0;
        assert_true(len < 4096);
        out[len] = is_nul ? '\0' : *p;
        p += is_nul ? 3 : 1;
    }
    return len;
}

static cJSON *read_cases(const char *path) {
    struct buf text;
    struct err err = {0};
    if (buf_read_file(&text, path, 1 << 24, &err) < 0) fail_msg("%s", err.text);
    for (char *p = text.data; (p = strstr(p, "\\u0000"));) memcpy(p, "\\ue000", 6);
    cJSON *cases = cJSON_Parse(buf_z(&text));
    buf_release(&text);
    assert_non_null(cases);
    return cases;
}

static void check_ids(const struct tokenizer *t, const char *file, const cJSON *one) {
    struct token_list got = {0};
    struct err err = {0};
    static int32_t want[MAX_LOG];
    char text[4096];
    size_t len = text_of(one, text);
    int64_t n = json_log(one, "ids", want);
    if (tokenizer_encode(t, text, len, NULL, &got, &err) < 0)
        fail_msg("%s: '%s': %s", file, text, err.text);
    bool same =
        (int64_t)got.len == n && (n == 0 || memcmp(got.ids, want, (size_t)n * sizeof *want) == 0);
    if (!same) {
        for (size_t i = 0; i < got.len; i++) print_message("%d ", got.ids[i]);
        fail_msg("%s: other ids for '%s'", file, text);
    }
    token_list_release(&got);
}

static void check_chat(const struct tokenizer *t, const char *file, const cJSON *one) {
    struct chat_template *chat;
    struct err err = {0};
    struct buf got;
    struct chat_message messages[16];
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, json_member(one, "messages")) {
        messages[n++] =
            (struct chat_message){json_string(item, "role"), json_string(item, "content")};
    }
    if (chat_template_open(&chat, file, NULL, t, &err) < 0) fail_msg("%s: %s", file, err.text);
    buf_init(&got, 1 << 20);
    if (chat_template_render(chat, messages, n, true, false, NULL, &got, &err) < 0)
        fail_msg("%s: %s", file, err.text);
    assert_string_equal(buf_z(&got), json_string(one, "text"));
    chat_template_close(chat);
    buf_release(&got);
}

// {"FILE": [{"text": ..., "ids": [...]}, ...]}, special tokens found in the text.
static int check_tokenizer(const char *path, const cJSON *cases, const cJSON *chats) {
    struct tokenizer *t;
    struct err err = {0};
    const cJSON *one;
    int n = 0;
    if (tokenizer_open(&t, path, &err) < 0) fail_msg("%s", err.text);
    cJSON_ArrayForEach(one, cases) {
        check_ids(t, path, one);
        n++;
    }
    cJSON_ArrayForEach(one, chats) {
        check_chat(t, path, one);
    }
    tokenizer_close(t);
    return n;
}

static void test_tokenizers(void **state) {
    cJSON *files = read_cases(FIXTURES "/tokenizers.json");
    const cJSON *file;
    char path[256];
    int n = 0;
    cJSON_ArrayForEach(file, files) {
        snprintf(path, sizeof path, FIXTURES "/%s", file->string);
        n += check_tokenizer(path, json_member(file, "cases"), json_member(file, "chat"));
    }
    assert_int_equal(n, 100);
    cJSON_Delete(files);
}

// --- pairs ---

struct recorded {
    const char *name, *ids_name;
    int32_t *ids;
    int64_t n;
    struct rows rows;
};
static struct recorded records[MAX_CASES];
static int n_recorded;

static void record(const char *quant, const int32_t *ids, int64_t n, struct rows rows) {
    struct recorded *r = &records[n_recorded++];
    char *name = NULL;
    assert_true(asprintf(&name, "%s.ids", strrchr(quant, '/') ? strrchr(quant, '/') + 1 : quant) >
                0);
    r->ids_name = name;
    r->name = strndup(name, strlen(name) - 4);
    r->ids = malloc((size_t)n * sizeof *ids);
    memcpy(r->ids, ids, (size_t)n * sizeof *ids);
    r->n = n;
    r->rows = rows;
}

static void write_record(const char *path) {
    struct tensor list[2 * MAX_CASES];
    struct safetensors_writer *w;
    struct err err = {0};
    for (int i = 0; i < n_recorded; i++) {
        const struct recorded *r = &records[i];
        list[2 * i] = (struct tensor){.name = r->ids_name,
                                      .bytes = (size_t)r->n * 4,
                                      .dtype = DTYPE_I32,
                                      .n_dims = 1,
                                      .shape = {r->n}};
        list[2 * i + 1] = (struct tensor){.name = r->name,
                                          .dtype = DTYPE_F32,
                                          .n_dims = 2,
                                          .bytes = (size_t)r->n * (size_t)r->rows.vocab * 4,
                                          .shape = {r->n, r->rows.vocab}};
    }
    assert_int_equal(safetensors_create(&w, path, list, (size_t)n_recorded * 2, &err), 0);
    for (int i = 0; i < n_recorded; i++) {
        assert_int_equal(safetensors_write(w, records[i].ids, list[2 * i].bytes, &err), 0);
        assert_int_equal(safetensors_write(w, records[i].rows.data, list[2 * i + 1].bytes, &err),
                         0);
    }
    assert_int_equal(safetensors_finish(w, &err), 0);
}

static int check_pair(const char *dir, const cJSON *pair) {
    char quant[512], ref[512];
    static int32_t ids[MAX_IDS];
    const char *name = json_string(pair, "quant");
    snprintf(quant, sizeof quant, "%s/%s", dir, name);
    snprintf(ref, sizeof ref, "%s/%s", dir, json_string(pair, "ref"));
    struct err why = {0};
    if (!loads(quant, &why) || !loads(ref, &why)) {
        print_message("refused: %s\n", why.text);
        return test_ranks("PARLEY_TEST_TP") > 1 ? 0 : 1; // scales that ranks cannot cut
    }
    int64_t n = json_log(pair, "ids", ids);
    struct rows got = logits_of(quant, ids, n), want = logits_of(ref, ids, n);
    double worst = off(got.data, want.data, (size_t)n * (size_t)want.vocab);
    print_message("%s: %.3g of the spread\n", name, worst);
    free(got.data);
    const char *slash = strrchr(name, '/');
    if (getenv("PARLEY_TEST_RECORD") && path_holds(FIXTURES, slash ? slash + 1 : name, F_OK))
        record(name, ids, n < RECORDED_IDS ? n : RECORDED_IDS, want);
    else
        free(want.data);
    return worst > BOUND;
}

static void test_pairs(void **state) {
    const char *dir = getenv("PARLEY_TEST_PAIRS");
    char path[512];
    int n_failed = 0;
    snprintf(path, sizeof path, "%s/pairs.json", dir);
    cJSON *pairs = read_cases(path);
    const cJSON *pair;
    cJSON_ArrayForEach(pair, pairs) {
        if (strcmp(json_string(pair, "kind"), "logits") == 0) n_failed += check_pair(dir, pair);
        if (strcmp(json_string(pair, "kind"), "ids") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", dir, json_string(pair, "quant"));
        print_message("%s: %d texts\n", path,
                      check_tokenizer(path, json_member(pair, "cases"), json_member(pair, "chat")));
    }
    cJSON_Delete(pairs);
    if (getenv("PARLEY_TEST_RECORD")) write_record(getenv("PARLEY_TEST_RECORD"));
    assert_int_equal(n_failed, 0);
}

int main(void) {
    const struct CMUnitTest pairs[] = {cmocka_unit_test(test_pairs)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures), cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_iq_types), cmocka_unit_test(test_tokenizers)};
    if (getenv("PARLEY_TEST_PAIRS")) return cmocka_run_group_tests(pairs, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
