// Finds stop strings in the part of an answer where they apply. Of a chat's answer that is the text that clients
// see as text: neither its thinking, nor the markup of tool calls, nor the white space between these parts. The
// parts are those of answer_parser.h, so the filter and what clients get never differ.
//
// All text is passed on, in order, up to the stop string. One thread at a time.
#pragma once
#include "engine/sampling/params.h"
#include "engine/text/answer_parser.h"
#include "engine/text/stop_matcher.h"

struct stop_filter { // zeroed before the first begin
    struct stop_matcher matcher;
    bool parses; // the answer has parts
    struct answer_parser parser;
    uint64_t n_fed;    // bytes
    uint64_t armed_at; // a stop string that ends before this byte does not end the answer
};

struct stop_place { // of an answer
    enum stop_in in;
    struct chat_syntax syntax; // its texts are borrowed
    bool thinks;               // it begins inside the thinking
    bool goes_on;              // it continues text, so that it does not begin with an opening mark
};
// Begins an answer; a further begin forgets the one before. Borrows the strings. E_INVAL: one is empty or too
// long.
int stop_filter_begin(struct stop_filter *f, const char *const *strings, int n_strings,
                      const struct stop_place *place);
void stop_filter_release(struct stop_filter *f);
// Appends the text that is now safe to show. 1: a stop string is complete; out ends just before it, and the
// rest is dropped. Otherwise 0, or E_NOMEM. early: a stop string that ends in this text does not count.
int stop_filter_feed(struct stop_filter *f, const char *text, size_t len, bool early,
                     struct buf *out);
// Appends what was held back, after the answer has ended for another reason. A stop string that ends in it
// cuts it.
int stop_filter_flush(struct stop_filter *f, struct buf *out);
