// Reading and writing .safetensors: valid files round-trip, invalid ones are refused with the fault
// named.
#include "engine/model/safetensors.h"
#include "tests/unit/in_tmp_dir.h"
#include <fcntl.h>
#include <sys/stat.h>

// Writes a file: the header's length (or the given one), the header, and n_data bytes.
static const char *write_file(const char *header, size_t n_header, uint64_t claimed,
                              size_t n_data) {
    size_t n = 8 + n_header + n_data;
    unsigned char *bytes = calloc(1, n);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(claimed >> (8 * i));
    memcpy(bytes + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++) bytes[8 + n_header + i] = (unsigned char)i;
    tmp_write(&dir, "t.safetensors", bytes, n);
    free(bytes);
    return tmp_path(&dir, "t.safetensors");
}

static void reads_what_is_there(void **state) {
    const char *h =
        "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],"
        "\"data_offsets\":[4,16]},\"a\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"F32\"},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[4,4]}}   ";
    struct safetensors *f = NULL;
    struct err err = {0};
    assert_int_equal(safetensors_open(&f, write_file(h, strlen(h), strlen(h), 16), &err), 0);
    assert_int_equal(safetensors_count(f), 3);
    assert_string_equal(safetensors_at(f, 0)->name, "a");
    assert_string_equal(safetensors_at(f, 1)->name, "none");
    assert_string_equal(safetensors_at(f, 2)->name, "b");
    const struct tensor *b = safetensors_find(f, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, DTYPE_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(((const unsigned char *)b->data)[0], 4);
    unsigned char part[3];
    assert_int_equal(safetensors_read(f, b, 9, part, 3, &err), 0);
    assert_int_equal(part[2], 15);
    assert_int_equal(safetensors_read(f, b, 10, part, 3, &err), E_INTERNAL);
    assert_null(safetensors_find(f, "c"));
    safetensors_forget(f, b);
    assert_int_equal(((const unsigned char *)b->data)[11], 15);
    safetensors_close(f);
}

#define A_WITH(dtype, shape, range)                                                                \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" range "}}"
#define T(name, range) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" range "}"

// Each header, the number of data bytes after it, the error code, and a word that the error must
// contain.
static const struct {
    const char *header;
    size_t n_data;
    int code;
    const char *names;
} hostile[] = {
    {"", 0, E_FORMAT, "does not begin"},
    {"[]", 0, E_FORMAT, "does not begin"},
    {" {}", 0, E_FORMAT, "does not begin"},
    {"{", 0, E_FORMAT, "JSON"},
    {"{}x", 0, E_FORMAT, "JSON"},
    {"{\"a\":NaN}", 0, E_FORMAT, "JSON"},
    {"{\"a\":\"\xff\"}", 0, E_FORMAT, "UTF-8"},
    {"{\"a\":[[[[[1]]]]]}", 0, E_LIMIT, "deep"},
    {"{\"__metadata__\":[]}", 0, E_FORMAT, "__metadata__"},
    {"{\"__metadata__\":{\"k\":1}}", 0, E_FORMAT, "'k'"},
    {"{\"a\":1}", 0, E_FORMAT, "'a'"},
    {"{\"a\":{}}", 0, E_FORMAT, "no dtype"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, E_FORMAT, "no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, E_FORMAT, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     E_FORMAT, "twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}}", 4, E_FORMAT,
     "'x'"},
    {"{" T("a", "[0,8]") "," T("a", "[8,16]") "}", 16, E_FORMAT, "'a'"},
    {A_WITH("F33", "[1]", "[0,4]"), 4, E_FORMAT, "F33"},
    {A_WITH("F64", "[1]", "[0,8]"), 8, E_UNSUPPORTED, "F64"},
    {A_WITH("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, E_LIMIT, "dimensions"},
    {A_WITH("F32", "[-1]", "[0,4]"), 4, E_FORMAT, "dimension 0"},
    {A_WITH("F32", "[1.5]", "[0,6]"), 6, E_FORMAT, "dimension 0"},
    {A_WITH("F32", "[1e300]", "[0,4]"), 4, E_FORMAT, "dimension 0"},
    {A_WITH("F32", "[\"1\"]", "[0,4]"), 4, E_FORMAT, "dimension 0"},
    {A_WITH("F32", "4", "[0,4]"), 4, E_FORMAT, "no shape"},
    {A_WITH("F32", "[4611686018427387904,4]", "[0,0]"), 0, E_FORMAT, "dimension 0"},
    {A_WITH("F32", "[2147483648,2147483648,4]", "[0,0]"), 0, E_FORMAT, "overflow"},
    {A_WITH("U8", "[9007199254740991,1025,0]", "[0,0]"), 0, E_FORMAT, "overflow"},
    {A_WITH("F32", "[2]", "[0,4]"), 4, E_FORMAT, "8 bytes"},
    {A_WITH("F32", "[1]", "[4,0]"), 4, E_FORMAT, "backwards"},
    {A_WITH("F32", "[1]", "[0,4,8]"), 8, E_FORMAT, "two whole numbers"},
    {A_WITH("F32", "[1]", "[0]"), 4, E_FORMAT, "two whole numbers"},
    {A_WITH("F32", "[1]", "[-4,0]"), 4, E_FORMAT, "two whole numbers"},
    {A_WITH("F32", "[2]", "[0,8]"), 4, E_FORMAT, "truncated"},
    {A_WITH("F32", "[2]", "[0,8]"), 9, E_FORMAT, "follow the last"},
    {A_WITH("F32", "[2]", "[4,12]"), 12, E_FORMAT, "hole"},
    {"{" T("a", "[0,8]") "," T("b", "[4,12]") "}", 12, E_FORMAT, "overlaps"},
    {"{" T("a", "[0,8]") "," T("b", "[0,8]") "}", 8, E_FORMAT, "overlaps"},
    {"{" T("a", "[0,8]") "," T("b", "[12,20]") "}", 20, E_FORMAT, "'b' leaves a hole"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740991],\"data_offsets\":[0,9007199254740991]}"
     "}",
     4, E_FORMAT, "truncated"},
};

