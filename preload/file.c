/* Making, changing and closing descriptors, for the hints; and calls on files that may block. */
#include "call.h"
#include "catcher.h"
#include "clock.h"
#include "fd.h"
#include "hide.h"
#include "io.h"
#include "kernel.h"
#include "park.h"
#include "sys.h"

#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <unistd.h>

/* --- open ------------------------------------------------------------------------------------------- */

/* Devices that open at once: memory, null and random; /dev/tty; pseudo-terminals. */
static bool opens_at_once(dev_t device)
{
    unsigned n = major(device);
    return n == 1 || n == 5 || (n >= 136 && n <= 143);
}

/* In most programs nothing that is opened waits, and the look costs as much as the open. After so many looks that have found
 * nothing of the kind there are no more, until an open takes so long all the same that the monitor hands the place over. A
 * program that has once been seen to open what waits has each path looked at. */
#define LOOKS_ENOUGH 256
static _Atomic unsigned looks;
static _Atomic bool found_waiting;

/* Whether the open may wait: of a FIFO, for a peer, of a device, for a carrier or a medium. */
static bool may_wait(int dir, const char *path, int flags)
{
    if ((flags & (O_NONBLOCK | O_PATH | O_DIRECTORY | O_ACCMODE)) > O_WRONLY || !path)
        return false;
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
        return false;
    bool all = atomic_load_explicit(&found_waiting, memory_order_relaxed);
    if (!all && atomic_load_explicit(&looks, memory_order_relaxed) >= LOOKS_ENOUGH)
        return false;
    struct stat st;
    bool waits = vt_sys4(SYS_newfstatat, dir, (long)path, (long)&st, 0) == 0 &&
                 (S_ISFIFO(st.st_mode) || (S_ISCHR(st.st_mode) && !opens_at_once(st.st_rdev)));
    if (waits && !all)
        atomic_store_explicit(&found_waiting, true, memory_order_relaxed);
    else if (!all)
        atomic_fetch_add_explicit(&looks, 1, memory_order_relaxed);
    return waits;
}

/* Of the kind that is not known yet. */
static int opened(int fd, int flags)
{
    if (vt_on())
        vt_fd_born(fd, VT_FD_UNKNOWN, flags & O_NONBLOCK, VT_FD_NO_TIMEO);
    return fd;
}

/* The mode is there only with these flags (open(2)). */
#define OPEN_MODE(flags)                                                                                                       \
    __extension__({                                                                                                            \
        mode_t mode_ = 0;                                                                                                      \
        if ((flags)&O_CREAT || ((flags)&O_TMPFILE) == O_TMPFILE) {                                                             \
            va_list list_;                                                                                                     \
            va_start(list_, flags);                                                                                            \
            mode_ = va_arg(list_, mode_t);                                                                                     \
            va_end(list_);                                                                                                     \
        }                                                                                                                      \
        mode_;                                                                                                                 \
    })

long vt_call_openat(int dir, const char *path, int flags, mode_t mode)
{
    if (may_wait(dir, path, flags))
        return VT_HANDED_POINT("open", vt_sys4(SYS_openat, dir, (long)path, flags, mode));
    struct vt_thread *t = vt_self;
    bool before = vt_handed_off();
    long ret;
    t->wait_what = "open"; /* it may wait all the same */
    do {
        vt_wait_begins(t);
        ret = VT_CALL_POINT(vt_sys4(SYS_openat, dir, (long)path, flags, mode));
    } while (ret == -EINTR && vt_handed_in_vain());
    t->wait_what = NULL;
    if (__builtin_expect(!before && vt_handed_off(), 0))
        atomic_store_explicit(&looks, 0, memory_order_relaxed);
    return ret;
}

static int open_virtual(int dir, const char *path, int flags, mode_t mode)
{
    vt_cancel_point();
    /* O_LARGEFILE is what libc adds, and means nothing to this kernel. */
    return (int)vt_result(vt_call_openat(dir, path, flags, mode));
}

#define OPEN_FUNCTION(name)                                                                                                    \
    VT_EXPORT int name(const char *path, int flags, ...)                                                                       \
    {                                                                                                                          \
        mode_t mode = OPEN_MODE(flags);                                                                                        \
        if (!vt_on() || !vt_is_virtual())                                                                                      \
            return opened(vt_real(name)(path, flags, mode), flags);                                                            \
        return opened(open_virtual(AT_FDCWD, path, flags, mode), flags);                                                       \
    }
