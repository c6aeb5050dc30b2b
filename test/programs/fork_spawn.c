/* system, popen, posix_spawn, vfork and fork with exec by many threads at once, while others wait; and none
 * of what they start, nor a child of fork, has a descriptor that the program did not give it. */
#include "check.h"

#include <dirent.h>
#include <spawn.h>
#include <sys/wait.h>

static struct gate leave = GATE;
static char self[4096];
extern char **environ;

static void *parks(void *arg)
{
    gate_wait(&leave, 1);
    return arg;
}

/* Those that the program was started with. */
static int given;

/* How many descriptors there are beside the first three and the one that asks. */
static int more_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    CHECK(dir != NULL);
    for (struct dirent *d; (d = readdir(dir));)
        count += d->d_name[0] != '.' && atoi(d->d_name) > 2 && atoi(d->d_name) != dirfd(dir);
    closedir(dir);
    return count;
}

static void await_child(pid_t pid, int want)
{
    int status;

    CHECK(pid > 0);
    EXPECT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), want);
}

static void *starts(void *arg)
{
    char *argv[] = {self, (char *)"count", NULL}, line[64];
    pid_t pid;
    int status;

    for (int i = 0; i < 4; i++) {
        status = system("exit 3");
        CHECK(WIFEXITED(status));
        EXPECT(WEXITSTATUS(status), 3);

        FILE *pipe = popen("echo hello; exit 4", "re");
        CHECK(pipe != NULL && fgets(line, sizeof line, pipe));
        EXPECT_STR(line, "hello\n");
        status = pclose(pipe);
        CHECK(WIFEXITED(status));
        EXPECT(WEXITSTATUS(status), 4);

        ZERO(posix_spawn(&pid, self, NULL, NULL, argv, environ));
        await_child(pid, 50 + given);

        if ((pid = SYS(vfork())) == 0) {
            execv(self, argv);
            _exit(1);
        }
        await_child(pid, 50 + given);

        if ((pid = SYS(fork())) == 0) {
            execv(self, argv);
            _exit(1);
        }
        await_child(pid, 50 + given);
    }
    return arg;
}

static void *counts_in_a_child(void *arg)
{
    pid_t pid = SYS(fork());

    if (pid == 0) {
        EXPECT(more_descriptors(), given);
        /* And again in the child of a child that has made threads. */
        join(start(parks, NULL));
        if ((pid = SYS(fork())) == 0)
            _exit(50 + more_descriptors());
        await_child(pid, 50 + given);
        _exit(50 + given);
    }
    await_child(pid, 50 + given);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t threads[50];
    (void)argv;

    if (argc > 1)
        return 50 + more_descriptors();
    given = more_descriptors();
    begin(60);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    for (int i = 0; i < 50; i++)
        threads[i] = start(parks, NULL);
    in_threads(8, starts);
    starts(NULL);
    gate_add(&leave, 1);
    for (int i = 0; i < 50; i++)
        join(threads[i]);
    /* Alone now: the program has no other descriptors. */
    join(start(counts_in_a_child, NULL));
    counts_in_a_child(NULL);
    return finish();
}
