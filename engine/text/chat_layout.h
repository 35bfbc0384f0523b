// Other layouts of a conversation's roles, for templates that refuse the given one: a later system message, two
// messages of one role in a row, or any system message at all.
#pragma once
#include "base/json.h"

// In the order to try: those that write no later message in front of earlier ones come first, so that a client that
// adds a system message to each request does not make all of it new.
enum chat_layout {
    LAYOUT_LATER_TO_USER,     // later system messages become the user's, in their place
    LAYOUT_ALL_TO_USER,       // and the first one begins the user's first message
    LAYOUT_LATER_TO_FRONT,    // all system messages become one at the front
    LAYOUT_ALL_TO_FIRST_USER, // which begins the user's first message
    N_CHAT_LAYOUTS,
};
// The messages in this layout, with consecutive ones of the user joined. NULL: no memory, or a message is `fixed`
// (its member is true: nothing may be written in front of it) and the layout would move one there.
cJSON *chat_layout_of(const cJSON *messages, enum chat_layout layout);