OPEN_FUNCTION(open)
OPEN_FUNCTION(open64)
VT_ALIAS(open, __open);
VT_ALIAS(open64, __open64);

#define OPENAT_FUNCTION(name)                                                                                                  \
    VT_EXPORT int name(int dir, const char *path, int flags, ...)                                                              \
    {                                                                                                                          \
        mode_t mode = OPEN_MODE(flags);                                                                                        \
        if (!vt_on() || !vt_is_virtual())                                                                                      \
            return opened(vt_real(name)(dir, path, flags, mode), flags);                                                       \
        return opened(open_virtual(dir, path, flags, mode), flags);                                                            \
    }
OPENAT_FUNCTION(openat)
OPENAT_FUNCTION(openat64)

/* The fortified names: flags that need a mode come without, which libc answers by ending the process. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

static bool needs_mode(int flags)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

#define OPEN_2_FUNCTION(name)                                                                                                  \
    VT_EXPORT int name(const char *path, int flags)                                                                            \
    {                                                                                                                          \
        if (!vt_on() || !vt_is_virtual() || needs_mode(flags))                                                                 \
            return opened(vt_real(name)(path, flags), flags);                                                                  \
        return opened(open_virtual(AT_FDCWD, path, flags, 0), flags);                                                          \
    }
OPEN_2_FUNCTION(__open_2)
OPEN_2_FUNCTION(__open64_2)

#define OPENAT_2_FUNCTION(name)                                                                                                \
    VT_EXPORT int name(int dir, const char *path, int flags)                                                                   \
    {                                                                                                                          \
        if (!vt_on() || !vt_is_virtual() || needs_mode(flags))                                                                 \
            return opened(vt_real(name)(dir, path, flags), flags);                                                             \
        return opened(open_virtual(dir, path, flags, 0), flags);                                                               \
    }
OPENAT_2_FUNCTION(__openat_2)
OPENAT_2_FUNCTION(__openat64_2)

#define CREAT_FUNCTION(name)                                                                                                   \
    VT_EXPORT int name(const char *path, mode_t mode)                                                                          \
    {                                                                                                                          \
        const int flags = O_CREAT | O_WRONLY | O_TRUNC;                                                                        \
        if (!vt_on() || !vt_is_virtual())                                                                                      \
            return opened(vt_real(name)(path, mode), flags);                                                                   \
        return opened(open_virtual(AT_FDCWD, path, flags, mode), flags);                                                       \
    }
CREAT_FUNCTION(creat)
CREAT_FUNCTION(creat64)

/* --- other makers ----------------------------------------------------------------------------------- */

#define MAKER(name, parameters, arguments, kind, nonblock)                                                                     \
    VT_EXPORT int name parameters                                                                                              \
    {                                                                                                                          \
        int fd = vt_real(name) arguments;                                                                                      \
        if (vt_on())                                                                                                           \
            vt_fd_born(fd, kind, nonblock, VT_FD_NO_TIMEO);                                                                    \
        return fd;                                                                                                             \
    }

MAKER(eventfd, (unsigned count, int flags), (count, flags), VT_FD_EVENT, flags &EFD_NONBLOCK)
MAKER(timerfd_create, (clockid_t clock, int flags), (clock, flags), VT_FD_EVENT, flags &TFD_NONBLOCK)
MAKER(inotify_init, (void), (), VT_FD_EVENT, false)
MAKER(inotify_init1, (int flags), (flags), VT_FD_EVENT, flags &IN_NONBLOCK)
MAKER(epoll_create, (int size), (size), VT_FD_EVENT, false)
MAKER(epoll_create1, (int flags), (flags), VT_FD_EVENT, false)
MAKER(fanotify_init, (unsigned flags, unsigned event_flags), (flags, event_flags), VT_FD_EVENT, flags &FAN_NONBLOCK)
MAKER(memfd_create, (const char *name, unsigned flags), (name, flags), VT_FD_FILE, false)
MAKER(shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode), VT_FD_FILE, false)
MAKER(mkstemp, (char *name), (name), VT_FD_FILE, false)
MAKER(mkstemp64, (char *name), (name), VT_FD_FILE, false)
MAKER(mkostemp, (char *name, int flags), (name, flags), VT_FD_FILE, false)
MAKER(mkostemp64, (char *name, int flags), (name, flags), VT_FD_FILE, false)
MAKER(mkstemps, (char *name, int suffix), (name, suffix), VT_FD_FILE, false)
MAKER(mkstemps64, (char *name, int suffix), (name, suffix), VT_FD_FILE, false)
MAKER(mkostemps, (char *name, int suffix, int flags), (name, suffix, flags), VT_FD_FILE, false)
MAKER(mkostemps64, (char *name, int suffix, int flags), (name, suffix, flags), VT_FD_FILE, false)

