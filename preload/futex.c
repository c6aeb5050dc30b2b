/* syscall(): the futex calls of programs that bring their own locks (libstdc++, Rust, GLib, Qt and others)
 * wait and wake in user space; ids are those of virtual threads; the rest goes to the kernel as it comes.
 *
 * Who waits by an inline system call instruction, as libgomp does, is in the kernel's queue, so a wake that
 * finds too few of ours goes on to the kernel. A wait on memory that other processes may share belongs into
 * the kernel. Whether it may is decided so: FUTEX_PRIVATE_FLAG says that it does not; without the flag
 * (libstdc++'s futures and static initialisers do without) the kernel is asked what kind of page the word
 * lies on, and where it will not tell, the wait is the kernel's. Wakes and requeues without the flag reach
 * both queues in any case. */
#include "call.h"
#include "clock.h"
#include "handoff.h"
#include "life.h"
#include "lock.h"
#include "own.h"
#include "preload.h"
#include "putoff.h"
#include "sync/sync.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Younger than the oldest headers that we build with. */
#define VT_SYS_FUTEX_WAKE    454 /* futex2 of Linux 6.7 */
#define VT_SYS_FUTEX_WAIT    455
#define VT_SYS_FUTEX_REQUEUE 456
#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif
#define VT_FUTEX2_SIZE_MASK 3u
#define VT_FUTEX2_SIZE_U32  2u

#define VT_FIRST_ADDRESS 0x10000u                       /* vm.mmap_min_addr's default: nothing is mapped below */
#define VT_LAST_ADDRESS  (UINT64_C(0x00ffffffffffffff)) /* the end of user space with five levels of page tables */

/* As the kernel checks an address (get_futex_key), as far as that is possible without asking it: an address
 * in a hole of the address space is SIGSEGV instead of EFAULT. */
static long check_address(const void *addr)
{
    if ((uintptr_t)addr % sizeof(uint32_t))
        return -EINVAL;
    return (uintptr_t)addr < VT_FIRST_ADDRESS || (uintptr_t)addr > VT_LAST_ADDRESS ? -EFAULT : 0;
}

/* /proc/self/pagemap, kept open: an open and close each time would be seen in the numbers that other threads get. */
static struct vt_own pagemap;
static _Atomic unsigned pagemap_since = UINT_MAX; /* the vt_own_forks that it was opened at: a child has pages of its own */

