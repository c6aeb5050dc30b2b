/* Handlers that fork while their thread waits: on a mutex, a condition, a semaphore, for bytes, for time, for
 * another thread's end, in poll. The child works and ends, in the handler; or it returns from the handler and
 * what the thread was doing goes on in it. The parent's wait goes on too. */
#include "check.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>

static pid_t first;
static atomic_int made; /* children of the present turn */
static pid_t child;
static int returns; /* the child returns from its handler */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int fds[2];
static int ready;
static pthread_t other;
static struct gate leave = GATE;

static void forks(int sig)
{
    (void)sig;
    pid_t pid = fork();
    if (pid == 0) {
        struct timespec ms = {0, 1000000};
        nanosleep(&ms, NULL);
        if (!returns)
            _exit(gettid() == getpid() ? 7 : 8);
        /* What the thread waits for comes in the child. */
        sem_post(&sem);
        /* By a descriptor that the two share: one for each. */
        if (write(fds[1], "xx", 2) != 2)
            _exit(9);
        return;
    }
    child = pid;
    made = pid > 0 ? 1 : -1;
}

static void *parks(void *arg)
{
    gate_wait(&leave, 1);
    return arg;
}

static void *comes_and_goes(void *arg)
{
    return arg;
}

/* In the child that returned: the wait is over. */
static void if_child(void)
{
    if (getpid() == first)
        return;
    pthread_t threads[10];
    for (int i = 0; i < 10; i++)
        threads[i] = start(comes_and_goes, NULL);
    for (int i = 0; i < 10; i++)
        join(threads[i]);
    struct timespec ms = {0, 1000000};
    nanosleep(&ms, NULL);
    _exit(7);
}

static void *waits(void *arg)
{
    struct pollfd p[2] = {{fds[0], POLLIN, 0}, {fds[0], POLLIN, 0}};
    int64_t began = now_us();
    char c;

    switch ((intptr_t)arg) {
    case 0:
        while (sem_wait(&sem) == -1)
            CHECK(errno == EINTR);
        break;
    case 1:
        EXPECT(read(fds[0], &c, 1), 1);
        break;
    case 2:
        while (poll(p, 2, -1) == -1)
            CHECK(errno == EINTR);
        EXPECT(read(fds[0], &c, 1), 1);
        break;
    case 3:
        sleep_us(300000);
        CHECK(now_us() - began >= 300000);
        break;
    case 4:
        EXPECT(recv(fds[0], &c, 1, 0), 1);
        break;
    case 5: /* from here on what is waited for does not come in the child, which ends in its handler */
        ZERO(pthread_mutex_lock(&mutex));
        ZERO(pthread_mutex_unlock(&mutex));
        break;
    case 6:
        ZERO(pthread_mutex_lock(&mutex));
        while (!ready)
            ZERO(pthread_cond_wait(&cond, &mutex));
        ZERO(pthread_mutex_unlock(&mutex));
        break;
    case 7:
        join(other);
        break;
    default:
        break;
    }
    if_child();
    return NULL;
}

static void turn(int what, int child_returns)
{
    returns = child_returns;
    made = 0;
    ready = 0;
    ZERO(sem_init(&sem, 0, 0));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    ZERO(pthread_mutex_lock(&mutex));
    if (what != 5)
        ZERO(pthread_mutex_unlock(&mutex));
    if (what == 7)
        other = start(parks, NULL);
    pthread_t thread = start_number(waits, what);
    sleep_us(20000); /* mostly it waits by then; it is right if not */
    ZERO(pthread_kill(thread, SIGUSR1));
    while (made == 0)
        sleep_us(1000);
    EXPECT(made, 1);
    int status;
    EXPECT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), 7);
    /* And in the parent. */
    ZERO(sem_post(&sem));
    if (what == 1 || what == 2 || what == 4)
        write_all(fds[1], "y", 1);
    if (what == 6) {
        ZERO(pthread_mutex_lock(&mutex));
        ready = 1;
        ZERO(pthread_cond_signal(&cond));
    }
    if (what == 5 || what == 6)
        ZERO(pthread_mutex_unlock(&mutex));
    if (what == 7)
        gate_add(&leave, 1);
    join(thread);
    if (what == 7)
        gate_add(&leave, -1);
    SYS(close(fds[0]));
    SYS(close(fds[1]));
    ZERO(sem_destroy(&sem));
}

int main(void)
{
    struct sigaction act = {.sa_handler = forks, .sa_flags = SA_RESTART};

    begin(60);
    first = getpid();
    SYS(sigaction(SIGUSR1, &act, NULL));
    for (int again = 0; again < 2; again++) {
        for (int what = 0; what <= 7; what++) {
            turn(what, 0);
            if (what <= 4)
                turn(what, 1);
            printf("%d\n", what);
        }
    }
    return finish();
}
