// Configuration: one table row per key drives the ini file, the command line, --help, the demo.ini
// that ships, and GET /config. Values land in a plain struct through offsets, so parts read fields,
// not strings. All of it runs on the main thread, before any other is started.
//
// Precedence is the order of the calls: config_init, config_load, config_load_env, config_arg.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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
    // Of numbers; equal: any, -INFINITY or INFINITY: no bound on that side. Of CONFIG_STRING: shown
    // in the help, and checked by whoever reads the text.
    double min, max;
    // CONFIG_CHOICE: "auto|f32|bf16". CONFIG_STRING: what --help calls it, "FILE"; NULL: "TEXT".
    const char *choices;
    const char *fallback; // default, as text
    const char *help;     // one or two sentences: what it does, why one would change it
    char secret;          // 1: GET /config shows only whether it is set; never written to a file
};

struct config_table {
    const struct config_key *keys; // names are unique in the whole table
    int n_keys;
};

int config_init(const struct config_table *t, void *settings, struct err *err); // defaults
void config_release(const struct config_table *t, void *settings);              // frees strings
// The row of that name, dashes or underscores; NULL.
const struct config_key *config_find(const struct config_table *t, const char *name);
// Sets one key from text. E_NOTFOUND for an unknown key (names the nearest one), E_INVAL with the
// range.
int config_set(const struct config_table *t, void *settings, const char *name, const char *value,
               struct err *err);
// Reads an ini file ([section] key = value ; comment). Unknown sections and keys, keys in the wrong
// section and duplicates are errors with file and line.
int config_load(const struct config_table *t, void *settings, const char *path, struct err *err);
// Environment: PARLEY_NAME=value. A PARLEY_ variable that names no key is warned of in the log.
int config_load_env(const struct config_table *t, void *settings, struct err *err);
// Takes "--name=value", "--name value" and, for booleans, "--name" and "--no-name" from argv[*i].
// Returns 1 when consumed (and *i stands on the last argument used), 0 when it is not ours,
// negative on error. A caller that knows the option neither gets its sentence from config_set.
int config_arg(const struct config_table *t, void *settings, int argc, char **argv, int *i,
               struct err *err);
// Options by section, as wide as the terminal that out is, from 60 to 100 columns; 80 elsewhere.
void config_help(const struct config_table *t, FILE *out);
// A file that config_load takes: every key with its help as a comment and its value. A value that
// the format cannot hold, and a secret, stays behind a comment that says so.
void config_write_ini(const struct config_table *t, const void *settings, FILE *out);
// {"section":{"name":value,...},...}; bytes as numbers, a secret as {"set":true|false}.
struct json_writer;
void config_write_json(const struct config_table *t, const void *settings, struct json_writer *w);

// The value as config_set takes it.
int config_text(const struct config_key *key, const void *settings, struct buf *out);
// What the value may be, in words: "from 1 to 65535", "auto, f32 or bf16"; nothing when anything.
int config_range(const struct config_key *key, struct buf *out);
bool config_is_flag(const struct config_key *key); // --name and --no-name need no value
// Row i is the first of its section: what prints by section starts from these.
bool config_starts_section(const struct config_table *t, int i);
