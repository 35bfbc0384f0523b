// Folders of prompt learning that cannot be read: each error names what is wrong.
#include "engine/model/prompt.h"
#include "engine/model/safetensors.h"
#include "tests/unit/tmp_dir.h"
#include <math.h>

static const struct model_config model = {
    .n_layers = 2, .kinds[0].attention = {.n_kv_heads = 1, .head_dim = 4}, .embed_width = 6};

static void write_text(const struct tmp_dir *d, const char *name, const char *text) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void write_tensor(const struct tmp_dir *d, const char *name, enum dtype dtype, int64_t rows,
                         int64_t cols, const void *data) {
    char path[200];
    struct err err = {0};
    struct safetensors_writer *w;
    size_t bytes = (size_t)(rows * cols) * dtype_size(dtype);
    struct tensor t = {
        .name = name, .dtype = dtype, .n_dims = 2, .shape = {rows, cols}, .bytes = bytes};
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", d->path);
    if (safetensors_create(&w, path, &t, 1, &err) < 0) fail_msg("%s", err.text);
    if (safetensors_write(w, data, bytes, &err) < 0) fail_msg("%s", err.text);
    if (safetensors_finish(w, &err) < 0) fail_msg("%s", err.text);
}

static void refused(const struct tmp_dir *d, int code, const char *says) {
    struct err err = {0};
    struct prompt *p;
    int rc = prompt_load(&p, &model, d->path, &err);
    if (rc != code || !strstr(err.text, says)) fail_msg("%d '%s', not '%s'", rc, err.text, says);
    assert_null(p);
}

#define SOFT "{\"peft_type\":\"PROMPT_TUNING\",\"num_virtual_tokens\":3}"
#define PREFIX "{\"peft_type\":\"PREFIX_TUNING\",\"num_virtual_tokens\":3}"

static void test_refused(void **state) {
    struct tmp_dir d;
    float rows[3 * 16] = {0};
    tmp_dir_open(&d);
    refused(&d, E_NOTFOUND, "adapter_config.json");
    write_text(&d, "adapter_config.json", "{\"num_virtual_tokens\":3}");
    refused(&d, E_FORMAT, "'peft_type' is missing");
    write_text(&d, "adapter_config.json", "{\"peft_type\":\"LORA\"}");
    refused(&d, E_UNSUPPORTED, "'LORA'");
    write_text(&d, "adapter_config.json", "{\"peft_type\":\"P_TUNING\"}");
    refused(&d, E_FORMAT, "'num_virtual_tokens' is missing");
    write_text(&d, "adapter_config.json",
               "{\"peft_type\":\"P_TUNING\",\"num_virtual_tokens\":100000000000}");
    refused(&d, E_INVAL, "num_virtual_tokens");
    write_text(&d, "adapter_config.json", SOFT);
    refused(&d, E_NOTFOUND, "adapter_model.safetensors");
    write_tensor(&d, "weights", DTYPE_F32, 3, 6, rows);
    refused(&d, E_NOTFOUND, "'prompt_embeddings' is missing");
    write_tensor(&d, "prompt_embeddings", DTYPE_F32, 3, 5, rows);
    refused(&d, E_FORMAT, "(3, 5) of 2 dimensions; this model needs (3, 6)");
    write_tensor(&d, "prompt_embeddings", DTYPE_I32, 3, 6, rows);
    refused(&d, E_UNSUPPORTED, "i32");
    rows[2 * 6 + 4] = NAN;
    write_tensor(&d, "prompt_embeddings", DTYPE_F32, 3, 6, rows);
    refused(&d, E_INVAL, "value 4 of virtual token 2 is not finite");
    write_text(&d, "adapter_config.json", PREFIX);
    refused(&d, E_FORMAT, "this model needs (3, 16)");
    tmp_dir_close(&d);
}

static void test_identity(void **state) {
    struct tmp_dir d;
    struct err err = {0};
    struct prompt *a, *b, *c, *loaded;
    float rows[3 * 16];
    uint16_t halves[3 * 6];
    for (int i = 0; i < 3 * 16; i++) rows[i] = (float)i;
    for (int i = 0; i < 3 * 6; i++) halves[i] = f16_from_f32((float)i);
    assert_int_equal(prompt_new(&a, PROMPT_ROWS, 3, prompt_width(&model, PROMPT_ROWS), rows, &err),
                     0);
    assert_int_equal(
        prompt_new(&b, PROMPT_PREFIX, 3, prompt_width(&model, PROMPT_PREFIX), rows, &err), 0);
    assert_string_not_equal(a->digits, b->digits);
    rows[17] = 17.5f;
    assert_int_equal(prompt_new(&c, PROMPT_ROWS, 3, prompt_width(&model, PROMPT_ROWS), rows, &err),
                     0);
    assert_string_not_equal(a->digits, c->digits);
    tmp_dir_open(&d);
    write_text(&d, "adapter_config.json", SOFT);
    write_tensor(&d, "prompt_embeddings", DTYPE_F16, 3, 6, halves);
    assert_int_equal(prompt_load(&loaded, &model, d.path, &err), 0);
    assert_string_equal(loaded->digits, a->digits); // equal values in another storage format
    assert_true(prompt_allows(a, 40, PROMPT_ID_FIRST + 2));
    assert_false(prompt_allows(a, 40, PROMPT_ID_FIRST + 3));
    assert_true(prompt_allows(b, 2, PROMPT_ID_FIRST + 2));
    assert_false(prompt_allows(b, 3, PROMPT_ID_FIRST + 2));
    prompt_free(c);
    assert_int_equal(prompt_new(&c, PROMPT_ROWS, 0, prompt_width(&model, PROMPT_ROWS), rows, &err),
                     E_INVAL);
    prompt_free(a);
    prompt_free(b);
    prompt_free(loaded);
    tmp_dir_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
