// One completion from its request to its last event. completion.c moves it through its states;
// completion_events.c makes the answer's parts of its session's events.
// Net thread only.
#pragma once
#include "ws/completion/completion.h"
#include "ws/completion/speech.h"
#include "ws/service.h"

// In this order; only some completions pass through MATCHING and LOST. Back from MAKING to MATCHING: the
// deepest turn of the conversation does not suit, so all are needed. Back from LOST to MATCHING.
enum state {
    MATCHING, // the service looks for a session that has the conversation
    MAKING,   // a worker has the request and makes the prompt's ids
    MADE,     // the ids are ready, or the failure is set
    STARTING, // the service has the turn, but has not accepted it yet
    LOST,     // another request has opened or deleted the session: the next push searches again
    RUNNING,  // the service has accepted the turn
    ENDED,    // the turn's last event was taken, or it failed
};
// The last of these events that completion_next has given. START_EVENT: STARTED; END_EVENT: DONE or FAILED.
enum reported { NO_EVENT, START_EVENT, END_EVENT };

struct completion {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct completion_request *request;
    completion_ready_fn ready;
    void *user;
    char *owner;
    enum state state;
    enum reported reported;
    bool fresh;               // its session is a new one, or a fork for it alone
    bool released;            // completion_release was called: freed when nothing is under way
    struct store_told *found; // stored turns of this conversation; NULL: not looked for
    bool needs_all;           // MADE, but for all of these turns
    struct service_job job;
    int32_t *ids; // (n_ids) new ones of the prompt
    size_t n_ids;
    char *shown;       // the input as it is shown
    struct told *told; // what finds the turn again
    char session[SESSION_ID_MAX + 1];
    int64_t turn;
    struct session *live;           // while its events wait; NULL: none do
    struct speech *speeches;        // (n_answers), all zero before STARTING
    int32_t n_answers, next_answer; // next_answer: the one to ask for the next event
    struct completion_usage usage;
    struct completion_failure failure;
};

// Sets the failure, if none is set; completion_next then ends with it. Codes: completion.h.
void completion_fail(struct completion *c, const char *code, const char *message);
// The service knows of the turn, and the session's events are followed.
bool completion_has_session(const struct completion *c);
