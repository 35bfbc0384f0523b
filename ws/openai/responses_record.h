// A response made again from the record of its turn: for GET, for its stream, and for a later request
// that repeats its conversation.
#pragma once
#include "sessions/replay/debug.h"
#include "ws/openai/responses_output.h"

struct service;

// A session, with the note of its conversation.
struct responses_session {
    char *note, *model; // NULL: no note
    int64_t n_turns, created_ms;
};
void responses_session_release(struct responses_session *s); // a zeroed one is allowed

struct responses_record {
    char session[SESSION_ID_MAX + 1];
    int64_t turn;
    char *request;    // the turn's, with its note
    char *input_text; // of a turn that came through another protocol; NULL: none
    char *text;       // (text_len) the answer as it was sampled
    size_t text_len;
    uint32_t *text_ends; // (n_ids)
    size_t n_ids;
    bool wants_logprobs; // its client asked for log-probabilities; else these are NULL:
    int32_t *ids;        // (n_ids)
    float *logprobs;     // (n_ids)
    struct engine_alternative *alternatives; // (n_ids, n_alternatives)
    int32_t n_alternatives;
    int32_t last_id; // of its log; -1: not known
    struct turn_numbers numbers;
    int64_t prompt_tokens;
    char finish[FINISH_REASON_MAX]; // "" while it runs
    char error_code[ERROR_CODE_MAX], *error_message;
    int64_t created_ms, ended_ms, seq_first;
    // responses_record_read()'s
    cJSON *note;                       // NULL: it came through another protocol
    char *echo;                        // responses_output.echo
    const struct served_model *served; // held; NULL: its model is not served now
};

// Copies what ANSWER_TURN shows. Net thread. E_NOMEM.
int responses_record_copy(struct responses_record *r, const struct session_answer *a);
void responses_record_release(struct responses_record *r);
// Parses the record's note and request. Any thread, once. E_NOMEM, E_CORRUPT.
int responses_record_read(struct responses_record *r, const struct service *s);
// Plays the recorded part of the answer into an output that responses_output_init has made with r->echo, with an
// end if the turn has ended. Any thread.
void responses_record_play(const struct responses_record *r, struct responses_output *out);
// The input's items, borrowed. NULL: the input is not on record.
const cJSON *responses_record_input(const struct responses_record *r);
// Writes one item of the input, with the item's id.
void responses_record_put_input(const struct responses_record *r, struct json_writer *w,
                                const cJSON *item, int64_t index);
// Appends all items of input and answer, with their ids. Any thread. E_NOMEM; E_NOTFOUND: the input is
// not on record.
int responses_record_items(const struct responses_record *r, cJSON *items);
// A new array of the items of input and answer that are on record. NULL: no memory.
cJSON *responses_record_known_items(const struct responses_record *r);
// Whether the response belongs to a conversation, which has the record's session.
bool responses_record_in_conversation(const struct responses_record *r);
struct responses_thinking responses_record_thinking(const struct responses_record *r);
bool responses_record_is_warm_up(const struct responses_record *r); // without parsing the note
// The id of the response before this one; NULL: this is the first.
const char *responses_record_previous(const struct responses_record *r);
// A completion with the response's model and tools, to follow the turn while it runs (completion_follow). NULL:
// no memory, or the model is not served.
struct completion_request *responses_record_completion(struct responses_record *r);
bool responses_record_thinks(
    const struct responses_record *r); // the answer begins inside the thinking
// Whether the note has this prefix, without parsing it. True if there is no note.
bool responses_record_has_prefix(const struct responses_record *r, uint64_t prefix);
// For a response in a conversation: whether the note has this prefix and revision (conversation.h). False if there
// is no note.
bool responses_record_has_revision(const struct responses_record *r, uint64_t prefix,
                                   int64_t revision);
// Appends the messages of input and answer to the array. E_NOMEM, E_NOTFOUND: the input is not on
// record.
int responses_record_messages(const struct responses_record *r, cJSON *messages);
