/* Whether the library is at work in this process, and its start at the first thread. */
#include "start.h"

#include "call.h"
#include "config.h"
#include "fd.h"
#include "handoff.h"
#include "life.h"
#include "lock.h"
#include "place.h"
#include "preload.h"
#include "real.h"
#include "stats.h"
#include "sys.h"
#include "tcb.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic int vt_mode;

/* --- the decision --------------------------------------------------------------------------------------- */

/* The last part of the path of the running executable, or "". */
static const char *executable_name(char *buf, size_t size)
{
    long n = vt_sys4(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)buf, (long)size - 1);
    buf[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(buf, '/');
    return slash ? slash + 1 : buf;
}

/* Whether name stands in a list separated by colons or commas. */
static bool listed(const char *list, const char *name)
{
    size_t len = strlen(name);
    while (*list) {
        size_t n = strcspn(list, ":,");
        if (n == len && memcmp(list, name, n) == 0)
            return true;
        list += n;
        list += *list != '\0';
    }
    return false;
}

/* valgrind puts a library of its own in front of every process that it runs. It has a scheduler of its own, and would not
 * follow ours. */
static bool under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload_core");
}

int vt_decide(void)
{
    static struct vt_lock lock;
    vt_lock(&lock);
    int mode = atomic_load_explicit(&vt_mode, memory_order_relaxed);
    if (mode == VT_UNDECIDED) {
        char path[4096];
        vt_config_read();
        mode = VT_ON;
        if (vt_config.disable ||
            (vt_config.only && !listed(vt_config.only, executable_name(path, sizeof path))))
            mode = VT_OFF;
        if (mode == VT_ON && under_valgrind()) {
            vt_say("valgrind does not know virtual threads; the program runs on kernel threads");
            mode = VT_OFF;
        }
        atomic_store_explicit(&vt_mode, mode, memory_order_relaxed);
    }
    vt_unlock(&lock);
    return mode;
}

/* --- the start ------------------------------------------------------------------------------------------ */

enum { ENGINE_OFF, ENGINE_STARTING, ENGINE_ON, ENGINE_FAILED };
static _Atomic int engine;

static int real_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    return vt_real(pthread_create)(thread, attr, start, arg);
}

/* On the last thread after main has gone: as glibc, the process ends as if by exit(0). */
static void last_thread(void)
{
    exit(0);
}

static bool start(void)
{
    static const char *const sanitizers[][2] = {
        {"__asan_init", "AddressSanitizer"}, {"__tsan_init", "ThreadSanitizer"}, {"__msan_init", "MemorySanitizer"}};
    for (unsigned i = 0; i < sizeof sanitizers / sizeof *sanitizers; i++) {
        if (dlsym(RTLD_DEFAULT, sanitizers[i][0])) {
            vt_say("%s does not know virtual threads; the program runs on kernel threads", sanitizers[i][1]);
            return false;
        }
    }
    int err = vt_life_start();
    if (err) {
        vt_say("%s; the program runs on kernel threads", vt_tcb_why());
        return false;
    }
    vt_host.thread_create = real_create;
    vt_last_thread = last_thread;
    err = vt_sched_start();
    if (err) {
        vt_say("cannot start (%s); the program runs on kernel threads", strerror(err));
        return false;
    }
    return true;
}

bool vt_engine(void)
{
    for (;;) {
        int state = atomic_load_explicit(&engine, memory_order_acquire);
        if (state == ENGINE_ON)
            return true;
        if (state == ENGINE_FAILED)
            return false;
        if (state == ENGINE_OFF && atomic_compare_exchange_strong(&engine, &state, ENGINE_STARTING)) {
            bool ok = start();
            atomic_store_explicit(&engine, ok ? ENGINE_ON : ENGINE_FAILED, memory_order_release);
            return ok;
        }
        vt_sys0(SYS_sched_yield);
    }
}

/* --- fork, main's end, exit ----------------------------------------------------------------------------- */

static bool forking; /* the engine was there when fork began; under the locks that it takes */

static void before_fork(void)
{
    vt_fd_share_all();
    if (atomic_load_explicit(&engine, memory_order_acquire) == ENGINE_ON) {
        vt_life_fork_prepare();
        forking = true;
    }
}

static void in_parent(void)
{
    if (forking) {
        forking = false;
        vt_life_fork_parent();
    }
}

static void in_child(void)
{
    vt_out_fork_child();
    if (forking) {
        forking = false;
        vt_life_fork_child();
        atomic_store_explicit(&engine, ENGINE_OFF, memory_order_relaxed);
    } else if (atomic_load_explicit(&engine, memory_order_relaxed) == ENGINE_STARTING) {
        /* Another thread was at it in the parent. What it had made stays where it is. */
        vt_sched_fork_child();
        atomic_store_explicit(&engine, ENGINE_OFF, memory_order_relaxed);
    }
}

/* A child of vfork runs in our memory as the thread that made it, while that one sleeps. It must not leave for another
 * thread, nor take notes of its own descriptors as if they were ours. So for its time the thread is a kernel thread. */
void vt_vfork_begin(void);
long vt_vfork_end(long pid);

static __thread bool vfork_virtual __attribute__((tls_model("initial-exec")));

void vt_vfork_begin(void)
{
    if (!vt_on())
        return;
    struct vt_thread *t = vt_current();
    vfork_virtual = t->kind == VT_VIRTUAL;
    vt_handoff_begin("vfork");
    t->kind = VT_KERNEL;
    t->vforked = true;
}

/* In the parent: -1 and errno if there is no child. */
long vt_vfork_end(long pid)
{
    if (vt_on()) {
        struct vt_thread *t = vt_self;
        t->vforked = false;
        if (vfork_virtual) {
            /* Whatever the child was doing when it ended. A wake-up too many is nobody's harm. */
            atomic_store_explicit(&t->crit, 0, memory_order_relaxed);
            atomic_store_explicit(&t->token, 1, memory_order_seq_cst);
            t->kind = VT_VIRTUAL;
            vt_handoff_end();
        }
    }
    if (pid < 0) {
        errno = (int)-pid;
        return -1;
    }
    return pid;
}

/* glibc runs key destructors when main calls pthread_exit, in up to PTHREAD_DESTRUCTOR_ITERATIONS rounds;
 * ours comes last by asking for one more round each time. */
static pthread_key_t main_key;
static int main_rounds;

static void main_exits(void *arg)
{
    if (++main_rounds < PTHREAD_DESTRUCTOR_ITERATIONS && pthread_setspecific(main_key, arg) == 0)
        return;
    if (atomic_load_explicit(&engine, memory_order_acquire) == ENGINE_ON)
        vt_main_gone();
}

__attribute__((constructor)) static void construct(void)
{
    if (!vt_on())
        return;
    pthread_atfork(before_fork, in_parent, in_child);
    if (vt_sys0(SYS_gettid) == vt_sys0(SYS_getpid) && pthread_key_create(&main_key, main_exits) == 0)
        pthread_setspecific(main_key, &main_key);
}

__attribute__((destructor)) static void destruct(void)
{
    if (atomic_load_explicit(&engine, memory_order_acquire) == ENGINE_ON)
        vt_stats_print();
}