static void refuses_hostile_headers(void **state) {
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct safetensors *f = NULL;
        struct err err = {0};
        size_t n = strlen(hostile[i].header);
        const char *path = write_file(hostile[i].header, n, n, hostile[i].n_data);
        int rc = safetensors_open(&f, path, &err);
        if (rc != hostile[i].code || err.code != rc || !strstr(err.text, hostile[i].names) ||
            !strstr(err.text, "t.safetensors"))
            fail_msg("%s: code %d, text '%s'", hostile[i].header, rc, err.text);
        assert_null(f);
        assert_int_equal(safetensors_open(&f, path, NULL), rc);
    }
}

static void refuses_hostile_sizes(void **state) {
    static const struct {
        uint64_t claimed;
        int code;
    } cases[] = {{UINT64_MAX, E_LIMIT},
                 {(uint64_t)1 << 63, E_LIMIT},
                 {((uint64_t)32 << 20) + 1, E_LIMIT},
                 {(uint64_t)32 << 20, E_FORMAT},
                 {3, E_FORMAT},
                 {0, E_FORMAT}};
    struct safetensors *f = NULL;
    struct err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(safetensors_open(&f, write_file("{}", 2, cases[i].claimed, 0), &err),
                         cases[i].code);
    for (size_t n = 0; n < 8; n++) {
        tmp_write(&dir, "t.safetensors", "\2\0\0\0\0\0\0\0", n);
        assert_int_equal(safetensors_open(&f, tmp_path(&dir, "t.safetensors"), &err), E_FORMAT);
        assert_non_null(strstr(err.text, "truncated"));
    }
    // No tensors: still a file
    assert_int_equal(safetensors_open(&f, write_file("{}", 2, 2, 0), &err), 0);
    assert_int_equal(safetensors_count(f), 0);
    safetensors_close(f);
}

