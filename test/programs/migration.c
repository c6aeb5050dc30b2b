/*
 * Threads wake each other across processors the moment that they go to sleep: one that is resumed before it
 * has left its stack would find it overwritten. Every thread keeps a pattern on its stack and in its
 * registers.
 */
#include "check.h"

enum { THREADS = 24, KINDS = 4 };

static long rounds;
static struct station {
    sem_t sem;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long mail;
    int pipe[2];
} stations[THREADS];

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void wake(struct station *s, int kind)
{
    switch (kind) {
    case 0:
        ZERO(sem_post(&s->sem));
        break;
    case 1:
    case 2:
        ZERO(pthread_mutex_lock(&s->lock));
        s->mail++;
        if (kind == 1)
            ZERO(pthread_cond_signal(&s->changed));
        ZERO(pthread_mutex_unlock(&s->lock));
        if (kind == 2)
            ZERO(pthread_cond_signal(&s->changed));
        break;
    default:
        write_all(s->pipe[1], "x", 1);
    }
}

static void wait_for(struct station *s, int kind)
{
    char byte;

    switch (kind) {
    case 0:
        ZERO(sem_wait(&s->sem));
        break;
    case 1:
    case 2:
        ZERO(pthread_mutex_lock(&s->lock));
        while (s->mail == 0)
            ZERO(pthread_cond_wait(&s->changed, &s->lock));
        s->mail--;
        ZERO(pthread_mutex_unlock(&s->lock));
        break;
    default:
        EXPECT(read(s->pipe[0], &byte, 1), 1);
    }
}

/* In round i everyone wakes the one `step` further on, so everyone is woken once. */
static void *run(void *arg)
{
    unsigned id = (unsigned)(intptr_t)arg;
    volatile uint64_t pattern[64];
    uint32_t common = 12345; /* the same sequence in every thread */
    uint64_t a = id + 1, b = id * 3 + 1, c = id * 7 + 1, d = id * 11 + 1;
    double x = id + 0.5;

    for (int i = 0; i < 64; i++)
        pattern[i] = id * 1000u + (unsigned)i;
    for (long i = 0; i < rounds; i++) {
        uint32_t random = next_random(&common);
        int kind = (int)((random >> 8) % KINDS);
        wake(&stations[(id + 1 + random % (THREADS - 1)) % THREADS], kind);
        if ((random >> 20) % 8 == 0)
            sched_yield();
        wait_for(&stations[id], kind);
        a += 1, b += 3, c += 7, d += 11, x += 1;
        for (int j = 0; j < 64; j++)
            if (pattern[j] != id * 1000u + (unsigned)j)
                FAIL("the stack of a thread has changed while it waited");
    }
    uint64_t n = (uint64_t)rounds;
    CHECK(a == id + 1 + n && b == id * 3 + 1 + 3 * n && c == id * 7 + 1 + 7 * n && d == id * 11 + 1 + 11 * n);
    CHECK(x == id + 0.5 + (double)n);
    return arg;
}

int main(int argc, char **argv)
{
    begin(60);
    rounds = argument(argc, argv, 1, 3000);
    for (int i = 0; i < THREADS; i++) {
        ZERO(sem_init(&stations[i].sem, 0, 0));
        ZERO(pthread_mutex_init(&stations[i].lock, NULL));
        ZERO(pthread_cond_init(&stations[i].changed, NULL));
        SYS(pipe(stations[i].pipe));
    }
    in_threads(THREADS, run);
    return finish();
}
