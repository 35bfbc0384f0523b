// Reading and writing JSON. A parser and a writer of our own, around cJSON's tree. The parser bounds
// length, depth and values, and takes RFC 8259's JSON in valid UTF-8 alone, without a raw NUL. Of \u0000 and
// of a surrogate without its pair a value gets U+FFFD; a key with one is refused, as anything behind the value. Keys
// are case-sensitive. The writer writes exact integers and finite floats.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

struct json_limits {
    size_t max_bytes;
    int max_depth;    // nesting; at most 1000
    size_t max_nodes; // values; keys are none
};
// From the network: 1 MiB, depth 48, 200,000 values: a tool's schema of ten nested objects that may be null, as OpenAI
// allows, takes 44. From disk: 256 MiB, depth 64, 20,000,000. An outline of a file: 200,000.
extern const struct json_limits json_limits_message, json_limits_file, json_limits_outline;

// NULL and *err (E_FORMAT, E_LIMIT, E_NOMEM) on failure; cJSON_Delete the result, whose keys may be
// literals (cJSON_StringIsConst). An object with the same key twice is refused, at any depth, because
// two readers could disagree about it.
cJSON *json_parse(const char *text, size_t len, const struct json_limits *limits, struct err *err);
// As json_parse, but arrays are left empty: their items are checked and freed, so that a tree of any file is small.
// json_raw.h reads the items. max_nodes bounds the values outside of arrays and those of each item.
cJSON *json_parse_outline(const char *text, size_t len, const struct json_limits *limits,
                          struct err *err);
cJSON *json_parse_file(const char *path, const struct json_limits *limits, struct err *err);

// A member of an object. NULL: none, or null; obj may be anything, NULL too. Borrowed, as its text.
cJSON *json_member(const cJSON *obj, const char *key);
const char *json_string(const cJSON *obj, const char *key); // NULL: no string

// Put v, which they take, into an object, in the place of its member of this key if it has one, or at the end of an
// array. They return v; NULL: no memory, or v or what it goes into is NULL. So a tree is made without checks between.
cJSON *json_set(cJSON *obj, const char *key, cJSON *v);
cJSON *json_append(cJSON *array, cJSON *v);
// A string of what the buffer has, which is released. NULL: no memory, or the buffer has an error.
cJSON *json_take_text(struct buf *text);

// Getters. JSON_ABSENT (0): no such key, or null; *out is unchanged, so it may hold the default.
// JSON_PRESENT (1): *out is set. Negative: wrong type or out of range, *err names the key.
enum { JSON_ABSENT = 0, JSON_PRESENT = 1 };
// *out is borrowed from the parsed tree, here and in json_get_object and json_get_array.
int json_get_string(const cJSON *obj, const char *key, const char **out, struct err *err);
int json_get_bool(const cJSON *obj, const char *key, bool *out, struct err *err);
// An integer of magnitude below 2^53: from there on two integers may read as the same double.
int json_get_int(const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t *out,
                 struct err *err);
// Also takes the number as a decimal string, for 64-bit values that JSON numbers cannot carry.
int json_get_u64(const cJSON *obj, const char *key, uint64_t *out, struct err *err);
int json_get_double(const cJSON *obj, const char *key, double min, double max, double *out,
                    struct err *err); // finite
int json_get_object(const cJSON *obj, const char *key, const cJSON **out, struct err *err);
int json_get_array(const cJSON *obj, const char *key, const cJSON **out, struct err *err);
// The elements of an array of token ids; free *out, also on failure. E_LIMIT: a number is no id;
// E_INVAL: an element is no number. The sentence has key and the element's place.
int json_copy_ids(const cJSON *array, const char *key, int32_t **out, size_t *n, struct err *err);

// The text of a value, without white space and with every number exact: cJSON's own printing keeps 15 digits.
// free() it; NULL: no memory.
char *json_print(const cJSON *v);

// Writer: appends to a buf and places the commas; it keeps no stack. key is NULL inside arrays and
// at the top. Strings are escaped (", \, control characters, U+2028, U+2029, and `</` as `<\/`);
// invalid UTF-8 is replaced. Non-finite doubles become null. Errors are the buf's sticky error.
struct json_gap {
    size_t at; // place in the buffer, between two quotes
    const char *text;
    size_t len;
};
// Texts of JSON_GAP_BYTES and more that a writer has left out, borrowed: escaping a long text takes
// milliseconds, and its reader does that in pieces.
#define JSON_GAP_BYTES ((size_t)16 << 10)
#define JSON_GAPS 64 // further long texts are written at once
struct json_gaps {
    struct json_gap list[JSON_GAPS]; // (n) in order
    size_t n;
};
struct json_writer {
    struct buf *buf;
    bool comma;             // a value precedes the next one at this level
    struct json_gaps *gaps; // NULL: all texts are written
};
// Writes at buf's end, whose error is sticky: check it once, when all is written. key: NULL in arrays and
// at the top.
void json_writer_init(struct json_writer *w, struct buf *buf);
void json_open(struct json_writer *w, const char *key, char bracket);        // { [ "
void json_close(struct json_writer *w, char bracket);                        // '}' or ']'
void json_put_string(struct json_writer *w, const char *key, const char *s); // NULL writes null
// s (len) may hold NUL bytes. With w->gaps, s is borrowed until the gaps are filled.
void json_put_text(struct json_writer *w, const char *key, const char *s, size_t len);
void json_put_int(struct json_writer *w, const char *key, int64_t v);
// As a string, "123", which is exact for readers that store numbers as doubles.
void json_put_u64_string(struct json_writer *w, const char *key, uint64_t v);
// The shortest decimal that reads back as the same float: 0.7 where json_put_double writes
// 0.699999988.
void json_put_float(struct json_writer *w, const char *key, float v);
void json_put_double(struct json_writer *w, const char *key, double v); // nine digits, as %.9g
void json_put_bool(struct json_writer *w, const char *key, bool v);
void json_put_null(struct json_writer *w, const char *key);
void json_put_int_or_null(struct json_writer *w, const char *key, int64_t v); // negative: null
// Arrays of numbers.
void json_put_ids(struct json_writer *w, const char *key, const int32_t *ids, size_t n);
void json_put_floats(struct json_writer *w, const char *key, const float *values, size_t n);
// A piece of a string that is written in pieces (of whole characters), between json_open(w, key,
// '"') and json_close(w, '"').
void json_escape(struct buf *b, const char *s, size_t len);
// How much of s becomes at most max bytes by that, as whole characters. max >= 16; 0 only for no text.
size_t json_escape_fits(const char *s, size_t len, size_t max);
// Text that is already JSON; NULL writes null.
void json_put_raw(struct json_writer *w, const char *key, const char *json, size_t len);
