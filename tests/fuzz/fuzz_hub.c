// The hub's list of a repository's files, then after a NUL the index of its weights: whatever they say, no path or hash
// leaves its folder, and what is chosen is in the list.
#include "tests/fuzz/fuzz.h"
#include "ws/hub/choice.h"

static void check_file(const struct hub_file *f) {
    FUZZ_CHECK(f->path[0] != '/' && f->path[0] != '\0');
    for (const char *part = f->path; part;
         part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        FUZZ_CHECK(strcmp(part, "..") != 0 && strncmp(part, "../", 3) != 0);
        FUZZ_CHECK(*part != '/' && *part != '\0');
    }
    FUZZ_CHECK(f->size >= 0 && f->size <= HUB_MAX_FILE_BYTES);
    FUZZ_CHECK(hub_is_hex(f->etag, 40) || hub_is_hex(f->etag, 64));
}

static void check_choice(const struct hub_choice *c, const struct hub_listing *l) {
    for (size_t i = 0; i < c->n; i++) {
        FUZZ_CHECK(c->files[i] >= l->files && c->files[i] < l->files + l->n);
        for (size_t j = 0; j < i; j++) FUZZ_CHECK(c->files[i] != c->files[j]);
    }
}

static void choose(const struct hub_listing *l, const char *text, enum hub_want want,
                   const char *index, size_t len) {
    struct hub_name n;
    struct hub_choice c;
    struct err err = {0};
    if (hub_name_parse(&n, text, &err) < 0) return;
    int rc = hub_choose(&c, &n, want, l, &err);
    fuzz_check_err(rc, &err);
    if (rc == 0 && want == HUB_MODEL) {
        bool has_index = hub_choice_has_index(&c);
        rc = hub_choose_weights(&c, &n, l, has_index ? index : NULL, len, &err);
        fuzz_check_err(rc, &err);
    }
    check_choice(&c, l);
    hub_choice_release(&c);
}

// Each GGUF file can be chosen by its own path, unless parts of it are missing or its path is no quant.
static void choose_each(const struct hub_listing *l) {
    for (size_t i = 0; i < l->n && i < 20; i++) {
        char tag[HUB_PATH_BYTES], name[2 * HUB_PATH_BYTES];
        if (!hub_gguf_tag(l->files[i].path, tag)) continue;
        FUZZ_CHECK(hub_gguf_parts(l->files[i].path) > 0);
        snprintf(name, sizeof name, "a/b:%s", tag);
        choose(l, name, HUB_MODEL, "", 0);
        snprintf(name, sizeof name, "a/b:%s", l->files[i].path);
        choose(l, name, HUB_MODEL, "", 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    const char *nul = size ? memchr(text, '\0', size) : NULL;
    const size_t len = nul ? (size_t)(nul - text) : size;
    struct hub_listing l;
    struct err err = {0};
    int rc = hub_listing_parse(&l, text, len, &err);
    fuzz_check_err(rc, &err);
    FUZZ_CHECK(rc == 0 || l.files == NULL);
    if (rc < 0) return 0;
    FUZZ_CHECK(hub_is_hex(l.commit, HUB_COMMIT_DIGITS));
    for (size_t i = 0; i < l.n; i++) check_file(&l.files[i]);
    char *index = strndup(nul ? nul + 1 : "", nul ? size - len - 1 : 0);
    FUZZ_CHECK(index);
    choose(&l, "a/b", HUB_MODEL, index, strlen(index));
    choose(&l, "a/b", HUB_TOKENIZER, index, strlen(index));
    choose_each(&l);
    free(index);
    hub_listing_release(&l);
    return 0;
}
