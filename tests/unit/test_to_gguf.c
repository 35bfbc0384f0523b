// Writing GGUF files: values of the types by what the reader makes of them, names of `pre`, models read back, refusals.
#include "base/dtype.h"
#include "base/json.h"
#include "engine/convert/block_encode.h"
#include "engine/convert/to_gguf.h"
#include "engine/engine_internal.h"
#include "engine/gguf/gguf.h"
#include "engine/gguf/gguf_pre.h"
#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"
#include "engine/model/synth.h"
#include "engine/text/tokenizer.h"
#include "tests/unit/in_tmp_dir.h"
#include <math.h>
#include <sys/stat.h>

// --- blocks ---

enum { N = 64 };

static double off_by(uint32_t id, const float *x, float *back) {
    const struct block_type *type = block_type_find(id);
    uint8_t blocks[N * 4];
    double sum = 0;
    assert_int_equal(block_encode_row(type, x, N, blocks), 0);
    for (int k = 0; k < N; k += type->values)
        type->decode(back + k, blocks + k / type->values * type->bytes);
    for (int k = 0; k < N; k++) sum += (back[k] - x[k]) * (back[k] - x[k]);
    return sqrt(sum / N);
}

static void test_blocks(void **state) {
    float x[N], back[N];
    for (int k = 0; k < N; k++) x[k] = sinf((float)k * 1.7f) * (k < 32 ? 1.0f : 0.01f);
    assert_true(off_by(BLOCK_F32, x, back) == 0);
    assert_true(off_by(BLOCK_BF16, x, back) < 2e-3);
    assert_true(off_by(BLOCK_F16, x, back) < 2e-4);
    assert_true(off_by(BLOCK_Q8_0, x, back) < 1.0 / 127 / 2);
    // Values spread evenly over a step are off by the step over the root of 12. Half of the values are a hundredth.
    assert_true(off_by(BLOCK_Q4_0, x, back) < 1.0 / 8 / sqrt(12) / sqrt(2) * 1.05);
    for (int k = 32; k < N; k++)
        assert_true(fabsf(back[k] - x[k]) < 0.01f / 7); // a scale of its own
}

// Multiples of a scale that F16 has come back as they are.
static void test_exact_blocks(void **state) {
    float x[N], back[N];
    for (int k = 0; k < N; k++) x[k] = (float)(k % 16 - 8) * 0.25f;
    assert_true(off_by(BLOCK_Q4_0, x, back) == 0);
    for (int k = 0; k < N; k++) x[k] = -x[k]; // the largest magnitude is positive
    assert_true(off_by(BLOCK_Q4_0, x, back) == 0);
    for (int k = 0; k < N; k++) x[k] = (float)(k % 32 * 4 - 127) * 0.5f;
    assert_true(off_by(BLOCK_Q8_0, x, back) == 0);
    memset(x, 0, sizeof x);
    assert_true(off_by(BLOCK_Q4_0, x, back) == 0 && off_by(BLOCK_Q8_0, x, back) == 0);
    for (int k = 0; k < N; k++) x[k] = 1e-30f;
    assert_true(off_by(BLOCK_Q4_0, x, back) < 1e-29 && off_by(BLOCK_Q8_0, x, back) < 1e-29);
}

static void test_values_out_of_range(void **state) {
    static const uint32_t ids[] = {BLOCK_F16, BLOCK_Q8_0, BLOCK_Q4_0};
    float x[N] = {0};
    uint8_t out[N * 4];
    x[5] = 1e8f;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(block_encode_row(block_type_find(ids[i]), x, N, out), E_INVAL);
    assert_int_equal(block_encode_row(block_type_find(BLOCK_BF16), x, N, out), 0);
    assert_int_equal(block_encode_row(block_type_find(12), x, N, out), E_UNSUPPORTED); // Q4_K
}

// --- how text is cut ---

