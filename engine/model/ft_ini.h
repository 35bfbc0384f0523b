// config.ini of a FasterTransformer folder as a list of keys. The text is untrusted: its size, lines
// and keys are bounded. A repeated key or section, a line that is neither, and a NUL byte are E_FORMAT
// with file and line. Sections and keys ignore case, as in FasterTransformer.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FT_INI_MAX_BYTES ((size_t)1 << 20)

struct ft_ini_key {
    char *section, *name, *value; // the first two in lower case
    bool used;                    // a getter has returned it
};

struct ft_ini {
    const char *path;        // for messages; borrowed
    struct ft_ini_key *keys; // (n), in the file's order
    size_t n;
    char **sections; // (n_sections), in lower case
    size_t n_sections;
};

// path is used only in messages. Release *ini after a failure too.
int ft_ini_parse(struct ft_ini *ini, const char *path, const char *text, size_t len,
                 struct err *err);
void ft_ini_release(struct ft_ini *ini);
bool ft_ini_has_section(const struct ft_ini *ini, const char *section);

// The getters return FT_INI_PRESENT; FT_INI_ABSENT (*out does not change); or E_FORMAT for a value of
// another kind or out of range.
enum { FT_INI_ABSENT = 0, FT_INI_PRESENT = 1 };
int ft_ini_string(const struct ft_ini *ini, const char *section, const char *name,
                  const char **out);
int ft_ini_int(const struct ft_ini *ini, const char *section, const char *name, int64_t min,
               int64_t max, int64_t *out, struct err *err);
int ft_ini_double(const struct ft_ini *ini, const char *section, const char *name, double min,
                  double max, double *out, struct err *err);
int ft_ini_bool(const struct ft_ini *ini, const char *section, const char *name, bool *out,
                struct err *err);
// The first key of the section that no getter has returned, or NULL; *n: the number of such keys.
const char *ft_ini_unused(const struct ft_ini *ini, const char *section, size_t *n);
