/* Blocking system calls that come by number, through syscall(). */
#include "call.h"
#include "clock.h"
#include "fd.h"
#include "hide.h"
#include "kernel.h"
#include "sys.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/random.h>

/* Leaves in *t what is left of it, as the kernel's ppoll and pselect6 do. */
static void leave_rest(struct timespec *t, uint64_t start)
{
    if (!t || t->tv_sec < 0 || !vt_nsec_valid(t))
        return;
    uint64_t took = vt_now() - start, time = vt_timespec_ns(t), left = time > took ? time - took : 0;
    *t = (struct timespec){(time_t)(left / VT_SECOND_NS), (long)(left % VT_SECOND_NS)};
}

static long by_select(const long a[6])
{
    struct timeval *tv = (struct timeval *)a[4];
    struct timespec t;
    if (tv) {
        if (tv->tv_sec < 0 || tv->tv_usec < 0)
            return -EINVAL;
        t = (struct timespec){tv->tv_sec + tv->tv_usec / 1000000, tv->tv_usec % 1000000 * 1000};
    }
    uint64_t start = vt_now();
    long ret = vt_call_pselect((int)a[0], (fd_set *)a[1], (fd_set *)a[2], (fd_set *)a[3], tv ? &t : NULL, NULL, 0);
    if (tv) {
        leave_rest(&t, start);
        *tv = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    }
    return ret;
}

static long by_pselect6(const long a[6])
{
    struct mask {
        const sigset_t *set;
        size_t size;
    } none = {NULL, 0}, *mask = a[5] ? (struct mask *)a[5] : &none;
    uint64_t start = vt_now();
    long ret = vt_call_pselect((int)a[0], (fd_set *)a[1], (fd_set *)a[2], (fd_set *)a[3], (struct timespec *)a[4], mask->set,
                               mask->size);
    leave_rest((struct timespec *)a[4], start);
    return ret;
}

static long by_ppoll(const long a[6])
{
    uint64_t start = vt_now();
    long ret = vt_call_ppoll((struct pollfd *)a[0], (nfds_t)a[1], (struct timespec *)a[2], (sigset_t *)a[3], (size_t)a[4]);
    leave_rest((struct timespec *)a[2], start);
    return ret;
}

static struct timespec milliseconds(int ms)
{
    return (struct timespec){ms / 1000, ms % 1000 * 1000000L};
}

