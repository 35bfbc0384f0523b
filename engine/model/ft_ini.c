// See ft_ini.h. Our own reader cuts the lines and passes them to inih one by one (base/config_ini.c
// says why). The reader also finds the section headings, which inih does not report.
#include "engine/model/ft_ini.h"
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_LINE_BYTES 4096
#define MAX_KEYS 2048 // a checkpoint has some thirty, and two for each prompt task
#define MAX_SECTIONS 1024

struct reader {
    struct ft_ini *ini;
    const char *p, *end;
    int line;    // that inih works on, from 1
    bool failed; // and *err says why
    struct err *err;
};

static char *lower_copy(const char *text, size_t len) {
    char *out = strndup(text, len);
    for (char *p = out; p && *p; p++) *p = (char)tolower((unsigned char)*p);
    return out;
}

static int fail(struct reader *r, int code, const char *what, const char *name) {
    r->failed = true;
    err_set(r->err, code, "%s:%d: %s%.60s", r->ini->path, r->line, what, name);
    return 0;
}

// --- headings ---

static int add_section(struct reader *r, const char *name, size_t len) {
    struct ft_ini *ini = r->ini;
    char *copy = lower_copy(name, len);
    char **grown = realloc(ini->sections, (ini->n_sections + 1) * sizeof *grown);
    if (grown) ini->sections = grown;
    if (!copy || !grown) {
        free(copy);
        return fail(r, E_NOMEM, "no memory for a section", "");
    }
    bool twice = ft_ini_has_section(ini, copy);
    grown[ini->n_sections++] = copy; // released with the rest
    if (twice) return fail(r, E_FORMAT, "a second section ", copy);
    if (ini->n_sections > MAX_SECTIONS) return fail(r, E_LIMIT, "too many sections", "");
    return 1;
}

static void note_section(struct reader *r, const char *line) {
    const char *end = *line == '[' ? strchr(line, ']') : NULL;
    if (end) add_section(r, line + 1, (size_t)(end - line - 1));
}

// inih's fgets: one whole line without its indent, which would join it to the value above.
static char *read_line(char *out, int cap, void *ctx) {
    struct reader *r = ctx;
    if (r->failed || r->p == r->end) return NULL;
    r->line++;
    const char *newline = memchr(r->p, '\n', (size_t)(r->end - r->p));
    const char *next = newline ? newline + 1 : r->end;
    while (r->p < next && (*r->p == ' ' || *r->p == '\t')) r->p++;
    size_t len = (size_t)(next - r->p);
    if (len >= (size_t)cap) {
        fail(r, E_LIMIT, "the line is too long", "");
        return NULL;
    }
    memcpy(out, r->p, len);
    out[len] = '\0';
    r->p = next;
    note_section(r, out);
    return r->failed ? NULL : out;
}

// --- keys ---

static struct ft_ini_key *find(const struct ft_ini *ini, const char *section, const char *name) {
    for (size_t i = 0; i < ini->n; i++)
        if (strcasecmp(ini->keys[i].name, name) == 0 &&
            strcasecmp(ini->keys[i].section, section) == 0)
            return &ini->keys[i];
    return NULL;
}

// inih's handler: 0 stops.
static int take_key(void *ctx, const char *section, const char *name, const char *value) {
    struct reader *r = ctx;
    struct ft_ini *ini = r->ini;
    if (r->failed) return 0;
    if (!*name) return fail(r, E_FORMAT, "a value without a key", "");
    if (find(ini, section, name)) return fail(r, E_FORMAT, "a second ", name);
    if (ini->n == MAX_KEYS) return fail(r, E_LIMIT, "too many keys", "");
    struct ft_ini_key *grown = realloc(ini->keys, (ini->n + 1) * sizeof *grown);
    if (!grown) return fail(r, E_NOMEM, "no memory for the key ", name);
    ini->keys = grown;
    struct ft_ini_key *k = &grown[ini->n++];
    *k = (struct ft_ini_key){.section = lower_copy(section, strlen(section)),
                             .name = lower_copy(name, strlen(name)),
                             .value = strdup(value)};
    if (k->section && k->name && k->value) return 1;
    return fail(r, E_NOMEM, "no memory for the key ", name);
}

// Debian and Ubuntu build inih with its limits as variables; elsewhere the line limit is fixed at
// 200.
extern int ini_max_line __attribute__((weak));

