// GGUF files: what is in a header is found, and hostile ones are refused with the fault named, in bounded memory.
#include "base/json.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/model/gguf_tensors.h"
#include "tests/unit/in_tmp_dir.h"

// --- writing one ---

struct file {
    unsigned char bytes[1 << 20];
    size_t n;
};
static struct file file;

static void put(const void *bytes, size_t n) {
    assert_true(file.n + n <= sizeof file.bytes);
    memcpy(file.bytes + file.n, bytes, n);
    file.n += n;
}
static void put_uint(uint64_t v, int n) {
    for (int i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)(v >> (8 * i));
        put(&byte, 1);
    }
}
static void put_text(const char *s) {
    put_uint(strlen(s), 8);
    put(s, strlen(s));
}
static void begin(uint64_t n_tensors, uint64_t n_keys) {
    file.n = 0;
    put("GGUF", 4);
    put_uint(3, 4);
    put_uint(n_tensors, 8);
    put_uint(n_keys, 8);
}
static void put_key_text(const char *key, const char *value) {
    put_text(key);
    put_uint(8, 4);
    put_text(value);
}
static void put_key_u32(const char *key, uint32_t value) {
    put_text(key);
    put_uint(4, 4);
    put_uint(value, 4);
}
static void put_tensor(const char *name, uint64_t cols, uint64_t rows, uint32_t type,
                       uint64_t offset) {
    put_text(name);
    put_uint(2, 4);
    put_uint(cols, 8);
    put_uint(rows, 8);
    put_uint(type, 4);
    put_uint(offset, 8);
}
static void put_data(size_t n) {
    while (file.n % 32) put("", 1);
    for (size_t i = 0; i < n; i++) put_uint(i, 1);
}
static const char *written(const char *name) {
    tmp_write(&dir, name, file.bytes, file.n);
    return tmp_path(&dir, name);
}

// --- what is there ---

static void a_header_is_read(void **state) {
    struct gguf *g = NULL;
    struct err err = {0};
    begin(2, 4);
    put_key_text("general.architecture", "llama");
    put_key_u32("llama.block_count", 7);
    put_text("small");
    put_uint(9, 4); // an array
    put_uint(5, 4); // of i32
    put_uint(2, 8);
    put_uint(UINT32_MAX, 4);
    put_uint(3, 4);
    put_text("large");
    put_uint(10, 4); // u64
    put_uint(UINT64_MAX, 8);
    put_tensor("b", 32, 2, 2, 0); // Q4_0
    put_tensor("a", 4, 3, 0, 64); // F32
    put_data(64 + 48);
    if (gguf_open(&g, written("t.gguf"), true, &err) < 0) fail_msg("%s", err.text);
    const cJSON *m = gguf_metadata(g);
    assert_string_equal(json_string(m, "general.architecture"), "llama");
    assert_int_equal(json_member(m, "llama.block_count")->valueint, 7);
    assert_int_equal(json_member(m, "small")->child->valueint, -1);
    assert_string_equal(json_string(m, "large"), "18446744073709551615");
    assert_int_equal(gguf_count(g), 2);
    const struct gguf_tensor *b = gguf_find(g, "b");
    assert_non_null(b);
    assert_int_equal(b->bytes, 36);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 32);
    unsigned char byte;
    assert_int_equal(gguf_read(g, b, 35, &byte, 1, &err), 0);
    assert_int_equal(byte, 35);
    assert_int_equal(gguf_read(g, b, 36, &byte, 1, &err), E_INTERNAL);
    err = (struct err){0};
    assert_int_equal(gguf_check_unchanged(g, &err), 0);
    file.n--;
    written("t.gguf");
    assert_int_equal(gguf_check_unchanged(g, &err), E_CORRUPT);
    gguf_close(g);
}

// --- hostile headers ---