/* By a virtual thread: calls that wait. */
static bool waiting(long number, const long a[6], long *ret)
{
    int fd = (int)a[0];
    void *buf = (void *)a[1];
    struct timespec t;
    switch (number) {
    case SYS_read:
        *ret = vt_call_read(fd, buf, (size_t)a[2]);
        return true;
    case SYS_write:
        *ret = vt_call_write(fd, buf, (size_t)a[2]);
        return true;
    case SYS_readv:
        *ret = vt_call_readv(fd, buf, (int)a[2]);
        return true;
    case SYS_writev:
        *ret = vt_call_writev(fd, buf, (int)a[2]);
        return true;
    case SYS_pread64:
        *ret = vt_call_pread(fd, buf, (size_t)a[2], a[3]);
        return true;
    case SYS_preadv2:
        *ret = vt_call_preadv2(fd, buf, (int)a[2], a[3], (int)a[5]);
        return true;
    case SYS_pwritev2:
        *ret = vt_call_pwritev2(fd, buf, (int)a[2], a[3], (int)a[5]);
        return true;
    case SYS_pwrite64:
        *ret = vt_call_pwrite(fd, buf, (size_t)a[2], a[3]);
        return true;
    case SYS_preadv:
    case SYS_pwritev:
        if (a[3] < 0)
            return false; /* not the current position, but an error */
        *ret =
            number == SYS_preadv ? vt_call_preadv2(fd, buf, (int)a[2], a[3], 0) : vt_call_pwritev2(fd, buf, (int)a[2], a[3], 0);
        return true;
    case SYS_openat:
        *ret = vt_call_openat(fd, buf, (int)a[2], (mode_t)a[3]);
        vt_fd_forget((int)*ret);
        return true;
    case SYS_open:
        *ret = vt_call_openat(AT_FDCWD, (const char *)a[0], (int)a[1], (mode_t)a[2]);
        vt_fd_forget((int)*ret);
        return true;
    case SYS_fcntl:
        if (a[1] != F_SETLKW && a[1] != F_OFD_SETLKW)
            return false;
        *ret = vt_sys3(SYS_fcntl, fd, a[1] == F_SETLKW ? F_SETLK : F_OFD_SETLK, a[2]);
        if (*ret != -EAGAIN && *ret != -EACCES)
            return true;
        break;
    case SYS_getrandom:
        if (a[2] & GRND_NONBLOCK)
            return false;
        *ret = vt_sys3(SYS_getrandom, a[0], a[1], a[2] | GRND_NONBLOCK);
        if (*ret != -EAGAIN)
            return true;
        break;
    case SYS_recvfrom:
        *ret = vt_call_recvfrom(fd, buf, (size_t)a[2], (int)a[3], (struct sockaddr *)a[4], (socklen_t *)a[5]);
        return true;
    case SYS_recvmsg:
        *ret = vt_call_recvmsg(fd, buf, (int)a[2]);
        return true;
    case SYS_recvmmsg:
        *ret = vt_call_recvmmsg(fd, buf, (unsigned)a[2], (int)a[3], (struct timespec *)a[4]);
        return true;
    case SYS_sendto:
        *ret = vt_call_sendto(fd, buf, (size_t)a[2], (int)a[3], (struct sockaddr *)a[4], (socklen_t)a[5]);
        return true;
    case SYS_sendmsg:
        *ret = vt_call_sendmsg(fd, buf, (int)a[2]);
        return true;
    case SYS_sendmmsg:
        *ret = vt_call_sendmmsg(fd, buf, (unsigned)a[2], (int)a[3]);
        return true;
    case SYS_accept:
        *ret = vt_call_accept4(fd, buf, (socklen_t *)a[2], 0);
        return true;
    case SYS_accept4:
        *ret = vt_call_accept4(fd, buf, (socklen_t *)a[2], (int)a[3]);
        return true;
    case SYS_connect:
        *ret = vt_call_connect(fd, buf, (socklen_t)a[2]);
        return true;
    case SYS_poll:
        t = milliseconds((int)a[2]);
        *ret = vt_call_ppoll((struct pollfd *)a[0], (nfds_t)a[1], (int)a[2] < 0 ? NULL : &t, NULL, 0);
        return true;
    case SYS_ppoll:
        *ret = by_ppoll(a);
        return true;
    case SYS_select:
        *ret = by_select(a);
        return true;
    case SYS_pselect6:
        *ret = by_pselect6(a);
        return true;
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        t = milliseconds((int)a[3]);
        *ret = vt_call_epoll_pwait2(fd, buf, (int)a[2], (int)a[3] < 0 ? NULL : &t,
                                    number == SYS_epoll_pwait ? (sigset_t *)a[4] : NULL,
                                    number == SYS_epoll_pwait ? (size_t)a[5] : 0);
        return true;
    case SYS_epoll_pwait2:
        *ret = vt_call_epoll_pwait2(fd, buf, (int)a[2], (struct timespec *)a[3], (sigset_t *)a[4], (size_t)a[5]);
        return true;
    case SYS_nanosleep:
        *ret = vt_call_clock_nanosleep(CLOCK_MONOTONIC, 0, (struct timespec *)a[0], buf);
        return true;
    case SYS_clock_nanosleep:
        *ret = vt_call_clock_nanosleep((clockid_t)a[0], (int)a[1], (struct timespec *)a[2], (struct timespec *)a[3]);
        return true;
    case SYS_wait4:
        *ret = vt_call_wait4((pid_t)a[0], buf, (int)a[2], (struct rusage *)a[3]);
        return true;
    case SYS_waitid:
        *ret = vt_call_waitid((int)a[0], (id_t)a[1], (siginfo_t *)a[2], (int)a[3], (struct rusage *)a[4]);
        return true;
    case SYS_sched_yield:
        vt_yield();
        *ret = 0;
        return true;
    case SYS_io_uring_enter: /* a ring of the program's own */
        if (!a[2] || !(a[3] & IORING_ENTER_GETEVENTS))
            return false;
        break;
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_syncfs:
    case SYS_sync:
    case SYS_msync:
    case SYS_sync_file_range:
    case SYS_fallocate:
    case SYS_copy_file_range:
    case SYS_flock:
    case SYS_msgrcv:
    case SYS_msgsnd:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_mq_timedreceive:
    case SYS_mq_timedsend:
    case SYS_pause:
        break;
    default:
        return false;
    }
    *ret = VT_HANDED_CALL("syscall", vt_sys6(number, a[0], a[1], a[2], a[3], a[4], a[5]));
    return true;
}

