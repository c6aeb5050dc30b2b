/* Threads that ask a name server which never answers, and threads in fgets on slow pipes, keep nobody else from running. The
 * server is this program's own, in a network and a mount namespace of its own; without the right to make them only the pipes
 * are tried. */
#include "lateness.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

enum { THREADS = 16 };

static int64_t duration;
static int pipes[THREADS][2];

/* A silent server on the port of name servers, and a configuration that names it. False: not permitted. */
static int silence(void)
{
    char path[] = "/tmp/hidden_blocking_XXXXXX";
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char text[] = "nameserver 127.0.0.1\noptions timeout:1 attempts:2\n";

    if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0)
        return 0;
    int fd = SYS(mkstemp(path));
    write_all(fd, text, sizeof text - 1);
    close(fd);
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    int ok = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
             mount(path, "/etc/resolv.conf", NULL, MS_BIND, NULL) == 0 && ioctl(s, SIOCSIFFLAGS, &lo) == 0 &&
             bind(s, (struct sockaddr *)&at, sizeof at) == 0;
    unlink(path);
    return ok;
}

static void *ask(void *arg)
{
    struct addrinfo *found = NULL;

    if (getaddrinfo("silent.example", "80", NULL, &found) == 0)
        FAIL("the silent server has answered");
    return arg;
}

static void *read_line(void *arg)
{
    char line[100];
    FILE *f = fdopen(pipes[(intptr_t)arg][0], "r");

    CHECK(f != NULL);
    CHECK(fgets(line, sizeof line, f) != NULL);
    EXPECT_STR(line, "late\n");
    fclose(f);
    return arg;
}

static void *tick(void *arg)
{
    *(int64_t *)arg = worst_of_sleeps(duration, 5);
    return arg;
}

static int64_t among(void *(*run)(void *), int release)
{
    pthread_t threads[THREADS];
    int64_t worst;

    for (int i = 0; i < THREADS; i++)
        threads[i] = start_number(run, i);
    join(start(tick, &worst));
    for (int i = 0; release && i < THREADS; i++)
        write_all(pipes[i][1], "late\n", 5);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    return worst;
}

static int64_t resolver(void)
{
    return among(ask, 0);
}

static int64_t lines(void)
{
    for (int i = 0; i < THREADS; i++)
        SYS(pipe(pipes[i]));
    int64_t worst = among(read_line, 1);
    for (int i = 0; i < THREADS; i++)
        close(pipes[i][1]);
    return worst;
}

int main(int argc, char **argv)
{
    begin(60);
    duration = 1000 * argument(argc, argv, 1, 1000);
    start_control();
    int silent = silence();
    expect_punctual("fgets", lines);
    if (silent)
        expect_punctual("getaddrinfo", resolver);
    else {
        fprintf(stderr, "skipped: getaddrinfo (no right to make a network and a mount namespace)\n");
        puts("getaddrinfo");
    }
    return finish();
}
