/* The other ways to make a process with memory of its own: _Fork, the system calls, clone, daemon; by
 * threads, while others wait and work. In the child the thread waits, and makes threads where libc lets it.
 */
#include "check.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct gate leave = GATE;
static atomic_int stop;

static void *parks(void *arg)
{
    gate_wait(&leave, 1);
    return arg;
}

static void *works(void *arg)
{
    while (!stop) {
        sleep_us(200);
        sched_yield();
    }
    return arg;
}

static void *counts(void *arg)
{
    sleep_us(500);
    atomic_fetch_add((atomic_int *)arg, 1);
    return NULL;
}

/* What a child does. Without libc's fork its locks may be held by threads that are not there: none is taken
 * then. */
static int child(bool whole)
{
    struct timespec ms = {0, 1000000};
    atomic_int count = 0;
    int fds[2];
    char c;

    if (pipe(fds) || nanosleep(&ms, NULL) || write(fds[1], "x", 1) != 1 || read(fds[0], &c, 1) != 1 || c != 'x')
        return 1;
    if (gettid() != getpid() || syscall(SYS_gettid) != getpid())
        return 2;
    if (whole) {
        pthread_t threads[20];
        for (int i = 0; i < 20; i++)
            threads[i] = start(counts, &count);
        for (int i = 0; i < 20; i++)
            join(threads[i]);
        if (count != 20)
            return 3;
    }
    return 7;
}

static int cloned(void *arg)
{
    return arg == &stop ? child(false) : 9;
}

static int cloned_as_vfork(void *arg)
{
    struct timespec ms = {0, 1000000};

    nanosleep(&ms, NULL);
    *(int *)arg = 12;
    _exit(7);
}

static void await_child(pid_t pid)
{
    int status;

    CHECK(pid > 0);
    EXPECT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), 7);
}

static void *makes(void *arg)
{
    enum { STACK = 256 << 10 };
    char *stack = malloc(STACK);
    int shared = 0;

    CHECK(stack != NULL);
    for (int turn = 0; turn < 5; turn++) {
        pid_t pid = SYS(fork());
        if (pid == 0)
            _exit(child(true));
        await_child(pid);
        if ((pid = SYS(_Fork())) == 0)
            _exit(child(false));
        await_child(pid);
        if ((pid = (pid_t)SYS(syscall(SYS_fork))) == 0)
            _exit(child(false));
        await_child(pid);
        if ((pid = (pid_t)SYS(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0))) == 0)
            _exit(child(false));
        await_child(pid);
        await_child((pid_t)SYS(clone(cloned, stack + STACK, SIGCHLD, &stop)));
        await_child((pid_t)SYS(clone(cloned_as_vfork, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &shared)));
        EXPECT(shared, 12);
        shared = 0;
    }
    free(stack);
    return arg;
}

static int from_daemon[2];

static void *becomes_a_daemon(void *arg)
{
    pid_t pid = SYS(fork());

    if (pid == 0) {
        /* The thread that calls it goes on in yet another process. */
        pthread_t waits = start(parks, NULL);
        (void)waits;
        SYS(daemon(1, 1));
        int result = child(true);
        write_all(from_daemon[1], &result, sizeof result);
        _exit(0);
    }
    int status, result;
    EXPECT(waitpid(pid, &status, 0), pid);
    EXPECT(status, 0);
    read_all(from_daemon[0], &result, sizeof result);
    EXPECT(result, 7);
    return arg;
}

int main(void)
{
    pthread_t threads[50], workers[4];

    begin(60);
    SYS(pipe(from_daemon));
    for (int i = 0; i < 50; i++)
        threads[i] = start(parks, NULL);
    for (int i = 0; i < 4; i++)
        workers[i] = start(works, NULL);
    in_threads(6, makes);
    makes(NULL);
    join(start(becomes_a_daemon, NULL));
    becomes_a_daemon(NULL);
    stop = 1;
    gate_add(&leave, 1);
    for (int i = 0; i < 50; i++)
        join(threads[i]);
    for (int i = 0; i < 4; i++)
        join(workers[i]);
    return finish();
}