int ft_ini_parse(struct ft_ini *ini, const char *path, const char *text, size_t len,
                 struct err *err) {
    struct err why = {0};
    *ini = (struct ft_ini){.path = path};
    if (len > FT_INI_MAX_BYTES)
        return err_set(err, E_LIMIT, "%s: %zu bytes; the limit is %zu", path, len,
                       FT_INI_MAX_BYTES);
    if (len && memchr(text, '\0', len))
        return err_set(err, E_FORMAT, "%s: contains a NUL byte, so it is not text", path);
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    if (&ini_max_line) ini_max_line = MAX_LINE_BYTES;
    struct reader r = {.ini = ini, .p = text, .end = text + len, .err = &why};
    int rc = ini_parse_stream(read_line, &r, take_key, &r);
    // inih reads on after a line of the wrong form, so that our own failure may be a later one.
    if (r.failed && (rc <= 0 || rc >= r.line)) return err_set(err, why.code, "%s", why.text);
    if (rc == 0) return 0;
    if (rc < 0) return err_set(err, E_NOMEM, "%s: no memory to read it", path);
    return err_set(err, E_FORMAT, "%s:%d: neither '[section]' nor 'key = value'", path, rc);
}

void ft_ini_release(struct ft_ini *ini) {
    for (size_t i = 0; i < ini->n; i++) {
        free(ini->keys[i].section);
        free(ini->keys[i].name);
        free(ini->keys[i].value);
    }
    for (size_t i = 0; i < ini->n_sections; i++) free(ini->sections[i]);
    free(ini->keys);
    free(ini->sections);
    *ini = (struct ft_ini){0};
}

// --- asking ---

bool ft_ini_has_section(const struct ft_ini *ini, const char *section) {
    for (size_t i = 0; i < ini->n_sections; i++)
        if (strcasecmp(ini->sections[i], section) == 0) return true;
    return false;
}

int ft_ini_string(const struct ft_ini *ini, const char *section, const char *name,
                  const char **out) {
    struct ft_ini_key *k = find(ini, section, name);
    if (!k) return FT_INI_ABSENT;
    k->used = true;
    *out = k->value;
    return FT_INI_PRESENT;
}

static int bad(const struct ft_ini *ini, const char *name, const char *value, const char *wanted,
               struct err *err) {
    return err_set(err, E_FORMAT, "%s: '%s' is '%.40s', not %s", ini->path, name, value, wanted);
}

int ft_ini_int(const struct ft_ini *ini, const char *section, const char *name, int64_t min,
               int64_t max, int64_t *out, struct err *err) {
    const char *text;
    char *end, wanted[96];
    if (ft_ini_string(ini, section, name, &text) == FT_INI_ABSENT) return FT_INI_ABSENT;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)min,
             (long long)max);
    if (end == text || *end || errno || v < min || v > max)
        return bad(ini, name, text, wanted, err);
    *out = v;
    return FT_INI_PRESENT;
}

int ft_ini_double(const struct ft_ini *ini, const char *section, const char *name, double min,
                  double max, double *out, struct err *err) {
    const char *text;
    char *end, wanted[96];
    if (ft_ini_string(ini, section, name, &text) == FT_INI_ABSENT) return FT_INI_ABSENT;
    double v = strtod(text, &end);
    snprintf(wanted, sizeof wanted, "a number from %g to %g", min, max);
    if (end == text || *end || !(v >= min && v <= max)) return bad(ini, name, text, wanted, err);
    *out = v;
    return FT_INI_PRESENT;
}

int ft_ini_bool(const struct ft_ini *ini, const char *section, const char *name, bool *out,
                struct err *err) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    const char *text;
    if (ft_ini_string(ini, section, name, &text) == FT_INI_ABSENT) return FT_INI_ABSENT;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        *out = i % 2 != 0;
        return FT_INI_PRESENT;
    }
    return bad(ini, name, text, "true or false", err);
}

const char *ft_ini_unused(const struct ft_ini *ini, const char *section, size_t *n) {
    const char *first = NULL;
    *n = 0;
    for (size_t i = 0; i < ini->n; i++) {
        if (ini->keys[i].used || strcasecmp(ini->keys[i].section, section) != 0) continue;
        if ((*n)++ == 0) first = ini->keys[i].name;
    }
    return first;
}
