// The manual pages and the completion of bash, written from the tables that --help prints.
#pragma once
#include <stdio.h>

struct cli_command;
struct config_table;

// Commands that --help lists, in its order; NULL: no more.
const struct cli_command *cli_listed(int i);
// Whether an option has one meaning in all commands, as those of a model and of sampling do, and is described
// once for all. compute_dtype does not: its default depends on the command.
int documents_is_shared(const char *section, const char *name);

void man_page(FILE *out);              // parley(1)
void man_settings(FILE *out);          // parley.ini(5)
void completion_bash_write(FILE *out); // for /usr/share/bash-completion/completions/parley
