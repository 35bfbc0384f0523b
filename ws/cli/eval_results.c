// See eval_results.h.
#include "ws/cli/eval_results.h"

#include "base/json_form.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES ((size_t)1 << 30)

// False: the line is not a result of this evaluation.
static bool take_line(struct eval_results *r, const char *line, size_t len) {
    struct eval_result result = {.done = true};
    int64_t item = -1;
    const char *answer = NULL;
    cJSON *json = json_parse(line, len, &json_limits_file, NULL);
    const cJSON *logprob = cJSON_GetObjectItemCaseSensitive(json, "logprob");
    bool good = json && json_get_int(json, "item", 0, (int64_t)r->n - 1, &item, NULL) == 1 &&
                json_get_bool(json, "correct", &result.correct, NULL) >= 0 &&
                json_get_double(json, "f1", 0, 1, &result.f1, NULL) >= 0 &&
                json_get_string(json, "answer", &answer, NULL) >= 0;
    // A model may rule a token out: its minus infinity is written as null.
    if (logprob) result.logprob = cJSON_IsNumber(logprob) ? logprob->valuedouble : -INFINITY;
    if (good && answer) good = (result.answer = strdup(answer)) != NULL;
    cJSON_Delete(json);
    if (!good) return false;
    if (r->list[item].done)
        free(r->list[item].answer);
    else
        r->n_done++;
    r->list[item] = result;
    return true;
}

// *valid: how many bytes of the file are complete lines.
static int take_file(struct eval_results *r, const struct buf *old, const char *header,
                     size_t *valid, struct err *err) {
    const char *text = (const char *)old->data;
    size_t n_header = strlen(header);
    *valid = 0;
    const char *end = old->len ? memchr(text, '\n', old->len) : NULL;
    if (!end) return 0; // a run was killed in its first line
    if ((size_t)(end - text) != n_header || memcmp(text, header, n_header) != 0)
        return err_set(err, E_INVAL,
                       "%s has the results of another evaluation: remove it, or name another "
                       "file with --results",
                       r->path);
    *valid = n_header + 1;
    while ((end = memchr(text + *valid, '\n', old->len - *valid))) {
        size_t len = (size_t)(end - (text + *valid));
        if (!take_line(r, text + *valid, len))
            return err_set(err, E_FORMAT, "%s has a line that is no result, at byte %zu", r->path,
                           *valid);
        *valid += len + 1;
    }
    return 0;
}

static int write_line(struct eval_results *r, const char *line, size_t len, struct err *err) {
    if (fwrite(line, 1, len, r->file) == len && fputc('\n', r->file) == '\n' &&
        fflush(r->file) == 0)
        return 0;
    return err_set(err, E_IO, "%s: %s", r->path, strerror(errno));
}

int eval_results_open(struct eval_results *r, const char *path, const char *header, size_t n,
                      struct err *err) {
    struct buf old;
    size_t valid = 0;
    int rc = 0;
    *r = (struct eval_results){.n = n, .path = path};
    r->list = calloc(n, sizeof *r->list);
    if (!r->list) return err_set(err, E_NOMEM, "out of memory for the results");
    if (access(path, F_OK) == 0) {
        rc = buf_read_file(&old, path, FILE_BYTES, err);
        if (rc == 0) rc = take_file(r, &old, header, &valid, err);
        buf_release(&old);
        if (rc == 0 && truncate(path, (off_t)valid) < 0)
            rc = err_set(err, E_IO, "%s: %s", path, strerror(errno));
    }
    if (rc == 0) r->file = fopen(path, "a");
    if (rc == 0 && !r->file) rc = err_set(err, E_IO, "%s: %s", path, strerror(errno));
    if (rc == 0 && valid == 0) rc = write_line(r, header, strlen(header), err);
    r->n_found = r->n_done;
    if (rc < 0) eval_results_close(r, NULL);
    return rc;
}

int eval_results_add(struct eval_results *r, size_t item, const struct eval_result *result,
                     struct err *err) {
    struct json_writer w;
    struct buf line;
    buf_init(&line, FILE_BYTES);
    json_writer_init(&w, &line);
    json_form(&w, "{item:%zu,correct:%hhd", item, result->correct);
    if (result->answer) {
        json_form(&w, "answer:%s,f1:%g", result->answer, result->f1);
    } else {
        json_put_double(&w, "logprob", result->logprob);
    }
    json_close(&w, '}');
    r->list[item] = *result;
    r->list[item].done = true;
    r->n_done++;
    int rc = line.error ? err_set(err, line.error, "out of memory for a result")
                        : write_line(r, buf_z(&line), line.len, err);
    buf_release(&line);
    return rc;
}

int eval_results_close(struct eval_results *r, struct err *err) {
    int rc = 0;
    if (r->file && (fsync(fileno(r->file)) < 0 || ferror(r->file))) rc = E_IO;
    if (r->file && fclose(r->file) != 0) rc = E_IO;
    if (rc < 0 && err && !err->code) err_set(err, rc, "%s: %s", r->path, strerror(errno));
    for (size_t i = 0; r->list && i < r->n; i++) free(r->list[i].answer);
    free(r->list);
    *r = (struct eval_results){0};
    return rc;
}