static void refuses_long_names(void **state) {
    char header[600];
    snprintf(header, sizeof header,
             "{\"%0300d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 7);
    struct safetensors *f = NULL;
    struct err err;
    assert_int_equal(
        safetensors_open(&f, write_file(header, strlen(header), strlen(header), 0), &err), E_LIMIT);
}

static void refuses_what_is_no_file(void **state) {
    struct safetensors *f = NULL;
    struct err err;
    assert_int_equal(safetensors_open(&f, tmp_path(&dir, "absent"), &err), E_NOTFOUND);
    assert_int_equal(safetensors_open(&f, dir.path, &err), E_FORMAT);
    assert_int_equal(safetensors_open(&f, "/dev/zero", &err), E_FORMAT);
    assert_int_equal(mkfifo(tmp_path(&dir, "fifo"), 0600), 0);
    // A pipe is refused at once: nothing waits for a writer
    assert_int_equal(safetensors_open(&f, tmp_path(&dir, "fifo"), &err), E_FORMAT);
}

static void notices_truncation_while_open(void **state) {
    struct safetensors *f = NULL;
    struct err err = {0};
    const char *h = A_WITH("F32", "[4096]", "[0,16384]");
    const char *path = write_file(h, strlen(h), strlen(h), 16384);
    assert_int_equal(safetensors_open(&f, path, &err), 0);
    assert_int_equal(safetensors_check_unchanged(f, &err), 0);
    assert_int_equal(truncate(path, 4096), 0);
    char bytes[16384];
    assert_int_equal(safetensors_read(f, safetensors_at(f, 0), 0, bytes, sizeof bytes, &err),
                     E_CORRUPT);
    assert_non_null(strstr(err.text, "shorter"));
    assert_int_equal(safetensors_check_unchanged(f, &err), E_CORRUPT);
    safetensors_close(f);
}

static void writer_round_trips(void **state) {
    const struct tensor tensors[] = {
        {.name = "x\"y", .dtype = DTYPE_F32, .n_dims = 2, .shape = {2, 3}},
        {.name = "scalar", .dtype = DTYPE_BF16},
        {.name = "empty", .dtype = DTYPE_U8, .n_dims = 1, .shape = {0}}};
    const float x[6] = {0, 1, 2, 3, 4, 5};
    const uint16_t s = 0x3f80;
    struct safetensors_writer *w = NULL;
    struct safetensors *f = NULL;
    struct err err = {0};
    const char *path = tmp_path(&dir, "w.safetensors");
    assert_int_equal(safetensors_create(&w, path, tensors, 3, &err), 0);
    assert_int_equal(safetensors_write(w, x, 10, &err), 0);
    assert_int_equal(access(path, F_OK), -1); // the name appears only when the file is complete
    assert_int_equal(safetensors_write(w, (const char *)x + 10, sizeof x - 10, &err), 0);
    assert_int_equal(safetensors_write(w, &s, sizeof s, &err), 0);
    assert_int_equal(safetensors_write(w, &s, 1, &err), E_INVAL);
    assert_int_equal(safetensors_finish(w, &err), 0);
    assert_int_equal(safetensors_open(&f, path, &err), 0);
    assert_int_equal(safetensors_count(f), 3);
    assert_memory_equal(safetensors_find(f, "x\"y")->data, x, sizeof x);
    assert_int_equal((uintptr_t)safetensors_find(f, "x\"y")->data % 8, 0);
    assert_memory_equal(safetensors_find(f, "scalar")->data, &s, sizeof s);
    safetensors_close(f);
}

static void writer_leaves_nothing_behind(void **state) {
    const struct tensor t = {.name = "a", .dtype = DTYPE_F32, .n_dims = 1, .shape = {2}};
    const struct tensor twice[] = {t, t};
    const struct tensor negative = {.name = "a", .dtype = DTYPE_F32, .n_dims = 1, .shape = {-2}};
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    const char *path = tmp_path(&dir, "n.safetensors");
    assert_int_equal(safetensors_create(&w, path, twice, 2, &err), E_INVAL);
    assert_int_equal(safetensors_create(&w, path, &negative, 1, &err), E_INVAL);
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "no/n.safetensors"), &t, 1, &err),
                     E_NOTFOUND);
    assert_int_equal(safetensors_create(&w, path, &t, 1, &err), 0);
    assert_int_equal(safetensors_finish(w, &err), E_INVAL);
    assert_non_null(strstr(err.text, "8 bytes"));
    assert_int_equal(safetensors_create(&w, path, &t, 1, &err), 0);
    safetensors_abort(w);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(tmp_path(&dir, "n.safetensors.partial"), F_OK), -1);
}

