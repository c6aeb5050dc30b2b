#include "selfdump.h"

#include "config.h"
#include "place.h"
#include "real.h"
#include "sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define VT_DUMPER_STACK ((size_t)64 << 10)
#define VT_CHILD_STACK  ((size_t)32 << 10)
#define VT_OPTIONS      16

static _Atomic uint32_t wanted;

/* Anywhere, in the midst of a switch too: it touches nothing of a thread's. */
static void on_signal(int sig)
{
    (void)sig;
    atomic_store_explicit(&wanted, 1, memory_order_release);
    vt_sys_futex_wake(&wanted, 1);
}

/* --- the tool ------------------------------------------------------------------------------------------- */

static char tool[PATH_MAX];

/* Where the build, or the installation, has put it, seen from the library. */
static void find_tool(void)
{
    static const char *const places[] = {"", "../libexec/vthread/", "../../libexec/vthread/"};
    Dl_info info;
    if (vt_config.dump_tool) {
        snprintf(tool, sizeof tool, "%s", vt_config.dump_tool);
        return;
    }
    if (!vt_real(dladdr)((void *)find_tool, &info) || !info.dli_fname)
        return;
    const char *slash = strrchr(info.dli_fname, '/');
    int length = slash ? (int)(slash + 1 - info.dli_fname) : 0;
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(tool, sizeof tool, "%.*s%svthread-dump", length, info.dli_fname, places[i]);
        if (vt_sys4(SYS_faccessat, AT_FDCWD, (long)tool, X_OK, 0) == 0)
            return;
    }
    snprintf(tool, sizeof tool, "%.*svthread-dump", length, info.dli_fname);
}

/* What two processes in our memory work on; each has a stack of its own there. */
struct run {
    char *arguments[VT_OPTIONS + 3];
    char pid[12];
    char options[256];
    char *stack; /* of the second */
    long error;  /* of opening the file, or of the exec */
    bool file;   /* it was the file */
};

/* The process that becomes the tool: no more than system calls until then. */
static int become_tool(void *arg)
{
    struct run *r = arg;
    char *none[] = {NULL};
    long fd = 2;
    if (vt_config.dump_file) {
        fd = vt_sys4(SYS_openat, AT_FDCWD, (long)vt_config.dump_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0) {
            r->file = true;
            r->error = fd;
            return 1;
        }
    }
    vt_sys3(SYS_dup3, fd, 1, 0);
    vt_sys_sigmask(0);
    r->error = vt_sys3(SYS_execve, (long)tool, (long)r->arguments, (long)none);
    return 1;
}

/* A process between, which waits for the tool: so the program, with its wait() and its SIGCHLD, has no child
 * that it does not know. It ends without a signal, and is nobody's child for who does not ask with __WCLONE.
 */
static int stand_between(void *arg)
{
    struct run *r = arg;
    int status = 0;
    /* It has a table of descriptors of its own, and shall keep nothing of the program's open. */
    vt_sys3(SYS_close_range, 3, UINT_MAX, 0);
    int pid = clone(become_tool, r->stack + VT_CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, r);
    if (pid < 0)
        r->error = -errno;
    else
        vt_sys4(SYS_wait4, pid, (long)&status, 0, 0);
    return 0;
}

/* Yama's mode 1 lets a process be traced by those it has named only (Linux
 * Documentation/admin-guide/LSM/Yama.rst). */
static bool must_permit(void)
{
    char mode = '0';
    long fd = vt_sys4(SYS_openat, AT_FDCWD, (long)"/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    vt_sys3(SYS_read, fd, (long)&mode, 1);
    vt_sys1(SYS_close, fd);
    return mode == '1';
}

/* One at a time: two could not trace the process at once. */
static _Atomic uint32_t running;

static void run_tool(char *stacks, const char *options)
{
    struct run r;
    unsigned n = 0;
    memset(&r, 0, sizeof r);
    snprintf(r.pid, sizeof r.pid, "%d", (int)vt_sys0(SYS_getpid));
    snprintf(r.options, sizeof r.options, "%s", options);
    r.arguments[n++] = tool;
    for (char *rest = r.options, *word; n <= VT_OPTIONS && (word = strtok_r(rest, " ", &rest));)
        r.arguments[n++] = word;
    r.arguments[n] = r.pid;
    r.stack = stacks + VT_CHILD_STACK;
    bool permit = must_permit();
    if (permit)
        vt_sys2(SYS_prctl, PR_SET_PTRACER, (long)PR_SET_PTRACER_ANY);
    int pid = clone(stand_between, stacks + VT_CHILD_STACK, CLONE_VM, &r);
    if (pid < 0) {
        vt_say("no thread dump: no process for it (error %d)", errno);
    } else {
        while (vt_sys4(SYS_wait4, pid, 0, (long)(unsigned)__WCLONE, 0) == -EINTR)
            ;
        if (r.error)
            vt_say("no thread dump: %s: error %ld", r.file ? vt_config.dump_file : tool, -r.error);
    }
    if (permit)
        vt_sys2(SYS_prctl, PR_SET_PTRACER, 0);
}

char *vt_selfdump_prepare(void)
{
    if (!*tool)
        find_tool();
    return vt_sys_map(2 * VT_CHILD_STACK);
}

bool vt_selfdump_possible(void)
{
    return vt_sys4(SYS_faccessat, AT_FDCWD, (long)tool, X_OK, 0) == 0;
}

void vt_selfdump_run(char *stacks, const char *options)
{
    if (!vt_selfdump_possible()) {
        vt_say("no thread dump: there is no %s (VTHREAD_DUMP_TOOL names another)", tool);
        return;
    }
    while (atomic_exchange_explicit(&running, 1, memory_order_acquire))
        vt_sys_futex_wait(&running, 1, NULL);
    run_tool(stacks, options);
    atomic_store_explicit(&running, 0, memory_order_release);
    vt_sys_futex_wake(&running, 1);
}

static void *dumper_main(void *stacks)
{
    vt_staff_joins("vt-dump");
    for (;;) {
        while (!atomic_exchange_explicit(&wanted, 0, memory_order_acq_rel))
            vt_sys_futex_wait(&wanted, 0, NULL);
        vt_selfdump_run(stacks, vt_config.dump_options ? vt_config.dump_options : "--group");
    }
    return NULL;
}

/* --- start ---------------------------------------------------------------------------------------------- */

void vt_selfdump_install(void)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
    int sig = vt_config.dump_signal;
    if (!sig || vt_real(sigaction)(sig, NULL, &old) != 0)
        return;
    if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN)
        vt_say("VTHREAD_DUMP_SIGNAL: signal %d has a handler already; no thread dumps by it", sig);
    else
        vt_real(sigaction)(sig, &act, NULL);
}

void vt_selfdump_start(void)
{
    if (!vt_config.dump_signal)
        return;
    char *stacks = vt_selfdump_prepare();
    if (!stacks || vt_kernel_thread(dumper_main, stacks, VT_DUMPER_STACK) != 0)
        vt_say("VTHREAD_DUMP_SIGNAL: no kernel thread for it; no thread dumps");
}

void vt_selfdump_fork_child(void)
{
    atomic_store_explicit(&running, 0, memory_order_relaxed);
}