static void test_pre_names(void **state) {
    static const struct {
        const char *json, *pre; // NULL: no name
        bool ignore_merges;
    } cases[] = {
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "gpt-2", false},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":"
         "true},"
         "{\"type\":\"ByteLevel\"}]}",
         "smollm", false},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\"},{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+\"},"
         "\"behavior\":\"Isolated\"},{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\\\r\\\\n\\\\p{L}"
         "\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| "
         "?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
         "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_"
         "regex\":"
         "false}]}",
         "deepseek-v3", false}, // letters are spelled otherwise than in the table
        {"{\"type\":\"ByteLevel\"}", NULL, true},
        {"{\"type\":\"Whitespace\"}", NULL, false},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Isolated\"}", NULL,
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        const char *pre = NULL;
        cJSON *json = cJSON_Parse(cases[i].json);
        assert_non_null(json);
        int rc = gguf_pre_of(json, cases[i].ignore_merges, &pre, &err);
        assert_int_equal(rc, cases[i].pre ? 0 : E_UNSUPPORTED);
        if (cases[i].pre) assert_string_equal(pre, cases[i].pre);
        cJSON_Delete(json);
    }
}

// --- files ---

static int write_gguf(const char *model, const char *out, enum gguf_weights weights,
                      struct err *err) {
    struct to_gguf_result result;
    const struct to_gguf_options o = {.model_dir = model, .out = out, .weights = weights};
    return to_gguf_write(&o, &result, err);
}

// Of values that BF16 does not hold already.
#define BF16_BOUND 3e-3

static double value_at(const char *values, size_t k, enum dtype t) {
    uint16_t half;
    float full;
    memcpy(&half, values + k * dtype_size(t), sizeof half);
    if (t == DTYPE_F16) return (double)f16_to_f32(half);
    if (t == DTYPE_BF16) return (double)bf16_to_f32(half);
    assert_int_equal(t, DTYPE_F32);
    memcpy(&full, values + k * sizeof full, sizeof full);
    return (double)full;
}

