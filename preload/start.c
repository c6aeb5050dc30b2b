/* Whether the library is at work in this process, and its start at the first thread. */
#include "start.h"

#include "config.h"
#include "glibc.h"
#include "life.h"
#include "lock.h"
#include "park.h"
#include "place.h"
#include "preload.h"
#include "real.h"
#include "selfdump.h"
#include "stats.h"
#include "sync/layout.h"
#include "sync/mutex.h"
#include "sys.h"
#include "tcb.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
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

/* Not every libc has it. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

/* Why the library is not at work though nobody has asked for that, with a %s for libc's version; or NULL. */
static const char *_Atomic unknown_libc;

/* The 43 of glibc 2.43; 0 if it is not glibc. */
static unsigned minor_version(void)
{
    unsigned minor = 0;
    const char *version = gnu_get_libc_version ? gnu_get_libc_version() : "";
    for (const char *p = strncmp(version, "2.", 2) == 0 ? version + 2 : ""; *p >= '0' && *p <= '9'; p++)
        minor = minor * 10 + (unsigned)(*p - '0');
    return minor;
}

/* What the library stands on before its constructor, which looks further (vt_tcb_known). */
static const char *look_at_libc(void)
{
    if (!gnu_get_libc_version)
        return "the C library is not glibc";
    unsigned minor = minor_version();
    if (minor < VT_GLIBC_FIRST || minor > VT_GLIBC_LAST)
        return "the C library is glibc %s, but this libvthread.so is for " VT_GLIBC_TEXT;
    if (!vt_layout_check())
        return "the C library is glibc %s, whose mutexes and the like have an unknown layout";
    return NULL;
}

void vt_decided_off(void)
{
    const char *text = atomic_exchange_explicit(&unknown_libc, NULL, memory_order_relaxed);
    char what[128];
    if (!text)
        return;
    snprintf(what, sizeof what, text, gnu_get_libc_version ? gnu_get_libc_version() : "");
    vt_say("%s; the program runs on kernel threads", what);
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
        if (vt_config.disable || (vt_config.only && !listed(vt_config.only, executable_name(path, sizeof path))))
            mode = VT_OFF;
        if (mode == VT_ON && under_valgrind()) {
            vt_say("valgrind does not know virtual threads; the program runs on kernel threads");
            mode = VT_OFF;
        }
        if (mode == VT_ON) {
            const char *text = look_at_libc();
            atomic_store_explicit(&unknown_libc, text, memory_order_relaxed);
            if (text)
                mode = VT_OFF;
        }
        /* Release: with the mode goes what has been found out. */
        atomic_store_explicit(&vt_mode, mode, memory_order_release);
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

/* From now on every function is libc's own: its threads can be cancelled wherever they wait. The first thread is about to be
 * made, so nobody waits, and what has been locked is locked for libc too; but for rwlocks, and a condition that has been waited
 * on before is not as new. Therefore the constructor has looked at what it can. */
static void leave_alone(void)
{
    atomic_store_explicit(&vt_mode, VT_OFF, memory_order_release);
}

static bool start(void)
{
    static const char *const sanitizers[][2] = {
        {"__asan_init", "AddressSanitizer"}, {"__tsan_init", "ThreadSanitizer"}, {"__msan_init", "MemorySanitizer"}};
    for (unsigned i = 0; i < sizeof sanitizers / sizeof *sanitizers; i++) {
        if (vt_dlsym(RTLD_DEFAULT, sanitizers[i][0])) {
            vt_say("%s does not know virtual threads; the program runs on kernel threads", sanitizers[i][1]);
            leave_alone();
            return false;
        }
    }
    vt_real_find_all();
    int err = vt_life_start();
    if (err) {
        vt_say("%s; the program runs on kernel threads", vt_tcb_why());
        leave_alone();
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

/* The calling thread came by fork, and the engine runs here by now. */
static void rejoin(void)
{
    static _Atomic bool said;
    if (!vt_life_rejoin() && !atomic_exchange(&said, true))
        vt_say("no memory for the thread that forked: it goes on as a kernel thread");
}

bool vt_engine(void)
{
    for (;;) {
        int state = atomic_load_explicit(&engine, memory_order_acquire);
        if (state == ENGINE_ON) {
            if (__builtin_expect(vt_self && vt_came_by_fork(vt_self), 0))
                rejoin();
            return true;
        }
        if (state == ENGINE_FAILED)
            return false;
        if (state == ENGINE_OFF && atomic_compare_exchange_strong(&engine, &state, ENGINE_STARTING)) {
            bool ok = start();
            atomic_store_explicit(&engine, ok ? ENGINE_ON : ENGINE_FAILED, memory_order_release);
            continue;
        }
        vt_sys0(SYS_sched_yield);
    }
}

bool vt_engine_forget(void)
{
    int state = atomic_load_explicit(&engine, memory_order_relaxed);
    if (state != ENGINE_ON && state != ENGINE_STARTING)
        return false;
    atomic_store_explicit(&engine, ENGINE_OFF, memory_order_relaxed);
    return true;
}

/* --- main's end, exit ----------------------------------------------------------------------------------- */

/* glibc runs key destructors when main calls pthread_exit, in up to PTHREAD_DESTRUCTOR_ITERATIONS rounds;
 * ours comes last by asking for one more round each time. */
static pthread_key_t main_key;
static bool main_key_made;
static int main_rounds;

static void main_exits(void *arg)
{
    if (++main_rounds < PTHREAD_DESTRUCTOR_ITERATIONS && vt_real(pthread_setspecific)(main_key, arg) == 0)
        return;
    if (atomic_load_explicit(&engine, memory_order_acquire) == ENGINE_ON)
        vt_main_gone();
}

void vt_main_is_me(void)
{
    vt_signal_main_is_me();
    main_rounds = 0;
    if (main_key_made && vt_real(pthread_getspecific)(main_key) != &main_key)
        vt_real(pthread_setspecific)(main_key, &main_key);
}

__attribute__((constructor)) static void construct(void)
{
    bool on = vt_on();
    vt_real_ready();
    if (!on)
        return;
    /* Before main has used anything of the library's, which libc's own functions would have to go on with. */
    if (!vt_tcb_known()) {
        atomic_store_explicit(&unknown_libc, vt_tcb_why(), memory_order_relaxed);
        atomic_store_explicit(&vt_mode, VT_OFF, memory_order_release);
        return;
    }
    const volatile char *single = vt_dlsym(RTLD_DEFAULT, "__libc_single_threaded");
    if (single)
        atomic_store_explicit(&vt_libc_single, single, memory_order_relaxed);
    vt_clock_gettime = vt_real(clock_gettime);
    vt_fork_start();
    vt_selfdump_install();
    main_key_made = vt_real(pthread_key_create)(&main_key, main_exits) == 0;
    if (vt_sys0(SYS_gettid) == vt_sys0(SYS_getpid))
        vt_main_is_me();
}

__attribute__((destructor)) static void destruct(void)
{
    if (atomic_load_explicit(&engine, memory_order_acquire) == ENGINE_ON)
        vt_stats_end();
}