static bool pagemap_open(void)
{
    static struct vt_lock lock;
    static _Atomic bool none;
    unsigned forks = atomic_load_explicit(&vt_own_forks, memory_order_relaxed);
    if (__builtin_expect(atomic_load_explicit(&pagemap_since, memory_order_acquire) == forks, 1))
        return true;
    if (atomic_load_explicit(&none, memory_order_relaxed))
        return false;
    struct vt_thread *t = vt_enter();
    vt_lock(&lock);
    if (atomic_load_explicit(&pagemap_since, memory_order_relaxed) != forks) {
        long fd = vt_sys4(SYS_openat, AT_FDCWD, (long)"/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
        if (fd >= 0) {
            pagemap = (struct vt_own){.fd = -1};
            vt_own_keep(&pagemap, (int)fd);
            atomic_store_explicit(&pagemap_since, forks, memory_order_release);
        } else if (fd != -EMFILE && fd != -ENFILE) {
            atomic_store_explicit(&none, true, memory_order_relaxed);
        }
    }
    vt_unlock(&lock);
    vt_leave(t);
    return atomic_load_explicit(&pagemap_since, memory_order_relaxed) == forks;
}

/* Whether addr, which has just been read, is on a page of this process alone. From
 * Documentation/admin-guide/mm/pagemap: bit 63 present, bit 61 of a file or shared. A private file page not
 * yet written counts as shared, which is the safe side (and a word that is waited on has usually been
 * written). */
static bool on_private_page(const void *addr)
{
    const uint64_t present = UINT64_C(1) << 63, file_or_shared = UINT64_C(1) << 61;
    uint64_t entry = 0;
    if (!pagemap_open())
        return false;
    long got = vt_sys4(SYS_pread64, vt_own_use(&pagemap), (long)&entry, sizeof entry,
                       (long)((uintptr_t)addr / (uintptr_t)getpagesize() * sizeof entry));
    vt_own_done(&pagemap);
    return got == sizeof entry && (entry & (present | file_or_shared)) == present;
}

struct call {
    uint32_t *addr;
    int op; /* with its flags */
    uint32_t val;
    uintptr_t val2; /* or the time */
    uint32_t *addr2;
    uint32_t val3;
};

static long in_kernel(const struct call *c)
{
    return vt_sys6(SYS_futex, (long)c->addr, c->op, c->val, (long)c->val2, (long)c->addr2, c->val3);
}

static long in_handoff(const struct call *c)
{
    vt_handoff_begin("futex");
    long ret = in_kernel(c);
    vt_handoff_end();
    return ret;
}

static long wait(const struct call *c, uint32_t bits)
{
    const struct timespec *time = (const struct timespec *)c->val2;
    clockid_t clock = c->op & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    bool absolute = (c->op & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    /* The kernel's checks in the kernel's order (futex_syscalls.c). */
    if (time && (time->tv_sec < 0 || !vt_nsec_valid(time)))
        return -EINVAL;
    if (clock == CLOCK_REALTIME && !absolute)
        return -ENOSYS;
    if (bits == 0)
        return -EINVAL;
    long err = check_address(c->addr);
    if (err)
        return err;
    const _Atomic uint32_t *word = vt_word(c->addr);
    if (atomic_load_explicit(word, memory_order_seq_cst) != c->val)
        return -EAGAIN;
    if (!(c->op & FUTEX_PRIVATE_FLAG) && !on_private_page(c->addr))
        return in_handoff(c);

    uint64_t deadline = VT_NEVER;
    if (time)
        deadline = absolute ? vt_deadline_at(time) : vt_deadline_in(vt_timespec_ns(time));
    /* Not a cancellation point. The kernel restarts only waits without a time after a handler with
     * SA_RESTART. */
    unsigned flags = (time ? VT_PARK_INTERRUPTIBLE : VT_PARK_RESTARTABLE) & ~VT_PARK_CANCELLABLE;
    flags |= VT_PARK_FOR(VT_WAIT_FUTEX) | vt_park_clock(clock);
    return -vt_park(word, c->val, deadline, bits, flags);
}

/* The kernel wakes at least one, whatever the number. */
static uint32_t at_least_one(uint32_t n)
{
    return (int32_t)n > 0 ? n : 1;
}

static long wake(uint32_t *addr, int flags, uint32_t val, uint32_t bits)
{
    uint32_t max = at_least_one(val), n = vt_unpark(addr, max, bits);
    if (n == max)
        return n;
    struct call rest = {addr, FUTEX_WAKE_BITSET | flags, max - n, 0, NULL, bits};
    long ret = in_kernel(&rest);
    return ret < 0 && n == 0 ? ret : (long)n + (ret > 0 ? ret : 0);
}

static bool still(void *arg)
{
    const struct call *c = arg;
    return atomic_load_explicit(vt_word(c->addr), memory_order_seq_cst) == c->val3;
}

static long requeue(const struct call *c, bool compare)
{
    struct call rest = *c;
    int wake = (int)c->val, move = (int)c->val2;
    unsigned woken = 0;
    if (wake < 0 || move < 0 || check_address(c->addr2) || (compare && check_address(c->addr)))
        return in_kernel(c); /* which knows the error */
    int n = vt_unpark_requeue(c->addr, c->addr2, (unsigned)wake, (unsigned)move, compare ? still : NULL, &rest, &woken);
    if (n < 0)
        return -EAGAIN;
    rest.val = (uint32_t)wake - woken;
    rest.val2 = (uint32_t)move - ((uint32_t)n - woken);
    if (n && rest.val == 0 && rest.val2 == 0)
        return n;
    long ret = in_kernel(&rest);
    return ret < 0 && n == 0 ? ret : n + (ret > 0 ? ret : 0);
}

/* The encoded operation on *addr (linux/futex.h, FUTEX_OP). 0 or 1: how the comparison of the old value went.
 */
static long operate(uint32_t *addr, uint32_t encoded)
{
    _Atomic uint32_t *word = vt_word(addr);
    uint32_t op = encoded >> 28 & 7, cmp = encoded >> 24 & 15;
    int32_t arg = (int32_t)(encoded << 8) >> 20, cmparg = (int32_t)(encoded << 20) >> 20;
    uint32_t value = encoded >> 31 ? UINT32_C(1) << (arg & 31) : (uint32_t)arg, old;
    switch (op) {
    case FUTEX_OP_SET:
        old = atomic_exchange(word, value);
        break;
    case FUTEX_OP_ADD:
        old = atomic_fetch_add(word, value);
        break;
    case FUTEX_OP_OR:
        old = atomic_fetch_or(word, value);
        break;
    case FUTEX_OP_ANDN:
        old = atomic_fetch_and(word, ~value);
        break;
    case FUTEX_OP_XOR:
        old = atomic_fetch_xor(word, value);
        break;
    default:
        return -ENOSYS;
    }
    int32_t was = (int32_t)old;
    switch (cmp) {
    case FUTEX_OP_CMP_EQ:
        return was == cmparg;
    case FUTEX_OP_CMP_NE:
        return was != cmparg;
    case FUTEX_OP_CMP_LT:
        return was < cmparg;
    case FUTEX_OP_CMP_GE:
        return was >= cmparg;
    case FUTEX_OP_CMP_LE:
        return was <= cmparg;
    case FUTEX_OP_CMP_GT:
        return was > cmparg;
    default:
        return -ENOSYS;
    }
}

static long wake_op(const struct call *c)
{
    int flags = c->op & ~FUTEX_CMD_MASK;
    if (check_address(c->addr) || check_address(c->addr2))
        return in_kernel(c); /* which knows the error */
    long other = operate(c->addr2, c->val3);
    if (other < 0)
        return other;
    long n = wake(c->addr, flags, c->val, FUTEX_BITSET_MATCH_ANY);
    if (n < 0 || !other)
        return n;
    long n2 = wake(c->addr2, flags, (uint32_t)c->val2, FUTEX_BITSET_MATCH_ANY);
    return n2 < 0 ? n2 : n + n2;
}

static long futex(const struct call *c)
{
    int flags = c->op & ~FUTEX_CMD_MASK;
    switch (c->op & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
        return wait(c, FUTEX_BITSET_MATCH_ANY);
    case FUTEX_WAIT_BITSET:
        return wait(c, c->val3);
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
    case FUTEX_WAIT_REQUEUE_PI:
        return in_handoff(c);
    default:
        break;
    }
    /* The kernel knows this flag with waits only. */
    if (flags & FUTEX_CLOCK_REALTIME)
        return in_kernel(c);
    switch (c->op & FUTEX_CMD_MASK) {
    case FUTEX_WAKE:
        return wake(c->addr, flags, c->val, FUTEX_BITSET_MATCH_ANY);
    case FUTEX_WAKE_BITSET:
        return wake(c->addr, flags, c->val, c->val3);
    case FUTEX_REQUEUE:
        return requeue(c, false);
    case FUTEX_CMP_REQUEUE:
        return requeue(c, true);
    case FUTEX_WAKE_OP:
        return wake_op(c);
    default:
        return in_kernel(c);
    }
}

/* futex_wake(addr, bits, n, flags) of futex2. */
static long futex2_wake(const long a[6])
{
    long n = 0, max = (int)a[2];
    if (max > 0 && a[1] != 0 && ((unsigned long)a[3] & VT_FUTEX2_SIZE_MASK) == VT_FUTEX2_SIZE_U32)
        n = vt_unpark((void *)a[0], (unsigned)max, (uint32_t)a[1]);
    if (n && n == max)
        return n;
    long ret = vt_sys4(VT_SYS_FUTEX_WAKE, a[0], a[1], max - n, a[3]);
    return ret < 0 && n == 0 ? ret : n + (ret > 0 ? ret : 0);
}

static long with_handoff(const char *what, long number, const long a[6])
{
    vt_handoff_begin(what);
    long ret = vt_sys6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    vt_handoff_end();
    return ret;
}

/* Signals a virtual thread by its id. */
static long signal_thread(uint32_t tid, int sig)
{
    struct vt_thread *t = vt_by_tid(tid);
    if (sig < 0 || sig > 64)
        return -EINVAL;
    if (!t)
        return -ESRCH;
    return sig ? -vt_signal_send(t, sig) : 0;
}

/* What system calls by number do that are not simply the kernel's. The results are the kernel's: >= 0, or
 * -errno. */
static long dispatch(long number, const long a[6])
{
    switch (number) {
    case SYS_futex: {
        struct call c = {(uint32_t *)a[0], (int)a[1], (uint32_t)a[2], (uintptr_t)a[3], (uint32_t *)a[4], (uint32_t)a[5]};
        return futex(&c);
    }
    case VT_SYS_FUTEX_WAKE:
        return futex2_wake(a);
    case SYS_futex_waitv:
    case VT_SYS_FUTEX_WAIT:
        return with_handoff("futex", number, a);
    case SYS_gettid:
        return vt_tid();
    case SYS_set_tid_address:
        /* Where the kernel clears a word at the end of the kernel thread: a carrier's is libc's. */
        if (vt_is_ours())
            return vt_tid();
        break;
    case SYS_tkill:
        if (vt_by_tid((uint32_t)a[0]))
            return signal_thread((uint32_t)a[0], (int)a[1]);
        break;
    case SYS_tgkill:
        if (a[0] == vt_sys0(SYS_getpid) && vt_by_tid((uint32_t)a[1]))
            return signal_thread((uint32_t)a[1], (int)a[2]);
        break;
    default:
        break;
    }
    return vt_call_number(number, a);
}

VT_EXPORT long syscall(long number, ...)
{
    long a[6];
    va_list list;
    /* Always six, as libc does: those that were not passed are whatever the registers and the stack hold. */
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    long ret = vt_on() ? dispatch(number, a) : vt_sys6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (ret < 0 && ret >= -4095) {
        errno = (int)-ret;
        return -1;
    }
    return ret;
}