/* Since glibc 2.36. */
int pidfd_open(pid_t pid, unsigned flags);
int pidfd_getfd(int pidfd, int target, unsigned flags);

VT_EXPORT int pidfd_open(pid_t pid, unsigned flags)
{
    const long a[6] = {pid, flags};
    long ret;
    int fd = vt_on() && vt_kernel_call(SYS_pidfd_open, a, &ret) ? (int)vt_result(ret) : vt_real(pidfd_open)(pid, flags);
    if (vt_on())
        vt_fd_born(fd, VT_FD_EVENT, flags & O_NONBLOCK, VT_FD_NO_TIMEO);
    return fd;
}

VT_EXPORT int signalfd(int fd, const sigset_t *mask, int flags)
{
    int ret = vt_real(signalfd)(fd, mask, flags);
    if (ret >= 0 && vt_on()) {
        uint64_t bits;
        memcpy(&bits, mask, sizeof bits);
        vt_catch_called_for(bits);
    }
    if (fd < 0 && vt_on()) /* else it changes one that is there */
        vt_fd_born(ret, VT_FD_EVENT, flags & SFD_NONBLOCK, VT_FD_NO_TIMEO);
    return ret;
}

VT_EXPORT int pidfd_getfd(int pidfd, int target, unsigned flags)
{
    int fd = vt_real(pidfd_getfd)(pidfd, target, flags);
    if (vt_on())
        vt_fd_forget(fd);
    return fd;
}

static int piped(int ret, const int fds[2], int flags)
{
    if (ret == 0 && vt_on()) {
        vt_fd_born(fds[0], VT_FD_PIPE, flags & O_NONBLOCK, VT_FD_NO_TIMEO);
        vt_fd_born(fds[1], VT_FD_PIPE, flags & O_NONBLOCK, VT_FD_NO_TIMEO);
    }
    return ret;
}

VT_EXPORT int pipe(int fds[2])
{
    return piped(vt_real(pipe)(fds), fds, 0);
}
VT_ALIAS(pipe, __pipe);

VT_EXPORT int pipe2(int fds[2], int flags)
{
    return piped(vt_real(pipe2)(fds, flags), fds, flags);
}

/* --- duplicates ------------------------------------------------------------------------------------- */

static int duplicated(int fd, int to)
{
    if (vt_on())
        vt_fd_dup(fd, to);
    return to;
}

VT_EXPORT int dup(int fd)
{
    return vt_own_has(fd) ? (int)vt_result(-EBADF) : duplicated(fd, vt_real(dup)(fd));
}

VT_EXPORT int dup2(int fd, int to)
{
    long ret;
    if (!vt_hidden_dup_over(SYS_dup2, fd, to, 0, &ret))
        return duplicated(fd, vt_real(dup2)(fd, to));
    return duplicated(fd, (int)vt_result(ret));
}
VT_ALIAS(dup2, __dup2);

VT_EXPORT int dup3(int fd, int to, int flags)
{
    long ret;
    if (!vt_hidden_dup_over(SYS_dup3, fd, to, flags, &ret))
        return duplicated(fd, vt_real(dup3)(fd, to, flags));
    return duplicated(fd, (int)vt_result(ret));
}

/* --- fcntl, ioctl ----------------------------------------------------------------------------------- */

