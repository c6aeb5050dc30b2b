#include "kstack.h"

#include "chaos.h"
#include "lock.h"
#include "sys.h"
#include "tcb.h"

#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

/* Linux 6.13 */
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define PAGE ((size_t)4096)

/* So many are kept; libc keeps 40 MiB. */
#define VT_KSTACKS_LEFT 64

/* At the top, in the page that libc's descriptor is in. */
struct vt_kstack {
    _Alignas(64) struct vt_kstack *next;
    size_t size; /* what was asked for */
    void *(*main)(void *);
    void *arg;
    pid_t tid; /* of the thread that has left it; 0: there has been none */
};

static struct vt_lock lock = VT_LOCK_INIT;
static struct vt_kstack *left; /* by threads that have ended, or are about to */
static unsigned nleft;
static __thread bool here __attribute__((tls_model("initial-exec")));

static size_t all_of(size_t size)
{
    return PAGE + ((size + vt_tcb_size() + sizeof(struct vt_kstack) + PAGE - 1) & ~(PAGE - 1));
}

static char *low_end(struct vt_kstack *s)
{
    return (char *)(s + 1) - all_of(s->size);
}

/* libc has finished with it, and takes it off its list, before the thread makes its last system call. */
static bool has_gone(const struct vt_kstack *s)
{
    return s->tid == 0 || vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), s->tid, 0) != 0;
}

/* One of that size, of any if it is 0, that was left; NULL unless there are more than `keep`. */
static struct vt_kstack *take(size_t size, unsigned keep)
{
    vt_lock(&lock);
    struct vt_kstack **p = &left, *s = NULL;
    if (nleft > keep)
        while ((s = *p) && !((size == 0 || s->size == size) && has_gone(s)))
            p = &s->next;
    if (s) {
        *p = s->next;
        nleft--;
    }
    vt_unlock(&lock);
    return s;
}

static void push(struct vt_kstack *s)
{
    vt_lock(&lock);
    s->next = left;
    left = s;
    nleft++;
    vt_unlock(&lock);
}

static struct vt_kstack *make(size_t size)
{
    size_t bytes = all_of(size);
    char *mem = vt_sys_map(bytes);
    if (!mem)
        return NULL;
    vt_sys3(SYS_madvise, (long)mem, (long)bytes, MADV_NOHUGEPAGE);
    if (vt_sys3(SYS_madvise, (long)mem, PAGE, MADV_GUARD_INSTALL) != 0)
        vt_sys3(SYS_mprotect, (long)mem, PAGE, PROT_NONE);
    struct vt_kstack *s = (struct vt_kstack *)(void *)(mem + bytes) - 1;
    s->size = size;
    return s;
}

struct vt_kstack *vt_kstack_get(size_t size, void **lo, size_t *bytes)
{
    struct vt_kstack *s = take(size, 0);
    if (!s && !(s = make(size)))
        return NULL;
    *lo = low_end(s) + PAGE;
    *bytes = (size_t)((char *)s - (char *)*lo);
    return s;
}

void vt_kstack_set_main(struct vt_kstack *s, void *(*main)(void *), void *arg)
{
    s->main = main;
    s->arg = arg;
}

void *vt_kstack_main(void *stack)
{
    struct vt_kstack *s = stack, *surplus;
    here = true;
    void *result = s->main(s->arg);
    while ((surplus = take(0, VT_KSTACKS_LEFT)))
        vt_sys2(SYS_munmap, (long)low_end(surplus), (long)all_of(surplus->size));
    s->tid = (pid_t)vt_sys0(SYS_gettid);
    push(s);
    vt_chaos();
    return result;
}

bool vt_kstack_here(void)
{
    return here;
}

void vt_kstack_unget(struct vt_kstack *s)
{
    s->tid = 0;
    push(s);
}

void vt_kstack_fork_child(void)
{
    lock = (struct vt_lock)VT_LOCK_INIT;
    left = NULL;
    nleft = 0;
}
