// What inspect says about the demo model and the fixtures, read back as JSON.
#include "base/json.h"
#include "engine/model/inspect.h"
#include "tests/unit/tmp_dir.h"

static cJSON *inspect(const char *dir) {
    struct buf b;
    struct json_writer w;
    struct err err = {0};
    buf_init(&b, 100000);
    json_writer_init(&w, &b);
    json_open(&w, NULL, '{');
    if (model_inspect(dir, &w, &err) != 0) fail_msg("%s", err.text);
    json_close(&w, '}');
    cJSON *json = json_parse(buf_z(&b), b.len, &json_limits_message, &err);
    if (!json) fail_msg("%s: %s", err.text, buf_z(&b));
    buf_release(&b);
    return json;
}

static const cJSON *at(const cJSON *json, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!item) fail_msg("no %s", key);
    return item;
}

static void describes_the_demo_model(void **state) {
    cJSON *j = inspect("configs/demo-model");
    assert_string_equal(at(j, "family")->valuestring, "llama");
    assert_string_equal(at(j, "dtype")->valuestring, "bf16");
    assert_int_equal(at(j, "n_params")->valuedouble, 14162304);
    assert_int_equal(at(j, "n_layers")->valueint, 8);
    assert_string_equal(at(j, "positions")->valuestring, "rotary");
    assert_int_equal(at(at(j, "rope"), "rot_dim")->valueint, 64);
    assert_true(cJSON_IsTrue(at(j, "tied_head")));
    assert_int_equal(cJSON_GetArraySize(at(j, "eos_ids")), 2);
    assert_true(at(at(j, "suggested_sampling"), "temperature")->valuedouble > 0.69);
    assert_null(cJSON_GetObjectItemCaseSensitive(at(j, "suggested_sampling"), "top_k"));
    assert_int_equal(at(at(j, "tensors"), "count")->valueint, 74);
    assert_int_equal(at(at(j, "tensors"), "bytes")->valuedouble, 28324608);
    assert_int_equal(at(at(at(at(j, "tensors"), "dtypes"), "bf16"), "count")->valueint, 74);
    // 57 matrices in 8 bits with a scale for each output; 17 norms as they are
    assert_string_equal(at(j, "weight_dtype")->valuestring, "bf16");
    assert_int_equal(at(j, "weight_bytes_int8")->valuedouble,
                     14155776 + 4 * (4096 + 8 * (640 + 384 + 2 * 1024 + 384)) + 2 * 17 * 384);
    assert_int_equal(at(j, "weight_bytes_fp8")->valuedouble,
                     at(j, "weight_bytes_int8")->valuedouble); // all are whole panels
    // K and V of 8 layers, 2 heads of 64, in f32
    assert_int_equal(at(at(j, "kv_bytes_per_token"), "f32")->valueint, 2 * 8 * 2 * 64 * 4);
    const cJSON *eight = cJSON_GetArrayItem(at(j, "memory"), 1);
    assert_int_equal(at(eight, "sessions")->valueint, 8);
    assert_int_equal(at(at(j, "kv_bytes_per_token"), "int8")->valueint, 2 * 8 * 2 * (64 + 4));
    assert_int_equal(at(eight, "bytes_kv_bf16")->valuedouble, 28324608 + 8 * 4096 * 4096);
    assert_string_equal(at(j, "tokenizer_file")->valuestring, "tokenizer.json");
    assert_string_equal(at(j, "chat_template_file")->valuestring, "chat_template.jinja");
    assert_int_equal(strlen(at(j, "fingerprint")->valuestring), 32);
    cJSON_Delete(j);
}

// 18 bytes for 32 columns, as the file has them: loaded, they take as much.
static void counts_matrices_of_few_bits_as_such(void **state) {
    cJSON *j = inspect("tests/fixtures/quantised/llama_q4_0.gguf");
    const cJSON *dtypes = at(at(j, "tensors"), "dtypes"),
                *few = at(dtypes, "4 bits in groups of 32");
    const double values = at(j, "n_params")->valuedouble;
    const double rest = at(at(dtypes, "f32"), "bytes")->valuedouble;
    assert_int_equal(at(few, "bytes")->valuedouble, (values - rest / 4) / 32 * 18);
    assert_int_equal(at(at(j, "tensors"), "bytes")->valuedouble,
                     at(few, "bytes")->valuedouble + rest);
    cJSON_Delete(j);
}