/* What libc's fcntl does with cmd and its argument, for any thread. */
static int fcntl_call(int fd, int cmd, void *arg)
{
    long at_once;
    int ret;
    if (!vt_on())
        return vt_real(fcntl)(fd, cmd, arg);
    if (vt_hidden_fcntl(fd, cmd, (long)arg, &at_once))
        return (int)vt_result(at_once);
    switch (cmd) {
    case F_SETLKW:
    case F_OFD_SETLKW: {
        if (!vt_is_virtual())
            break;
        vt_cancel_point();
        long now = vt_sys3(SYS_fcntl, fd, cmd == F_SETLKW ? F_SETLK : F_OFD_SETLK, (long)arg);
        if (now != -EAGAIN && now != -EACCES)
            return (int)vt_result(now);
        return VT_HANDED("fcntl(F_SETLKW)", vt_real(fcntl)(fd, cmd, arg));
    }
    case F_SETOWN_EX:
    case F_GETOWN_EX: {
        const long a[6] = {fd, cmd, (long)arg};
        if (vt_kernel_call(SYS_fcntl, a, &at_once))
            return (int)vt_result(at_once);
        break;
    }
    case F_SETFL:
        ret = vt_real(fcntl)(fd, cmd, arg);
        if (ret == 0)
            vt_fd_mark_nonblock(fd, (long)arg & O_NONBLOCK);
        if (ret == 0 && (vt_fd_bits(fd) & VT_FD_KIND) == VT_FD_FILE)
            vt_fd_mark_flags(fd, (int)(long)arg);
        return ret;
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        ret = vt_real(fcntl)(fd, cmd, arg);
        vt_fd_dup(fd, ret);
        return ret;
    default:
        break;
    }
    return vt_real(fcntl)(fd, cmd, arg);
}

#define FCNTL_FUNCTION(name)                                                                                                   \
    VT_EXPORT int name(int fd, int cmd, ...)                                                                                   \
    {                                                                                                                          \
        va_list list;                                                                                                          \
        va_start(list, cmd);                                                                                                   \
        void *arg = va_arg(list, void *);                                                                                      \
        va_end(list);                                                                                                          \
        return fcntl_call(fd, cmd, arg);                                                                                       \
    }
FCNTL_FUNCTION(fcntl)
VT_ALIAS(fcntl, fcntl64);
VT_ALIAS(fcntl, __fcntl);

VT_EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *arg = va_arg(list, void *);
    va_end(list);
    if (!vt_on())
        return vt_real(ioctl)(fd, request, arg);
    if (vt_own_has(fd))
        return (int)vt_result(-EBADF);
    switch (request) {
    case FIONBIO: {
        int ret = vt_real(ioctl)(fd, request, arg);
        if (ret == 0)
            vt_fd_mark_nonblock(fd, *(int *)arg != 0);
        return ret;
    }
    case TCSBRK: /* waits until the output is out */
    case TCSBRKP:
    case TCSETSW:
    case TCSETSF:
        if (vt_is_virtual())
            return VT_HANDED("ioctl", vt_real(ioctl)(fd, request, arg));
        break;
    default:
        break;
    }
    return vt_real(ioctl)(fd, request, arg);
}

/* --- close ------------------------------------------------------------------------------------------ */

/* Forgets first: once the number is free another thread may make it anew. */
VT_EXPORT int close(int fd)
{
    if (!vt_on())
        return vt_real(close)(fd);
    long at_once;
    if (vt_hidden_close(fd, &at_once))
        return (int)vt_result(at_once);
    unsigned bits = vt_fd_bits(fd);
    vt_fd_forget(fd);
    if (!vt_is_virtual())
        return vt_real(close)(fd);
    vt_cancel_point();
    if (bits & VT_FD_LINGER)
        vt_handoff_begin("close");
    long ret = vt_sys1(SYS_close, fd); /* once: with EINTR too the descriptor is gone */
    if (bits & VT_FD_LINGER)
        vt_handoff_end();
    return (int)vt_result(ret);
}
VT_ALIAS(close, __close);

VT_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    if (!vt_on())
        return vt_real(close_range)(first, last, flags);
    return (int)vt_result(vt_call_close_range(first, last, (unsigned)flags));
}

VT_EXPORT void closefrom(int first)
{
    if (!vt_on() || vt_call_close_range(first > 0 ? (unsigned)first : 0, UINT32_MAX, 0) < 0)
        vt_real(closefrom)(first);
}

/* --- to the disk ------------------------------------------------------------------------------------ */

static int sync_virtual(int fd, uint32_t flags, long number, const char *what)
{
    vt_cancel_point();
    long ret = -EOPNOTSUPP;
    if (vt_io_has_ring()) {
        struct vt_io_req req = {.opcode = IORING_OP_FSYNC, .fd = fd, .op_flags = flags};
        ret = vt_io_do(&req, VT_NEVER, 0); /* not interrupted by signals */
    }
    if (ret == -EOPNOTSUPP || ret == -EAGAIN)
        ret = VT_HANDED_CALL(what, vt_sys1(number, fd));
    return (int)vt_result(ret);
}