// Every tensor of the folder has its values in the file, within the rounding of the file's type.
static void check_values(const char *model, const char *file, double bound) {
    struct checkpoint *a = NULL, *b = NULL;
    struct err err = {0};
    if (checkpoint_open(&a, model, &err) < 0 || checkpoint_open(&b, file, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < checkpoint_count(b); i++) {
        const struct tensor *y = checkpoint_at(b, i), *x = checkpoint_find(a, y->name);
        if (!x) fail_msg("%s: %s is not of the folder", model, y->name);
        const size_t n = x->bytes / dtype_size(x->dtype);
        assert_int_equal(n, y->bytes / dtype_size(y->dtype));
        char *xs = malloc(x->bytes), *ys = malloc(y->bytes);
        double sum = 0, all = 0;
        assert_int_equal(checkpoint_read(a, x, 0, xs, x->bytes, &err), 0);
        assert_int_equal(checkpoint_read(b, y, 0, ys, y->bytes, &err), 0);
        for (size_t k = 0; k < n; k++) {
            const double p = value_at(xs, k, x->dtype), q = value_at(ys, k, y->dtype);
            sum += (p - q) * (p - q);
            all += p * p;
        }
        const bool exact = bound == BF16_BOUND && x->dtype == DTYPE_BF16;
        if (!(sqrt(sum) <= (exact ? 0 : bound * sqrt(all)) + 1e-12))
            fail_msg("%s: %s is off by %.3g", model, y->name, sqrt(sum / all));
        free(xs);
        free(ys);
    }
    checkpoint_close(a);
    checkpoint_close(b);
}

// Paired rows, experts, norms plus one, biases, two rotations: each architecture that fixtures have.
static void test_models(void **state) {
    static const char *const models[] = {
        "models/llama",           "models/mistral",      "models/mixtral",
        "models/qwen2",           "models/qwen2_moe",    "models/qwen3",
        "models/qwen3_moe",       "models/glm4_moe",     "later/gemma2",
        "later/gemma3_scaled",    "later/granite",       "later/glm4",
        "later/cohere2",          "later/smollm3",       "later/phi3_longrope",
        "later/hunyuan_v1_dense", "later/glm4_moe_lite", "variants/glm",
        "variants/gemma",         "variants/cohere"};
    static const struct {
        enum gguf_weights weights;
        double bound;
    } types[] = {{GGUF_BF16, BF16_BOUND}, {GGUF_F16, 1e-3}, {GGUF_Q8_0, 0.01}, {GGUF_Q4_0, 0.12}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            struct err err = {0};
            char from[256], out[512];
            snprintf(from, sizeof from, "tests/fixtures/%s", models[i]);
            snprintf(out, sizeof out, "%s/m.gguf", dir.path);
            if (write_gguf(from, out, types[k].weights, &err) < 0) fail_msg("%s", err.text);
            check_values(from, out, types[k].bound);
            unlink(out);
        }
}

// gpt-oss's experts alternate gate and up, turned round or in blocks; a file has each matrix for itself.
static void check_expert_values(const char *model, const char *file) {
    enum { FIRST_EXPERTS = 3 };
    static const struct {
        const char *one, *all;
        int first, step;
    } of[] = {{"gate_proj", "gate_up_proj", 0, 2},
              {"up_proj", "gate_up_proj", 1, 2},
              {"down_proj", "down_proj", 0, 1}};
    struct checkpoint *a = NULL, *b = NULL;
    struct err err = {0};
    char name[128];
    if (checkpoint_open(&a, model, &err) < 0 || checkpoint_open(&b, file, &err) < 0)
        fail_msg("%s", err.text);
    for (int n = 0; n < FIRST_EXPERTS * 3; n++) {
        const int e = n / 3, i = n % 3;
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%s", of[i].all);
        const struct tensor *x = checkpoint_find(a, name);
        const bool turned = x != NULL;
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%s.weight", of[i].all);
        if (!x) x = checkpoint_find(a, name);
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%d.%s.weight", e, of[i].one);
        const struct tensor *y = checkpoint_find(b, name);
        assert_non_null(x);
        assert_non_null(y);
        char *xs = malloc(x->bytes), *ys = malloc(y->bytes);
        assert_int_equal(checkpoint_read(a, x, 0, xs, x->bytes, &err), 0);
        assert_int_equal(checkpoint_read(b, y, 0, ys, y->bytes, &err), 0);
        const int64_t rows = y->shape[0], cols = y->shape[1], wide = rows * of[i].step;
        assert_int_equal(x->shape[turned ? 2 : 1], wide);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                const int64_t row = r * of[i].step + of[i].first;
                const int64_t at = e * wide * cols + (turned ? c * wide + row : row * cols + c);
                if (value_at(ys, (size_t)(r * cols + c), y->dtype) !=
                    value_at(xs, (size_t)at, x->dtype))
                    fail_msg("%s: another value in row %d, column %d", name, (int)r, (int)c);
            }
        free(xs);
        free(ys);
    }
    snprintf(name, sizeof name, "model.layers.1.mlp.experts.gate_up_proj_bias");
    const struct tensor *x = checkpoint_find(a, name);
    snprintf(name, sizeof name, "model.layers.1.mlp.experts.up_proj_bias");
    const struct tensor *y = checkpoint_find(b, name);
    assert_true(x && y && x->bytes <= 65536 && y->bytes <= 65536);
    static char xs[65536], ys[65536];
    assert_int_equal(checkpoint_read(a, x, 0, xs, x->bytes, &err), 0);
    assert_int_equal(checkpoint_read(b, y, 0, ys, y->bytes, &err), 0);
    for (size_t k = 0; k < (size_t)(y->shape[0] * y->shape[1]); k++)
        assert_true(value_at(ys, k, y->dtype) == value_at(xs, 2 * k + 1, x->dtype));
    checkpoint_close(a);
    checkpoint_close(b);
}

static void test_gpt_oss(void **state) {
    static const char *const models[] = {"models/gpt_oss", "quantised/gpt_oss_mxfp4"};
    for (size_t i = 0; i < 2; i++) {
        struct err err = {0};
        struct gguf *g = NULL;
        char from[256], out[512];
        snprintf(from, sizeof from, "tests/fixtures/%s", models[i]);
        snprintf(out, sizeof out, "%s/oss.gguf", dir.path);
        if (write_gguf(from, out, GGUF_BF16, &err) < 0) fail_msg("%s", err.text);
        check_expert_values(from, out);
        assert_int_equal(gguf_open(&g, out, true, &err), 0);
        assert_string_equal(gguf_find(g, "blk.0.ffn_up_exps.weight")->type->name,
                            i == 0 ? "BF16" : "MXFP4"); // blocks stay blocks
        gguf_close(g);
        unlink(out);
    }
}

