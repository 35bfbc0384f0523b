// Whether anything was ever sent on a TCP socket. A file of its own: the kernel's header, which has all of
// struct tcp_info, cannot stand beside glibc's.
#pragma once
#include <stdbool.h>

bool tcp_has_sent(
    int fd); // and the peer has acknowledged it. false also for another kind of socket