static void nothing(void) {
    file.n = 0;
}
static void another_file(void) {
    begin(0, 0);
    file.bytes[0] = 'X';
}
static void version_1(void) {
    begin(0, 0);
    file.bytes[4] = 1;
}
static void big_endian(void) {
    begin(0, 0);
    file.bytes[4] = 0;
    file.bytes[7] = 3;
}
static void many_tensors(void) {
    begin(UINT64_MAX, 0);
}
static void a_million_tensors_and_none(void) {
    begin(1000000, 0);
}
static void many_keys(void) {
    begin(0, UINT64_MAX);
}
static void a_long_key(void) {
    begin(0, 1);
    put_uint(UINT64_C(1) << 40, 8);
}
static void metadata_of_4_gb(void) {
    begin(0, 1);
    put_text("k");
    put_uint(8, 4);
    put_uint(UINT64_C(1) << 32, 8);
}
static void an_endless_array(void) {
    begin(0, 1);
    put_text("k");
    put_uint(9, 4);
    put_uint(0, 4);
    put_uint(UINT64_MAX, 8);
}
static void an_array_that_is_not_there(void) {
    begin(0, 1);
    put_text("k");
    put_uint(9, 4);
    put_uint(10, 4);
    put_uint(1500000, 8);
}
static void nested_arrays(void) {
    begin(0, 1);
    put_text("k");
    put_uint(9, 4);
    for (int i = 0; i < 50; i++) {
        put_uint(9, 4);
        put_uint(1, 8);
    }
}
static void an_unknown_type_of_value(void) {
    begin(0, 1);
    put_text("k");
    put_uint(99, 4);
}
static void a_key_twice(void) {
    begin(0, 2);
    put_key_u32("k", 1);
    put_key_u32("k", 1);
}
static void a_key_that_is_not_utf8(void) {
    begin(0, 1);
    put_key_u32("\xff", 1);
}
static void one_tensor(uint64_t cols, uint64_t rows, uint32_t type, uint64_t offset) {
    begin(1, 0);
    put_tensor("a", cols, rows, type, offset);
    put_data(64);
}
static void an_unknown_type(void) {
    one_tensor(32, 1, 99, 0);
}
static void a_type_of_other_programs(void) {
    one_tensor(32, 1, 9, 0);
}
static void a_size_that_overflows(void) {
    one_tensor(UINT64_C(1) << 40, UINT64_C(1) << 40, 0, 0);
}
static void no_rows(void) {
    one_tensor(32, 0, 0, 0);
}
static void half_a_block(void) {
    one_tensor(33, 1, 2, 0);
}
static void behind_the_end(void) {
    one_tensor(32, 1, 0, 64);
}
static void an_offset_that_overflows(void) {
    one_tensor(32, 1, 2, UINT64_MAX - 31);
}
static void an_odd_offset(void) {
    one_tensor(32, 1, 2, 1);
}
static void overlapping(void) {
    begin(2, 0);
    put_tensor("a", 32, 2, 2, 0);
    put_tensor("b", 32, 1, 2, 32);
    put_data(128);
}
static void a_name_twice(void) {
    begin(2, 0);
    put_tensor("a", 32, 1, 2, 0);
    put_tensor("a", 32, 1, 2, 32);
    put_data(128);
}
static void an_odd_alignment(void) {
    begin(0, 1);
    put_key_u32("general.alignment", 24);
}
static void a_later_part(void) {
    begin(0, 2);
    put_text("split.no");
    put_uint(2, 4);
    put_uint(1, 2);
    put_text("split.count");
    put_uint(2, 4);
    put_uint(3, 2);
}
static void a_part_of_another_name(void) {
    begin(0, 2);
    put_text("split.no");
    put_uint(2, 4);
    put_uint(0, 2);
    put_text("split.count");
    put_uint(2, 4);
    put_uint(3, 2);
}

static const struct {
    void (*make)(void);
    int code;
    const char *names;
} hostile[] = {
    {nothing, E_FORMAT, "ends within its header"},
    {another_file, E_FORMAT, "does not begin with GGUF"},
    {version_1, E_UNSUPPORTED, "version 1"},
    {big_endian, E_UNSUPPORTED, "big-endian"},
    {many_tensors, E_LIMIT, "18446744073709551615 tensors"},
    {a_million_tensors_and_none, E_FORMAT, "ends within its header"},
    {many_keys, E_LIMIT, "keys"},
    {a_long_key, E_LIMIT, "1099511627776 bytes"},
    {metadata_of_4_gb, E_LIMIT, "4294967296 bytes"},
    {an_endless_array, E_LIMIT, "array of 18446744073709551615"},
    {an_array_that_is_not_there, E_FORMAT, "ends within its header"},
    {nested_arrays, E_FORMAT, "arrays in arrays"},
    {an_unknown_type_of_value, E_FORMAT, "unknown type 99"},
    {a_key_twice, E_FORMAT, "'k' is there twice"},
    {a_key_that_is_not_utf8, E_FORMAT, "UTF-8"},
    {an_unknown_type, E_UNSUPPORTED, "something unknown (type 99); known are"},
    {a_type_of_other_programs, E_UNSUPPORTED, "stored as Q8_1 (type 9); known are"},
    {a_size_that_overflows, E_FORMAT, "impossible shape"},
    {no_rows, E_FORMAT, "impossible shape"},
    {half_a_block, E_FORMAT, "rows of 33 values in blocks of 32"},
    {behind_the_end, E_CORRUPT, "incomplete"},
    {an_offset_that_overflows, E_CORRUPT, "incomplete"},
    {an_odd_offset, E_FORMAT, "multiple of 32"},
    {overlapping, E_FORMAT, "overlap"},
    {a_name_twice, E_FORMAT, "there twice"},
    {an_odd_alignment, E_FORMAT, "power of two"},
    {a_later_part, E_INVAL, "name the first part"},
    {a_part_of_another_name, E_FORMAT, "-00001-of-00003.gguf"},
};

