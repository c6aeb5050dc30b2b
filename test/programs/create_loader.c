/* While a thread is in a callback of dl_iterate_phdr, which holds the loader's lock, others make threads, which end and are
 * joined: pthread_create does not wait for that lock. */
#include "check.h"
#include <link.h>

enum { MAKERS = 2, EACH = 50 };

static struct gate inside = GATE, made = GATE;

static void *nothing(void *arg)
{
    return arg;
}

static void *makes(void *arg)
{
    gate_wait(&inside, 1);
    for (int i = 0; i < EACH; i++)
        join(start(nothing, NULL));
    gate_add(&made, 1);
    return arg;
}

static int stays(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info, (void)size, (void)arg;
    gate_add(&inside, 1);
    gate_wait(&made, MAKERS + 1);
    return 1;
}

static void *walks(void *arg)
{
    EXPECT(dl_iterate_phdr(stays, NULL), 1);
    return arg;
}

int main(void)
{
    pthread_t makers[MAKERS], walker;

    begin(20);
    for (int i = 0; i < MAKERS; i++)
        makers[i] = start(makes, NULL);
    walker = start(walks, NULL);
    makes(NULL); /* the main thread also */
    join(walker);
    for (int i = 0; i < MAKERS; i++)
        join(makers[i]);
    return finish();
}
