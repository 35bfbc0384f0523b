// GGUF files: header, tensors, and the folder that the metadata stand for. Accepted tensors can be read whole.
#include "engine/gguf/gguf_file_type.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/model/gguf_tensors.h"
#include "tests/fuzz/fuzz.h"

// The last group of the last row, which may begin within a block.
static void check_groups(const struct gguf_tensors *c, const struct tensor *t) {
    struct group_format f;
    struct group_row row;
    struct err err = {0};
    int64_t rows = 1;
    if (!gguf_tensors_groups(c, t, &f)) return;
    for (int k = 0; k < t->n_dims - 1; k++) rows *= t->shape[k];
    const int64_t cols = t->shape[t->n_dims - 1],
                  n = f.scale == GROUP_SCALE_NESTED ? GROUP_TILE_K : f.group;
    void *memory = group_row_alloc(&row, n);
    FUZZ_CHECK(memory);
    const int rc = gguf_tensors_groups_row(c, t, rows - 1, cols - n, n, &row, &err);
    FUZZ_CHECK(rc == 0 || rc == E_FORMAT);
    free(memory);
}

static void check_tensors(const char *path) {
    struct gguf_tensors *c = NULL;
    struct err err = {0};
    int rc = gguf_tensors_open(&c, path, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) return;
    for (size_t i = 0; i < gguf_tensors_count(c); i++) {
        const struct tensor *t = gguf_tensors_at(c, i);
        char *bytes = malloc(t->bytes + 1);
        size_t n = 1;
        for (int k = 0; k < t->n_dims; k++) n *= (size_t)t->shape[k];
        FUZZ_CHECK(t->bytes == n * dtype_size(t->dtype));
        FUZZ_CHECK(bytes);
        rc = gguf_tensors_read(c, t, 0, bytes, t->bytes,
                               &err); // may hold values that are no numbers
        FUZZ_CHECK(rc == 0 || rc == E_FORMAT);
        err = (struct err){0};
        FUZZ_CHECK(gguf_tensors_read(c, t, t->bytes, bytes, 1, &err) < 0);
        err = (struct err){0};
        check_groups(c, t);
        free(bytes);
    }
    gguf_tensors_close(c);
}

static void check_folder(const char *path) {
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    struct buf model;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct err err = {0};
        cJSON *root = NULL;
        int rc = gguf_folder_json(&root, path, names[i], &err);
        fuzz_check_err(rc, &err);
        FUZZ_CHECK((rc == 0) == (root != NULL));
        cJSON_Delete(root);
    }
    struct err err = {0};
    fuzz_check_err(gguf_folder_model(&model, path, &err), &err);
    buf_release(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_file("t.gguf", data, size);
    struct gguf *g = NULL;
    struct err err = {0};
    int rc = gguf_open(&g, path, true, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        FUZZ_CHECK(strstr(err.text, "t.gguf"));
        return 0;
    }
    FUZZ_CHECK(gguf_file_type(g)[0] != '\0');
    gguf_close(g);
    check_tensors(path);
    check_folder(path);
    return 0;
}