VT_EXPORT int fsync(int fd)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(fsync)(fd);
    return sync_virtual(fd, 0, SYS_fsync, "fsync");
}

VT_EXPORT int fdatasync(int fd)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(fdatasync)(fd);
    return sync_virtual(fd, IORING_FSYNC_DATASYNC, SYS_fdatasync, "fdatasync");
}

VT_HANDED_FUNCTION(int, msync, (void *addr, size_t length, int flags), (addr, length, flags))
VT_HANDED_FUNCTION(int, syncfs, (int fd), (fd))
VT_HANDED_FUNCTION(int, sync_file_range, (int fd, off64_t offset, off64_t n, unsigned flags), (fd, offset, n, flags))
VT_HANDED_FUNCTION(int, tcdrain, (int fd), (fd))
VT_HANDED_FUNCTION(int, tcsendbreak, (int fd, int duration), (fd, duration))

static int allocate(int fd, off_t offset, off_t length)
{
    int err = vt_real(posix_fallocate)(fd, offset, length);
    vt_moved(-err); /* errno says nothing */
    return err;
}

VT_EXPORT int posix_fallocate(int fd, off_t offset, off_t length)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(posix_fallocate)(fd, offset, length);
    vt_cancel_point();
    return VT_HANDED("posix_fallocate", allocate(fd, offset, length));
}
VT_ALIAS(posix_fallocate, posix_fallocate64);
VT_HANDED_FUNCTION(int, fallocate, (int fd, int mode, off_t offset, off_t length), (fd, mode, offset, length))
VT_ALIAS(fallocate, fallocate64);

/* call, of libc's, as vt_moved wants it. */
#define MOVED(call)                                                                                                            \
    __extension__({                                                                                                            \
        __typeof__(call) moved_ = (call);                                                                                      \
        if (moved_ < 0)                                                                                                        \
            vt_moved(-errno);                                                                                                  \
        moved_;                                                                                                                \
    })

VT_EXPORT int ftruncate(int fd, off_t length)
{
    return vt_on() && vt_is_virtual() ? MOVED(vt_real(ftruncate)(fd, length)) : vt_real(ftruncate)(fd, length);
}
VT_ALIAS(ftruncate, ftruncate64);

VT_EXPORT int truncate(const char *path, off_t length)
{
    return vt_on() && vt_is_virtual() ? MOVED(vt_real(truncate)(path, length)) : vt_real(truncate)(path, length);
}
VT_ALIAS(truncate, truncate64);

VT_EXPORT int tcsetattr(int fd, int actions, const struct termios *to)
{
    if (!vt_on() || !vt_is_virtual() || actions == TCSANOW)
        return vt_real(tcsetattr)(fd, actions, to);
    return VT_HANDED("tcsetattr", vt_real(tcsetattr)(fd, actions, to)); /* when the output is out */
}

VT_EXPORT void sync(void)
{
    if (!vt_on() || !vt_is_virtual()) {
        vt_real(sync)();
        return;
    }
    vt_handoff_begin("sync");
    vt_real(sync)();
    vt_handoff_end();
}

/* --- from descriptor to descriptor ------------------------------------------------------------------ */

/* Whether a call on fd can neither wait for a peer nor for room. */
static bool never_waits(int fd)
{
    if (VT_AS_IS(fd))
        return true;
    enum vt_fd_kind kind = vt_fd_kind(fd);
    return kind == VT_FD_FILE || kind == VT_FD_UNKNOWN || vt_fd_nonblocking(fd);
}

/* Parks until fd, if it is one to wait for, is ready: 0, or an error. */
static long await_ready(int fd, short events)
{
    if (never_waits(fd) || vt_poll_now(fd, events))
        return 0;
    long ret = vt_wait_for(fd, NULL, events, vt_fd_deadline(fd, SO_RCVTIMEO));
    return ret == -EINTR || ret == -EAGAIN || ret == -EBADF ? ret : 0;
}

/* What is ready may still be too little, so that the call blocks. Where that has been seen, or vt_wait_room says so, the place
 * is handed over. */
