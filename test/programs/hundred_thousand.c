/* Many threads at once, each of which takes a mutex, allocates, writes to a pipe and uses a thread-local
 * variable. */
#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gate waiting = GATE, leave = GATE;
static __thread long mine = 42;
static long total;
static int pipes[2];

static void *run(void *arg)
{
    long id = (intptr_t)arg;
    char *text = malloc(64);

    CHECK(text != NULL);
    EXPECT(mine, 42);
    mine = id;
    snprintf(text, 64, "%ld", id);
    gate_add(&waiting, 1);
    gate_wait(&leave, 1);
    ZERO(pthread_mutex_lock(&lock));
    total += atol(text);
    ZERO(pthread_mutex_unlock(&lock));
    SYS(write(pipes[1], "x", 1));
    EXPECT(mine, id);
    free(text);
    return arg;
}

static void *drain(void *arg)
{
    char buf[4096];
    long got = 0;

    for (long count = (intptr_t)arg, n; got < count; got += n)
        n = SYS(read(pipes[0], buf, sizeof buf));
    return (void *)(intptr_t)got;
}

int main(int argc, char **argv)
{
    long count = argument(argc, argv, 1, 2000);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);

    begin(120);
    CHECK(threads != NULL);
    SYS(pipe(pipes));
    pthread_t reader = start_number(drain, count);
    for (long i = 0; i < count; i++)
        ZERO(pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i));
    gate_wait(&waiting, count);
    gate_add(&leave, 1);
    for (long i = 0; i < count; i++)
        CHECK(join(threads[i]) == (void *)(intptr_t)i);
    EXPECT((long)(intptr_t)join(reader), count);
    EXPECT(total, count * (count - 1) / 2);
    return finish();
}
