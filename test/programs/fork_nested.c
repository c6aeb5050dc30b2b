/* Two signals come to a thread at once, while it is in the kernel: both have begun, the second one's handler on top, and that
 * one forks. In the child the first one's handler runs too, when the second one's returns: it had come before the
 * fork, and is not pending. */
#include "check.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { ROUNDS = 200 };

static atomic_int handled; /* in this process; a child goes on counting */
static atomic_int forked, round_now;
static volatile sig_atomic_t is_child;
static char path[4000]; /* takes the kernel some time */

static void counts(int sig)
{
    (void)sig;
    handled++;
}

static void forks(int sig)
{
    (void)sig;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        is_child = 1;
    else
        forked++;
}

static void *looks(void *arg)
{
    int right = 0, status;
    for (int round = 1; round <= ROUNDS; round++) {
        round_now = round;
        while (forked < round && !is_child)
            CHECK(access(path, F_OK) == 0);
        if (is_child)
            _exit(handled == round ? 7 : 8);
        CHECK(handled == round);
        CHECK(wait(&status) > 0);
        right += WIFEXITED(status) && WEXITSTATUS(status) == 7;
    }
    printf("%d of %d children\n", right, ROUNDS);
    return arg;
}

int main(void)
{
    begin(100);
    for (size_t i = 0; i < sizeof path - 1; i++)
        path[i] = i % 2 ? '.' : '/';
    struct sigaction act = {.sa_flags = SA_RESTART};
    act.sa_handler = counts;
    CHECK(sigaction(SIGRTMIN, &act, NULL) == 0);
    act.sa_handler = forks;
    CHECK(sigaction(SIGRTMIN + 1, &act, NULL) == 0);
    pthread_t thread = start(looks, NULL);
    for (int round = 1; round <= ROUNDS; round++) {
        while (round_now < round)
            sched_yield();
        CHECK(pthread_kill(thread, SIGRTMIN) == 0);
        CHECK(pthread_kill(thread, SIGRTMIN + 1) == 0);
    }
    join(thread);
    return finish();
}
