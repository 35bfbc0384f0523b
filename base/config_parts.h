// Named sections of an ini file: [KIND NAME] gives one part of the program, such as one of several
// instances, values of its own. What it does not say is as in the other sections.
#pragma once
#include "base/config.h"

struct json_writer;

struct config_given {
    const struct config_key *key;
    char *value; // as written, checked
};
struct config_part {
    char *name;
    struct config_given *given; // (n_given), in the file's order
    size_t n_given;
    struct config_part *next;
};
struct config_parts {
    const char *kind;                                  // "instance"
    bool (*may_give)(const struct config_key *key);    // whether a part may have its own value
    int (*check_name)(const char *name, struct err *); // 0 or E_INVAL with a sentence
    struct config_part *first;                         // in the file's order
};

// config_load, of a file that may have such sections. The names are unique.
int config_load_parts(const struct config_table *t, void *settings, struct config_parts *parts,
                      const char *path, struct err *err);
void config_parts_release(struct config_parts *parts);

// For config_ini.c. NULL with *err: a bad name, the second of that name, no memory.
struct config_part *config_part_add(struct config_parts *parts, const char *name, struct err *err);
// E_EXISTS: it was given before; E_NOMEM.
int config_part_give(struct config_part *p, const struct config_key *key, const char *value);

// Settings of a part, uninitialised: those of the program with the part's values over them.
// config_release() frees them.
int config_part_settings(const struct config_table *t, const void *settings,
                         const struct config_part *p, void *out, struct err *err);

void config_write_parts(const struct config_parts *parts, FILE *out); // as ini sections
// {"NAME":{"key":value,...},...}: what each part gives, as text, under this key.
void config_put_parts(struct json_writer *w, const char *key, const struct config_parts *parts);