/* By any thread, after the call has been made: what it means for the hints. */
static void note(long number, const long a[6], long ret)
{
    if (ret < 0)
        return;
    switch (number) {
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
        vt_fd_dup((int)a[0], (int)ret);
        break;
    case SYS_fcntl:
        if (a[1] == F_SETFL)
            vt_fd_mark_nonblock((int)a[0], a[2] & O_NONBLOCK);
        else if (a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC)
            vt_fd_dup((int)a[0], (int)ret);
        break;
    case SYS_ioctl:
        if (a[1] == FIONBIO)
            vt_fd_mark_nonblock((int)a[0], *(int *)a[2] != 0);
        break;
    case SYS_setsockopt:
        if (a[1] == SOL_SOCKET)
            vt_fd_mark_sockopt((int)a[0], (int)a[2], (void *)a[3], (unsigned)a[4]);
        break;
    case SYS_socket:
    case SYS_accept:
    case SYS_accept4:
    case SYS_open:
    case SYS_openat:
    case SYS_openat2:
    case SYS_creat:
    case SYS_eventfd:
    case SYS_eventfd2:
    case SYS_timerfd_create:
    case SYS_signalfd:
    case SYS_signalfd4:
    case SYS_inotify_init:
    case SYS_inotify_init1:
    case SYS_epoll_create:
    case SYS_epoll_create1:
    case SYS_memfd_create:
    case SYS_memfd_secret:
    case SYS_pidfd_open:
    case SYS_pidfd_getfd:
    case SYS_perf_event_open:
    case SYS_userfaultfd:
    case SYS_io_uring_setup:
        vt_fd_forget((int)ret);
        break;
    case SYS_socketpair:
        vt_fd_forget(((int *)a[3])[0]);
        vt_fd_forget(((int *)a[3])[1]);
        break;
    case SYS_pipe:
    case SYS_pipe2:
        vt_fd_forget(((int *)a[0])[0]);
        vt_fd_forget(((int *)a[0])[1]);
        break;
    default:
        break;
    }
}

long vt_call_number(long number, const long a[6])
{
    long ret;
    if (vt_hidden_call(number, a, &ret) || vt_kernel_call(number, a, &ret) || vt_signal_number(number, a, &ret)) {
        note(number, a, ret);
        return ret;
    }
    if (vt_is_virtual() && waiting(number, a, &ret))
        return ret;
    /* Before the number is free for others. */
    if (number == SYS_close)
        vt_fd_forget((int)a[0]);
    else if (number == SYS_close_range)
        return vt_call_close_range((unsigned)a[0], (unsigned)a[1], (unsigned)a[2]);
    else if (number == SYS_fork || (number == SYS_clone && !(a[0] & (CLONE_VM | CLONE_SETTLS))))
        return vt_call_fork(number, a);
    ret = vt_sys6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (vt_is_virtual())
        vt_moved(ret);
    note(number, a, ret);
    return ret;
}
