#include "hide.h"

#include "call.h"
#include "fd.h"
#include "kernel.h"
#include "sys.h"
#include "watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* Whether fd may be the number of one of ours, so that what is done to it belongs under the lock. A number
 * that it has been seen to make is its own. A child of vfork has a table of its own, and our memory: what it
 * does to its descriptors is no harm, and it takes no locks, in which it could be killed. */
static bool may_be_own(int fd)
{
    return __builtin_expect(fd >= atomic_load_explicit(&vt_own_lowest, memory_order_relaxed), 0) &&
           (!(vt_fd_bits(fd) & VT_FD_TRACKED) || vt_own_is(fd)) && !(vt_self && vt_self->vforked);
}

static struct vt_thread *enter(void)
{
    struct vt_thread *t = vt_enter();
    vt_own_lock();
    return t;
}

static void leave(struct vt_thread *t)
{
    vt_own_unlock();
    vt_leave(t);
}

/* --- closing, replacing, asking --------------------------------------------------------------------- */

bool vt_hidden_close(int fd, long *ret)
{
    if (!may_be_own(fd)) {
        *ret = -EBADF;
        return vt_own_has(fd);
    }
    vt_cancel_now();
    vt_fd_forget(fd);
    struct vt_thread *t = enter();
    *ret = vt_own_is(fd) ? -EBADF : vt_sys1(SYS_close, fd);
    leave(t);
    return true;
}

bool vt_hidden_dup_over(long number, int fd, int to, int flags, long *ret)
{
    *ret = -EBADF; /* as far as the program knows it is not open */
    if (vt_own_has(fd))
        return true;
    if (fd != to && !(vt_self && vt_self->vforked))
        vt_watch_number_ends(to);
    if (to < atomic_load_explicit(&vt_own_lowest, memory_order_relaxed) || fd == to || (vt_self && vt_self->vforked))
        return false;
    struct vt_thread *t = enter();
    /* dup2(2) has EBUSY for numbers that are between free and used. */
    *ret = vt_own_make_way(to) ? vt_sys3(number, fd, to, flags) : -EBUSY;
    leave(t);
    return true;
}

bool vt_hidden_fcntl(int fd, int cmd, long arg, long *ret)
{
    if ((cmd == F_GETFD || cmd == F_GETFL) && may_be_own(fd)) {
        struct vt_thread *t = enter();
        *ret = vt_own_is(fd) ? -EBADF : vt_sys3(SYS_fcntl, fd, cmd, arg);
        leave(t);
        return true;
    }
    *ret = -EBADF;
    return vt_own_has(fd);
}

#ifndef CLOSE_RANGE_CLOEXEC /* Linux 5.11 */
#define CLOSE_RANGE_CLOEXEC 4
#endif

/* Around each of ours. */
static long close_around(unsigned first, unsigned last)
{
    for (;;) {
        int own = first <= INT_MAX ? vt_own_next((int)first) : -1;
        unsigned end = own >= 0 && (unsigned)own <= last ? (unsigned)own : last + 1;
        long ret = end > first || end == 0 ? vt_sys3(SYS_close_range, first, end - 1, 0) : 0;
        if (ret < 0 || end == last + 1)
            return ret;
        if (end == last)
            return 0;
        first = end + 1;
    }
}

long vt_call_close_range(unsigned first, unsigned last, unsigned flags)
{
    if (first > last || (flags & ~(unsigned)(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)))
        return vt_sys3(SYS_close_range, first, last, flags);
    if (flags & CLOSE_RANGE_CLOEXEC) /* ours have it */
        return vt_sys3(SYS_close_range, first, last, flags);
    if (flags & CLOSE_RANGE_UNSHARE) {
        /* A virtual thread is bound by it: the table is the kernel thread's. */
        const long a[6] = {CLONE_FILES};
        long ret;
        if (!vt_kernel_call(SYS_unshare, a, &ret))
            ret = vt_sys1(SYS_unshare, CLONE_FILES);
        if (ret < 0)
            return ret;
    } else {
        vt_fd_forget_range(first, last);
    }
    if (vt_own_next((int)(first < INT_MAX ? first : INT_MAX)) < 0)
        return vt_sys3(SYS_close_range, first, last, 0);
    if (vt_self && vt_self->vforked)
        return close_around(first, last);
    struct vt_thread *t = enter();
    long ret = close_around(first, last);
    leave(t);
    return ret;
}

