// Masks inside a class of characters, without a walk of the vocabulary's trie. Where a grammar repeats a class
// with a count ([a-z ]{1,80}), each count is a configuration with a mask of its own; but nearly all tokens that
// it allows consist of the class's characters alone, and what matters of them is their length:
//
//   set of characters S     those that lead from this configuration to one place, as most do
//   chain                   config --S--> at[1] --S--> at[2] ...       where each number of them leads
//   tokens of S alone       by their number of characters: allowed as far as the chain goes
//   other tokens            by the byte that leaves S: looked at only where that byte goes on from the chain
//
// The tables of a set are made once for a machine, in some milliseconds.
#pragma once
#include "engine/grammar/machine.h"
#include "engine/grammar/token_trie.h"

enum { PLAIN_CHARS = 32 }; // longer tokens are looked at one by one

// The well-formed UTF-8 sequences by lead byte (Unicode, table 3-7); the first three are ASCII without quote,
// backslash and control characters.
enum { UTF8_FORMS = 11, UTF8_ASCII_FORMS = 3 };
struct utf8_form {
    int n;
    uint8_t lo[4], hi[4];
};
extern const struct utf8_form utf8_forms[UTF8_FORMS];
// Whether all characters of the form lead from config to *to, which is set if it is UNKNOWN.
bool plain_form_leads(struct machine *m, int32_t config, const struct utf8_form *f, int32_t *to);

struct plain_set {
    uint64_t ascii[2]; // a bit for each
    uint32_t forms;    // and for each form behind the ASCII ones
};
enum { PLAIN_LONG = 256, PLAIN_GROUPS };
struct plain_class {
    struct plain_set set;
    uint64_t *exact,
        *upto; // (PLAIN_CHARS + 1, n_words) tokens of the set alone: of k characters, of 1 to k
    // The other tokens, by the byte that leaves the set; in PLAIN_LONG those with more characters of it.
    struct plain_token {
        int32_t id;
        uint16_t chars, bytes; // of the set, before that byte
    } * tokens;                // (first[PLAIN_GROUPS])
    int32_t first[PLAIN_GROUPS + 1];
    int64_t size; // bytes of memory
};
void plain_class_free(struct plain_class *p); // NULL is allowed

// The class whose characters lead on from config, and the chain of it: at[0] is config, and the chain has as
// many characters as are returned, at most PLAIN_CHARS. 0: there is no such class, or it does not pay.
int32_t plain_chain(struct machine *m, const struct token_trie *v, int32_t config,
                    const struct plain_class **class, int32_t at[PLAIN_CHARS + 1]);
