// Reads a model's suggestions. See suggestions.h.
#include "ws/suggestions.h"
#include "base/json_form.h"
#include "base/path.h"
#include <string.h>
#include <unistd.h>

#define FILE_NAME "suggestions.json"

static const struct json_limits limits = {.max_bytes = 64 << 10, .max_depth = 4, .max_nodes = 200};

static int get_text(const cJSON *entry, const char *key, size_t most, const char **out,
                    struct err *err) {
    int rc = json_get_string(entry, key, out, err);
    if (rc < 0) return rc;
    size_t len = rc == JSON_PRESENT ? strlen(*out) : 0;
    if (len >= 1 && len <= most) return 0;
    return err_set(err, E_INVAL, "'%s' must be a string of 1 to %zu bytes", key, most);
}

static int write_entries(const cJSON *list, struct buf *out, struct err *err) {
    struct json_writer w;
    const cJSON *entry;
    if (!cJSON_IsArray(list)) return err_set(err, E_INVAL, "it is not an array");
    if (cJSON_GetArraySize(list) > SUGGESTIONS_MAX)
        return err_set(err, E_LIMIT, "more than %d suggestions", SUGGESTIONS_MAX);
    json_writer_init(&w, out);
    json_open(&w, NULL, '[');
    cJSON_ArrayForEach(entry, list) {
        const char *title = NULL, *text = NULL;
        TRY(get_text(entry, "title", SUGGESTION_TITLE_BYTES, &title, err));
        TRY(get_text(entry, "text", SUGGESTION_TEXT_BYTES, &text, err));
        json_form(&w, "{title:%s,text:%s}", title, text);
    }
    json_close(&w, ']');
    return out->error ? err_set(err, out->error, "no memory for suggestions") : 0;
}

int suggestions_read(const char *model, char **json, struct err *err) {
    char path[PATH_MAX];
    struct err why = {0};
    struct buf out;
    *json = NULL;
    if (!path_holds(model, FILE_NAME, F_OK)) return 0;
    TRY(path_join(path, model, FILE_NAME, err));
    cJSON *list = json_parse_file(path, &limits, err);
    if (!list) return err->code;
    buf_init(&out, 2 * limits.max_bytes);
    int rc = write_entries(list, &out, &why);
    if (rc == 0 && !(*json = strdup(buf_z(&out)))) rc = err_set(&why, E_NOMEM, "no memory");
    if (rc < 0) err_set(err, rc, "%s: %s", path, why.text);
    buf_release(&out);
    cJSON_Delete(list);
    return rc;
}
