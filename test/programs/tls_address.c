/* errno and thread-local variables keep their addresses and values over blocking calls of every kind. */
#include "check.h"
#include <poll.h>

enum { PAIRS = 8 };

static __thread long value = 7;
static __thread char area[100];

static struct pair {
    int to_second[2], to_first[2];
    sem_t second, first;
} pairs[PAIRS];

static long rounds;

/* A compiler may take the address of errno to be constant; this call it cannot see through. */
static int *(*volatile errno_now)(void) = __errno_location;

static void block(struct pair *p, int second, long round)
{
    struct timespec moment = {0, 1000};
    char byte = 'x';

    switch (round % 4) {
    case 0:
        if (!second)
            EXPECT(write(p->to_second[1], &byte, 1), 1);
        EXPECT(read(second ? p->to_second[0] : p->to_first[0], &byte, 1), 1);
        if (second)
            EXPECT(write(p->to_first[1], &byte, 1), 1);
        break;
    case 1:
        if (!second)
            sem_post(&p->second);
        sem_wait(second ? &p->second : &p->first);
        if (second)
            sem_post(&p->first);
        break;
    case 2:
        if (round % 40 == 2)
            nanosleep(&moment, NULL);
        else
            poll(NULL, 0, 0);
        break;
    default:
        sched_yield();
    }
}

static void *run(void *arg)
{
    long id = (intptr_t)arg;
    int *errno_address = &errno;
    long *value_address = &value;
    char *area_address = area;

    EXPECT(value, 7);
    EXPECT(errno, 0);
    value = id;
    memset(area, (int)id, sizeof area);
    for (long i = 0; i < rounds; i++) {
        errno = 1000 + (int)id;
        block(&pairs[id / 2], id % 2, i);
        CHECK(errno_now() == errno_address && &errno == errno_address);
        CHECK(&value == value_address && area == area_address);
        EXPECT(errno, 1000 + id);
        EXPECT(*errno_address, 1000 + id);
        EXPECT(value, id);
        EXPECT(*value_address, id);
        EXPECT(area[99], id);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    begin(30);
    rounds = argument(argc, argv, 1, 1000);
    for (int i = 0; i < PAIRS; i++) {
        SYS(pipe(pairs[i].to_second));
        SYS(pipe(pairs[i].to_first));
        sem_init(&pairs[i].first, 0, 0);
        sem_init(&pairs[i].second, 0, 0);
    }
    in_threads(2 * PAIRS, run);
    EXPECT(value, 7);
    return finish();
}
