#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* After this those who sleep uninterruptibly are left alone; who only waits for a processor is given more
 * time, as it would not get on without us either. */
#define STOP_LIMIT UINT64_C(40000000)
#define PATIENCE   UINT64_C(2000000000)

static bool tolerant_of_refusal;
static size_t task_capacity, mapping_capacity;

/* --- what /proc tells ----------------------------------------------------------------------------------- */

/* comm and state of a kernel thread; false if it is gone or has ended. */
static bool task_stat(pid_t tid, char comm[17], char *state)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", target.pid, tid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close || close[1] != ' ')
        return false;
    *close = '\0';
    snprintf(comm, 17, "%s", open + 1);
    *state = close[2];
    return *state != 'Z' && *state != 'X';
}

/* By their numbers, which are below PID_MAX_LIMIT (linux/threads.h). */
static uint8_t listed[(1 << 22) / 8];

static bool list_once(pid_t tid)
{
    if (tid <= 0 || tid >= 1 << 22)
        return false;
    uint8_t bit = (uint8_t)(1 << tid % 8), old = listed[tid / 8];
    listed[tid / 8] |= bit;
    return !(old & bit);
}

/* Adds the kernel threads that are not in target.tasks. Returns how many. */
static size_t list_tasks(void)
{
    char path[32];
    size_t before = target.ntasks;
    struct dirent *e;
    snprintf(path, sizeof path, "/proc/%d/task", target.pid);
    DIR *d = opendir(path);
    if (!d)
        return 0;
    while ((e = readdir(d))) {
        pid_t tid = (pid_t)atol(e->d_name);
        struct task t = {.tid = tid};
        if (!list_once(tid) || !task_stat(tid, t.comm, &t.state))
            continue;
        target.tasks = xgrow(target.tasks, &task_capacity, target.ntasks + 1, sizeof t);
        target.tasks[target.ntasks++] = t;
    }
    closedir(d);
    return target.ntasks - before;
}

void process_open(pid_t pid, bool tolerant)
{
    char path[64];
    tolerant_of_refusal = tolerant;
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (access(path, F_OK) != 0)
        die(1, "there is no process %d", pid);
    list_tasks();
    if (target.ntasks == 0)
        die(1, "process %d has ended", pid);
    target.reader = target.tasks[0].tid;
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    ssize_t n = readlink(path, target.exe, sizeof target.exe - 1);
    target.exe[n > 0 ? n : 0] = '\0';
}

void process_mappings(void)
{
    char path[64], *line = NULL;
    size_t capacity = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/maps", target.pid, target.reader);
    FILE *f = fopen(path, "re");
    if (!f)
        die(1, "%s: %s", path, strerror(errno));
    target.nmappings = 0;
    while (getline(&line, &capacity, f) > 0) {
        struct mapping m = {.path = ""};
        char rights[8];
        int at = 0;
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %n", &m.start, &m.end, rights, &m.offset, &at) < 4)
            continue;
        line[strcspn(line, "\n")] = '\0';
        m.executable = rights[2] == 'x';
        if (at && line[at])
            m.path = strdup(line + at);
        target.mappings = xgrow(target.mappings, &mapping_capacity, target.nmappings + 1, sizeof m);
        target.mappings[target.nmappings++] = m;
    }
    free(line);
    fclose(f);
    if (target.nmappings == 0)
        die(1, "process %d: no right to see its memory (%s), or it has none", target.pid, path);
}

/* --- memory --------------------------------------------------------------------------------------------- */

#define BATCH 512

static void refused(void)
{
    int err = errno;
    if (err == ESRCH)
        die(1, "process %d has ended", target.pid);
    if (err == EPERM)
        die(1,
            "process %d: no right to read its memory (another user's, or kernel.yama.ptrace_scope, or it has "
            "changed its user): try as root",
            target.pid);
}

void process_read(struct span *spans, size_t n)
{
    struct iovec local[BATCH], remote[BATCH];
    for (size_t at = 0; at < n;) {
        size_t count = n - at < BATCH ? n - at : BATCH, total = 0;
        for (size_t i = 0; i < count; i++) {
            local[i] = (struct iovec){spans[at + i].to, spans[at + i].size};
            remote[i] = (struct iovec){(void *)spans[at + i].addr, spans[at + i].size};
        }
        ssize_t got = process_vm_readv(target.reader, local, count, remote, count, 0);
        if (got < 0 && (errno == ESRCH || errno == EPERM))
            refused();
        /* It stops at the first piece that it cannot read in full. */
        size_t i = 0;
        while (i < count && got >= 0 && total + spans[at + i].size <= (size_t)got) {
            spans[at + i].ok = true;
            total += spans[at + i].size;
            i++;
        }
        if (i < count)
            spans[at + i++].ok = false;
        at += i;
    }
}

/* --- stopping ------------------------------------------------------------------------------------------- */

static uint64_t stopped_at;
static int nice_before;

static void take_registers(struct task *t)
{
    struct user_regs_struct u;
    if (ptrace(PTRACE_GETREGS, t->tid, 0, &u) != 0)
        return;
    t->regs = (struct registers){
        {u.rax, u.rdx, u.rcx, u.rbx, u.rsi, u.rdi, u.rbp, u.rsp, u.r8, u.r9, u.r10, u.r11, u.r12, u.r13, u.r14, u.r15, u.rip}};
    t->stopped = true;
}

