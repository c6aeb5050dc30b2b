/* Threads that open files, and look for files that are not there, again and again: nothing is asked about
 * each that is not asked natively (test/counters counts). Then threads that open a FIFO, and wait for the
 * other end, keep nobody else from running, though nothing that was opened before has waited. opens TURNS:
 * the first part alone, by one thread. */
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { THREADS = 6, TURNS = 300 };

static char directory[] = "/tmp/opens-XXXXXX", file[100], missing[100], fifo[100];
static struct gate opened = GATE;

static void *open_files(void *arg)
{
    for (long i = 0; i < (long)(intptr_t)arg; i++) {
        SYS(close(SYS(open(file, i % 2 ? O_RDONLY : O_WRONLY))));
        EXPECT(open(missing, O_RDONLY), -1);
        EXPECT_ERROR(errno, ENOENT);
    }
    return arg;
}

static void *open_fifo(void *arg)
{
    char byte;
    int fd = SYS(open(fifo, O_RDONLY));

    gate_add(&opened, 1);
    EXPECT(read(fd, &byte, 1), 0);
    SYS(close(fd));
    return arg;
}

static void *go_on(void *arg)
{
    for (int i = 0; i < 20; i++)
        sched_yield();
    return arg;
}

static void *let_in(void *arg)
{
    int fd = SYS(open(fifo, O_WRONLY));

    gate_wait(&opened, THREADS * (1 + (int)(intptr_t)arg));
    SYS(close(fd));
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];

    SYS(mkdtemp(directory) ? 0 : -1);
    snprintf(file, sizeof file, "%s/file", directory);
    snprintf(missing, sizeof missing, "%s/missing", directory);
    snprintf(fifo, sizeof fifo, "%s/fifo", directory);
    SYS(close(SYS(open(file, O_WRONLY | O_CREAT, 0600))));
    SYS(mkfifo(fifo, 0600));

    int openers = argc > 1 ? 1 : THREADS;
    for (int i = 0; i < openers; i++)
        threads[i] = start_number(open_files, argc > 1 ? atoi(argv[1]) : TURNS);
    for (int i = 0; i < openers; i++)
        join(threads[i]);
    for (int round = 0; argc == 1 && round < 3; round++) {
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(open_fifo, NULL);
        for (int i = 0; i < THREADS; i++)
            join(start(go_on, NULL));
        join(start_number(let_in, round));
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
    }
    SYS(unlink(file)), SYS(unlink(fifo)), SYS(rmdir(directory));
    return finish();
}