static void same_text(const cJSON *m, const char *key, const char *want) {
    const char *got = json_string(m, key);
    if (!got || strcmp(got, want) != 0) fail_msg("%s is '%s', not '%s'", key, got ? got : "", want);
}

// Routers are F32 in every file. A file with all other matrices in bf16 is a model in bf16 nevertheless, which a
// processor with products of bf16 computes in them.
static void test_bf16_experts(void **state) {
    static const char *const models[] = {"models/qwen3_moe", "models/qwen2_moe", "models/glm4_moe"};
    struct backend *be = NULL;
    struct err err = {0};
    const bool multiplies = backend_cpu_open_for(&be, DTYPE_BF16, 1, "auto", &err) == 0;
    if (multiplies) be->ops->close(be);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct engine_options o;
        struct engine *e = NULL;
        char from[256], out[512];
        snprintf(from, sizeof from, "tests/fixtures/%s", models[i]);
        snprintf(out, sizeof out, "%s/experts.gguf", dir.path);
        if (write_gguf(from, out, GGUF_BF16, &err) < 0) fail_msg("%s", err.text);
        engine_options_init(&o);
        o.model_dir = out;
        o.device = "cpu";
        o.compute_dtype = "auto";
        if (engine_open_manual(&e, &o, &clock_system, &err) < 0) fail_msg("%s", err.text);
        assert_string_equal(engine_info(e)->weight_dtype, "bf16");
        assert_true(multiplies == (strstr(engine_info(e)->backend, "bf16") != NULL));
        engine_close(e);
        unlink(out);
    }
}

