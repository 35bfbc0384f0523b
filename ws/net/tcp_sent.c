// See tcp_sent.h.
#include "ws/net/tcp_sent.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

bool tcp_has_sent(int fd) {
    struct tcp_info info = {0}; // an older kernel fills less of it
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) return false;
    return info.tcpi_bytes_acked > 0;
}