static pid_t tracer(void)
{
    char path[32], *line = NULL;
    size_t capacity = 0;
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%d/status", target.pid);
    FILE *f = fopen(path, "re");
    while (f && getline(&line, &capacity, f) > 0)
        if (sscanf(line, "TracerPid: %d", &pid) == 1)
            break;
    free(line);
    if (f)
        fclose(f);
    return pid;
}

static bool seize(struct task *t)
{
    for (unsigned tries = 0;; tries++) {
        if (ptrace(PTRACE_SEIZE, t->tid, 0, 0) == 0)
            return true;
        if (errno == ESRCH || (errno == EPERM && !task_stat(t->tid, t->comm, &t->state)))
            return false; /* has ended */
        if (!tolerant_of_refusal || tries == 1000)
            break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    int err = errno;
    pid_t other = tracer();
    if (other && other != getpid())
        die(1, "process %d is being traced by process %d (a debugger, strace)", target.pid, other);
    die(1, "process %d: no right to trace it (%s): another user's, or kernel.yama.ptrace_scope; try as root", target.pid,
        strerror(err));
}

/* Whether one that has not stopped will by itself: it only lacks a processor. */
static bool any_comes(size_t from)
{
    bool comes = false;
    for (size_t i = from; i < target.ntasks; i++) {
        struct task *t = &target.tasks[i];
        char comm[17], state;
        if (t->stopped || t->state == 'X' || !task_stat(t->tid, comm, &state))
            continue;
        t->state = state;
        comes |= state != 'D';
    }
    return comes;
}

/* Waits for those who have been told to stop. False when the time is over. */
static bool await_stops(size_t from, uint64_t limit)
{
    for (;;) {
        size_t left = 0;
        for (size_t i = from; i < target.ntasks; i++) {
            struct task *t = &target.tasks[i];
            int status;
            if (t->stopped || t->state == 'X')
                continue;
            pid_t got = waitpid(t->tid, &status, __WALL | WNOHANG);
            if (got == t->tid && WIFSTOPPED(status)) {
                /* An event of our own asking, or a signal on its way to the program, which gets it when we
                 * leave. */
                if (status >> 16 != PTRACE_EVENT_STOP)
                    t->signal = WSTOPSIG(status);
                take_registers(t);
            } else if (got == t->tid || (got < 0 && errno == ECHILD)) {
                t->state = 'X';
            } else {
                left++;
            }
        }
        if (left == 0)
            return true;
        uint64_t now = monotonic();
        if (now > limit && (!any_comes(from) || now > limit + PATIENCE)) {
            target.unstopped += left;
            return false;
        }
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
}

static void on_signal(int sig)
{
    /* The kernel lets go of all that we have stopped. */
    signal(sig, SIG_DFL);
    raise(sig);
}

void process_stop(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        signal(ends[i], on_signal);
    nice_before = getpriority(PRIO_PROCESS, 0);
    target.ntasks = 0;
    target.unstopped = 0;
    memset(listed, 0, sizeof listed);
    size_t from = 0;
    list_tasks();
    /* First all are seized, which stops nobody. */
    for (size_t i = 0; i < target.ntasks; i++)
        if (!seize(&target.tasks[i]))
            target.tasks[i].state = 'X';
    /* The target waits for us now, so we are not to wait for others, where we have the right. */
    setpriority(PRIO_PROCESS, 0, -20);
    stopped_at = monotonic();
    uint64_t limit = stopped_at + STOP_LIMIT;
    do {
        size_t n = target.ntasks;
        for (size_t i = from; i < n; i++)
            if (target.tasks[i].state != 'X' && ptrace(PTRACE_INTERRUPT, target.tasks[i].tid, 0, 0) != 0)
                target.tasks[i].state = 'X';
        bool all = await_stops(from, limit);
        from = n;
        /* Made by others before they stopped. */
        list_tasks();
        for (size_t i = n; i < target.ntasks; i++)
            if (!seize(&target.tasks[i]))
                target.tasks[i].state = 'X';
        if (!all)
            limit = monotonic() + STOP_LIMIT / 10;
    } while (from < target.ntasks);
    target.now = monotonic();
}

/* Lets go of those that stop when it is over. (Kernel threads are traced by the thread that seized them: this
 * one.) */
static void on_stop(int sig)
{
    int saved = errno, status;
    pid_t tid;
    (void)sig;
    while ((tid = waitpid(-1, &status, __WALL | WNOHANG)) > 0)
        if (WIFSTOPPED(status))
            ptrace(PTRACE_DETACH, tid, 0, (void *)(long)(status >> 16 != PTRACE_EVENT_STOP ? WSTOPSIG(status) : 0));
    errno = saved;
}

void process_resume(void)
{
    if (!stopped_at)
        return;
    for (size_t i = 0; i < target.ntasks; i++) {
        struct task *t = &target.tasks[i];
        if (t->stopped)
            ptrace(PTRACE_DETACH, t->tid, 0, (void *)(long)t->signal);
    }
    setpriority(PRIO_PROCESS, 0, nice_before);
    target.stopped_ms += (double)(monotonic() - stopped_at) / 1e6;
    stopped_at = 0;
    if (target.unstopped) {
        struct sigaction act = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
        sigaction(SIGCHLD, &act, NULL);
        on_stop(SIGCHLD);
    }
}
