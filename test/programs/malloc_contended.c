/* Threads that get memory from one arena of malloc's, whose lock is held over system calls, while processes
 * that compute keep its holder from running: they wait inside libc, and are as before when they have it
 * (test/counters counts). */
#include "check.h"
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { THREADS = 64, TURNS = 2, PIECES = 20, SPINNERS = 2 };

static void *allocate(void *arg)
{
    char *pieces[PIECES];

    for (int i = 0; i < TURNS; i++) {
        for (int k = 0; k < PIECES; k++) {
            size_t size = 2000 + (size_t)((k * 7919 + i * 104729) % 30000);
            CHECK((pieces[k] = malloc(size)) != NULL);
            memset(pieces[k], k, size);
        }
        for (int k = 0; k < PIECES; k++) {
            EXPECT(pieces[k][1999], k);
            free(pieces[k]);
        }
        malloc_trim(0);
        sched_yield();
    }
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];
    pid_t spinners[SPINNERS];

    for (int i = 0; i < SPINNERS; i++)
        if ((spinners[i] = SYS(fork())) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                ;
        }
    mallopt(M_ARENA_MAX, 1);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(allocate, NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    for (int i = 0; i < SPINNERS; i++) {
        SYS(kill(spinners[i], SIGKILL));
        EXPECT(waitpid(spinners[i], NULL, 0), spinners[i]);
    }
    return finish();
}
