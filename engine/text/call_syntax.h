// Pieces of tool calls in text that may not be complete yet. Pure functions over bytes.
#pragma once
#include "base/json.h"
#include "engine/text/chat_syntax.h"

struct span { // borrowed bytes
    const char *s;
    size_t len;
};
struct span span_from(struct span t, size_t from); // empty behind t's end
size_t span_space(struct span t);                  // white space in front
size_t span_trimmed(struct span t, size_t n);      // n without the white space before it
bool span_starts(struct span t, const char *with);
bool span_begins(struct span t, const char *what); // t is a beginning of `what`, not all
size_t span_find(struct span t, const char *what); // SIZE_MAX: none
size_t span_held(struct span t, const char *what); // bytes at the end that may begin `what`
bool span_is_name(char c);                         // of a function's name

// The markers that begin a call in this syntax, then NULL. Empty if calls have no marker.
const char *const *call_markers(enum tool_syntax syntax);

enum call_found {
    CALL_NONE, // it is no call
    CALL_INCOMPLETE,
    CALL_ARGUMENTS, // the arguments begin at `end`, with a bracket
    CALL_WHOLE,     // the call ends at `end`
    CALL_PARAMETER
};
struct call_head {
    char name[128];
    size_t end;
};
// {"name":"..", ..., "arguments" or "parameters": up to the arguments, if they follow the name and are
// an object. CALL_WHOLE: the whole object; *args has the arguments' JSON, empty if it has none.
// strict: an object with other members or without arguments is no call.
enum call_found call_head_read(struct span t, bool strict, struct call_head *out, struct buf *args);
// t begins inside an object, behind one of its values. The byte behind the } that ends the object;
// SIZE_MAX: the object has not ended.
size_t call_object_end(struct span t);

// Writes c, a control character inside of a JSON string, as its escape. escaped: a backslash is before it.
void call_escape(struct buf *out, char c, bool escaped);

struct call_parameter {
    size_t key, key_len, value, value_len, end;
    bool text; // its schema says string
};
// <parameter=KEY>VALUE</parameter>, or </function> (CALL_WHOLE: ends at `end`).
enum call_found call_parameter_read(struct span t, const cJSON *tools, const char *name,
                                    struct call_parameter *out);
// The same of <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>, or </tool_call>.
enum call_found call_argument_read(struct span t, const cJSON *tools, const char *name,
                                   struct call_parameter *out);
void call_parameter_write(struct buf *out, struct span t, const struct call_parameter *p);