bool vt_hidden_poll(struct pollfd *fds, nfds_t n, long *ret)
{
    nfds_t i = 0;
    uint64_t limit[2];
    if (!fds || atomic_load_explicit(&vt_own_lowest, memory_order_relaxed) == INT_MAX)
        return false;
    /* The kernel takes no more than the limit, and looks at none of them. */
    if (n > 1024 && (vt_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)limit) < 0 || n > limit[0]))
        return false;
    while (i < n && !vt_own_has(fds[i].fd))
        i++;
    if (i == n)
        return false;
    /* One is not open, so the call does not wait. No number is that high. */
    for (; i < n; i++)
        if (vt_own_has(fds[i].fd))
            fds[i].fd = INT_MAX - fds[i].fd;
    *ret = vt_sys3(SYS_poll, (long)fds, (long)n, 0);
    for (i = 0; i < n; i++)
        if (INT_MAX - fds[i].fd < VT_OWN_MAX &&
            INT_MAX - fds[i].fd >= atomic_load_explicit(&vt_own_lowest, memory_order_relaxed))
            fds[i].fd = INT_MAX - fds[i].fd;
    return true;
}

/* --- limits ----------------------------------------------------------------------------------------- */

/* The limit is raised for moments under the lock, which nobody is to see or to undo. */
static long limit_call(long number, const long a[4])
{
    if (atomic_load_explicit(&vt_own_lowest, memory_order_relaxed) == INT_MAX || (vt_self && vt_self->vforked))
        return vt_sys4(number, a[0], a[1], a[2], a[3]);
    struct vt_thread *t = enter();
    long ret = vt_sys4(number, a[0], a[1], a[2], a[3]);
    if (ret == 0)
        vt_own_limit_changed();
    leave(t);
    return ret;
}