static void hostile_headers_are_refused(void **state) {
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        for (int long_arrays = 0; long_arrays < 2; long_arrays++) {
            struct gguf *g = NULL;
            struct err err = {0};
            hostile[i].make();
            int rc = gguf_open(&g, written("t.gguf"), long_arrays, &err);
            if (rc != hostile[i].code || g || !strstr(err.text, hostile[i].names) ||
                !strstr(err.text, "t.gguf"))
                fail_msg("fault %zu: %d: %s", i, rc, err.text);
        }
    }
}

static void put_bytes_array(const char *key, uint64_t says, size_t n) {
    put_text(key);
    put_uint(9, 4);
    put_uint(0, 4);
    put_uint(says, 8);
    for (size_t i = 0; i < n; i++) put("", 1);
}

// Each value of a kept array takes memory and time, so that a file with millions of them must not be kept.
static void long_arrays_are_kept_for_the_tokenizer_alone(void **state) {
    struct gguf *g = NULL;
    struct err err = {0};
    begin(0, 2);
    put_bytes_array("x.long", 5000, 5000);
    put_bytes_array("tokenizer.ggml.token_type", 5000, 5000);
    assert_int_equal(gguf_open(&g, written("t.gguf"), true, &err), 0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(gguf_metadata(g), "x.long")));
    assert_int_equal(cJSON_GetArraySize(json_member(gguf_metadata(g), "tokenizer.ggml.token_type")),
                     5000);
    gguf_close(g);
    begin(0, 1);
    put_bytes_array("tokenizer.ggml.token_type", (1 << 20) + 1, 100);
    assert_int_equal(gguf_open(&g, written("t.gguf"), true, &err), E_LIMIT);
    assert_non_null(strstr(err.text, "an array of 1048577 values"));
}

// Cut anywhere, a file is refused or whole in what it has.
static void cut_files_are_refused(void **state) {
    begin(1, 2);
    put_key_text("general.architecture", "llama");
    put_key_u32("llama.block_count", 7);
    put_tensor("token_embd.weight", 32, 2, 2, 0);
    put_data(36);
    const size_t whole = file.n;
    for (size_t n = 0; n < whole; n++) {
        struct gguf *g = NULL;
        struct err err = {0};
        file.n = n;
        int rc = gguf_open(&g, written("t.gguf"), true, &err);
        if (rc != E_FORMAT && rc != E_CORRUPT) fail_msg("cut at %zu: %d %s", n, rc, err.text);
    }
}

// --- split files ---

static void put_key_u16(const char *key, uint32_t value) {
    put_text(key);
    put_uint(2, 4);
    put_uint(value, 2);
}

static const char *first_of_two(void) {
    begin(1, 3);
    put_key_text("general.architecture", "llama");
    put_key_u16("split.no", 0);
    put_key_u16("split.count", 2);
    put_tensor("token_embd.weight", 32, 2, 2, 0);
    put_data(36);
    return written("s-00001-of-00002.gguf");
}

static void second_of_two(uint64_t n_tensors) {
    begin(n_tensors, 2);
    put_key_u16("split.no", 1);
    put_key_u16("split.count", 2);
    written("s-00002-of-00002.gguf");
}

static void assert_split(int code, const char *says) {
    struct gguf *g = NULL;
    struct err err = {0};
    const int rc = gguf_open(&g, first_of_two(), false, &err);
    if (rc != code || g || !strstr(err.text, says) || !strstr(err.text, "s-00002-of-00002.gguf"))
        fail_msg("%d: %s", rc, err.text);
}

