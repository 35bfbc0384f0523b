// The table of sampling parameters. All code that names parameters walks these rows: the JSON of
// wire, store and archive, range checks, the ini file, the options of commands, the hello message
// with the page's form. A new parameter is a field of struct sampling_params and a row.
#pragma once
#include "engine/sampling/params.h"
#include <stddef.h>

enum sampling_type {
    SAMPLING_FLOAT,   // float
    SAMPLING_INT,     // int32_t
    SAMPLING_BOOL,    // bool
    SAMPLING_SEED,    // uint64_t, and has_seed; a string in JSON
    SAMPLING_MS,      // int64_t in microseconds; milliseconds in JSON and text
    SAMPLING_BIASES,  // bias
    SAMPLING_WORDS,   // struct sampling_words
    SAMPLING_GRAMMAR, // grammar: a row for each grammar_kind, all with the same field
};

// Where a parameter can be set, apart from parley.v1, which takes every row.
enum {
    SAMPLING_SERVER = 1,  // a default of the server: ini file, environment, hello
    SAMPLING_COMMAND = 2, // an option of the commands that draw tokens
    SAMPLING_FORM = 4,    // a field of the page's settings
    SAMPLING_OPENAI =
        8, // a member of OpenAI's requests, or one that other servers of its protocol take
};

struct sampling_row {
    // name: in JSON, the ini file and, with dashes, as an option. alias: a second name in OpenAI's
    // requests, which wins over the first; NULL: none.
    const char *name, *alias;
    enum sampling_type type;
    size_t offset;         // into struct sampling_params
    double min, max;       // of numbers; of lists: the number of entries
    bool above_min;        // min itself is refused
    double fallback, step; // default; what one click in a form changes
    unsigned places;       // SAMPLING_SERVER | ...
    const char *label;     // in a form
    const char *zero; // in a form, the meaning of 0 or of an absent value; NULL: no special one
    const char *help; // one or two sentences
};

extern const struct sampling_row sampling_rows[];
extern const int n_sampling_rows; // at most 64: turn_sampling.set has a bit for each

// The row's command-line option, before underscores become dashes: its name, except where the name is
// FasterTransformer's.
const char *sampling_row_option(const struct sampling_row *row);
const struct sampling_row *sampling_row_find(const char *name);      // NULL: no such parameter
enum grammar_kind sampling_row_kind(const struct sampling_row *row); // of a SAMPLING_GRAMMAR
uint64_t sampling_rows_in(unsigned place); // the bits in turn_sampling.set of all rows of a place
uint64_t sampling_rows_of(enum sampling_type type); // of all rows of a type
