// The conversation forms that Parley can write, as data, and the published templates that each one
// stands for.
#pragma once
#include <stddef.h>
#include <stdint.h>

// In the strings of a form: the tokenizer's bos and eos, and the day's date.
#define FORM_BOS "\x01"
#define FORM_EOS "\x02"
#define FORM_DATE "\x03" // 15 Jan 2026

enum system_place {
    SYSTEM_ANYWHERE,      // a message like the others
    SYSTEM_FIRST,         // only as the first message
    SYSTEM_IN_FIRST_USER, // the first message, written inside the first user's
    SYSTEM_IN_LAST_USER,  // the first message, written inside the last message if that is a user's
    SYSTEM_GATHERED,      // the last one of them, in front
    SYSTEM_REFUSED
};
// What becomes of reasoning in an assistant's message.
enum think_rule {
    THINK_KEPT,
    THINK_CUT,   // only what follows the last </think> (DeepSeek R1)
    THINK_QWEN3, // cut, and written again in answers after the last question
    THINK_GLM    // cut; an empty or the real one in front
};
enum {
    FORM_TRIM_SYSTEM = 1,
    FORM_TRIM_USER = 2,
    FORM_TRIM_ASSISTANT = 4,
    FORM_TRIM = 7,
    FORM_ALTERNATE = 8,         // after the system message: user, assistant, user, ...
    FORM_SKIP_EMPTY_SYSTEM = 16 // an empty system message is left out
};

struct form_role {
    const char *before, *after;
};
struct chat_form {
    const char *name;
    const char *prefix; // before everything
    struct form_role system, user, assistant;
    const char *generation;  // the generation prompt
    const char *end_of_turn; // the token's content
    const char
        *default_system; // written where the first message is not the system's; NULL: nothing
    const char
        *first_system; // `before` of a system message in first place, where it differs; or NULL
    const char *no_generation; // at the end where no generation prompt is asked for; or NULL
    enum system_place place;
    enum think_rule think;
    unsigned flags;
};
extern const struct chat_form chat_forms[];
extern const size_t n_chat_forms;

const struct chat_form *chat_form_named(const char *name); // or NULL
const struct chat_form *chat_form_of_fingerprint(
    uint64_t fingerprint);         // of a template's normal form; or NULL
const char *chat_form_names(void); // "chatml, chatml-bos, ..."
