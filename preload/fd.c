#include "fd.h"

#include "own.h"
#include "park.h"
#include "sys.h"
#include "watch.h"

#include <fcntl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

/* Zero pages until used. */
struct vt_fd vt_fds[VT_FD_MAX];

/* Highest number about which something is known: bounds vt_fd_forget_range. */
static _Atomic int highest;

/* Someone has set SO_RCVTIMEO or SO_SNDTIMEO, so a duplicate's VT_FD_NO_TIMEO may be out of date. */
static _Atomic bool timeo_used;

static void store(int fd, unsigned bits)
{
    if ((unsigned)fd >= VT_FD_MAX || (vt_self && vt_self->vforked))
        return;
    int old = atomic_load_explicit(&highest, memory_order_relaxed);
    while (old < fd && !atomic_compare_exchange_weak_explicit(&highest, &old, fd, memory_order_relaxed, memory_order_relaxed))
        ;
    atomic_store_explicit(&vt_fds[fd].waits[VT_FD_READS], 0, memory_order_relaxed);
    atomic_store_explicit(&vt_fds[fd].guess, 0, memory_order_relaxed);
    atomic_store_explicit(&vt_fds[fd].waits[VT_FD_POLLS], 0, memory_order_relaxed);
    atomic_store_explicit(&vt_fds[fd].bits, (uint16_t)bits, memory_order_relaxed);
    atomic_fetch_add_explicit(&vt_fds[fd].generation, 1, memory_order_relaxed);
    if (bits & VT_FD_TRACKED)
        vt_watch_number_begins(fd);
    else
        vt_watch_number_ends(fd);
    if (bits && fd >= atomic_load_explicit(&vt_own_near, memory_order_relaxed))
        vt_own_approach(fd);
}

enum vt_fd_kind vt_fd_learn(int fd)
{
    struct stat st;
    if (vt_own_has(fd))
        return VT_FD_UNKNOWN;
    if (vt_sys2(SYS_fstat, fd, (long)&st) < 0)
        return VT_FD_UNKNOWN;
    enum vt_fd_kind kind;
    switch (st.st_mode & S_IFMT) {
    case S_IFSOCK:
        kind = VT_FD_SOCKET;
        break;
    case S_IFIFO:
        kind = VT_FD_PIPE;
        break;
    case S_IFCHR:
        kind = VT_FD_CHAR;
        break;
    case S_IFREG:
    case S_IFDIR:
    case S_IFBLK:
        kind = VT_FD_FILE;
        break;
    default: /* anonymous inodes have no type */
        kind = VT_FD_EVENT;
        break;
    }
    unsigned bits = vt_fd_bits(fd);
    if ((bits & VT_FD_KIND) == VT_FD_UNKNOWN)
        vt_fd_set(fd, kind);
    else if ((bits & VT_FD_KIND) != kind)
        store(fd, kind); /* the number has been reused unseen: nothing else is right either */
    if (kind == VT_FD_FILE && (bits & VT_FD_KIND) != kind)
        vt_fd_mark_flags(fd, (int)vt_sys3(SYS_fcntl, fd, F_GETFL, 0));
    return kind;
}

void vt_fd_mark_flags(int fd, int flags)
{
    if (flags < 0)
        return;
    if (flags & O_DIRECT)
        vt_fd_set(fd, VT_FD_DIRECT);
    else
        vt_fd_clear(fd, VT_FD_DIRECT);
    if (flags & (O_DIRECT | O_DSYNC))
        vt_fd_set(fd, VT_FD_PIECEMEAL);
}

void vt_fd_born(int fd, enum vt_fd_kind kind, bool nonblock, unsigned bits)
{
    if (fd >= 0)
        store(fd, kind | VT_FD_TRACKED | bits | (nonblock ? VT_FD_NONBLOCK : 0));
}

void vt_fd_forget(int fd)
{
    if ((unsigned)fd < VT_FD_MAX && fd <= atomic_load_explicit(&highest, memory_order_relaxed))
        store(fd, 0);
}

void vt_fd_forget_range(unsigned first, unsigned last)
{
    unsigned top = (unsigned)atomic_load_explicit(&highest, memory_order_relaxed);
    for (; first <= last && first <= top; first++) {
        if (vt_fd_bits((int)first))
            store((int)first, 0);
    }
}

void vt_fd_share_all(void)
{
    int top = atomic_load_explicit(&highest, memory_order_relaxed);
    for (int fd = 0; fd <= top; fd++) {
        if (vt_fd_bits(fd))
            vt_fd_set(fd, VT_FD_SHARED);
    }
}

