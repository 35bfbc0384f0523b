// See tcp_watch.h.
#include "ws/net/tcp_watch.h"
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define BACKLOG_BYTES 16384 // fewer are on their way on any healthy connection

// An older kernel fills less of *info.
static bool look(int fd, struct tcp_info *info) {
    socklen_t len = sizeof *info;
    *info = (struct tcp_info){0};
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0;
}

bool tcp_moves(int fd, struct tcp_marks *m) {
    struct tcp_info info;
    int waiting = 0;
    if (!look(fd, &info)) return false;
    struct tcp_marks now = {info.tcpi_bytes_received, info.tcpi_bytes_acked};
    bool backlog = ioctl(fd, SIOCOUTQ, &waiting) == 0 && waiting >= BACKLOG_BYTES;
    bool moved = now.received != m->received || (backlog && now.taken != m->taken);
    *m = now;
    return moved;
}