/* struct rlimit64 is the same. */
#define LIMIT_FUNCTIONS(suffix, type)                                                                                          \
    VT_EXPORT int prlimit##suffix(pid_t pid, __rlimit_resource_t resource, const struct type *new, struct type *old)           \
    {                                                                                                                          \
        if (!vt_on() || resource != RLIMIT_NOFILE)                                                                             \
            return vt_real(prlimit##suffix)(pid, resource, new, old);                                                          \
        return (int)vt_result(limit_call(SYS_prlimit64, (long[]){pid, resource, (long)new, (long)old}));                       \
    }                                                                                                                          \
    VT_EXPORT int setrlimit##suffix(__rlimit_resource_t resource, const struct type *limit)                                    \
    {                                                                                                                          \
        if (!vt_on() || resource != RLIMIT_NOFILE)                                                                             \
            return vt_real(setrlimit##suffix)(resource, limit);                                                                \
        return prlimit##suffix(0, resource, limit, NULL);                                                                      \
    }                                                                                                                          \
    VT_EXPORT int getrlimit##suffix(__rlimit_resource_t resource, struct type *limit)                                          \
    {                                                                                                                          \
        if (!vt_on() || resource != RLIMIT_NOFILE)                                                                             \
            return vt_real(getrlimit##suffix)(resource, limit);                                                                \
        return prlimit##suffix(0, resource, NULL, limit);                                                                      \
    }
LIMIT_FUNCTIONS(, rlimit)
LIMIT_FUNCTIONS(64, rlimit64)

/* --- fstat ------------------------------------------------------------------------------------------ */

#define FSTAT_FUNCTION(name, type)                                                                                             \
    VT_EXPORT int name(int fd, struct type *st)                                                                                \
    {                                                                                                                          \
        return vt_own_has(fd) ? (int)vt_result(-EBADF) : vt_real(name)(fd, st);                                                \
    }
FSTAT_FUNCTION(fstat, stat)
FSTAT_FUNCTION(fstat64, stat64)

/* What programs call that were built with a glibc before 2.33. */
int __fxstat(int version, int fd, struct stat *st);
int __fxstat64(int version, int fd, struct stat64 *st);

#define FXSTAT_FUNCTION(name, type)                                                                                            \
    VT_EXPORT int name(int version, int fd, struct type *st)                                                                   \
    {                                                                                                                          \
        return vt_own_has(fd) ? (int)vt_result(-EBADF) : vt_real(name)(version, fd, st);                                       \
    }
FXSTAT_FUNCTION(__fxstat, stat)
FXSTAT_FUNCTION(__fxstat64, stat64)

/* --- /proc/self/fd ---------------------------------------------------------------------------------- */

/* The number that a name stands for; -1: none. */
static int number_of(const char *name)
{
    int n = 0;
    if (*name < '0' || *name > '9')
        return -1;
    for (; *name >= '0' && *name <= '9'; name++)
        if (n > VT_OWN_MAX || (n = 10 * n + *name - '0') > VT_OWN_MAX)
            return -1;
    return *name ? -1 : n;
}

/* Whether path, without links, is the directory of this process's descriptors. */
static bool lists_own(const char *path)
{
    char pid[16];
    long n = vt_sys4(SYS_readlinkat, AT_FDCWD, (long)"/proc/self", (long)pid, sizeof pid - 1);
    if (n <= 0 || strncmp(path, "/proc/", 6) != 0 || strncmp(path += 6, pid, (size_t)n) != 0)
        return false;
    path += n;
    if (strncmp(path, "/task/", 6) == 0)
        path += 6 + strspn(path + 6, "0123456789");
    return strcmp(path, "/fd") == 0 || strcmp(path, "/fdinfo") == 0;
}

static bool fd_lists_own(int fd)
{
    char name[32] = "/proc/self/fd/", path[64], digits[12];
    unsigned n = 0, at = 14;
    if (fd < 0)
        return false;
    do
        digits[n++] = (char)('0' + fd % 10);
    while (fd /= 10);
    while (n)
        name[at++] = digits[--n];
    long length = vt_sys4(SYS_readlinkat, AT_FDCWD, (long)name, (long)path, sizeof path - 1);
    if (length <= 0)
        return false;
    path[length] = '\0';
    return lists_own(path);
}

/* Whether the entry is one of ours, if the directory is that one. A number that has been closed since it was
 * listed may have been. */
static bool may_be_hidden(const char *name)
{
    int fd = number_of(name);
    return fd >= 0 && fd >= atomic_load_explicit(&vt_own_lowest, memory_order_relaxed) &&
           (vt_own_is(fd) || (!(vt_fd_bits(fd) & VT_FD_TRACKED) && vt_sys3(SYS_fcntl, fd, F_GETFD, 0) < 0));
}

#define READDIR_FUNCTION(name, type)                                                                                           \
    VT_EXPORT struct type *name(DIR *dir)                                                                                      \
    {                                                                                                                          \
        struct type *entry;                                                                                                    \
        do                                                                                                                     \
            entry = vt_real(name)(dir);                                                                                        \
        while (entry && may_be_hidden(entry->d_name) && fd_lists_own(dirfd(dir)));                                             \
        return entry;                                                                                                          \
    }
READDIR_FUNCTION(readdir, dirent)
READDIR_FUNCTION(readdir64, dirent64)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define READDIR_R_FUNCTION(name, type)                                                                                         \
    VT_EXPORT int name(DIR *dir, struct type *entry, struct type **result)                                                     \
    {                                                                                                                          \
        int ret;                                                                                                               \
        do                                                                                                                     \
            ret = vt_real(name)(dir, entry, result);                                                                           \
        while (ret == 0 && *result && may_be_hidden(entry->d_name) && fd_lists_own(dirfd(dir)));                               \
        return ret;                                                                                                            \
    }
READDIR_R_FUNCTION(readdir_r, dirent)
READDIR_R_FUNCTION(readdir64_r, dirent64)
#pragma GCC diagnostic pop

/* What is left of a buffer of entries; struct dirent64 is the kernel's struct linux_dirent64. */
static long weed(int fd, char *buffer, long size)
{
    long kept = 0;
    int own = -1; /* not asked yet */
    for (long at = 0, length; at < size; at += length) {
        struct dirent64 *entry = (struct dirent64 *)(void *)(buffer + at);
        length = entry->d_reclen;
        if (own != 0 && may_be_hidden(entry->d_name) && (own = fd_lists_own(fd)))
            continue;
        if (kept != at)
            memmove(buffer + kept, buffer + at, (size_t)length);
        kept += length;
    }
    return kept;
}

static long getdents_call(int fd, void *buffer, size_t size)
{
    long ret, kept;
    do {
        ret = vt_sys3(SYS_getdents64, fd, (long)buffer, (long)size);
        kept = ret > 0 && atomic_load_explicit(&vt_own_lowest, memory_order_relaxed) != INT_MAX ? weed(fd, buffer, ret) : ret;
    } while (kept == 0 && ret > 0); /* 0 would be the end */
    return kept;
}

VT_EXPORT ssize_t getdents64(int fd, void *buffer, size_t size)
{
    return vt_on() ? vt_result(getdents_call(fd, buffer, size)) : vt_real(getdents64)(fd, buffer, size);
}

#define SCAN_FUNCTION(name, type, parameters, arguments, path)                                                                 \
    VT_EXPORT int name parameters                                                                                              \
    {                                                                                                                          \
        int n = vt_real(name) arguments, kept = 0, own = -1;                                                                   \
        char real[PATH_MAX];                                                                                                   \
        for (int i = 0; i < n; i++) {                                                                                          \
            struct type *entry = (*list)[i];                                                                                   \
            if (own != 0 && may_be_hidden(entry->d_name) && (own = realpath(path, real) && lists_own(real)))                   \
                free(entry);                                                                                                   \
            else                                                                                                               \
                (*list)[kept++] = entry;                                                                                       \
        }                                                                                                                      \
        return n < 0 ? n : kept;                                                                                               \
    }
SCAN_FUNCTION(scandir, dirent,
              (const char *restrict path, struct dirent ***restrict list, int (*wanted)(const struct dirent *),
               int (*compare)(const struct dirent **, const struct dirent **)),
              (path, list, wanted, compare), path)
SCAN_FUNCTION(scandir64, dirent64,
              (const char *restrict path, struct dirent64 ***restrict list, int (*wanted)(const struct dirent64 *),
               int (*compare)(const struct dirent64 **, const struct dirent64 **)),
              (path, list, wanted, compare), path)

/* --- syscall() -------------------------------------------------------------------------------------- */

bool vt_hidden_call(long number, const long a[6], long *ret)
{
    if (atomic_load_explicit(&vt_own_lowest, memory_order_relaxed) == INT_MAX)
        return false;
    int fd = (int)a[0];
    switch (number) {
    case SYS_close:
        return vt_hidden_close(fd, ret);
    case SYS_dup2:
    case SYS_dup3:
        return vt_hidden_dup_over(number, fd, (int)a[1], (int)a[2], ret);
    case SYS_fcntl:
        return vt_hidden_fcntl(fd, (int)a[1], a[2], ret);
    case SYS_dup:
    case SYS_fstat:
    case SYS_ioctl:
    case SYS_lseek:
    case SYS_read:
    case SYS_readv:
    case SYS_pread64:
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
        *ret = -EBADF;
        return vt_own_has(fd);
    case SYS_poll:
    case SYS_ppoll:
        return vt_hidden_poll((struct pollfd *)a[0], (nfds_t)a[1], ret);
    case SYS_getdents64:
        *ret = getdents_call(fd, (void *)a[1], (size_t)a[2]);
        return true;
    case SYS_prlimit64:
        if ((int)a[1] != RLIMIT_NOFILE)
            return false;
        *ret = limit_call(number, a);
        return true;
    case SYS_setrlimit:
    case SYS_getrlimit:
        if (fd != RLIMIT_NOFILE)
            return false;
        *ret = limit_call(number, a);
        return true;
    default:
        return false;
    }
}
