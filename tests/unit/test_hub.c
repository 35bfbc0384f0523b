// Names of models on the hub, its list of files, and which of them a model needs.
#include "tests/cmocka.h"
#include "ws/hub/address.h"
#include "ws/hub/choice.h"
#include "ws/hub/curl_lazy.h"
#include <stdio.h>
#include <string.h>

static void a_name_has_its_parts(void **state) {
    static const struct {
        const char *text, *org, *name, *quant, *revision;
        bool has_revision;
    } names[] = {
        {"Qwen/Qwen3-0.6B", "Qwen", "Qwen3-0.6B", "", "main", false},
        {"a/b@v1.0", "a", "b", "", "v1.0", true},
        {"a/b@refs/pr/3", "a", "b", "", "refs/pr/3", true},
        {"unsloth/x-GGUF:Q4_K_M", "unsloth", "x-GGUF", "Q4_K_M", "main", false},
        {"a_b/c.d:UD/x.gguf@0123456789abcdef0123456789abcdef01234567", "a_b", "c.d", "UD/x.gguf",
         "0123456789abcdef0123456789abcdef01234567", true},
        {"a/b@main", "a", "b", "", "main", true},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct hub_name n;
        char text[HUB_NAME_BYTES];
        assert_int_equal(hub_name_parse(&n, names[i].text, NULL), 0);
        assert_string_equal(n.org, names[i].org);
        assert_string_equal(n.name, names[i].name);
        assert_string_equal(n.quant, names[i].quant);
        assert_string_equal(n.revision, names[i].revision);
        assert_int_equal(n.has_revision, names[i].has_revision);
        if (strcmp(names[i].text, "a/b@main") != 0)
            assert_string_equal(hub_name_text(&n, text), names[i].text);
    }
}

static void paths_and_what_leaves_a_folder_are_no_names(void **state) {
    static const char *const texts[] = {
        "",         "a",        "a/",       "/a",      "/a/b",    "./a",    "../a",
        "a/..",     "a/b/c",    "~/a",      "a/.b",    "a/b.",    "-a/b",   "a/b-",
        "a--b/c",   "a/b..c",   "a/b.git",  "a/b:",    "a/b@",    "a/b:@x", "a/b:x@",
        "a/b@../x", "a/b:/x",   "a/b@x//y", "a/b@x y", "a/b@x?y", "a/b@x#", "a/b@x%2e",
        "a\nb/c",   "a/b@x\ny", "a/b:c:d",  "a/b@c@d", "a/b@x/.", "é/b"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct hub_name n;
        struct err err = {0};
        if (hub_name_parse(&n, texts[i], &err) != E_INVAL) fail_msg("'%s'", texts[i]);
        assert_non_null(strstr(err.text, "ORG/NAME[:QUANT][@REVISION]"));
    }
    char longest[2 * HUB_WORD_MAX + 8];
    memset(longest, 'a', sizeof longest);
    longest[HUB_WORD_MAX] = '/';
    longest[2 * HUB_WORD_MAX + 1] = '\0';
    assert_true(hub_name_is(longest));
    longest[2 * HUB_WORD_MAX + 1] = 'a';
    longest[2 * HUB_WORD_MAX + 2] = '\0';
    assert_false(hub_name_is(longest));
}

#define COMMIT "\"sha\":\"0123456789abcdef0123456789abcdef01234567\""
#define BLOB "\"blobId\":\"89abcdef0123456789abcdef0123456789abcdef\""
#define SHA "\"sha256\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\""

static int parse(struct hub_listing *l, const char *json, struct err *err) {
    *err = (struct err){0};
    return hub_listing_parse(l, json, strlen(json), err);
}

