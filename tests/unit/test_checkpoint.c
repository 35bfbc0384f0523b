// One file or shards by an index: tensors are found under their names, and a wrong index is
// refused.
#include "engine/model/checkpoint.h"
#include "tests/unit/in_tmp_dir.h"

static void write_shard(const char *name, const char *tensor, float value) {
    const struct tensor t = {.name = tensor, .dtype = DTYPE_F32, .n_dims = 1, .shape = {1}};
    struct safetensors_writer *w = NULL;
    struct err err;
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, name), &t, 1, &err), 0);
    assert_int_equal(safetensors_write(w, &value, sizeof value, &err), 0);
    assert_int_equal(safetensors_finish(w, &err), 0);
}

static int open_index(const char *text, struct checkpoint **c, struct err *err) {
    tmp_text(&dir, "model.safetensors.index.json", text);
    memset(err, 0, sizeof *err);
    *c = NULL;
    return checkpoint_open(c, dir.path, err);
}

static void opens_the_sharded_demo_model(void **state) {
    struct checkpoint *c = NULL;
    struct err err = {0};
    assert_int_equal(checkpoint_open(&c, "configs/demo-model", &err), 0);
    assert_int_equal(checkpoint_count(c), 2 + 8 * 9);
    const struct tensor *first = checkpoint_find(c, "model.layers.0.mlp.up_proj.weight");
    const struct tensor *last = checkpoint_find(c, "model.norm.weight");
    assert_non_null(first);
    assert_non_null(last);
    uint16_t row[384];
    assert_int_equal(checkpoint_read(c, last, 0, row, sizeof row, &err), 0);
    assert_memory_equal(row, last->data, sizeof row);
    for (size_t i = 0; i < checkpoint_count(c); i++)
        assert_int_equal(checkpoint_index(c, checkpoint_at(c, i)), i);
    checkpoint_forget(c, first);
    assert_int_equal(checkpoint_check_unchanged(c, &err), 0);
    checkpoint_close(c);
}

static void prefixes_may_be_there_or_not(void **state) {
    struct checkpoint *c = NULL;
    struct err err = {0};
    write_shard("model.safetensors", "norm.weight", 1);
    assert_int_equal(checkpoint_open(&c, dir.path, &err), 0);
    assert_non_null(checkpoint_find(c, "norm.weight"));
    assert_ptr_equal(checkpoint_find(c, "model.norm.weight"), checkpoint_find(c, "norm.weight"));
    assert_ptr_equal(checkpoint_find(c, "transformer.norm.weight"),
                     checkpoint_find(c, "norm.weight"));
    assert_ptr_equal(checkpoint_find(c, "gpt_neox.norm.weight"), checkpoint_find(c, "norm.weight"));
    assert_null(checkpoint_find(c, "norm.bias"));
    checkpoint_close(c);
    write_shard("model.safetensors", "transformer.norm.weight", 1);
    assert_int_equal(checkpoint_open(&c, dir.path, &err), 0);
    assert_non_null(checkpoint_find(c, "norm.weight"));
    checkpoint_close(c);
    assert_int_equal(unlink(tmp_path(&dir, "model.safetensors")), 0);
}

static void refuses_a_hostile_index(void **state) {
    static const struct {
        const char *text;
        int code;
        const char *names;
    } cases[] = {
        {"", E_FORMAT, "index.json"},
        {"{}", E_FORMAT, "weight_map"},
        {"{\"weight_map\":[]}", E_FORMAT, "weight_map"},
        {"{\"weight_map\":{}}", E_FORMAT, "empty"},
        {"{\"weight_map\":{\"a\":7}}", E_FORMAT, "'a'"},
        {"{\"weight_map\":{\"a\":\"\"}}", E_FORMAT, "'a'"},
        {"{\"weight_map\":{\"a\":\"../../etc/passwd\"}}", E_FORMAT, "../../etc/passwd"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", E_FORMAT, "/etc/passwd"},
        {"{\"weight_map\":{\"a\":\"..\"}}", E_FORMAT, "'..'"},
        {"{\"weight_map\":{\"a\":\"link.safetensors\"}}", E_DENIED, "link.safetensors"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"three.safetensors\"}}", E_NOTFOUND,
         "three.safetensors"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}", E_NOTFOUND,
         "'c'"},
        {"{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}", E_NOTFOUND,
         "'a'"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\","
         "\"c\":\"same.safetensors\"}}",
         E_NOTFOUND, "'c'"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"same.safetensors\"}}", E_NOTFOUND,
         "'b'"},
        {"{\"weight_map\":{\"a\":\"text.safetensors\"}}", E_LIMIT, "text.safetensors"},
    };
    write_shard("one.safetensors", "a", 1);
    write_shard("two.safetensors", "b", 2);
    write_shard("same.safetensors", "a", 3);
    tmp_text(&dir, "text.safetensors", "this is not a checkpoint at all");
    assert_int_equal(symlink("/etc/passwd", tmp_path(&dir, "link.safetensors")), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *c;
        struct err err;
        int rc = open_index(cases[i].text, &c, &err);
        if (rc != cases[i].code || err.code != rc || !strstr(err.text, cases[i].names))
            fail_msg("%s: code %d, text '%s'", cases[i].text, rc, err.text);
        assert_null(c);
    }
}