#define COPY_LONG_NS UINT64_C(500000)

/* call, of libc's; or the error that ready is. */
#define COPY_CALL(what, out, ready, call)                                                                                      \
    __extension__({                                                                                                            \
        long copy_ = (ready);                                                                                                  \
        if (copy_ == 0 || copy_ == VT_BLOCK) {                                                                                 \
            uint64_t start_ = vt_now();                                                                                        \
            copy_ = copy_ == VT_BLOCK || (vt_fd_bits(out) & VT_FD_PIECEMEAL) ? VT_HANDED(what, call) : MOVED(call);            \
            if (vt_now() - start_ > COPY_LONG_NS)                                                                              \
                vt_fd_set(out, VT_FD_PIECEMEAL);                                                                               \
            else                                                                                                               \
                vt_fd_clear(out, VT_FD_PIECEMEAL);                                                                             \
        } else {                                                                                                               \
            copy_ = vt_result(copy_);                                                                                          \
        }                                                                                                                      \
        copy_;                                                                                                                 \
    })

VT_EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t n)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(sendfile)(out, in, offset, n);
    vt_cancel_point();
    if (n == 0 || (never_waits(in) && never_waits(out)))
        return MOVED(vt_real(sendfile)(out, in, offset, n));
    /* Into a pipe it is splice; else what it could wait for is not taken (EINVAL). */
    long ready = vt_fd_kind(out) == VT_FD_PIPE ? await_ready(in, POLLIN) : 0;
    if (ready == 0)
        ready = never_waits(out) ? 0 : vt_wait_room(out);
    return COPY_CALL("sendfile", out, ready, vt_real(sendfile)(out, in, offset, n));
}
VT_ALIAS(sendfile, sendfile64);

/* splice, tee and vmsplice. The kernel is asked first, as if it were not to wait (now is that call): it finds what is wrong
 * with the arguments, and what there is. For a pipe it does not wait then, for a socket it may, so that this is looked at
 * before. True: that was all, and *ret is the result; else the call is to be made, and *ret is what COPY_CALL wants. */
static bool move_now(int in, int out, unsigned flags, long (*now)(const long *a), const long *a, long *ret)
{
    vt_cancel_point();
    bool in_pipe = vt_fd_kind(in) == VT_FD_PIPE, out_pipe = vt_fd_kind(out) == VT_FD_PIPE;
    bool nonblock = (flags & SPLICE_F_NONBLOCK) || (in_pipe && vt_fd_nonblocking(in)) || (out_pipe && vt_fd_nonblocking(out));
    bool waits = (!in_pipe && !never_waits(in) && !vt_poll_now(in, POLLIN)) ||
                 (!out_pipe && !never_waits(out) && !vt_poll_now(out, POLLOUT));
    /* The pipe comes first, and a local socket knows the flag. */
    if (waits && nonblock)
        waits = in_pipe ? vt_poll_now(in, POLLIN) : vt_poll_now(out, POLLOUT) && !vt_socket_is_local(in);
    if (!waits) {
        *ret = now(a);
        if (*ret != -EAGAIN || nonblock) {
            *ret = vt_result(vt_moved(*ret));
            return true;
        }
    }
    *ret = await_ready(in, in == out ? POLLIN | POLLOUT : POLLIN);
    if (*ret == 0 && in != out)
        *ret = never_waits(out) ? 0 : vt_wait_room(out);
    return false;
}

static long splice_now(const long *a)
{
    return vt_sys6(SYS_splice, a[0], a[1], a[2], a[3], a[4], a[5] | SPLICE_F_NONBLOCK);
}

static long tee_now(const long *a)
{
    return vt_sys4(SYS_tee, a[0], a[1], a[2], a[3] | SPLICE_F_NONBLOCK);
}

static long vmsplice_now(const long *a)
{
    return vt_sys4(SYS_vmsplice, a[0], a[1], a[2], a[3] | SPLICE_F_NONBLOCK);
}

VT_EXPORT ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags)
{
    long ret, a[6] = {in, (long)in_at, out, (long)out_at, (long)n, flags};
    if (!vt_on() || !vt_is_virtual())
        return vt_real(splice)(in, in_at, out, out_at, n, flags);
    return move_now(in, out, flags, splice_now, a, &ret)
               ? ret
               : COPY_CALL("splice", out, ret, vt_real(splice)(in, in_at, out, out_at, n, flags));
}

