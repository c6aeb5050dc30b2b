/* Where the user may have no more processes, pthread_create gives EAGAIN (or, where threads are not the kernel's, goes on);
 * those that there are go on, and later ones can be made again. RLIMIT_NPROC counts all that the user runs and does not bind
 * root, so this needs root, to become a user who runs nothing else. */
#include "check.h"
#include <sys/resource.h>

enum { MOST = 400 };

static struct gate leave = GATE;
static pthread_t threads[MOST];
static int ended;

static void *run(void *arg)
{
    gate_wait(&leave, 1);
    sleep_us(1000);
    __atomic_add_fetch(&ended, 1, __ATOMIC_RELAXED);
    return arg;
}

static void *at_once(void *arg)
{
    return arg;
}

int main(int argc, char **argv)
{
    struct rlimit old, limit;
    int made = 0, error = 0;
    uid_t user = (uid_t)(1u << 30) + (uid_t)getpid();

    begin(30);
    if (setresuid(user, user, user) != 0) {
        fprintf(stderr, "skipped: the limit of processes (not root)\n");
        return finish();
    }
    SYS(getrlimit(RLIMIT_NPROC, &old));
    limit = old;
    limit.rlim_cur = (rlim_t)argument(argc, argv, 1, 40);
    SYS(setrlimit(RLIMIT_NPROC, &limit));
    while (made < MOST && (error = pthread_create(&threads[made], NULL, run, NULL)) == 0)
        made++;
    fprintf(stderr, "%d threads made\n", made);
    CHECK(made >= (int)limit.rlim_cur - 1); /* main is one */
    if (made < MOST)
        EXPECT_ERROR(error, EAGAIN);
    gate_add(&leave, 1);
    for (int i = 0; i < made; i++)
        join(threads[i]);
    EXPECT(ended, made);
    SYS(setrlimit(RLIMIT_NPROC, &old));
    in_threads(100, at_once);
    return finish();
}
