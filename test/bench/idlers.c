/* T threads wait in several ways for what does not come; how often the process is woken meanwhile, and what
 * that costs. */
#include "bench.h"
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int pipes[2];

static void *wait_in_vain(void *arg)
{
    char byte;
    switch ((intptr_t)arg % 4) {
    case 0:
        pthread_mutex_lock(&lock);
        for (;;)
            pthread_cond_wait(&never, &lock);
    case 1:
        while (sem_wait(&sem))
            ;
        break;
    case 2:
        if (read(pipes[0], &byte, 1) != 1)
            check(errno, "read");
        break;
    default:
        sleep(3600);
    }
    return arg;
}

/* All the times that a kernel thread of this process gave up its processor of its own will. */
static long switches(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long total = 0, n;
    if (!tasks)
        check(errno, "/proc/self/task");
    for (struct dirent *d; (d = readdir(tasks));) {
        char path[300], line[200];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        FILE *f = d->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
                total += n;
        if (f)
            fclose(f);
    }
    closedir(tasks);
    return total;
}

static double cpu_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        usage("idlers T SECONDS");
    long n = atol(argv[1]);
    unsigned seconds = (unsigned)atol(argv[2]);
    sys(sem_init(&sem, 0, 0), "sem_init");
    sys(pipe(pipes), "pipe");
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, wait_in_vain, (void *)i), "pthread_create");
    }
    sleep(1); /* all wait by now, and what counts idle looks has counted them */
    /* reading the counters is work of the main thread: measured twice in a row, and taken off */
    long w0 = switches(), w1 = switches();
    double c0 = cpu_seconds();
    sleep(seconds);
    double cpu = cpu_seconds() - c0;
    long w2 = switches();
    long wakes = w2 - w1 - (w1 - w0);
    printf("idlers threads=%ld seconds=%u wakes_s=%.2f cpu_us_s=%.1f\n", n, seconds,
           (double)(wakes > 1 ? wakes - 1 : 0) / seconds, cpu * 1e6 / seconds);
    fflush(stdout);
    _exit(0);
}
