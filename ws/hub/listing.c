// See listing.h.
#include "ws/hub/listing.h"
#include "base/json.h"
#include "ws/hub/name.h"
#include <stdlib.h>
#include <string.h>

// Each file has some ten values. Other members (tags, the card, the author's words) are read past.
static const struct json_limits limits = {HUB_ANSWER_BYTES, 48, 2000000};

void hub_listing_release(struct hub_listing *l) {
    for (size_t i = 0; i < l->n; i++) free(l->files[i].path);
    free(l->files);
    *l = (struct hub_listing){0};
}

int hub_listing_add(struct hub_listing *l, const char *path, int64_t size, const char *etag,
                    struct err *err) {
    if (l->n == HUB_MAX_FILES)
        return err_set(err, E_LIMIT, "the repository has more than %d files", HUB_MAX_FILES);
    if ((l->n & (l->n - 1)) == 0) { // room for 1, 2, 4, 8 ...
        struct hub_file *more = realloc(l->files, (l->n ? 2 * l->n : 1) * sizeof *more);
        if (!more) return err_set(err, E_NOMEM, "no memory for a list of files");
        l->files = more;
    }
    struct hub_file *f = &l->files[l->n];
    *f = (struct hub_file){.path = strdup(path), .size = size};
    if (!f->path) return err_set(err, E_NOMEM, "no memory for a list of files");
    strncpy(f->etag, etag, HUB_ETAG_BYTES - 1);
    l->n++;
    return 0;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

void hub_listing_sort(struct hub_listing *l) {
    if (l->n > 1) qsort(l->files, l->n, sizeof *l->files, by_path);
}

const struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path) {
    const struct hub_file key = {.path = (char *)path};
    return l->n ? bsearch(&key, l->files, l->n, sizeof *l->files, by_path) : NULL;
}

// A large file is stored apart from git: its size and hash are those of `lfs`.
static int add_sibling(struct hub_listing *l, const cJSON *one, struct err *err) {
    const char *path = json_string(one, "rfilename"), *etag = json_string(one, "blobId");
    const cJSON *lfs = json_member(one, "lfs");
    size_t digits = 40;
    int64_t size = -1;
    if (!path) return err_set(err, E_FORMAT, "a file in the hub's list has no name");
    if (!hub_path_is_safe(path))
        return err_set(err, E_DENIED,
                       "the repository has a file named '%.120s', which leaves its folder", path);
    TRY(json_get_int(one, "size", 0, HUB_MAX_FILE_BYTES, &size, err));
    if (cJSON_IsObject(lfs)) {
        etag = json_string(lfs, "sha256");
        digits = 64;
        TRY(json_get_int(lfs, "size", 0, HUB_MAX_FILE_BYTES, &size, err));
    }
    if (!etag || !hub_is_hex(etag, digits) || size < 0)
        return err_set(err, E_FORMAT, "the hub's list has no size or no hash of the file %.200s",
                       path);
    return hub_listing_add(l, path, size, etag, err);
}

static int read_answer(struct hub_listing *out, const cJSON *root, struct err *err) {
    const char *commit = json_string(root, "sha");
    const cJSON *siblings, *one;
    if (!commit || !hub_is_hex(commit, HUB_COMMIT_DIGITS))
        return err_set(err, E_FORMAT, "the hub's answer names no commit");
    memcpy(out->commit, commit, HUB_COMMIT_DIGITS);
    if (json_get_array(root, "siblings", &siblings, err) != JSON_PRESENT)
        return err_set(err, E_FORMAT, "the hub's answer has no list of files");
    cJSON_ArrayForEach(one, siblings) TRY(add_sibling(out, one, err));
    hub_listing_sort(out);
    for (size_t i = 1; i < out->n; i++)
        if (strcmp(out->files[i - 1].path, out->files[i].path) == 0)
            return err_set(err, E_FORMAT, "the hub's list has the file %.200s twice",
                           out->files[i].path);
    return 0;
}

int hub_listing_parse(struct hub_listing *out, const char *json, size_t len, struct err *err) {
    struct err why = {0};
    *out = (struct hub_listing){0};
    cJSON *root = json_parse(json, len, &limits, &why);
    if (!root) return err_set(err, why.code, "the hub's answer: %.300s", why.text);
    int rc = read_answer(out, root, err);
    cJSON_Delete(root);
    if (rc < 0) hub_listing_release(out);
    return rc;
}