static void later_parts_are_read_with_care(void **state) {
    char second[512];
    struct gguf *g = NULL;
    strcpy(second, tmp_path(&dir, "s-00002-of-00002.gguf"));
    assert_split(E_NOTFOUND, "cannot open");
    assert_int_equal(symlink("s-00001-of-00002.gguf", second), 0);
    assert_split(E_FORMAT, "part 1 of 2");
    assert_int_equal(unlink(second), 0);
    assert_int_equal(mkfifo(second, 0600), 0); // a pipe that no program writes to
    assert_split(E_FORMAT, "is no plain file");
    assert_int_equal(unlink(second), 0);
    second_of_two(1000000); // a million of all parts, one of which the first part has
    assert_split(E_LIMIT, "1000000 tensors where 999999 are allowed");
    second_of_two(0);
    assert_int_equal(gguf_open(&g, first_of_two(), false, NULL), 0);
    assert_int_equal(gguf_count(g), 1);
    gguf_close(g);
}

// --- what the metadata stand for ---

static void unknown_models_are_refused_by_name(void **state) {
    static const struct {
        const char *arch, *tokenizer, *pre, *file, *says;
    } cases[] = {
        {"nonesuch", "gpt2", "qwen2", "config.json",
         "'nonesuch', which is unknown (`parley inspect --arch"},
        {"qwen35moe", "gpt2", "qwen2", "config.json", "unknown; near are qwen3moe, "},
        {"llama", "gpt2", NULL, "tokenizer.json", "no tokenizer.ggml.pre"},
        {"llama", "gpt2", "nonesuch", "tokenizer.json", "'nonesuch'"},
        {"llama", "rwkv", NULL, "tokenizer_config.json", "'rwkv'; known are"},
        {"llama", "gpt2", "qwen2", "tokenizer.json", "no tokenizer.ggml.tokens"},
        {"llama", "gpt2", "qwen2", "config.json", "token_embd.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        cJSON *root = NULL;
        begin(0, cases[i].pre ? 3 : 2);
        put_key_text("general.architecture", cases[i].arch);
        put_key_text("tokenizer.ggml.model", cases[i].tokenizer);
        if (cases[i].pre) put_key_text("tokenizer.ggml.pre", cases[i].pre);
        int rc = gguf_folder_json(&root, written("m.gguf"), cases[i].file, &err);
        if (rc >= 0 || root || !strstr(err.text, cases[i].says)) fail_msg("%zu: %s", i, err.text);
    }
}

static void unknown_tensors_are_refused_by_name(void **state) {
    struct gguf_tensors *c = NULL;
    struct err err = {0};
    begin(1, 1);
    put_key_text("general.architecture", "llama");
    put_tensor("blk.0.nonesuch.weight", 32, 1, 2, 0);
    put_data(32);
    assert_int_equal(gguf_tensors_open(&c, written("m.gguf"), &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'blk.0.nonesuch.weight'"));
}

static void scales_that_are_no_numbers_are_refused(void **state) {
    struct gguf_tensors *c = NULL;
    struct err err = {0};
    float values[32];
    begin(1, 1);
    put_key_text("general.architecture", "llama");
    put_tensor("token_embd.weight", 32, 1, 2, 0);
    put_data(0);
    put_uint(0x7e00, 2); // a NaN
    for (int i = 0; i < 16; i++) put_uint(0, 1);
    if (gguf_tensors_open(&c, written("m.gguf"), &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(gguf_tensors_read(c, gguf_tensors_at(c, 0), 0, values, sizeof values, &err),
                     E_FORMAT);
    assert_non_null(strstr(err.text, "token_embd.weight"));
    gguf_tensors_close(c);
}

// Several threads read a matrix of 4 MiB: as row by row, and also with a part of a row, and with a bad scale in it.
static void many_rows_are_read_as_one_by_one(void **state) {
    enum { COLS = 512, ROWS = 2048, BLOCKS = ROWS * COLS / 32, BYTES = 18, BAD = BLOCKS - 5 };
    static float all[ROWS][COLS], one[COLS];
    struct gguf_tensors *c = NULL;
    struct err err = {0};
    begin(1, 1);
    put_key_text("general.architecture", "llama");
    put_tensor("token_embd.weight", COLS, ROWS, 2, 0);
    put_data(0);
    const size_t data = file.n;
    for (int b = 0; b < BLOCKS; b++) {
        put_uint((uint64_t)(0x2000 + b % 4096), 2);
        for (int i = 0; i < 16; i++) put_uint((uint64_t)((b * 31 + i * 7) % 256), 1);
    }
    if (gguf_tensors_open(&c, written("m.gguf"), &err) < 0) fail_msg("%s", err.text);
    const struct tensor *t = gguf_tensors_at(c, 0);
    assert_int_equal(gguf_tensors_read(c, t, 0, all, sizeof all, &err), 0);
    for (size_t r = 0; r < ROWS; r++) {
        assert_int_equal(gguf_tensors_read(c, t, r * sizeof one, one, sizeof one, &err), 0);
        assert_memory_equal(one, all[r], sizeof one);
    }
    for (size_t from = 1; from < sizeof all; from += sizeof all / 7) { // within a value
        const size_t n = sizeof one - 3 < sizeof all - from ? sizeof one - 3 : sizeof all - from;
        assert_int_equal(gguf_tensors_read(c, t, from, one, n, &err), 0);
        assert_memory_equal(one, (char *)all + from, n);
    }
    gguf_tensors_close(c);
    file.bytes[data + (size_t)BAD * BYTES + 1] = 0x7e; // a NaN
    if (gguf_tensors_open(&c, written("m.gguf"), &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(gguf_tensors_read(c, gguf_tensors_at(c, 0), 0, all, sizeof all, &err),
                     E_FORMAT);
    assert_non_null(strstr(err.text, "token_embd.weight"));
    gguf_tensors_close(c);
}

// A rank's columns may begin and end within blocks of the types of 1 to 3 bits, which have several groups.
static void columns_may_begin_within_a_block(void **state) {
    static const uint32_t ids[] = {16, 17, 18, 19, 21, 22, 29};
    enum { COLS = 768, ROWS = 2 };
    for (size_t k = 0; k < sizeof ids / sizeof *ids; k++) {
        const struct block_type *type = block_type_find(ids[k]);
        static float values[ROWS][COLS];
        struct gguf_tensors *c = NULL;
        struct group_format f;
        struct group_row row;
        struct err err = {0};
        begin(1, 1);
        put_key_text("general.architecture", "llama");
        put_tensor("token_embd.weight", COLS, ROWS, ids[k], 0);
        put_data(0);
        for (int i = 0; i < ROWS * COLS / 256 * type->bytes; i++) put_uint(i * 37 % 60, 1);
        if (gguf_tensors_open(&c, written("m.gguf"), &err) < 0) fail_msg("%s", err.text);
        const struct tensor *t = gguf_tensors_at(c, 0);
        assert_int_equal(gguf_tensors_read(c, t, 0, values, sizeof values, &err), 0);
        assert_true(gguf_tensors_groups(c, t, &f));
        void *memory = group_row_alloc(&row, COLS);
        for (int first = 0; first < COLS; first += f.group)
            for (int n = f.group; n <= COLS - first; n += f.group) {
                assert_int_equal(gguf_tensors_groups_row(c, t, 1, first, n, &row, &err), 0);
                for (int i = 0; i < n; i++)
                    if (((float *)row.scales)[i / f.group] *
                            (float)(f.book[row.codes[i]] - f.zero) !=
                        values[1][first + i])
                        fail_msg("%s: value %d of %d from %d", type->name, i, n, first);
            }
        free(memory);
        gguf_tensors_close(c);
        for (int cut = 0; cut < 3;
             cut++) { // within the last block, before it, and within the first row
            file.n -= cut == 0 ? 1 : (size_t)type->bytes * (size_t)cut - (cut == 1 ? 1 : 0);
            err = (struct err){0};
            assert_int_equal(gguf_tensors_open(&c, written("m.gguf"), &err), E_CORRUPT);
            assert_non_null(strstr(err.text, "token_embd.weight"));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_is_read),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(long_arrays_are_kept_for_the_tokenizer_alone),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(later_parts_are_read_with_care),
        cmocka_unit_test(unknown_models_are_refused_by_name),
        cmocka_unit_test(unknown_tensors_are_refused_by_name),
        cmocka_unit_test(scales_that_are_no_numbers_are_refused),
        cmocka_unit_test(many_rows_are_read_as_one_by_one),
        cmocka_unit_test(columns_may_begin_within_a_block),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