static void a_list_has_sizes_and_hashes(void **state) {
    struct hub_listing l;
    struct err err;
    assert_int_equal(parse(&l,
                           "{" COMMIT ",\"private\":false,\"siblings\":["
                           "{\"rfilename\":\"model.safetensors\",\"size\":130," BLOB
                           ",\"lfs\":{" SHA ",\"size\":5000000000,\"pointerSize\":130}},"
                           "{\"rfilename\":\"config.json\",\"size\":0," BLOB ",\"lfs\":null}]}",
                           &err),
                     0);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.commit, "0123456789abcdef0123456789abcdef01234567");
    assert_string_equal(l.files[0].path, "config.json"); // sorted
    assert_int_equal(l.files[0].size, 0);
    assert_int_equal(strlen(l.files[0].etag), 40);
    assert_true(l.files[1].size == 5000000000);
    assert_int_equal(strlen(l.files[1].etag), 64);
    assert_ptr_equal(hub_listing_find(&l, "model.safetensors"), &l.files[1]);
    assert_null(hub_listing_find(&l, "model"));
    hub_listing_release(&l);
}

static void any_other_list_is_refused(void **state) {
#define ONE(members) "{" COMMIT ",\"siblings\":[{" members "}]}"
    static const struct {
        const char *json;
        int code;
    } lists[] = {
        {"", E_FORMAT},
        {"[]", E_FORMAT},
        {"{}", E_FORMAT},
        {"{" COMMIT "}", E_FORMAT},
        {"{" COMMIT ",\"siblings\":{}}", E_FORMAT},
        {"{\"sha\":\"main\",\"siblings\":[]}", E_FORMAT},
        {ONE("\"size\":1," BLOB), E_FORMAT},
        {ONE("\"rfilename\":\"a\",\"size\":1"), E_FORMAT},
        {ONE("\"rfilename\":\"a\"," BLOB), E_FORMAT},
        {ONE("\"rfilename\":\"a\",\"size\":1,\"blobId\":\"../../x\""), E_FORMAT},
        {ONE("\"rfilename\":\"a\",\"size\":1," BLOB ",\"lfs\":{\"size\":1}"), E_FORMAT},
        {ONE("\"rfilename\":\"../a\",\"size\":1," BLOB), E_DENIED},
        {ONE("\"rfilename\":\"/a\",\"size\":1," BLOB), E_DENIED},
        {ONE("\"rfilename\":\"a//b\",\"size\":1," BLOB), E_DENIED},
        {ONE("\"rfilename\":\"a/./b\",\"size\":1," BLOB), E_DENIED},
        {ONE("\"rfilename\":\"a\\nb\",\"size\":1," BLOB), E_DENIED},
        {ONE("\"rfilename\":\"\",\"size\":1," BLOB), E_DENIED},
        {"{" COMMIT ",\"siblings\":[{\"rfilename\":\"a\",\"size\":1," BLOB
         "},{\"rfilename\":\"a\",\"size\":1," BLOB "}]}",
         E_FORMAT},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct hub_listing l;
        struct err err;
        int rc = parse(&l, lists[i].json, &err);
        if (rc != lists[i].code || !err.text[0]) fail_msg("%s: %d", lists[i].json, rc);
        assert_null(l.files);
    }
    static const char *const sizes[] = {"-1", "1.5", "1e300", "35184372088833", "\"1\""};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char json[300];
        struct hub_listing l;
        struct err err;
        snprintf(json, sizeof json, ONE("\"rfilename\":\"a\",\"size\":%s," BLOB), sizes[i]);
        if (parse(&l, json, &err) >= 0) fail_msg("size %s", sizes[i]);
    }
}

static void list_files(struct hub_listing *l, const char *const *paths) {
    *l = (struct hub_listing){0};
    for (; *paths; paths++) assert_int_equal(hub_listing_add(l, *paths, 1, "", NULL), 0);
    hub_listing_sort(l);
}

