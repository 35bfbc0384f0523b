// Configuration: one table row for each key drives the ini file, the environment, the command line,
// --help, configs/demo.ini and GET /config. Values are stored in a plain struct by offset, so that
// code reads fields, not strings. Settings are read on the main thread, before other threads start.
// A later call overrides an earlier one: config_init, config_load, config_load_env, config_arg.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum config_type {
    CONFIG_BOOL,   // bool: on|off|true|false|yes|no|1|0
    CONFIG_INT,    // int64_t
    CONFIG_FLOAT,  // double
    CONFIG_BYTES,  // int64_t: 64MiB, 2GiB, 1048576; suffixes K M G T (KiB ..., powers of 1024)
    CONFIG_STRING, // char *, owned by the struct; never NULL, "" means unset; no control characters
    CONFIG_CHOICE, // int: index into `choices`
    CONFIG_SWITCH, // char *: "on" or "off", given as CONFIG_BOOL; "" means unset
};

struct config_key {
    const char *section; // ini section and heading in --help: "server", "engine", "sessions" ...
    const char *name; // ini: name with underscores; argv: --name with dashes (underscores work too)
    enum config_type type;
    size_t offset; // into the settings struct
    // Range of a number; equal: any; -INFINITY or INFINITY: no bound on that side. A range of
    // CONFIG_STRING is only shown in the help.
    double min, max;
    // CONFIG_CHOICE: "auto|f32|bf16". CONFIG_STRING: the placeholder in --help, "FILE"; NULL:
    // "TEXT".
    const char *choices;
    const char *fallback; // default, as text
    const char *help;     // one or two sentences: what it does, why to change it
    char secret;          // 1: GET /config shows only whether it is set; no file contains it
};

struct config_table {
    const struct config_key *keys; // names are unique in the whole table
    int n_keys;
};

int config_init(const struct config_table *t, void *settings, struct err *err); // defaults
void config_release(const struct config_table *t, void *settings);              // frees strings
size_t config_size(const struct config_table *t); // that the settings struct has at least
// The row of that name, dashes or underscores; NULL.
const struct config_key *config_find(const struct config_table *t, const char *name);
// The key that was probably meant; NULL: none is near.
const char *config_nearest(const struct config_table *t, const char *name);
// Sets one key from text. E_NOTFOUND for an unknown key (names the nearest one), E_INVAL with the
// range.
int config_set(const struct config_table *t, void *settings, const char *name, const char *value,
               struct err *err);
// Reads an ini file ([section] key = value ; comment). Unknown sections and keys, keys in the wrong
// section and duplicates are errors with file and line. A pipe is read for at most ten seconds.
int config_load(const struct config_table *t, void *settings, const char *path, struct err *err);
// Reads PARLEY_NAME=value from the environment. A PARLEY_ variable that names no key is no error, because it may be
// another program's.
int config_load_env(const struct config_table *t, void *settings, struct err *err);
// Calls each() for every such variable, with a sentence that names it and the nearest key's (is_near: there is one).
void config_unknown_env(const struct config_table *t,
                        void (*each)(const char *sentence, bool is_near));
// Takes "--name=value", "--name value" and, for booleans, "--name" and "--no-name" from argv[*i].
// Returns 1 if it used the argument (then *i is the last one used), 0 if the table has no such
// option, negative on error. For an option that is unknown everywhere, config_set gives the error
// message.
int config_arg(const struct config_table *t, void *settings, int argc, char **argv, int *i,
               struct err *err);
// Prints the options by section, 60 to 100 columns wide as the terminal allows; 80 if out is no
// terminal.
void config_help(const struct config_table *t, FILE *out);
// Writes an ini file for config_load: every key with its help as a comment and its value. A secret,
// or a value that the format cannot represent, is replaced by a comment.
void config_write_ini(const struct config_table *t, const void *settings, FILE *out);
// Writes the members "section":{"name":value,...},... of an open object: sizes in bytes, a secret as
// {"set":true|false}.
struct json_writer;
void config_put_sections(const struct config_table *t, const void *settings, struct json_writer *w);

// Appends the value in the form that config_set reads.
int config_text(const struct config_key *key, const void *settings, struct buf *out);
// Appends the allowed values: "from 1 to 65535", "auto, f32 or bf16"; nothing if every value is
// allowed.
int config_range(const struct config_key *key, struct buf *out);
// Appends the help, then the allowed values and the default in parentheses.
void config_describe(const struct config_key *key, struct buf *out);
const char *config_metavar(const struct config_key *key); // what the help calls its value: "FILE"
bool config_is_flag(const struct config_key *key);        // --name and --no-name need no value
// Row i is the first of its section.
bool config_starts_section(const struct config_table *t, int i);
