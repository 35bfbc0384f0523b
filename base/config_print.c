// Prints --help and the commented ini file. See config.h.
#include "base/config.h"
#include <string.h>
#include <sys/ioctl.h>

#define OPTION_COLUMN 28
#define TEXT_MAX_BYTES (1 << 20)
#define VALUE_MAX_BYTES 3900 // key and value together fit the longest line of config_load

// Writes text in lines of at most `width` columns. The cursor is at column `at`; further lines
// begin with prefix. A word longer than a line gets its own line. Help is ASCII, so a byte is a
// column.
static void wrap(FILE *out, const char *text, int at, int width, const char *prefix) {
    int start = (int)strlen(prefix), column = at;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        bool first = column == at && p == text;
        if (!first && column + 1 + n > width && column > start) {
            fprintf(out, "\n%s", prefix);
            column = start;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", n, p);
        column += n + !first;
        p += n;
        p += strspn(p, " ");
    }
    fputc('\n', out);
}

void config_describe(const struct config_key *key, struct buf *out) {
    buf_addz(out, key->help);
    size_t start = out->len;
    buf_addz(out, " (");
    config_range(key, out);
    if (key->fallback[0]) {
        if (out->len > start + 2) buf_addz(out, "; ");
        buf_addf(out, "default %s", key->fallback);
    }
    if (out->len == start + 2) {
        out->len = start;
        out->data[start] = '\0';
    } else {
        buf_addc(out, ')');
    }
}

// --- help ---

static int columns(FILE *out) {
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) < 0 || size.ws_col == 0) return 80;
    return size.ws_col < 60 ? 60 : size.ws_col > 100 ? 100 : size.ws_col;
}

const char *config_metavar(const struct config_key *key) {
    static const char *const by_type[] = {
        [CONFIG_INT] = "N",       [CONFIG_FLOAT] = "X",     [CONFIG_BYTES] = "SIZE",
        [CONFIG_STRING] = "TEXT", [CONFIG_CHOICE] = "NAME",
    };
    return key->type == CONFIG_STRING && key->choices ? key->choices : by_type[key->type];
}

static void help_option(const struct config_key *key, FILE *out, int width, struct buf *text) {
    char indent[OPTION_COLUMN + 1];
    memset(indent, ' ', OPTION_COLUMN);
    indent[OPTION_COLUMN] = '\0';
    buf_reset(text);
    bool flag = config_is_flag(key);
    buf_addf(text, "  --%s%s%s%s", flag ? "[no-]" : "", key->name, flag ? "" : " ",
             flag ? "" : config_metavar(key));
    for (char *p = text->data; p && *p; p++)
        if (*p == '_') *p = '-';
    if (text->len + 2 > OPTION_COLUMN)
        fprintf(out, "%s\n%s", buf_z(text), indent);
    else
        fprintf(out, "%-*s", OPTION_COLUMN, buf_z(text));
    buf_reset(text);
    config_describe(key, text);
    wrap(out, buf_z(text), OPTION_COLUMN, width, indent);
}

void config_help(const struct config_table *t, FILE *out) {
    int width = columns(out);
    struct buf text;
    buf_init(&text, TEXT_MAX_BYTES);
    for (int i = 0; i < t->n_keys; i++) {
        if (!config_starts_section(t, i)) continue;
        const char *section = t->keys[i].section;
        // A command's table may have no sections.
        const char *heading = section[0] ? section : "options";
        fprintf(out, "%s%c%s:\n", i ? "\n" : "", heading[0] & ~0x20, heading + 1);
        for (int k = i; k < t->n_keys; k++)
            if (strcmp(t->keys[k].section, section) == 0)
                help_option(&t->keys[k], out, width, &text);
    }
    buf_release(&text);
}

// --- the ini file ---

// inih trims values, reads ';' after white space as a comment, and has no quotes.
static bool survives(const char *value) {
    size_t n = strlen(value);
    if (n == 0) return true;
    if (value[0] == ';' || value[0] == ' ' || value[n - 1] == ' ') return false;
    if (n >= 2 && value[0] == '"' && value[n - 1] == '"') return false;
    return n < VALUE_MAX_BYTES && !strstr(value, " ;");
}

static void write_key(const struct config_key *key, const void *settings, FILE *out,
                      struct buf *text) {
    buf_reset(text);
    config_describe(key, text);
    fputs("\n; ", out);
    wrap(out, buf_z(text), 2, 90, "; ");
    buf_reset(text);
    config_text(key, settings, text);
    if (key->secret && text->len)
        fprintf(out, "; (a secret is set; it is not written here)\n;%s =\n", key->name);
    else if (!survives(buf_z(text)))
        fprintf(out, "; (an ini file cannot represent the value: use --%s)\n;%s =\n", key->name,
                key->name);
    else
        fprintf(out, "%s =%s%s\n", key->name, text->len ? " " : "", buf_z(text));
}

void config_write_ini(const struct config_table *t, const void *settings, FILE *out) {
    struct buf text;
    buf_init(&text, TEXT_MAX_BYTES);
    fputs("; Every key is also a command-line option (--key VALUE) and an environment variable\n"
          "; (PARLEY_KEY). The command line overrides the environment, which overrides this file.\n"
          "; A comment begins with ';'.\n",
          out);
    for (int i = 0; i < t->n_keys; i++) {
        if (!config_starts_section(t, i)) continue;
        fprintf(out, "\n[%s]\n", t->keys[i].section);
        for (int k = i; k < t->n_keys; k++)
            if (strcmp(t->keys[k].section, t->keys[i].section) == 0)
                write_key(&t->keys[k], settings, out, &text);
    }
    buf_release(&text);
}
