/* fork after many threads have blocked at once, each in the kernel, and ended: the child gets no more page faults of its own
 * than if they had never been. */
#include "check.h"

#include <sys/resource.h>
#include <sys/wait.h>

#define THREADS 300

static pthread_mutex_t mutex;
static pthread_cond_t cond;
static int waiting;
static int leave;

static void *waits(void *arg)
{
    ZERO(pthread_mutex_lock(&mutex));
    waiting++;
    while (!leave)
        ZERO(pthread_cond_wait(&cond, &mutex));
    ZERO(pthread_mutex_unlock(&mutex));
    return arg;
}

/* A condition that other processes could wait on too. */
static void come_and_go(int threads)
{
    pthread_t thread[THREADS];
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;

    ZERO(pthread_mutexattr_init(&ma));
    ZERO(pthread_condattr_init(&ca));
    ZERO(pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&mutex, &ma));
    ZERO(pthread_cond_init(&cond, &ca));
    waiting = leave = 0;
    for (int i = 0; i < threads; i++)
        ZERO(pthread_create(&thread[i], NULL, waits, NULL));
    for (int now = 0; now < threads; sched_yield()) {
        ZERO(pthread_mutex_lock(&mutex));
        now = waiting;
        ZERO(pthread_mutex_unlock(&mutex));
    }
    ZERO(pthread_mutex_lock(&mutex));
    leave = 1;
    ZERO(pthread_cond_broadcast(&cond));
    ZERO(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < threads; i++)
        ZERO(pthread_join(thread[i], NULL));
    ZERO(pthread_cond_destroy(&cond));
    ZERO(pthread_mutex_destroy(&mutex));
}

static long faults_of_a_child(void)
{
    struct rusage usage;
    int status;
    pid_t pid = SYS(fork());

    if (pid == 0)
        _exit(0);
    EXPECT(SYS(wait4(pid, &status, 0, &usage)), pid);
    EXPECT(status, 0);
    return usage.ru_minflt;
}

int main(void)
{
    begin(60);
    come_and_go(1);
    faults_of_a_child();
    long few = faults_of_a_child();
    come_and_go(THREADS);
    faults_of_a_child();
    long many = faults_of_a_child();
    if (many > few + THREADS / 4)
        FAIL("%ld page faults in a child, before there were %d threads %ld", many, THREADS, few);
    return finish();
}
