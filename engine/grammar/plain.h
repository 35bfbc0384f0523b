// Masks inside a class of characters, without a walk of the vocabulary's trie. Where a grammar repeats a class
// with a count ([a-z ]{1,80}), each count is a configuration with a mask of its own. Nearly all tokens that the
// mask allows consist of the class's characters alone, and only their length matters:
//
//   set of characters S     those that lead from this configuration to the one that most ASCII characters lead to
//   chain                   config --S--> at[1] --S--> at[2] ...       the configuration after each number of them
//   tokens of S alone       by their number of characters: allowed as far as the chain reaches
//   other tokens            by their tail (tails.h): walked only where its first byte continues from the chain
//
// The tables of a set are made once for a machine, in some ten milliseconds.
#pragma once
#include "engine/grammar/machine.h"
#include "engine/grammar/tails.h"
#include "engine/grammar/token_trie.h"

enum { PLAIN_CHARS = HARMLESS_CHARS }; // longer tokens are walked one by one

// The well-formed UTF-8 sequences by lead byte (Unicode, table 3-7); the first three are ASCII without quote,
// backslash and control characters.
enum { UTF8_FORMS = 11, UTF8_ASCII_FORMS = 3 };
struct utf8_form {
    int n;
    uint8_t lo[4], hi[4];
};
extern const struct utf8_form utf8_forms[UTF8_FORMS];
// Whether all characters of the form lead from config to *to. If *to is UNKNOWN, sets it.
bool plain_form_leads(struct machine *m, int32_t config, const struct utf8_form *f, int32_t *to);

struct plain_set {
    uint64_t ascii[2]; // a bit for each ASCII character
    uint32_t forms;    // a bit for each form after the ASCII ones
};
struct plain_class {
    struct plain_set set;
    // (PLAIN_CHARS + 1, n_words) tokens of the set alone: of k characters, of 1 to k
    uint64_t *exact, *upto;
    struct tails *tails; // of the other tokens
    int64_t size;        // bytes of memory
};
void plain_class_free(struct plain_class *p); // NULL is allowed

// Finds the class whose characters continue from config, and its chain: at[0] is config. Returns the number of
// characters in the chain, at most PLAIN_CHARS. 0: there is no such class, or its characters lead to several
// configurations further on; the caller walks the trie.
int32_t plain_chain(struct machine *m, const struct token_trie *v, int32_t config,
                    const struct plain_class **class, int32_t at[PLAIN_CHARS + 1]);