void vt_fd_fork_child(void)
{
    int top = atomic_load_explicit(&highest, memory_order_relaxed);
    for (int fd = 0; fd <= top; fd++)
        if (atomic_load_explicit(&vt_fds[fd].leader, memory_order_relaxed))
            atomic_store_explicit(&vt_fds[fd].leader, 0, memory_order_relaxed);
}

int vt_fd_table(void)
{
    int top = atomic_load_explicit(&highest, memory_order_relaxed), size = FD_SETSIZE;
    while (size <= top)
        size *= 2;
    return size;
}

void vt_fd_dup(int fd, int to)
{
    if (to < 0 || to == fd)
        return;
    vt_fd_set(fd, VT_FD_SHARED);
    store(to, vt_fd_bits(fd) | VT_FD_SHARED);
}

void vt_fd_mark_nonblock(int fd, bool nonblock)
{
    if (vt_self && vt_self->vforked) { /* the child's descriptor: the same description, or another with that number */
        vt_fd_set(fd, VT_FD_SHARED);
        return;
    }
    if (nonblock)
        vt_fd_set(fd, VT_FD_NONBLOCK);
    else
        vt_fd_clear(fd, VT_FD_NONBLOCK);
}

bool vt_fd_nonblocking(int fd)
{
    unsigned bits = vt_fd_bits(fd);
    if ((bits & (VT_FD_TRACKED | VT_FD_SHARED)) == VT_FD_TRACKED)
        return bits & VT_FD_NONBLOCK;
    long flags = vt_sys2(SYS_fcntl, fd, F_GETFL);
    bool nonblock = flags >= 0 && (flags & O_NONBLOCK);
    vt_fd_mark_nonblock(fd, nonblock);
    return nonblock;
}

void vt_fd_mark_sockopt(int fd, int option, const void *value, unsigned length)
{
    switch (option) {
    case SO_RCVTIMEO_OLD:
    case SO_SNDTIMEO_OLD:
    case SO_RCVTIMEO_NEW:
    case SO_SNDTIMEO_NEW:
        atomic_store_explicit(&timeo_used, true, memory_order_relaxed);
        vt_fd_clear(fd, VT_FD_NO_TIMEO);
        break;
    case SO_RCVLOWAT:
        vt_fd_set(fd, VT_FD_LOWAT);
        break;
    case SO_LINGER:
        if (length >= sizeof(struct linger)) {
            const struct linger *l = value;
            if (l->l_onoff && l->l_linger > 0)
                vt_fd_set(fd, VT_FD_LINGER);
            else
                vt_fd_clear(fd, VT_FD_LINGER);
        }
        break;
    default:
        break;
    }
}

#define GONE UINT64_MAX

static uint64_t timeo(int fd, int option)
{
    struct timeval tv = {0, 0};
    socklen_t length = sizeof tv;
    long ret = vt_sys6(SYS_getsockopt, fd, SOL_SOCKET, option, (long)&tv, (long)&length, 0);
    if (ret < 0)
        return ret == -EBADF ? GONE : 0;
    return (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

uint64_t vt_fd_deadline_of(int fd, int option)
{
    unsigned bits = vt_fd_bits(fd);
    uint64_t wait;
    /* One that has just been given to a socket, and is not noted yet, is unknown. */
    if ((bits & VT_FD_KIND) == VT_FD_UNKNOWN) {
        wait = timeo(fd, option);
        return wait == GONE ? VT_FD_GONE : wait ? vt_now() + wait : VT_NEVER;
    }
    if ((bits & VT_FD_KIND) != VT_FD_SOCKET)
        return VT_NEVER;
    bool used = atomic_load_explicit(&timeo_used, memory_order_relaxed);
    if ((bits & VT_FD_NO_TIMEO) && !(used && (bits & VT_FD_SHARED)))
        return VT_NEVER;
    wait = timeo(fd, option);
    if (wait != 0)
        return wait == GONE ? VT_FD_GONE : vt_now() + wait;
    if (!(bits & VT_FD_SHARED) || !used) {
        int other = option == SO_RCVTIMEO ? SO_SNDTIMEO : SO_RCVTIMEO;
        if (timeo(fd, other) == 0)
            vt_fd_set(fd, VT_FD_NO_TIMEO);
    }
    return VT_NEVER;
}

uint64_t vt_fd_deadline(int fd, int option)
{
    uint64_t deadline = vt_fd_deadline_of(fd, option);
    return deadline == VT_FD_GONE ? VT_NEVER : deadline;
}