// The names of the chosen files, with spaces between.
static int choose(const struct hub_listing *l, const char *name, enum hub_want want, char *out,
                  size_t cap, struct err *err) {
    struct hub_name n;
    struct hub_choice c;
    size_t at = 0;
    *err = (struct err){0};
    *out = '\0';
    assert_int_equal(hub_name_parse(&n, name, NULL), 0);
    int rc = hub_choose(&c, &n, want, l, err);
    for (size_t i = 0; i < c.n; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%s", i ? " " : "", c.files[i]->path);
    hub_choice_release(&c);
    return rc;
}

static void gguf_files_have_tags(void **state) {
    static const struct {
        const char *path, *tag;
    } files[] = {{"Qwen3-0.6B-Q4_K_M.gguf", "Q4_K_M"},
                 {"sub/Model-UD-Q4_K_XL-00001-of-00003.gguf", "UD-Q4_K_XL"},
                 {"Model-NVFP4.gguf", "NVFP4"},
                 {"m.IQ4_XS.gguf", "IQ4_XS"},
                 {"gpt-oss-20b-mxfp4.gguf", "mxfp4"},
                 {"Model-BF16.gguf", "BF16"},
                 {"Model-7B.gguf", "Model-7B"},
                 {"mmproj-Model-F16.gguf", NULL},
                 {"Model.imatrix.gguf", NULL},
                 {"Model-Q8_0-00002-of-00003.gguf", NULL},
                 {"Model-Q8_0.gguf.part", NULL},
                 {"README.md", NULL}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char tag[HUB_PATH_BYTES];
        assert_int_equal(hub_gguf_tag(files[i].path, tag), files[i].tag != NULL);
        if (files[i].tag) assert_string_equal(tag, files[i].tag);
    }
    assert_int_equal(hub_gguf_parts("x-00001-of-00012.gguf"), 12);
    assert_int_equal(hub_gguf_parts("x-00002-of-00012.gguf"), 0);
    assert_int_equal(hub_gguf_parts("x-00001-of-99999.gguf"),
                     1); // no such model: a name like another
    assert_int_equal(hub_gguf_parts("x.gguf"), 1);
}

static void a_quant_names_one_file(void **state) {
    static const char *const paths[] = {"m-Q4_0.gguf",
                                        "m-IQ4_0.gguf",
                                        "b/m-Q8_0-00001-of-00002.gguf",
                                        "b/m-Q8_0-00002-of-00002.gguf",
                                        "c/m-F16-00001-of-00002.gguf",
                                        "x-BF16.gguf",
                                        "y-BF16.gguf",
                                        "mmproj-BF16.gguf",
                                        "config.json",
                                        "model.safetensors",
                                        NULL};
    struct hub_listing l;
    struct err err;
    char got[1000];
    list_files(&l, paths);
    assert_int_equal(choose(&l, "a/b:Q4_0", HUB_MODEL, got, sizeof got, &err), 0);
    assert_string_equal(got, "m-Q4_0.gguf"); // IQ4_0 ends in it too, within a word
    assert_int_equal(choose(&l, "a/b:q8_0", HUB_MODEL, got, sizeof got, &err), 0);
    assert_string_equal(got, "b/m-Q8_0-00001-of-00002.gguf b/m-Q8_0-00002-of-00002.gguf");
    assert_int_equal(choose(&l, "a/b:F16", HUB_MODEL, got, sizeof got, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "c/m-F16-00002-of-00002.gguf"));
    assert_int_equal(choose(&l, "a/b:BF16", HUB_MODEL, got, sizeof got, &err), E_INVAL);
    assert_non_null(strstr(err.text, "name one of x-BF16.gguf, y-BF16.gguf"));
    assert_int_equal(choose(&l, "a/b:y-BF16.gguf", HUB_MODEL, got, sizeof got, &err), 0);
    assert_string_equal(got, "y-BF16.gguf");
    assert_int_equal(choose(&l, "a/b:Q2_K", HUB_MODEL, got, sizeof got, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "it has Q8_0, F16, IQ4_0, Q4_0, BF16, BF16"));
    hub_listing_release(&l);
}

static void safetensors_need_only_their_own_files(void **state) {
    static const char *const paths[] = {"config.json",
                                        "generation_config.json",
                                        "model-1.safetensors",
                                        "model-2.safetensors",
                                        "model.safetensors.index.json",
                                        "original/params.json",
                                        "pytorch_model.bin",
                                        "tokenizer.json",
                                        "README.md",
                                        "additional_chat_templates/a.jinja",
                                        "additional_chat_templates/b/c.jinja",
                                        NULL};
    static const char index[] =
        "{\"metadata\":{},\"weight_map\":{\"a\":\"model-2.safetensors\",\"b\":\"model-1."
        "safetensors\",\"c\":\"model-2.safetensors\"}}";
    static const struct {
        const char *index;
        int code;
    } wrong[] = {{"{\"weight_map\":{\"a\":\"model-3.safetensors\"}}", E_CORRUPT},
                 {"{\"weight_map\":{\"a\":\"../model-1.safetensors\"}}", E_DENIED},
                 {"{\"weight_map\":{\"a\":\"original/x.safetensors\"}}", E_DENIED},
                 {"{\"weight_map\":{\"a\":\"config.json\"}}", E_DENIED},
                 {"{\"weight_map\":{\"a\":1}}", E_DENIED},
                 {"{\"weight_map\":{}}", E_FORMAT},
                 {"{}", E_FORMAT},
                 {"x", E_FORMAT}};
    struct hub_listing l;
    struct hub_name n;
    struct hub_choice c;
    struct err err = {0};
    char got[1000];
    list_files(&l, paths);
    assert_int_equal(hub_name_parse(&n, "a/b", NULL), 0);
    assert_int_equal(choose(&l, "a/b", HUB_TOKENIZER, got, sizeof got, &err), 0);
    assert_string_equal(got, "additional_chat_templates/a.jinja config.json generation_config.json "
                             "tokenizer.json");
    assert_int_equal(hub_choose(&c, &n, HUB_MODEL, &l, &err), 0);
    assert_int_equal(c.n, 5);
    assert_true(hub_choice_has_index(&c));
    assert_int_equal(hub_choose_weights(&c, &n, &l, index, sizeof index - 1, &err), 0);
    assert_int_equal(c.n, 7);
    assert_string_equal(c.files[5]->path, "model-2.safetensors");
    assert_string_equal(c.files[6]->path, "model-1.safetensors");
    hub_choice_release(&c);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct err){0};
        assert_int_equal(hub_choose(&c, &n, HUB_MODEL, &l, &err), 0);
        int rc = hub_choose_weights(&c, &n, &l, wrong[i].index, strlen(wrong[i].index), &err);
        if (rc != wrong[i].code || !err.text[0]) fail_msg("%s: %d", wrong[i].index, rc);
        hub_choice_release(&c);
    }
    hub_listing_release(&l);
}