// What people call a file's or a folder's numbers, and beside it the dtype in which a folder's other tensors are.
static void formats_have_the_names_that_people_use(void **state) {
    static const struct {
        const char *model, *dtype, *weights;
    } cases[] = {
        {"quantised/qwen3_q4_k.gguf", "Q4_K_M", "Q4_K_M"},
        {"quantised/qwen3_iq4_xs.gguf", "IQ4_XS", "IQ4_XS"},
        {"quantised/llama_q8_0_split-00001-of-00002.gguf", "Q8_0", "Q8_0"},
        {"quantised/llama_bf16.gguf", "bf16", "bf16"},
        {"quantised/awq", "f16", "AWQ"},
        {"quantised/gptq_8bit", "f16", "GPTQ-Int8"},
        {"quantised/ct_w4a16_asym", "f16", "W4A16"},
        {"quantised/ct_mixed", "bf16", "NVFP4"}, // beside 8 bits
        {"quantised/gpt_oss_mxfp4", "bf16", "MXFP4"},
        {"models/qwen3", "bf16", "bf16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];
        snprintf(path, sizeof path, "tests/fixtures/%s", cases[i].model);
        cJSON *j = inspect(path);
        assert_string_equal(at(j, "dtype")->valuestring, cases[i].dtype);
        assert_string_equal(at(j, "weight_dtype")->valuestring, cases[i].weights);
        cJSON_Delete(j);
    }
}

static void says_what_is_not_there(void **state) {
    cJSON *j = inspect("tests/fixtures/models/qwen3");
    assert_true(cJSON_IsTrue(at(j, "qk_norm")));
    assert_true(cJSON_IsNull(at(j, "tokenizer_file")));
    assert_true(cJSON_IsNull(at(j, "chat_template_file")));
    assert_int_equal(at(cJSON_GetArrayItem(at(j, "memory"), 0), "tokens_each")->valueint, 512);
    cJSON_Delete(j);
}

// Two of three layers see 24 tokens. A block has the two, or the third and as much unused.
static void windows_bound_what_a_session_costs(void **state) {
    cJSON *j = inspect("tests/fixtures/models/qwen3_windows");
    const cJSON *longest = at(j, "longest_session"), *one = cJSON_GetArrayItem(at(j, "memory"), 0);
    const int layer = 2 * 2 * 32; // values of a position
    assert_int_equal(at(at(j, "kv_bytes_per_token"), "bf16")->valueint, 3 * layer * 2);
    assert_int_equal(at(longest, "tokens")->valueint, 512);
    const double held = at(longest, "bytes_kv_bf16")->valuedouble / 2 / layer;
    assert_true(held == 24 + 24 + 512 || held == 2 * 24 + 2 * 512);
    assert_true(at(longest, "bytes_kv_f32")->valuedouble == 4 * layer * held);
    assert_true(at(longest, "bytes_kv_int8")->valuedouble == (layer + 2 * 2 * 4) * held);
    assert_true(at(one, "bytes_kv_f32")->valuedouble ==
                at(at(j, "tensors"), "bytes")->valuedouble + 4 * layer * held);
    cJSON_Delete(j);
}

static void describes_earlier_families(void **state) {
    cJSON *j = inspect("tests/fixtures/models/gptj");
    assert_string_equal(at(j, "family")->valuestring, "gptj");
    assert_string_equal(at(j, "norm")->valuestring, "layer");
    assert_string_equal(at(j, "activation")->valuestring, "gelu_tanh");
    assert_string_equal(at(at(j, "rope"), "style")->valuestring, "interleaved");
    assert_int_equal(at(at(j, "rope"), "rot_dim")->valueint, 8);
    assert_true(cJSON_IsTrue(at(j, "head_bias")) && cJSON_IsTrue(at(j, "shared_norm")));
    cJSON_Delete(j);
    j = inspect("tests/fixtures/models/xglm");
    assert_string_equal(at(j, "positions")->valuestring, "sinusoidal");
    assert_int_equal(at(j, "position_offset")->valueint, 2);
    assert_true(at(j, "embed_scale")->valuedouble == 8);
    cJSON_Delete(j);
    j = inspect("tests/fixtures/models/bloom");
    assert_string_equal(at(j, "positions")->valuestring, "alibi");
    assert_true(cJSON_IsTrue(at(j, "embed_norm")));
    cJSON_Delete(j);
}

static void failure_writes_nothing(void **state) {
    struct buf b;
    struct json_writer w;
    struct err err;
    buf_init(&b, 1000);
    json_writer_init(&w, &b);
    assert_int_equal(model_inspect("/nonexistent", &w, &err), E_NOTFOUND);
    assert_int_equal(b.len, 0);
    buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(describes_the_demo_model),
        cmocka_unit_test(counts_matrices_of_few_bits_as_such),
        cmocka_unit_test(formats_have_the_names_that_people_use),
        cmocka_unit_test(says_what_is_not_there),
        cmocka_unit_test(windows_bound_what_a_session_costs),
        cmocka_unit_test(describes_earlier_families),
        cmocka_unit_test(failure_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
