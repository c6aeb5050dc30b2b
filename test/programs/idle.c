/* Threads that wait in every way use no processor time and wake nobody periodically. */
#include "check.h"
#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>

enum { THREADS = 100, US = 700000, ATTEMPTS = 3 };

static struct gate waiting = GATE, leave = GATE;
static sem_t sem;
static int pipes[2];

static void *run(void *arg)
{
    struct pollfd p = {.fd = pipes[0], .events = POLLIN};
    char byte;

    gate_add(&waiting, 1);
    switch ((intptr_t)arg % 5) {
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
        EXPECT(poll(&p, 1, 100000), 1);
        EXPECT(read(pipes[0], &byte, 1), 1);
        break;
    default:;
        struct timespec at = in_ms(CLOCK_REALTIME, 100000);
        ZERO(sem_timedwait(&sem, &at));
    }
    return arg;
}

/* All the times that a kernel thread of this process gave up its processor of its own will. */
static long switches(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long total = 0, n;

    CHECK(tasks != NULL);
    for (struct dirent *d; (d = readdir(tasks)) != NULL;) {
        char path[300], line[200];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        FILE *f = d->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!f)
            continue;
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
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

int main(void)
{
    pthread_t threads[THREADS];
    int idle = 0;

    begin(30);
    SYS(pipe(pipes));
    ZERO(sem_init(&sem, 0, 0));
    for (int i = 0; i < THREADS; i++)
        threads[i] = start_number(run, i);
    gate_wait(&waiting, THREADS);
    for (int i = 0; i < ATTEMPTS && !idle; i++) {
        sleep_us(100000); /* what has just begun to wait may have to settle */
        long switches_before = switches();
        int64_t cpu_before = cpu_us();
        sleep_us(US);
        int64_t cpu = cpu_us() - cpu_before;
        long woken = switches() - switches_before;
        fprintf(stderr, "idle for %d ms: %.1f ms of processor, %ld switches\n", US / 1000, (double)cpu / 1000,
                woken);
        idle = cpu < 20000 && woken < 20;
    }
    CHECK(idle);
    gate_add(&leave, 1);
    for (int i = 0; i < THREADS; i++) {
        switch (i % 5) {
        case 1:
        case 4:
            ZERO(sem_post(&sem));
            break;
        case 2:
        case 3:
            write_all(pipes[1], "x", 1);
        }
    }
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    return finish();
}