static void opens_good_shards(void **state) {
    struct checkpoint *c;
    struct err err;
    float v;
    assert_int_equal(symlink("two.safetensors", tmp_path(&dir, "inner.safetensors")), 0);
    assert_int_equal(
        open_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"inner.safetensors\"}}", &c,
                   &err),
        0);
    assert_int_equal(checkpoint_read(c, checkpoint_find(c, "b"), 0, &v, sizeof v, &err), 0);
    assert_true(v == 2);
    checkpoint_close(c);
}

static void one_tensor_in_two_shards_is_refused(void **state) {
    const struct tensor t[] = {{.name = "a", .dtype = DTYPE_U8}, {.name = "c", .dtype = DTYPE_U8}};
    struct safetensors_writer *w = NULL;
    struct checkpoint *c;
    struct err err;
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "both.safetensors"), t, 2, &err), 0);
    assert_int_equal(safetensors_write(w, "xy", 2, &err), 0);
    assert_int_equal(safetensors_finish(w, &err), 0);
    assert_int_equal(
        open_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"both.safetensors\"}}", &c,
                   &err),
        E_FORMAT);
    assert_non_null(strstr(err.text, "'a' is in two shards"));
}

// Hugging Face's download cache: REPO/snapshots/REVISION/model-... -> ../../blobs/HASH
static void links_of_the_hub_cache_are_followed(void **state) {
    char snapshot[600], link[700];
    struct checkpoint *c;
    struct err err = {0};
    assert_int_equal(mkdir(tmp_path(&dir, "blobs"), 0700), 0);
    assert_int_equal(mkdir(tmp_path(&dir, "snapshots"), 0700), 0);
    snprintf(snapshot, sizeof snapshot, "%s/snapshots/r1", dir.path);
    assert_int_equal(mkdir(snapshot, 0700), 0);
    write_shard("blobs/0123", "a", 5);
    snprintf(link, sizeof link, "%s/model-1.safetensors", snapshot);
    assert_int_equal(symlink("../../blobs/0123", link), 0);
    tmp_text(&dir, "snapshots/r1/model.safetensors.index.json",
             "{\"weight_map\":{\"a\":\"model-1.safetensors\"}}");
    int rc = checkpoint_open(&c, snapshot, &err);
    if (rc < 0) fail_msg("%s", err.text);
    checkpoint_close(c);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("../../one.safetensors", link), 0); // elsewhere in the cache: no
    assert_int_equal(checkpoint_open(&c, snapshot, &err), E_DENIED);
    unlink(link);
    unlink(tmp_path(&dir, "snapshots/r1/model.safetensors.index.json"));
    rmdir(snapshot);
    unlink(tmp_path(&dir, "blobs/0123"));
}

static void folders_without_weights_say_what_to_do(void **state) {
    struct checkpoint *c;
    struct err err;
    assert_int_equal(unlink(tmp_path(&dir, "model.safetensors.index.json")), 0);
    assert_int_equal(checkpoint_open(&c, dir.path, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "model.safetensors"));
    tmp_text(&dir, "pytorch_model.bin", "x");
    assert_int_equal(checkpoint_open(&c, dir.path, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "convert"));
    assert_int_equal(checkpoint_open(&c, "/nonexistent", &err), E_NOTFOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_the_sharded_demo_model),
        cmocka_unit_test(prefixes_may_be_there_or_not),
        cmocka_unit_test(refuses_a_hostile_index),
        cmocka_unit_test(opens_good_shards),
        cmocka_unit_test(one_tensor_in_two_shards_is_refused),
        cmocka_unit_test(links_of_the_hub_cache_are_followed),
        cmocka_unit_test(folders_without_weights_say_what_to_do),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