VT_EXPORT ssize_t tee(int in, int out, size_t n, unsigned flags)
{
    long ret, a[4] = {in, out, (long)n, flags};
    if (!vt_on() || !vt_is_virtual())
        return vt_real(tee)(in, out, n, flags);
    return move_now(in, out, flags, tee_now, a, &ret) ? ret : COPY_CALL("tee", out, ret, vt_real(tee)(in, out, n, flags));
}

VT_EXPORT ssize_t vmsplice(int fd, const struct iovec *iov, size_t count, unsigned flags)
{
    long ret, a[4] = {fd, (long)iov, (long)count, flags};
    if (!vt_on() || !vt_is_virtual())
        return vt_real(vmsplice)(fd, iov, count, flags);
    return move_now(fd, fd, flags, vmsplice_now, a, &ret)
               ? ret
               : COPY_CALL("vmsplice", fd, ret, vt_real(vmsplice)(fd, iov, count, flags));
}

VT_HANDED_FUNCTION(ssize_t, copy_file_range, (int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags),
                   (in, in_at, out, out_at, n, flags))

/* --- locks ------------------------------------------------------------------------------------------ */

VT_EXPORT int flock(int fd, int operation)
{
    if (!vt_on() || !vt_is_virtual() || (operation & LOCK_NB))
        return vt_real(flock)(fd, operation);
    long now = vt_sys2(SYS_flock, fd, operation | LOCK_NB);
    if (now != -EWOULDBLOCK)
        return (int)vt_result(now);
    return VT_HANDED("flock", vt_real(flock)(fd, operation));
}

VT_EXPORT int lockf(int fd, int cmd, off_t length)
{
    if (!vt_on() || !vt_is_virtual() || cmd != F_LOCK)
        return vt_real(lockf)(fd, cmd, length);
    vt_cancel_point();
    int saved = errno;
    if (vt_real(lockf)(fd, F_TLOCK, length) == 0)
        return 0;
    if (errno != EAGAIN && errno != EACCES)
        return -1;
    errno = saved;
    return VT_HANDED("lockf", vt_real(lockf)(fd, cmd, length));
}
VT_ALIAS(lockf, lockf64);

/* --- System V and POSIX messages and semaphores ----------------------------------------------------- */

/* Whether the kernel takes this time limit: it looks before it does anything. */
static bool limit_valid(const struct timespec *timeout)
{
    return !timeout || (timeout->tv_sec >= 0 && vt_nsec_valid(timeout));
}

VT_EXPORT int semtimedop(int id, struct sembuf *ops, size_t count, const struct timespec *timeout)
{
    if (!vt_on() || !vt_is_virtual() || count == 0 || !limit_valid(timeout))
        return vt_real(semtimedop)(id, ops, count, timeout);
    if (count == 1) {
        struct sembuf now = *ops;
        now.sem_flg |= IPC_NOWAIT;
        long ret = vt_sys4(SYS_semtimedop, id, (long)&now, 1, 0);
        if (ret != -EAGAIN || (ops->sem_flg & IPC_NOWAIT))
            return (int)vt_result(ret);
    }
    if (!timeout)
        return VT_HANDED("semop", vt_real(semtimedop)(id, ops, count, timeout));
    uint64_t deadline = vt_deadline_in(vt_timespec_ns(timeout));
    struct timespec left;
    return (int)vt_result(
        VT_HANDED_CALL("semop", vt_sys4(SYS_semtimedop, id, (long)ops, (long)count, (long)vt_timespec_left(deadline, &left))));
}

VT_EXPORT int semop(int id, struct sembuf *ops, size_t count)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(semop)(id, ops, count);
    return semtimedop(id, ops, count, NULL);
}

VT_EXPORT int msgsnd(int id, const void *msg, size_t n, int flags)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(msgsnd)(id, msg, n, flags);
    vt_cancel_point();
    long ret = vt_sys4(SYS_msgsnd, id, (long)msg, (long)n, flags | IPC_NOWAIT);
    if (ret != -EAGAIN || (flags & IPC_NOWAIT))
        return (int)vt_result(ret);
    return VT_HANDED("msgsnd", vt_real(msgsnd)(id, msg, n, flags));
}

