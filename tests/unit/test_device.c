// Which device each rank of a machine gets, and what a model says of it.
#include "engine/device.h"
#include "engine/model/safetensors.h"
#include "tests/unit/in_tmp_dir.h"
#include <string.h>

static void gives(const char *device, int32_t place, int32_t n, const char *word) {
    char out[DEVICE_WORD_BYTES];
    struct err err = {0};
    assert_int_equal(device_of_rank(out, device, place, n, &err), 0);
    assert_string_equal(out, word);
}

static void refuses(const char *device, int32_t place, int32_t n, int code, const char *why) {
    char out[DEVICE_WORD_BYTES];
    struct err err = {0};
    assert_int_equal(device_of_rank(out, device, place, n, &err), code);
    assert_non_null(strstr(err.text, why));
}

static void one_rank_has_the_word_itself(void **state) {
    gives(NULL, 0, 1, "auto");
    gives("auto", 0, 1, "auto");
    gives("cuda", 0, 1, "cuda");
    gives("cuda:3", 0, 1, "cuda:3");
}

static void a_list_names_each_rank(void **state) {
    gives("cuda:0,cuda:2", 0, 2, "cuda:0");
    gives("cuda:0,cuda:2", 1, 2, "cuda:2");
    gives("cuda:0,cuda:0", 1, 2, "cuda:0");
    gives("cpu,cpu,cpu", 2, 3, "cpu");
    refuses("cpu,cpu,cpu", 0, 2, E_INVAL, "device names 3 devices, and this machine has 2 ranks");
    refuses("cpu,cpu", 0, 1, E_INVAL, "this machine has 1 rank");
}

static void ranks_share_cpus_but_not_a_gpu(void **state) {
    gives("cpu", 0, 2, "cpu");
    gives("cpu", 1, 2, "cpu");
    refuses("cuda:1000", 0, 8, E_NOTFOUND, "8 ranks need as many GPUs");
    refuses("tpu", 0, 2, E_INVAL, "none of auto, cpu");
    if (device_n_gpus() == 0) gives("auto", 1, 2, "cpu");
    if (device_n_gpus() > 1) gives("auto", 1, 2, "cuda:1");
}

// Instance i of n, each of n_ranks ranks, on a machine of n_gpus GPUs.
static void divides(const char *device, int32_t n, int32_t n_ranks, int32_t n_gpus, int32_t i,
                    const char *devices, int32_t sharing) {
    char out[DEVICE_LIST_BYTES];
    struct err err = {0};
    int32_t n_sharing = -1;
    if (device_of_instance(out, device, i, n, n_ranks, n_gpus, &n_sharing, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(out, devices);
    assert_int_equal(n_sharing, sharing);
}

static void instances_take_a_lists_devices_in_order(void **state) {
    divides("cuda:0,cuda:1", 2, 1, 2, 0, "cuda:0", 1);
    divides("cuda:0,cuda:1", 2, 1, 2, 1, "cuda:1", 1);
    divides("cuda:3,cuda:1,cuda:0,cuda:2", 2, 2, 4, 0, "cuda:3,cuda:1", 1);
    divides("cuda:3,cuda:1,cuda:0,cuda:2", 2, 2, 4, 1, "cuda:0,cuda:2", 1);
    divides("cuda:0,cpu,cuda:1", 3, 1, 2, 1, "cpu", 0);
    divides("cuda:0,cuda:1,cuda:0", 3, 1, 2, 0, "cuda:0", 2); // with the third
    divides("cuda:0,cuda:1,cuda:0", 3, 1, 2, 1, "cuda:1", 1);
    divides("cuda,cuda:1,cuda:0,cuda:1", 2, 2, 2, 1, "cuda:0,cuda:1", 2);
    divides("cuda:0,cuda:0,cuda:1,cuda:1", 2, 2, 2, 0, "cuda:0,cuda:0", 1); // both ranks of one
    divides("cuda:0,cuda:1", 3, 2, 2, 2, "cuda:0,cuda:1", 3);               // the same for all
    divides("cuda:1", 2, 1, 2, 1, "cuda:1", 2);
    divides("cpu", 2, 1, 2, 1, "cpu", 0);
    char out[DEVICE_LIST_BYTES];
    struct err err = {0};
    int32_t n;
    assert_int_equal(device_of_instance(out, "cuda:0,cuda:1,cuda:2", 0, 2, 1, 3, &n, &err),
                     E_INVAL);
    assert_string_equal(err.text, "device names 3 devices, and 2 instances of 1 rank take 2 of "
                                  "them, or 1 for all");
    assert_int_equal(device_of_instance(out, "gpu", 0, 2, 1, 3, &n, &err), E_INVAL);
}

static void instances_spread_over_the_gpus(void **state) {
    divides("auto", 2, 1, 2, 0, "cuda:0", 1);
    divides("auto", 2, 1, 2, 1, "cuda:1", 1);
    divides("auto", 3, 1, 2, 2, "cuda:0", 2);
    divides("auto", 3, 1, 2, 1, "cuda:1", 1);
    divides(NULL, 2, 2, 4, 1, "cuda:2", 1); // and the GPU behind it
    divides("auto", 3, 2, 5, 2, "cuda:0", 2);
    divides("auto", 2, 4, 2, 0, "auto", 0); // opening says that there are too few
    divides("auto", 2, 1, 0, 1, "auto", 0);
}

static int n_gpus(const char *device, int32_t n, bool used[DEVICE_MAX_GPUS]) {
    memset(used, 0, DEVICE_MAX_GPUS * sizeof *used);
    return device_gpus(device, n, used);
}

static void the_gpus_of_an_instance_are_those_of_its_ranks(void **state) {
    bool used[DEVICE_MAX_GPUS];
    assert_int_equal(n_gpus("cpu", 4, used), 0);
    assert_int_equal(n_gpus("cuda:3", 1, used), 1);
    assert_true(used[3]);
    assert_int_equal(n_gpus("cuda:1,cuda:5,cuda:1", 3, used), 2);
    assert_true(used[1] && used[5] && !used[0]);
    assert_int_equal(n_gpus("cuda", 1, used), 1);
    assert_true(used[0]);
    assert_int_equal(n_gpus("auto", 1, used), device_n_gpus() > 0);
    assert_int_equal(n_gpus(NULL, 1, used), device_n_gpus() > 0);
    assert_int_equal(n_gpus("nonsense", 1, used), 0);
    assert_int_equal(n_gpus("cuda:0,cuda:1", 3, used), 0); // a list of another length
}

static void each_word_of_a_list_is_checked(void **state) {
    struct err err = {0};
    char longest[200];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(device_check("cuda:0,cuda:1,cpu", NULL, &err), 0);
    assert_int_equal(device_check(NULL, NULL, &err), 0);
    assert_int_equal(device_check("cuda:0,gpu", NULL, &err), E_INVAL);
    assert_int_equal(device_check("cuda:0,", NULL, &err), E_INVAL);
    assert_int_equal(device_check(longest, NULL, &err), E_INVAL);
}

// Writes a folder of one layer of experts, where keys have as many rows as there are experts.
static void write_experts(enum dtype router, enum dtype keys) {
    static const char config[] =
        "{\"model_type\":\"qwen3_moe\",\"vocab_size\":8,\"hidden_size\":16,\"intermediate_size\":8,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":"
        "8,"
        "\"max_position_embeddings\":16,\"num_experts\":8,\"num_experts_per_tok\":2,"
        "\"moe_intermediate_size\":8}";
    static const char zeros[8 * 16 * 4];
    struct tensor tensors[] = {
        {.name = "model.layers.0.mlp.gate.weight", .dtype = router},
        {.name = "model.layers.0.self_attn.k_proj.weight", .dtype = keys},
        {.name = "model.layers.0.self_attn.v_proj.weight", .dtype = DTYPE_BF16},
    };
    const size_t n = sizeof tensors / sizeof *tensors;
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    for (size_t i = 0; i < n; i++) {
        tensors[i].n_dims = 2;
        tensors[i].shape[0] = 8;
        tensors[i].shape[1] = 16;
        tensors[i].bytes = 8 * 16 * dtype_size(tensors[i].dtype);
    }
    tmp_text(&dir, "config.json", config);
    unlink(tmp_path(&dir, "model.safetensors"));
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "model.safetensors"), tensors, n, &err),
                     0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(safetensors_write(w, zeros, tensors[i].bytes, &err), 0);
    assert_int_equal(safetensors_finish(w, &err), 0);
}

