// Shared by the files that implement chat_template.h.
#pragma once
#include "engine/jinja/jinja.h"
#include "engine/text/chat_template.h"

#define TEXT_MAX_BYTES (64u << 20)

// Origins of bytes. A new message has ORIGIN_NEW plus its number, modulo the numbers left.
enum { ORIGIN_EARLIER = 1, ORIGIN_MARK = 2, ORIGIN_NEW = 3, N_ORIGINS = 256 };
static inline uint8_t origin_of_message(size_t i) {
    return (uint8_t)(ORIGIN_NEW + i % (N_ORIGINS - ORIGIN_NEW));
}

struct clock;
struct chat_template {
    struct jinja_template *jinja;
    struct jinja_template *tools_jinja; // for conversations with tools; NULL: the same one
    const struct tokenizer *tokenizer;
    const struct clock *clock;
    char *name, *text;
    int32_t end_of_turn;
    struct chat_syntax syntax;
};

// Begins a rendering: the clock, then the names that every rendering has.
int chat_begin(const struct chat_template *c, size_t n_input, struct jinja_run *run,
               struct err *err);
int chat_set_names(const struct chat_template *c, struct jinja_run *run,
                   struct jinja_value messages, struct jinja_value tools,
                   bool add_generation_prompt);
// Encodes the text from `from` on. Bytes with an origin are plain spans, unless forge is set.
int chat_encode(const struct chat_template *c, struct jinja_string text, size_t from, bool forge,
                struct token_list *ids, struct err *err);