static void test_metadata(void **state) {
    struct err err = {0};
    struct gguf *g = NULL;
    char out[512];
    snprintf(out, sizeof out, "%s/demo.gguf", dir.path);
    if (write_gguf("configs/demo-model", out, GGUF_Q4_0, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(gguf_open(&g, out, true, &err), 0);
    const cJSON *m = gguf_metadata(g);
    same_text(m, "general.architecture", "llama");
    same_text(m, "general.name", "demo-model");
    same_text(m, "tokenizer.ggml.model", "gpt2");
    same_text(m, "tokenizer.ggml.pre", "qwen2");
    assert_int_equal(json_member(m, "general.file_type")->valueint, 2);
    assert_int_equal(json_member(m, "llama.attention.head_count_kv")->valueint, 2);
    assert_int_equal(json_member(m, "tokenizer.ggml.eos_token_id")->valueint, 2);
    assert_true(cJSON_IsFalse(json_member(m, "tokenizer.ggml.add_bos_token")));
    assert_int_equal(cJSON_GetArraySize(json_member(m, "tokenizer.ggml.tokens")), 4096);
    assert_int_equal(cJSON_GetArraySize(json_member(m, "tokenizer.ggml.token_type")), 4096);
    assert_non_null(strstr(json_string(m, "tokenizer.chat_template"), "<|im_start|>"));
    assert_string_equal(gguf_find(g, "blk.0.ffn_down.weight")->type->name, "Q4_0");
    assert_string_equal(gguf_find(g, "token_embd.weight")->type->name, "Q8_0");
    assert_string_equal(gguf_find(g, "output_norm.weight")->type->name, "F32");
    gguf_close(g);
    unlink(out);
}

// Nothing is left of a file that is refused.
static void refused(const char *model, const char *part, int code) {
    struct err err = {0};
    char out[512];
    struct stat st;
    snprintf(out, sizeof out, "%s/no.gguf", dir.path);
    assert_int_equal(write_gguf(model, out, GGUF_Q8_0, &err), code);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
    assert_int_equal(stat(out, &st), -1);
    snprintf(out, sizeof out, "%s/no.partial.gguf", dir.path);
    assert_int_equal(stat(out, &st), -1);
}

static void test_refusals(void **state) {
    struct err err = {0};
    char out[512];
    refused("tests/fixtures/models/gpt2", "'gpt2' are not written", E_UNSUPPORTED);
    refused("tests/fixtures/models/qwen3_windows", "window of 24 tokens", E_UNSUPPORTED);
    refused("tests/fixtures/later/olmo3_yarn", "windowed layers turn by rope_theta", E_UNSUPPORTED);
    refused("tests/fixtures/quantised/ct_int8", "quantization_config already", E_UNSUPPORTED);
    refused("tests/fixtures/none", "tests/fixtures/none", E_NOTFOUND);
    snprintf(out, sizeof out, "%s/have.gguf", dir.path);
    tmp_write(&dir, "have.gguf", "mine", 4);
    assert_int_equal(write_gguf("tests/fixtures/models/llama", out, GGUF_Q8_0, &err), E_EXISTS);
    unlink(out);
    snprintf(out, sizeof out, "%s/have.partial.gguf", dir.path);
    tmp_write(&dir, "have.partial.gguf", "left", 4);
    snprintf(out, sizeof out, "%s/have.gguf", dir.path);
    assert_int_equal(write_gguf("tests/fixtures/models/llama", out, GGUF_Q8_0, &err), E_EXISTS);
    assert_int_equal(write_gguf("tests/fixtures/models/llama", "/tmp/x.bin", GGUF_Q8_0, &err),
                     E_INVAL);
}

// llama.cpp loads the bias of attention's output for some architectures alone and refuses files with others. A
// config.json without rotary parameters means its class's, which are not the same for all.
static void test_variants(void **state) {
    static const struct {
        const char *base;
        bool biased, no_theta;
        const char *says; // NULL: it is written
    } rows[] = {
        {"models/llama", true, false, NULL},
        {"models/qwen3", true, false, "loads no 'attn_output.bias' in the architecture 'qwen3'"},
        {"models/qwen3_moe", true, false, "'model.layers.0.self_attn.o_proj.bias' has no place"},
        {"later/smollm3", false, true, NULL},
        {"models/llama", false, true, NULL},
        {"models/mixtral", false, true, NULL},
        {"models/gpt_oss", false, true, NULL},
        {"later/gemma3_scaled", false, true, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        char config[512], folder[256], out[512];
        snprintf(config, sizeof config, "tests/fixtures/%s/config.json", rows[i].base);
        cJSON *json = json_parse_file(config, &json_limits_file, &err);
        assert_non_null(json);
        if (rows[i].biased) {
            cJSON_DeleteItemFromObject(json, "attention_bias");
            cJSON_AddTrueToObject(json, "attention_bias");
        }
        if (rows[i].no_theta) {
            cJSON_DeleteItemFromObject(json, "rope_theta");
            cJSON_DeleteItemFromObject(json, "rope_parameters");
        }
        char *text = cJSON_PrintUnformatted(json);
        cJSON_Delete(json);
        tmp_write(&dir, "variant.json", text, strlen(text));
        free(text);
        snprintf(config, sizeof config, "%s/variant.json", dir.path);
        snprintf(folder, sizeof folder, "%s/variant", dir.path);
        snprintf(out, sizeof out, "%s/variant.gguf", dir.path);
        if (synth_write(&(struct synth_options){.config_path = config, .out_dir = folder}, &err) <
            0)
            fail_msg("%s", err.text);
        if (rows[i].says) {
            refused(folder, rows[i].says, E_UNSUPPORTED);
        } else {
            if (write_gguf(folder, out, GGUF_BF16, &err) < 0) fail_msg("%s", err.text);
            unlink(out);
        }
        static const char *const files[] = {"config.json", "generation_config.json",
                                            "model.safetensors"};
        for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
            snprintf(out, sizeof out, "%s/%s", folder, files[k]);
            unlink(out);
        }
        rmdir(folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_exact_blocks),
        cmocka_unit_test(test_values_out_of_range),
        cmocka_unit_test(test_pre_names),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_bf16_experts),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_variants),
    };
    return cmocka_run_group_tests_name("to_gguf", tests, setup, teardown);
}
