// JSON values as they were written: what must come back byte for byte (seeds above 2^53, a client's
// own spelling) cannot go through a tree of doubles.
//
// The text must have been through json_parse: these walks do not doubt its grammar. What they
// return points into it.
#pragma once
#include <stddef.h>

// The value under key of the object that text begins with, or NULL when no key is spelled exactly
// so.
const char *json_raw_value(const char *text, const char *key, size_t *len);
// The first item of the array that text begins with, and the one behind an item; NULL at the end.
const char *json_raw_first(const char *text);
const char *json_raw_next(const char *item);