VT_EXPORT ssize_t msgrcv(int id, void *msg, size_t n, long type, int flags)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(msgrcv)(id, msg, n, type, flags);
    vt_cancel_point();
    long ret = vt_sys6(SYS_msgrcv, id, (long)msg, (long)n, type, flags | IPC_NOWAIT, 0);
    if (ret != -ENOMSG || (flags & IPC_NOWAIT))
        return vt_result(ret);
    return VT_HANDED("msgrcv", vt_real(msgrcv)(id, msg, n, type, flags));
}

/* A message queue is a descriptor on Linux (mq_overview(7)). */
static const struct timespec long_ago = {0, 0};

#define QUEUE_FUNCTION(type, name, parameters, arguments, valid, now)                                                          \
    VT_EXPORT type name parameters                                                                                             \
    {                                                                                                                          \
        if (!vt_on() || !vt_is_virtual() || !(valid))                                                                          \
            return vt_real(name) arguments;                                                                                    \
        vt_cancel_point();                                                                                                     \
        long ret = now; /* a deadline that has passed does not wait */                                                         \
        if (ret != -ETIMEDOUT)                                                                                                 \
            return (type)vt_result(ret);                                                                                       \
        return VT_HANDED(#name, vt_real(name) arguments);                                                                      \
    }

QUEUE_FUNCTION(ssize_t, mq_receive, (mqd_t queue, char *msg, size_t n, unsigned *priority), (queue, msg, n, priority), true,
               vt_sys6(SYS_mq_timedreceive, queue, (long)msg, (long)n, (long)priority, (long)&long_ago, 0))
QUEUE_FUNCTION(ssize_t, mq_timedreceive,
               (mqd_t queue, char *restrict msg, size_t n, unsigned *restrict priority,
                const struct timespec *restrict timeout),
               (queue, msg, n, priority, timeout), limit_valid(timeout),
               vt_sys6(SYS_mq_timedreceive, queue, (long)msg, (long)n, (long)priority, (long)&long_ago, 0))
QUEUE_FUNCTION(int, mq_send, (mqd_t queue, const char *msg, size_t n, unsigned priority), (queue, msg, n, priority), true,
               vt_sys6(SYS_mq_timedsend, queue, (long)msg, (long)n, priority, (long)&long_ago, 0))
QUEUE_FUNCTION(int, mq_timedsend, (mqd_t queue, const char *msg, size_t n, unsigned priority, const struct timespec *timeout),
               (queue, msg, n, priority, timeout), limit_valid(timeout),
               vt_sys6(SYS_mq_timedsend, queue, (long)msg, (long)n, priority, (long)&long_ago, 0))

/* --- asynchronous I/O by libc's threads ------------------------------------------------------------- */

VT_HANDED_FUNCTION(int, aio_suspend, (const struct aiocb *const list[], int n, const struct timespec *restrict timeout),
                   (list, n, timeout))
VT_HANDED_FUNCTION(int, aio_suspend64, (const struct aiocb64 *const list[], int n, const struct timespec *restrict timeout),
                   (list, n, timeout))
VT_HANDED_FUNCTION(int, lio_listio, (int mode, struct aiocb *const list[restrict], int n, struct sigevent *restrict event),
                   (mode, list, n, event))
VT_HANDED_FUNCTION(int, lio_listio64, (int mode, struct aiocb64 *const list[restrict], int n, struct sigevent *restrict event),
                   (mode, list, n, event))

/* --- random numbers --------------------------------------------------------------------------------- */

VT_EXPORT ssize_t getrandom(void *buf, size_t n, unsigned flags)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(getrandom)(buf, n, flags);
    vt_cancel_point();
    /* Waits only early after the machine has started. */
    long ret = vt_sys3(SYS_getrandom, (long)buf, (long)n, flags | GRND_NONBLOCK);
    if (ret != -EAGAIN || (flags & GRND_NONBLOCK))
        return vt_result(ret);
    return VT_HANDED("getrandom", vt_real(getrandom)(buf, n, flags));
}

VT_EXPORT int getentropy(void *buf, size_t n)
{
    long ret;
    if (!vt_on() || !vt_is_virtual() || n > 256)
        return vt_real(getentropy)(buf, n);
    ret = vt_sys3(SYS_getrandom, (long)buf, (long)n, GRND_NONBLOCK);
    if (ret == (long)n)
        return 0;
    return VT_HANDED("getrandom", vt_real(getentropy)(buf, n));
}
