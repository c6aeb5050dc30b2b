/* bind: the kernel tears a ring down some milliseconds after the end of its process (Linux 6.18: 5 to 12,
 * more under load), and till then the sockets that requests were under way on are there, and their addresses
 * in use. A server that is started again at once is not to fail for that. */
#include "call.h"
#include "sys.h"

#include <netinet/in.h>
#include <sys/un.h>

#define VT_BIND_STEP  UINT64_C(1000000)
#define VT_BIND_STEPS 200 /* for the whole process: addresses that others use cost no more than that altogether */

static _Atomic int steps_left = VT_BIND_STEPS;

/* Whether addresses of this kind become free with the socket. */
static bool goes_with_socket(const struct sockaddr *addr, socklen_t length)
{
    if (!addr || length < sizeof addr->sa_family)
        return false;
    if (addr->sa_family == AF_UNIX) /* the abstract ones; others are files */
        return length > offsetof(struct sockaddr_un, sun_path) &&
               ((const struct sockaddr_un *)(const void *)addr)->sun_path[0] == '\0';
    return addr->sa_family == AF_INET || addr->sa_family == AF_INET6;
}

VT_EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t length)
{
    for (;;) {
        int ret = vt_real(bind)(fd, addr, length);
        if (ret == 0 || errno != EADDRINUSE || !vt_on() || (vt_self && vt_self->vforked) || !goes_with_socket(addr, length) ||
            atomic_load_explicit(&steps_left, memory_order_relaxed) <= 0)
            return ret;
        atomic_fetch_sub_explicit(&steps_left, 1, memory_order_relaxed);
        const struct timespec step = {0, (long)VT_BIND_STEP};
        if (vt_is_virtual())
            vt_call_clock_nanosleep(CLOCK_MONOTONIC, 0, &step, NULL);
        else
            vt_sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&step, 0);
        errno = EADDRINUSE;
    }
}
