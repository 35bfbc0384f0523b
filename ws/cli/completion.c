// The completion of bash: one function, and for each command its options with the kind of value
// that each takes. See documents.h.
#include "ws/cli/cli.h"
#include "ws/cli/documents.h"
#include "ws/serve_config.h"
#include <string.h>

static void put_name(FILE *out, const struct config_key *key, const char *prefix) {
    fprintf(out, " --%s", prefix);
    for (const char *p = key->name; *p; p++) fputc(*p == '_' ? '-' : *p, out);
}

static void put_names(FILE *out, const struct config_table *t) {
    for (int i = 0; i < t->n_keys; i++) {
        put_name(out, &t->keys[i], "");
        if (config_is_flag(&t->keys[i])) put_name(out, &t->keys[i], "no-");
    }
}

// How the shell completes an option's value.
static void put_value(FILE *out, const char *command, const struct config_key *key) {
    const char *shown = key->choices ? key->choices : "";
    if (config_is_flag(key)) return;
    fprintf(out, "    '%s", command);
    put_name(out, key, "");
    if (key->type == CONFIG_CHOICE) {
        fputs("') words='", out);
        for (const char *p = shown; *p; p++) fputc(*p == '|' ? ' ' : *p, out);
        fputs("' ;;\n", out);
    } else if (!strcmp(shown, "DIR") || !strcmp(shown, MODEL_VALUE)) {
        fputs("') kind=-d ;;\n", out);
    } else if (strstr(shown, "FILE") || !strcmp(shown, "PATH") || !strcmp(shown, "OUT")) {
        fputs("') kind=-f ;;\n", out);
    } else {
        fputs("') ;;\n", out); // a number or a text: nothing to offer
    }
}

static void put_values(FILE *out, const char *command, const struct config_table *t) {
    for (int i = 0; i < t->n_keys; i++) put_value(out, command, &t->keys[i]);
}

static void put_command(FILE *out, const struct cli_command *c) {
    fprintf(out, "    %s)\n        options='--help", c->name);
    put_names(out, cli_options(c));
    if (c->serve) put_names(out, serve_config_table());
    fputs("'\n", out);
    if (c->word) {
        fputs("        first='", out);
        for (int i = 0; c->word(i); i++) fprintf(out, i ? " %s" : "%s", c->word(i));
        fputs("'\n", out);
    }
    fputs("        ;;\n", out);
}

void completion_bash_write(FILE *out) {
    fputs("# bash completion for parley: written by the program from its own tables.\n"
          "_parley() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local command=${COMP_WORDS[1]} options='' first='' words='' kind=''\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "        COMPREPLY=($(compgen -W '--help --version",
          out);
    for (int i = 0; cli_listed(i); i++) fprintf(out, " %s", cli_listed(i)->name);
    // Bash splits a line at '=' too.
    fputs("' -- \"$current\"))\n"
          "        return\n"
          "    fi\n"
          "    if [ \"$current\" = = ]; then\n"
          "        current=''\n"
          "    elif [ \"$previous\" = = ]; then\n"
          "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    case \"$command\" in\n",
          out);
    for (int i = 0; cli_listed(i); i++) put_command(out, cli_listed(i));
    fputs("    esac\n"
          "    case \"$command $previous\" in\n",
          out);
    for (int i = 0; cli_listed(i); i++) {
        put_values(out, cli_listed(i)->name, cli_options(cli_listed(i)));
        if (cli_listed(i)->serve) put_values(out, cli_listed(i)->name, serve_config_table());
    }
    fputs("    *)\n"
          "        if [ \"$COMP_CWORD\" = 2 ] && [ -n \"$first\" ]; then\n"
          "            words=$first\n"
          "        elif [[ $current != -* ]]; then\n"
          "            kind=-f\n"
          "        fi\n"
          "        words=\"$words $options\"\n"
          "        ;;\n"
          "    esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "    if [ -n \"$kind\" ]; then\n"
          "        local IFS=$'\\n'\n"
          "        COMPREPLY+=($(compgen $kind -- \"$current\"))\n"
          "        compopt -o filenames 2>/dev/null\n"
          "    fi\n"
          "}\n"
          "complete -F _parley parley\n",
          out);
}
