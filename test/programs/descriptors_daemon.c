/* A program with threads becomes a daemon: it forks, closes every number that there may be, opens 0, 1 and 2 anew, and starts
 * threads again; and once more from there. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { THREADS = 6, REPORT = 17 };

static void *echo(void *arg)
{
    int pair[2];
    char byte;
    pid_t me = getpid();

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    for (int i = 0; i < 20; i++) {
        write_all(pair[i % 2], "x", 1);
        read_all(pair[1 - i % 2], &byte, 1);
        sleep_us(100);
    }
    SYS(close(pair[0])), SYS(close(pair[1]));
    EXPECT(getpid(), me);
    return arg;
}

static int open_now(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    CHECK(dir != NULL);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 3; /* . and .., and the directory itself */
}

static void say(const char *text)
{
    write_all(REPORT, text, strlen(text));
}

static void become_daemon(int generations)
{
    char text[64];

    while (generations-- > 0) {
        SYS(setsid());
        umask(0);
        SYS(chdir("/"));
        for (int fd = (int)sysconf(_SC_OPEN_MAX); fd-- > 0;)
            if (fd != REPORT && close(fd) != 0 && errno != EBADF)
                say("close failed\n");
        for (int i = 0; i < 3; i++)
            if (open("/dev/null", O_RDWR) != i)
                say("not the lowest number\n");
        snprintf(text, sizeof text, "%d open\n", open_now());
        say(text);
        in_threads(THREADS, echo);
        snprintf(text, sizeof text, "%d open with threads\n", open_now());
        say(text);
        pid_t pid = SYS(fork());
        if (pid != 0) {
            EXPECT(waitpid(pid, NULL, 0), pid);
            break;
        }
    }
    say("end\n");
    _exit(0);
}

static void *background(void *arg)
{
    struct gate *gate = arg;

    gate_wait(gate, 1);
    return arg;
}

int main(void)
{
    struct gate gate = GATE;
    pthread_t threads[THREADS];
    int fds[2];
    char text[512];
    size_t n = 0;
    ssize_t got;

    begin(60);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(background, &gate);
    SYS(pipe(fds));
    fflush(stdout);
    pid_t pid = SYS(fork());
    if (pid == 0) {
        SYS(dup2(fds[1], REPORT));
        become_daemon(2);
    }
    SYS(close(fds[1]));
    while ((got = SYS(read(fds[0], text + n, sizeof text - n))) > 0)
        n += (size_t)got;
    EXPECT(waitpid(pid, NULL, 0), pid);
    fwrite(text, 1, n, stdout);
    gate_add(&gate, 1);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    in_threads(THREADS, echo);
    return finish();
}
