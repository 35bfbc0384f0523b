// Reads the ini file with inih. See config.h.
// inih continues after an error, keeps the last of two equal keys, joins indented lines to the
// value above, and splits a long line. So our own reader gives it one whole line at a time, without
// the indent, and stops after the first error.
#include "base/config_parts.h"
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (1 << 20)
#define LINE_MAX_BYTES 4096
#define PIPE_WAIT_MS 10000

struct ini_file {
    const struct config_table *table;
    void *settings;
    const char *path;
    const char *p, *end;
    int line;                   // number of the current line, from 1
    bool *seen;                 // (n_keys)
    struct config_parts *parts; // NULL: no named sections
    struct config_part *part;   // the named section that is being read; NULL: none is
    void *scratch;              // settings that a part's values are checked in
    bool failed;                // *err has the reason
    struct err *err;
};

static int fail(struct ini_file *f, int code, const char *text) {
    f->failed = true;
    err_set(f->err, code, "%s:%d: %s", f->path, f->line, text);
    return 0;
}

// Here, because inih does not report a section without keys.
static void begin_section(struct ini_file *f, const char *line) {
    char name[64];
    struct err reason = {0};
    size_t len = f->parts ? strlen(f->parts->kind) : 0;
    f->part = NULL;
    if (!len || strncmp(line + 1, f->parts->kind, len) != 0 || line[1 + len] != ' ') return;
    line += 1 + len + strspn(line + 1 + len, " ");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "]"), line);
    f->part = config_part_add(f->parts, name, &reason);
    if (!f->part) fail(f, reason.code, reason.text);
}

// inih's fgets.
static char *read_line(char *out, int cap, void *ctx) {
    struct ini_file *f = ctx;
    if (f->failed || f->p == f->end) return NULL;
    f->line++;
    const char *newline = memchr(f->p, '\n', (size_t)(f->end - f->p));
    const char *next = newline ? newline + 1 : f->end;
    while (f->p < next && (*f->p == ' ' || *f->p == '\t')) f->p++;
    size_t len = (size_t)(next - f->p);
    if (len >= (size_t)cap) {
        fail(f, E_LIMIT, "line too long");
        return NULL;
    }
    memcpy(out, f->p, len);
    out[len] = '\0';
    f->p = next;
    if (out[0] == '[') begin_section(f, out);
    return f->failed ? NULL : out;
}

static bool is_section(const struct config_table *t, const char *section) {
    for (int i = 0; i < t->n_keys; i++)
        if (strcmp(t->keys[i].section, section) == 0) return true;
    return false;
}

static int unknown_section(struct ini_file *f, const char *section) {
    char text[sizeof f->err->text];
    struct buf words;
    buf_init(&words, sizeof text - 1);
    if (*section)
        buf_addf(&words, "unknown section [%.60s]; the sections are", section);
    else
        buf_addz(&words, "key before the first section; the sections are");
    for (int i = 0; i < f->table->n_keys; i++)
        if (config_starts_section(f->table, i))
            buf_addf(&words, " [%s]", f->table->keys[i].section);
    fail(f, E_FORMAT, buf_z(&words));
    buf_release(&words);
    return 0;
}

// A key of a named section; the value is checked as the program's would be.
static int take_part_key(struct ini_file *f, const char *name, const char *value) {
    char text[sizeof f->err->text];
    struct err reason = {0};
    const struct config_key *key = config_find(f->table, name);
    if (key && !f->parts->may_give(key)) {
        snprintf(text, sizeof text, "'%s' holds for the whole server: it belongs in section [%s]",
                 key->name, key->section);
        return fail(f, E_FORMAT, text);
    }
    int rc = config_set(f->table, f->scratch, name, value, &reason);
    if (rc < 0) return fail(f, rc, reason.text);
    rc = config_part_give(f->part, key, value);
    if (rc == 0) return 1;
    snprintf(text, sizeof text, "'%s' is set twice", key->name);
    return rc == E_EXISTS ? fail(f, E_FORMAT, text) : fail(f, rc, "out of memory");
}

// inih's handler: 0 stops.
static int take_key(void *ctx, const char *section, const char *name, const char *value) {
    struct ini_file *f = ctx;
    char text[sizeof f->err->text];
    struct err reason = {0};
    const struct config_key *key = config_find(f->table, name);
    size_t len = strlen(value);
    if (f->part) return take_part_key(f, name, value);
    if (!is_section(f->table, section)) return unknown_section(f, section);
    if (key && strcmp(key->section, section) != 0) {
        snprintf(text, sizeof text, "'%s' belongs in section [%s], not [%s]", key->name,
                 key->section, section);
        return fail(f, E_FORMAT, text);
    }
    if (key && f->seen[key - f->table->keys]) {
        snprintf(text, sizeof text, "'%s' is set twice", key->name);
        return fail(f, E_FORMAT, text);
    }
    if (len >= 2 && value[0] == '"' && value[len - 1] == '"')
        return fail(f, E_FORMAT, "write values without quotes");
    int rc = config_set(f->table, f->settings, name, value, &reason);
    if (rc < 0) return fail(f, rc, reason.text);
    f->seen[key - f->table->keys] = true;
    return 1;
}

// In Debian and Ubuntu inih's limits are variables. Elsewhere its line limit is 200, and read_line
// rejects longer lines.
extern int ini_max_line __attribute__((weak));

static int parse(struct ini_file *f) {
    if (&ini_max_line) ini_max_line = LINE_MAX_BYTES;
    int rc = ini_parse_stream(read_line, f, take_key, f);
    // rc is the first line that inih or our handler rejected. inih continues after a malformed
    // line, so our own error may be about a later line.
    if (f->failed && (rc <= 0 || rc == f->line)) return f->err->code;
    if (rc == 0) return 0;
    if (rc < 0) return err_set(f->err, E_NOMEM, "%s: out of memory", f->path);
    return err_set(f->err, E_FORMAT, "%s:%d: expected '[section]' or 'key = value'", f->path, rc);
}

int config_load(const struct config_table *t, void *settings, const char *path, struct err *err) {
    return config_load_parts(t, settings, NULL, path, err);
}

int config_load_parts(const struct config_table *t, void *settings, struct config_parts *parts,
                      const char *path, struct err *err) {
    struct buf text;
    struct err reason = {0};
    bool *seen = NULL;
    void *scratch = NULL;
    int rc = buf_read_file_or_pipe(&text, path, FILE_MAX_BYTES, PIPE_WAIT_MS, err);
    if (rc < 0) goto done;
    if (text.len && memchr(text.data, '\0', text.len)) {
        rc = err_set(err, E_FORMAT, "%s: not a text file: it contains a NUL byte", path);
        goto done;
    }
    seen = calloc((size_t)t->n_keys + 1, sizeof *seen);
    scratch = seen && parts ? malloc(config_size(t)) : NULL;
    if (scratch && config_init(t, scratch, err) < 0) {
        free(scratch);
        scratch = NULL;
    }
    if (!seen || (parts && !scratch)) {
        rc = err_set(err, E_NOMEM, "%s: out of memory", path);
        goto done;
    }
    const char *p = buf_z(&text);
    rc = parse(&(struct ini_file){.table = t,
                                  .settings = settings,
                                  .path = path,
                                  .p = p,
                                  .end = p + text.len,
                                  .seen = seen,
                                  .parts = parts,
                                  .scratch = scratch,
                                  .err = &reason});
    if (rc < 0) err_set(err, rc, "%s", reason.text);
done:
    if (scratch) config_release(t, scratch);
    free(scratch);
    free(seen);
    buf_release(&text);
    return rc;
}
