/* Some threads have given up their ids by system calls, so that setresuid succeeds in main and not in them, or the other way
 * round: libc aborts. A handler for SIGABRT runs first, on whichever thread it is, while the others wait, sleep and compute;
 * after it, and without one, the process ends by the signal. */
#include "check.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define THREADS 4

static struct gate changed = GATE, never = GATE;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int said[2];
static bool leaves;

static void on_abort(int number)
{
    int saved = errno;

    /* Nothing that has been interrupted has it. */
    ZERO(pthread_mutex_lock(&lock));
    write_all(said[1], &number, sizeof number);
    ZERO(pthread_mutex_unlock(&lock));
    errno = saved;
    if (leaves)
        _exit(7);
}

static void *gives_up(void *arg)
{
    long kind = (long)(intptr_t)arg;

    if (kind % 2)
        SYS(syscall(SYS_setresuid, 65534, 65534, 65534));
    gate_add(&changed, 1);
    if (kind / 2)
        for (;;)
            atomic_signal_fence(memory_order_seq_cst);
    gate_wait(&never, 1);
    return arg;
}

/* The status that the process ends with, and whether the handler has run. */
static int ends(bool handler, bool with_leaves, int *ran)
{
    int status;

    SYS(pipe(said));
    pid_t child = SYS(fork());
    if (child == 0) {
        begin(60);
        leaves = with_leaves;
        if (handler)
            CHECK(signal(SIGABRT, on_abort) != SIG_ERR);
        for (long i = 0; i < THREADS; i++)
            start_number(gives_up, i);
        gate_wait(&changed, THREADS);
        setresuid(1001, 1002, 1003);
        _exit(1);
    }
    SYS(waitpid(child, &status, 0));
    SYS(close(said[1]));
    *ran = 0;
    for (int number; SYS(read(said[0], &number, sizeof number)) > 0; ++*ran)
        EXPECT(number, SIGABRT);
    SYS(close(said[0]));
    return status;
}

int main(void)
{
    int status, ran;

    begin(120);
    if (geteuid() != 0) {
        fprintf(stderr, "skipped: not root\n");
        return finish();
    }
    status = ends(true, true, &ran);
    CHECK(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), 7);
    CHECK(ran >= 1); /* several threads may find it at once */
    status = ends(true, false, &ran);
    if (!WIFSIGNALED(status))
        FAIL("status %x", status);
    EXPECT(WTERMSIG(status), SIGABRT);
    CHECK(ran >= 1);
    status = ends(false, false, &ran);
    if (!WIFSIGNALED(status))
        FAIL("status %x", status);
    EXPECT(WTERMSIG(status), SIGABRT);
    EXPECT(ran, 0);
    return finish();
}
