/* Built with -fstack-protector-all: every frame parks while its guard word lies on the stack. */
#include "check.h"

enum { THREADS = 8, DEPTH = 60 };

static sem_t turn[THREADS];

__attribute__((noinline)) static long descend(int id, int depth)
{
    char buffer[72];

    memset(buffer, depth, sizeof buffer);
    sem_post(&turn[(id + 1) % THREADS]);
    sem_wait(&turn[id]);
    long below = depth > 0 ? descend(id, depth - 1) : 0;
    sched_yield();
    for (size_t i = 0; i < sizeof buffer; i++)
        EXPECT(buffer[i], depth);
    return below + 1;
}

static void *run(void *arg)
{
    for (int i = 0; i < 10; i++)
        EXPECT(descend((int)(intptr_t)arg, DEPTH), DEPTH + 1);
    return NULL;
}

int main(void)
{
    begin(30);
    for (int i = 0; i < THREADS; i++)
        sem_init(&turn[i], 0, 0);
    in_threads(THREADS, run);
    return finish();
}