static void what_is_no_model_is_named(void **state) {
    static const struct {
        const char *files[4], *says;
    } repos[] = {
        {{"README.md"}, "a/b has no config.json"},
        {{"config.json"}, "a/b has neither model.safetensors nor model.safetensors.index.json"},
        {{"config.json", "pytorch_model.bin"}, "only weights of PyTorch's format"},
        {{"config.json", "m-Q4_0.gguf"}, "say which, as in a/b:QUANT; it has Q4_0"},
    };
    for (size_t i = 0; i < sizeof repos / sizeof *repos; i++) {
        struct hub_listing l;
        struct err err;
        char got[100];
        list_files(&l, repos[i].files);
        assert_int_equal(choose(&l, "a/b", HUB_MODEL, got, sizeof got, &err), E_NOTFOUND);
        if (!strstr(err.text, repos[i].says)) fail_msg("%s", err.text);
        hub_listing_release(&l);
    }
}

// `parley models list` aborted there: the hub's address is the first that libcurl is asked for.
static void without_libcurl_an_address_is_an_error(void **state) {
    struct lazy_library there = curl_lazy;
    struct err err = {0};
    curl_lazy = (struct lazy_library){.soname = "libparley-none.so.1"};
    assert_int_equal(address_check("https://hub.example", false, "HF_ENDPOINT", &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "libparley-none.so.1 cannot be loaded"));
    curl_lazy = there;
    assert_int_equal(address_check("https://hub.example", false, "HF_ENDPOINT", &err), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_has_its_parts),
        cmocka_unit_test(paths_and_what_leaves_a_folder_are_no_names),
        cmocka_unit_test(a_list_has_sizes_and_hashes),
        cmocka_unit_test(any_other_list_is_refused),
        cmocka_unit_test(gguf_files_have_tags),
        cmocka_unit_test(a_quant_names_one_file),
        cmocka_unit_test(safetensors_need_only_their_own_files),
        cmocka_unit_test(what_is_no_model_is_named),
        cmocka_unit_test(without_libcurl_an_address_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
