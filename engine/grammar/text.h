// A client's grammar: a kind and its text. Immutable and reference-counted: it is part of the sampling
// parameters, and lives while a request, a turn or a session holds it. Any thread.
#pragma once
#include "base/err.h"
#include <stddef.h>

enum grammar_kind {
    GRAMMAR_JSON_SCHEMA, // the answer is a JSON text that the schema accepts
    GRAMMAR_GBNF,        // llama.cpp's notation; the answer matches the rule `root`
    GRAMMAR_REGEX,       // the whole answer matches
    GRAMMAR_CHOICE,      // the answer is one of a JSON list of strings
    GRAMMAR_KINDS
};

#define GRAMMAR_TEXT_MAX (128 * 1024) // bytes

// A keyword of ours in the root of a json_schema: the answer is tool calls, written with the texts of its value
// (engine/grammar/schema_calls.c).
#define GRAMMAR_WRITTEN "$written"

struct grammar_text;

// The caller holds one reference. E_INVAL: the text is empty, too long or has a NUL byte; E_NOMEM.
int grammar_text_new(const struct grammar_text **out, enum grammar_kind kind, const char *text,
                     size_t len, struct err *err);
const struct grammar_text *grammar_text_hold(const struct grammar_text *t); // NULL gives NULL
void grammar_text_free(const struct grammar_text *t);                       // NULL is allowed

enum grammar_kind grammar_text_kind(const struct grammar_text *t); // of a text that is not NULL
const char *grammar_text_string(const struct grammar_text *t, size_t *len); // NUL-terminated
const char *grammar_text_hash(
    const struct grammar_text *t);                     // 32 hexadecimal digits of kind and text
const char *grammar_kind_name(enum grammar_kind kind); // the parameter: "json_schema", ...
