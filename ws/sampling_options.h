// The sampling parameters as settings: keys of the ini file and options of commands, made from the
// engine's rows. Their values stay text until they are applied: "" means not given, which differs
// from every value.
#pragma once
#include "base/config.h"
#include "engine/engine.h"

#define SAMPLING_OPTIONS_MAX 64 // rows, at most (turn_sampling.set)

struct sampling_options {
    char *text[SAMPLING_OPTIONS_MAX]; // by row; only rows of the place are set
};

// Writes the keys of a place (SAMPLING_SERVER, SAMPLING_COMMAND) to out, which has room for
// SAMPLING_OPTIONS_MAX, and returns how many. offset: of the struct sampling_options in the
// settings.
int sampling_option_keys(struct config_key *out, unsigned place, size_t offset);
// Puts the given values into *s. E_INVAL names the option.
int sampling_options_apply(const struct sampling_options *o, unsigned place,
                           struct turn_sampling *s, struct err *err);
