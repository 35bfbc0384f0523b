// A chat template's normal form: what is left of a Jinja text when comments, white-space control,
// the style of quotes and the joining of adjacent strings are taken out. Two templates with the
// same normal form render the same text (in the environment of Hugging Face transformers:
// trim_blocks, lstrip_blocks), so a fingerprint of it recognises published templates however they
// were reformatted, and nothing else.
#pragma once
#include "base/buf.h"
#include <stdint.h>

struct jinja_form {
    uint64_t fingerprint;
    // The words between "<|im_start|>system\n" and "<|im_end|>\n" in the first fixed text that is
    // just that: the default system prompt, in which fine-tunes differ. It is not part of the
    // fingerprint. "" where none is.
    struct buf default_system;
};

// E_FORMAT where a tag or string does not end, E_NOMEM. On failure too: release it.
int jinja_form_read(struct jinja_form *f, const char *text, size_t len);
void jinja_form_release(struct jinja_form *f);
