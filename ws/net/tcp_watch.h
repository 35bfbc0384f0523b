// What the kernel says about a TCP connection. A file of its own: the kernel's header, which has all of struct
// tcp_info, cannot stand beside glibc's.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct tcp_marks { // bytes of a connection, when tcp_moves last looked
    uint64_t received, taken;
};

// Whether the peer has done something since the last call with these marks: sent a byte, read by us or not, or taken
// bytes while many wait for it (a ping waits behind them). Updates the marks. false also for another kind of socket.
bool tcp_moves(int fd, struct tcp_marks *m);
