/* Threads that wait in every way use no processor time, and no task of the process wakes. */
#include "check.h"
#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { KINDS = 8, ATTEMPTS = 4 };

static struct gate waiting = GATE, leave = GATE;
static sem_t sem;
static int pipes[2], sockets[2];
static pthread_t *threads;

static void *run(void *arg)
{
    long id = (intptr_t)arg;
    struct pollfd p = {.fd = pipes[0], .events = POLLIN};
    struct timespec at, hour = {3600, 0};
    char byte;

    gate_add(&waiting, 1);
    switch (id % KINDS) {
    case 0:
        gate_wait(&leave, 1);
        break;
    case 1:
        ZERO(sem_wait(&sem));
        break;
    case 2:
        EXPECT(read(pipes[0], &byte, 1), 1);
        break;
    case 3:
        EXPECT(poll(&p, 1, 3600000), 1);
        EXPECT(read(pipes[0], &byte, 1), 1); /* there is a byte for each */
        break;
    case 4:
        EXPECT(recv(sockets[0], &byte, 1, 0), 1);
        break;
    case 5: /* to be cancelled */
        nanosleep(&hour, NULL);
        FAIL("the sleep is over");
    case 6:
        join(threads[id - 6]);
        break;
    default:
        at = in_ms(CLOCK_REALTIME, 3600000);
        ZERO(sem_timedwait(&sem, &at));
    }
    return arg;
}

/* How often the tasks of this process other than the caller's have left a processor, of their own will or not. */
static long switches(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long total = 0, n;

    CHECK(tasks != NULL);
    for (struct dirent *d; (d = readdir(tasks)) != NULL;) {
        char path[300], line[200];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        FILE *f = d->d_name[0] == '.' || atoi(d->d_name) == getpid() ? NULL : fopen(path, "r");
        if (!f)
            continue;
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1 ||
                sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n) == 1)
                total += n;
        fclose(f);
    }
    closedir(tasks);
    return total;
}

static int64_t cpu_us(void)
{
    return now_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000;
}

int main(int argc, char **argv)
{
    long count = argument(argc, argv, 1, 104), us = 1000 * argument(argc, argv, 2, 700), sleepers = 0;
    int idle = 0;
    struct rlimit files;

    begin(120);
    count -= count % KINDS;
    CHECK((threads = calloc((size_t)count, sizeof *threads)) != NULL);
    SYS(getrlimit(RLIMIT_NOFILE, &files));
    files.rlim_cur = files.rlim_max;
    SYS(setrlimit(RLIMIT_NOFILE, &files));
    SYS(pipe(pipes));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    ZERO(sem_init(&sem, 0, 0));
    for (long i = 0; i < count; i++)
        threads[i] = start_number(run, i);
    gate_wait(&waiting, count);
    for (int i = 0; i < ATTEMPTS && !idle; i++) {
        sleep_us(200000); /* what has just begun to wait may have to settle */
        long switches_before = switches();
        int64_t cpu_before = cpu_us();
        sleep_us(us);
        int64_t cpu = cpu_us() - cpu_before;
        long woken = switches() - switches_before;
        fprintf(stderr, "idle for %ld ms: %.1f ms of processor, %ld switches\n", us / 1000, (double)cpu / 1000, woken);
        idle = cpu < 5000 && woken == 0;
    }
    CHECK(idle);
    gate_add(&leave, 1);
    for (long i = 0; i < count; i++) {
        switch (i % KINDS) {
        case 1:
        case 7:
            ZERO(sem_post(&sem));
            break;
        case 2:
        case 3:
            write_all(pipes[1], "x", 1);
            break;
        case 4:
            write_all(sockets[1], "x", 1);
            break;
        case 5:
            ZERO(pthread_cancel(threads[i]));
        }
    }
    for (long i = 0; i < count; i++)
        if (i % KINDS == 5)
            sleepers += join(threads[i]) == PTHREAD_CANCELED;
        else if (i % KINDS != 0)
            CHECK(join(threads[i]) == (void *)(intptr_t)i);
    EXPECT(sleepers, count / KINDS);
    return finish();
}
