// Names of models on the hub: ORG/NAME[:QUANT][@REVISION]. Also the checks of the hub's words that become paths: an accepted
// path cannot leave the folder that it is joined to.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

#define HUB_WORD_MAX 96    // characters of ORG and of NAME
#define HUB_PATH_BYTES 512 // of a file's path, of a quant and of a revision, with the NUL

struct hub_name {
    char org[HUB_WORD_MAX + 1], name[HUB_WORD_MAX + 1];
    char quant[HUB_PATH_BYTES];    // "": safetensors
    char revision[HUB_PATH_BYTES]; // a branch, a tag or a commit; "main" if the text has none
    bool has_revision;             // the text has one
};

// E_INVAL: the text is no such name.
int hub_name_parse(struct hub_name *out, const char *text, struct err *err);
// Whether the text has a name's form. "/models/x", "./x", "x" and "a/b/c" have not.
bool hub_name_is(const char *text);
// "ORG/NAME", and the whole name without "@main".
#define HUB_NAME_BYTES (2 * HUB_PATH_BYTES + 256)
const char *hub_name_repo(const struct hub_name *n, char out[HUB_NAME_BYTES]);
const char *hub_name_text(const struct hub_name *n, char out[HUB_NAME_BYTES]);

// A relative path of plain components: not empty, none is "", "." or "..", no control characters, below HUB_PATH_BYTES.
bool hub_path_is_safe(const char *path);
bool hub_is_hex(const char *text, size_t digits); // lower case, exactly so many
