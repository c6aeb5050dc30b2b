/* Children of vfork, which run in the memory of their parents, that close, duplicate, sleep, yield and write before they
 * end: they disturb nothing, and the other threads go on meanwhile. */
#include "check.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int stop;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *works(void *arg)
{
    while (!stop) {
        pthread_mutex_lock(&mutex);
        free(malloc(100));
        pthread_mutex_unlock(&mutex);
        usleep(100);
    }
    return arg;
}

static void *forks(void *arg)
{
    int number = 20 + (int)(intptr_t)arg;

    for (int i = 0; i < 30; i++) {
        int fds[2], status;
        char got[8];

        SYS(pipe(fds));
        pid_t child = vfork();
        if (child == 0) {
            close(fds[0]);
            dup2(fds[1], number);
            usleep(2000);
            sched_yield();
            int null = open("/dev/null", O_RDWR);
            _exit(null >= 0 && write(null, "x", 1) == 1 && write(number, "hi", 2) == 2 ? 3 : 4);
        }
        CHECK(child > 0);
        close(fds[1]);
        EXPECT(read(fds[0], got, sizeof got), 2);
        EXPECT(read(fds[0], got, sizeof got), 0);
        close(fds[0]);
        EXPECT(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status));
        EXPECT(WEXITSTATUS(status), 3);
    }
    return arg;
}

int main(void)
{
    pthread_t workers[4], forkers[4];

    for (int i = 0; i < 4; i++)
        ZERO(pthread_create(&workers[i], NULL, works, NULL));
    for (int i = 0; i < 4; i++)
        ZERO(pthread_create(&forkers[i], NULL, forks, (void *)(intptr_t)i));
    forks((void *)(intptr_t)4);
    for (int i = 0; i < 4; i++)
        ZERO(pthread_join(forkers[i], NULL));
    stop = 1;
    for (int i = 0; i < 4; i++)
        ZERO(pthread_join(workers[i], NULL));
    puts("ok");
    return 0;
}
