// The manual pages in man(7)'s macros, which groff and mandoc both read. See documents.h.
#include "base/config.h"
#include "ws/cli/build_info.h"
#include "ws/cli/cli.h"
#include "ws/cli/documents.h"
#include "ws/serve.h"
#include "ws/serve_config.h"
#include "ws/version.h"
#include <string.h>

#define TEXT_MAX_BYTES (1 << 16)
#define FILL_COLUMNS 72

// --- text ---

// A character as roff source: the minus of an option, not a hyphen; quotes as typed.
static void put_char(FILE *out, char c) {
    static const char *const names[256] = {
        ['\\'] = "\\e", ['-'] = "\\-", ['\''] = "\\(aq", ['^'] = "\\(ha", ['~'] = "\\(ti"};
    const char *name = names[(unsigned char)c];
    if (name)
        fputs(name, out);
    else
        fputc(c, out);
}

// At the start of a line '.' and '\'' would begin a request.
static void put_word(FILE *out, const char *word, size_t len, bool starts_line, bool *bold) {
    if (starts_line && (word[0] == '.' || word[0] == '\'')) fputs("\\&", out);
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '`') {
            *bold = !*bold;
            fputs(*bold ? "\\fB" : "\\fR", out);
        } else {
            put_char(out, word[i]);
        }
    }
}

static bool ends_sentence(const char *word, size_t len) {
    while (len && strchr(")`", word[len - 1])) len--;
    return len > 1 && strchr(".?!", word[len - 1]) && word[len - 2] != '.';
}

// Writes text in short lines, each sentence on a new one. Words in backquotes are bold.
static void put_text(FILE *out, const char *text) {
    size_t column = 0;
    bool bold = false;
    for (const char *p = text + strspn(text, " \n"); *p;) {
        size_t len = strcspn(p, " \n");
        if (column && column + 1 + len > FILL_COLUMNS) {
            fputc('\n', out);
            column = 0;
        }
        if (column) fputc(' ', out);
        put_word(out, p, len, column == 0, &bold);
        column += len + 1;
        const char *next = p + len + strspn(p + len, " \n");
        if (*next && ends_sentence(p, len)) {
            fputc('\n', out);
            column = 0;
        }
        p = next;
    }
    fputc('\n', out);
}

// Writes lines unchanged.
static void put_example(FILE *out, const char *text) {
    fputs(".EX\n", out);
    for (bool start = true; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) fputs("\\&", out);
        start = *text == '\n';
        if (start)
            fputc('\n', out);
        else
            put_char(out, *text);
    }
    fputs("\n.EE\n", out);
}

static void put_title(FILE *out, const char *name, const char *section, const char *manual) {
    fprintf(out,
            ".\\\" Written by the program from its own tables: parley documents.\n"
            ".TH %s %s \"%s\" \"parley %s\" \"%s\"\n",
            name, section, build_date, PARLEY_VERSION, manual);
}

// --- options ---

static void put_option_name(FILE *out, const struct config_key *key) {
    bool flag = config_is_flag(key);
    fprintf(out, ".TP\n.B %s", flag ? "\\-\\-[no\\-]" : "\\-\\-");
    for (const char *p = key->name; *p; p++) put_char(out, *p == '_' ? '-' : *p);
    if (!flag) fprintf(out, " \\fI%s\\fR", config_metavar(key));
    fputc('\n', out);
}

static void put_help(FILE *out, const struct config_key *key) {
    struct buf text;
    buf_init(&text, TEXT_MAX_BYTES);
    config_describe(key, &text);
    put_text(out, buf_z(&text));
    buf_release(&text);
}

static void put_options(FILE *out, const struct config_table *t, bool shared, const char *section) {
    for (int i = 0; i < t->n_keys; i++) {
        const struct config_key *key = &t->keys[i];
        if (documents_is_shared(key->section, key->name) != shared) continue;
        if (section && strcmp(section, key->section) != 0) continue;
        put_option_name(out, key);
        put_help(out, key);
    }
}

// --- parley(1) ---

static bool has_columns(const char *text) {
    return strstr(text, "  ") != NULL;
}