static struct device_options fitted(const char *path) {
    struct device_options o = {0};
    struct model_config mc;
    struct err err = {0};
    if (model_config_load(&mc, path, &err) < 0) fail_msg("%s", err.text);
    device_fit(&o, &mc, path, WEIGHTS_OWN);
    return o;
}
static bool fits_bf16(void) {
    return fitted(dir.path).bf16_matrices;
}

// A router in F32 leaves a model one of bf16; another matrix of a router's shape does not.
static void routers_are_known_by_name(void **state) {
    write_experts(DTYPE_BF16, DTYPE_BF16);
    assert_true(fits_bf16());
    write_experts(DTYPE_F32, DTYPE_BF16);
    assert_true(fits_bf16());
    assert_int_equal(fitted(dir.path).model_dtype, DTYPE_BF16); // the folder names none
    write_experts(DTYPE_BF16, DTYPE_F32);
    assert_false(fits_bf16());
    assert_int_equal(fitted(dir.path).model_dtype, DTYPE_F32);
}

// Matrices of few bits, which a checkpoint shows as F32, multiply x in 8 bits where bf16 matrices multiply x in bf16; on a
// GPU such a model is one of bf16, though its file names no dtype.
static void few_bits_count_as_bf16(void **state) {
    const struct device_options few = fitted("tests/fixtures/quantised/llama_q4_0.gguf"),
                                eight = fitted("tests/fixtures/quantised/llama_q8_0.gguf"),
                                half = fitted("tests/fixtures/quantised/llama_f16.gguf");
    assert_true(few.bf16_matrices);
    assert_false(half.bf16_matrices);
    assert_int_equal(few.model_dtype, DTYPE_BF16);
    assert_int_equal(eight.model_dtype, DTYPE_BF16);
    assert_int_equal(half.model_dtype, DTYPE_F16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_has_the_word_itself),
        cmocka_unit_test(a_list_names_each_rank),
        cmocka_unit_test(ranks_share_cpus_but_not_a_gpu),
        cmocka_unit_test(instances_take_a_lists_devices_in_order),
        cmocka_unit_test(instances_spread_over_the_gpus),
        cmocka_unit_test(the_gpus_of_an_instance_are_those_of_its_ranks),
        cmocka_unit_test(each_word_of_a_list_is_checked),
        cmocka_unit_test(routers_are_known_by_name),
        cmocka_unit_test(few_bits_count_as_bf16),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
