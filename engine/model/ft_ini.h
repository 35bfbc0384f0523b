// config.ini of a FasterTransformer folder as a list of keys. The text comes from a stranger: its
// size, lines and keys are bounded; a key or a section that comes twice, a line of another form and
// a NUL byte are E_FORMAT with file and line. Sections and keys are found whatever their case, as
// in FasterTransformer.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FT_INI_MAX_BYTES ((size_t)1 << 20)

struct ft_ini_key {
    char *section, *name, *value; // the first two in lower case
    bool used;                    // somebody asked for it
};

struct ft_ini {
    const char *path;        // for sentences; borrowed
    struct ft_ini_key *keys; // (n), in the file's order
    size_t n;
    char **sections; // (n_sections), in lower case
    size_t n_sections;
};

// path only names the text. *ini is to be released in every case.
int ft_ini_parse(struct ft_ini *ini, const char *path, const char *text, size_t len,
                 struct err *err);
void ft_ini_release(struct ft_ini *ini);
bool ft_ini_has_section(const struct ft_ini *ini, const char *section);

// FT_INI_PRESENT, FT_INI_ABSENT (*out is left alone) or, for a value that is none of the kind or is
// out of range, E_FORMAT.
enum { FT_INI_ABSENT = 0, FT_INI_PRESENT = 1 };
int ft_ini_string(const struct ft_ini *ini, const char *section, const char *name,
                  const char **out);
int ft_ini_int(const struct ft_ini *ini, const char *section, const char *name, int64_t min,
               int64_t max, int64_t *out, struct err *err);
int ft_ini_double(const struct ft_ini *ini, const char *section, const char *name, double min,
                  double max, double *out, struct err *err);
int ft_ini_bool(const struct ft_ini *ini, const char *section, const char *name, bool *out,
                struct err *err);
// The first key of the section that nobody asked for, NULL when there is none; *n counts them.
const char *ft_ini_unused(const struct ft_ini *ini, const char *section, size_t *n);
