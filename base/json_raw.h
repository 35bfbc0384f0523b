// JSON values as they were written. Values that must come back byte for byte (seeds above 2^53, a
// client's own spelling) cannot go through cJSON's tree of doubles.
//
// json_parse must have accepted the text: these functions do not check its grammar. The results
// point into the text.
#pragma once
#include <stddef.h>

// The value of key in the object that text begins with; NULL if no key is spelled exactly so.
const char *json_raw_value(const char *text, const char *key, size_t *len);
// The first item of the array that text begins with, and the item after another; NULL at the end.
const char *json_raw_first(const char *text);
const char *json_raw_next(const char *item);
size_t json_raw_len(const char *value); // of the value that text begins with