// As root, a rename over /dev/null would replace it for the whole machine.
static void writer_writes_into_a_pipe(void **state) {
    const struct tensor t = {.name = "a", .dtype = DTYPE_U8, .n_dims = 1, .shape = {4}};
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    struct stat st;
    char bytes[4096];
    const char *path = tmp_path(&dir, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    int out = open(path, O_RDONLY | O_NONBLOCK);
    assert_int_equal(safetensors_create(&w, path, &t, 1, &err), 0);
    assert_int_equal(safetensors_write(w, "wxyz", 4, &err), 0);
    assert_int_equal(safetensors_finish(w, &err), 0);
    ssize_t n = read(out, bytes, sizeof bytes);
    assert_true(n > 12 && memcmp(bytes + n - 4, "wxyz", 4) == 0);
    assert_int_equal(safetensors_create(&w, path, &t, 1, &err), 0);
    safetensors_abort(w);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(out);
}

static void any_cut_of_a_good_file_is_refused(void **state) {
    static unsigned char bytes[400000];
    FILE *in = fopen("tests/fixtures/models/llama/model.safetensors", "rb");
    assert_non_null(in);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    for (size_t cut = 0; cut < n; cut += cut < 4096 ? 61 : 9973) {
        struct safetensors *f = NULL;
        struct err err;
        tmp_write(&dir, "cut.safetensors", bytes, cut);
        assert_int_equal(safetensors_open(&f, tmp_path(&dir, "cut.safetensors"), &err), E_FORMAT);
    }
}

// Random changes of a good header: refused or harmless, and what is accepted lies within the file.
static void changed_headers_do_no_harm(void **state) {
    static unsigned char good[400000], bytes[400000];
    FILE *in = fopen("tests/fixtures/models/llama/model.safetensors", "rb");
    assert_non_null(in);
    size_t n = fread(good, 1, sizeof good, in), n_header = 8 + 3096;
    fclose(in);
    uint64_t random = 12345;
    int accepted = 0;
    for (int round = 0; round < 1500; round++) {
        memcpy(bytes, good, n);
        for (int change = 0; change <= round % 3; change++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t at = (random >> 33) % n_header;
            // Mostly digits and separators, so that it often remains JSON.
            bytes[at] = (unsigned char)"0123456789,:[]{}\"FBU-. "[(random >> 20) % 24];
        }
        tmp_write(&dir, "m.safetensors", bytes, n);
        struct safetensors *f = NULL;
        struct err err = {0};
        int rc = safetensors_open(&f, tmp_path(&dir, "m.safetensors"), &err);
        if (rc < 0) {
            assert_int_equal(err.code, rc);
            assert_true(err.text[0]);
            continue;
        }
        accepted++;
        for (size_t i = 0; i < safetensors_count(f); i++) {
            const struct tensor *t = safetensors_at(f, i);
            const unsigned char *data = t->data;
            assert_true(t->bytes <= n);
            if (t->bytes)
                assert_int_equal(data[0] | data[t->bytes - 1], data[t->bytes - 1] | data[0]);
        }
        safetensors_close(f);
    }
    assert_true(accepted > 10); // a changed letter of a name
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_there),
        cmocka_unit_test(refuses_hostile_headers),
        cmocka_unit_test(refuses_hostile_sizes),
        cmocka_unit_test(refuses_long_names),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(notices_truncation_while_open),
        cmocka_unit_test(writer_round_trips),
        cmocka_unit_test(writer_leaves_nothing_behind),
        cmocka_unit_test(writer_writes_into_a_pipe),
        cmocka_unit_test(any_cut_of_a_good_file_is_refused),
        cmocka_unit_test(changed_headers_do_no_harm),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
