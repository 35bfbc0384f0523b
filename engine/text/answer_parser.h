// Splits a model's output into thinking, text and tool calls, by the model's own syntax, while the output
// arrives. The result does not depend on how the text is cut into feeds: pieces joined by kind are equal.
//
// White space between the parts is dropped. Text that looks like a call but is none stays text. If nothing
// follows the thinking, calls of `tools` at its end are given again as calls. Any thread, but one thread a parser.
#pragma once
#include "base/json.h"
#include "engine/text/chat_syntax.h"
#include <stdbool.h>
#include <stdint.h>

enum answer_piece_kind {
    PIECE_THINKING,
    PIECE_TEXT,
    PIECE_TOOL_BEGIN, // name
    PIECE_TOOL_ARGUMENTS,
    PIECE_TOOL_END,
};
struct answer_piece { // borrowed until the next call
    enum answer_piece_kind kind;
    const char *text; // TEXT, THINKING, ARGUMENTS (JSON); of BEGIN the name, NUL-terminated
    size_t len;
    int32_t tool; // its place among the calls: 0, 1 ...
};

enum answer_state {
    ANSWER_BEGINS,
    ANSWER_THINKS,
    ANSWER_SPEAKS,
    ANSWER_CALLS,      // behind a marker: an object, a list or a name comes
    ANSWER_WHOLE_CALL, // begun; the arguments are known as a whole
    ANSWER_ARGUMENTS,  // a JSON value is passed on
    ANSWER_MEMBERS,    // behind the arguments: the rest of the call's object
    ANSWER_PARAMETERS, // of the XML syntax
    ANSWER_CALL_ENDS,  // the call's end comes next
    ANSWER_BETWEEN,    // calls: the next one, or the end of the list
    ANSWER_HEADER,     // harmony: what stands before a message's words
    ANSWER_MESSAGE,    // harmony: its words
    ANSWER_CALL_BODY,  // harmony: begun; the arguments come
};
struct answer_parser {
    // Set behind answer_parser_init.
    bool single; // calls after the first one are dropped
    bool strict; // calls of tools that are not in `tools` are text
    struct chat_syntax syntax;
    bool looks;         // for calls; answer_parser_init sets it
    const cJSON *tools; // NULL: a call may name any tool
    enum answer_state state;
    struct buf in;  // the text fed so far; bytes before `from` have been passed on
    struct buf out; // the bytes that a piece points to, if they are not in `in`
    size_t from;
    bool ended, failed; // failed: no memory
    bool fresh;         // nothing of this part has been passed on
    bool behind;        // another part was before: white space is dropped
    // The thinking from its first marker on (has_marker), or the start of a marker.
    struct buf thought;
    bool has_marker;
    bool guessed;                 // the call has no marker
    bool listed;                  // it is one of Mistral's list
    bool named;                   // its name stands before its arguments, in Mistral's newer form
    enum answer_piece_kind words; // harmony: what the present message is
    char name[128];               // of the call
    int32_t n_tools;              // calls begun
    size_t n_params;              // of XML
    int depth;                    // of the value that is passed on
    bool in_string, escaped;      // likewise
};

// thinks: the prompt has opened the thinking. tools: borrowed; NULL: none are served, so calls are not looked for,
// unless the caller sets `looks`.
void answer_parser_init(struct answer_parser *p, struct chat_syntax syntax, const cJSON *tools,
                        bool thinks);
void answer_parser_release(struct answer_parser *p);
void answer_parser_feed(struct answer_parser *p, const char *text, size_t len);
void answer_parser_end(struct answer_parser *p); // no more will come
// 1: *out; 0: none yet; E_NOMEM.
int answer_parser_next(struct answer_parser *p, struct answer_piece *out);
// The marks that the parser reads in a model's answers, ending with a NULL: tokenizers call some of them special, and
// text that leaves special tokens out has none of them.
#define ANSWER_MARKS_MAX 12
void answer_marks(struct chat_syntax syntax, const char *out[ANSWER_MARKS_MAX]);
bool answer_parser_thinks(const struct answer_parser *p); // the next text is thinking
