// parley documents: prints the manual pages and the completion of bash. The build and packages call
// it; `parley --help` does not list it.
#include "ws/cli/cli.h"
#include "ws/cli/documents.h"
#include <string.h>

int documents_is_shared(const char *section, const char *name) {
    return !strcmp(section, "sampling") ||
           (!strcmp(section, "model") && strcmp(name, "compute_dtype") != 0);
}

static const struct {
    const char *name;
    void (*write)(FILE *out);
} documents[] = {
    {"man", man_page},
    {"man-settings", man_settings},
    {"bash", completion_bash_write},
};
enum { N_DOCUMENTS = sizeof documents / sizeof *documents };

static const char *document_name(int i) {
    return i < N_DOCUMENTS ? documents[i].name : NULL;
}

static int run(void *settings, char **words, struct err *err) {
    const int i = cli_word(&command_documents, words[0]);
    if (i < 0) return cli_usage(err, "which document: man, man-settings or bash");
    documents[i].write(stdout);
    return CLI_OK;
}

static const struct config_key no_keys[1];
const struct cli_command command_documents = {
    .name = "documents",
    .usage = "documents man | man-settings | bash",
    .about = "man           prints the manual page parley(1)\n"
             "man-settings  prints the manual page parley.ini(5)\n"
             "bash          prints the completion of bash",
    .keys = no_keys,
    .settings_bytes = 1,
    .word = document_name,
    .max_words = 1,
    .run = run,
};
