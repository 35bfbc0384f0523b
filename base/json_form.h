// JSON in one call, spelled as it goes out:
//
//     json_form(w, "id:%s,usage:{input_tokens:%ld,cached_tokens:0},choices:[", id, n);
//
// A form is a list of members, or of values where no key stands before them. It may open brackets that a later form
// closes. Keys are letters, digits and _; %s: in a key's place takes the key as an argument (NULL: no key). A member
// whose key ends with ? is left out where its argument says nothing: NULL, an empty string or text, 0, false, and, of
// %+ld, a negative number:
//
//     json_form(w, "name?:%s,pinned?:%hhd,turn?:%+ld", name, pinned, turn);
//
// Values:
//     'text' true false null 12   as they stand; a text has no ' in it
//     %s %.*s                     a string (NULL: null); a text of an int's bytes
//     %d %ld %zu                  integers
//     %+ld                        an int64_t, null where it is negative
//     %lu                         a uint64_t as a string: "123"
//     %hhd                        a bool
//     %g %f                       a double in nine digits; a float in as few digits as read back as that float
// The compiler compares the arguments with the form. Each streamed token is written without forms, which are slower.
#pragma once
#include "base/json.h"

void json_form(struct json_writer *w, const char *form, ...) __attribute__((format(printf, 2, 3)));
// The same as a whole text at the end of out.
void json_form_to(struct buf *out, const char *form, ...) __attribute__((format(printf, 2, 3)));
// The same as a tree; cJSON_Delete it. NULL: no memory.
cJSON *json_tree(const char *form, ...) __attribute__((format(printf, 1, 2)));