static void put_about(FILE *out, const struct cli_command *c) {
    struct buf about;
    buf_init(&about, TEXT_MAX_BYTES);
    if (c->describe)
        c->describe(&about);
    else
        buf_addz(&about, c->about);
    if (has_columns(buf_z(&about)))
        put_example(out, buf_z(&about));
    else
        put_text(out, buf_z(&about));
    buf_release(&about);
}

static void put_command(FILE *out, const struct cli_command *c) {
    const struct config_table *t = cli_options(c);
    fprintf(out, ".SS %s\n.B parley\n", c->name);
    put_text(out, c->usage);
    fputs(".PP\n", out);
    put_about(out, c);
    put_options(out, t, false, NULL);
    if (!c->compute.help && !c->sampling_offset) return;
    fprintf(out, ".PP\nTakes %s%s%s below too.\n", c->compute.help ? "the model options" : "",
            c->compute.help && c->sampling_offset ? " and " : "",
            c->sampling_offset ? "the sampling options" : "");
}

void man_page(FILE *out) {
    put_title(out, "PARLEY", "1", "User Commands");
    fputs(".SH NAME\n"
          "parley \\- chat engine whose unit of service is the session\n"
          ".SH SYNOPSIS\n"
          ".B parley\n.I command\n.RI [ options ]\n"
          ".br\n.B parley \\-\\-version\n.RB [ \\-\\-json ]\n"
          ".SH DESCRIPTION\n",
          out);
    put_text(out, "Serves a language model to a chat page and to programs, and keeps their "
                  "conversations. A client sends only what is new; keys and values stay in a cache "
                  "and everything needed to continue is in an SQLite database. The other commands "
                  "talk to a server, run a model without one, and read the database.");
    fputs(".SH COMMANDS\n", out);
    for (int i = 0; cli_listed(i); i++) put_command(out, cli_listed(i));
    fputs(".SH MODEL OPTIONS\n", out);
    put_options(out, cli_options(&command_generate), true, "model");
    fputs(".SH SAMPLING OPTIONS\n", out);
    put_options(out, cli_options(&command_generate), true, "sampling");
    fputs(".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nFailed.\n.TP\n.B 2\nWrong usage.\n", out);
    fprintf(out, ".TP\n.B %d\n", SERVE_EXIT_RESTART);
    put_text(out,
             "`serve`: the GPU or a rank failed. All turns are stored; start the server again.");
    fputs(".SH ENVIRONMENT\n.TP\n.BI PARLEY_ NAME\n", out);
    put_text(out, "`serve`: a setting of parley.ini(5) by its name in capitals. The command line "
                  "overrides it; it overrides the file.");
    fputs(".SH SEE ALSO\n.BR parley.ini (5)\n", out);
}

// --- parley.ini(5) ---

static void put_setting(FILE *out, const struct config_key *key) {
    fputs(".TP\n.B ", out);
    for (const char *p = key->name; *p; p++) put_char(out, *p);
    fprintf(out, " = \\fI%s\\fR\n", config_is_flag(key) ? "on|off" : config_metavar(key));
    put_help(out, key);
}

void man_settings(FILE *out) {
    const struct config_table *t = serve_config_table();
    put_title(out, "PARLEY.INI", "5", "File Formats");
    fputs(".SH NAME\nparley.ini \\- settings of the chat server parley\n"
          ".SH SYNOPSIS\n.I /etc/parley/parley.ini\n.SH DESCRIPTION\n",
          out);
    put_text(
        out,
        "`parley serve --config FILE` reads its settings from such a file. A line is `[section]` "
        "or `key = value`; a comment begins with a semicolon. An unknown key, a key in another "
        "section and a key that is given twice are errors. Every key is also an option of "
        "`parley serve` (`--key VALUE`) and an environment variable (`PARLEY_KEY`). The "
        "command line overrides the environment, which overrides the file. `parley serve "
        "--print-config` prints the file for the current settings. The file may be a pipe, such "
        "as a shell's `<(command)`, that ends within ten seconds.");
    for (int i = 0; i < t->n_keys; i++) {
        if (!config_starts_section(t, i)) continue;
        fprintf(out, ".SH \"[%s]\"\n", t->keys[i].section);
        for (int k = i; k < t->n_keys; k++)
            if (!strcmp(t->keys[k].section, t->keys[i].section)) put_setting(out, &t->keys[k]);
    }
    fputs(".SH SEE ALSO\n.BR parley (1)\n", out);
}
