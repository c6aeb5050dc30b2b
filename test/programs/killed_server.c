/* A server with threads in accept, recv and connections that is killed leaves its port at once: whoever has seen its end
 * can bind it, and what it held is closed. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 5, ACCEPTORS = 8, CLIENTS = 16 };

static int listener, up[2];

static void *serve(void *arg)
{
    char byte;

    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        while (read(fd, &byte, 1) == 1)
            if (write(fd, &byte, 1) != 1)
                break;
        close(fd);
    }
    return arg;
}

static int bound(const struct sockaddr_in *a)
{
    int fd = SYS(socket(AF_INET, SOCK_STREAM, 0)), on = 1;

    SYS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    if (bind(fd, (const struct sockaddr *)a, sizeof *a) != 0 || listen(fd, 64) != 0) {
        int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

static void server(const struct sockaddr_in *a)
{
    listener = bound(a);
    CHECK(listener >= 0);
    for (int i = 0; i < ACCEPTORS + CLIENTS; i++)
        start(serve, NULL);
    write_all(up[1], "u", 1);
    pause();
    _exit(0);
}

int main(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;

    begin(60);
    int fd = bound(&a);
    SYS(getsockname(fd, (struct sockaddr *)&a, &length));
    SYS(close(fd));
    for (int round = 0; round < ROUNDS; round++) {
        int clients[CLIENTS];
        char byte;
        SYS(pipe(up));
        pid_t pid = SYS(fork());
        if (pid == 0)
            server(&a);
        read_all(up[0], &byte, 1);
        for (int i = 0; i < CLIENTS; i++) {
            clients[i] = SYS(socket(AF_INET, SOCK_STREAM, 0));
            SYS(connect(clients[i], (struct sockaddr *)&a, sizeof a));
            write_all(clients[i], "x", 1);
            read_all(clients[i], &byte, 1);
        }
        SYS(kill(pid, SIGKILL));
        EXPECT(waitpid(pid, NULL, 0), pid);
        fd = bound(&a);
        if (fd < 0)
            FAIL("round %d: %s", round, error_name(errno));
        SYS(close(fd));
        for (int i = 0; i < CLIENTS; i++) {
            ssize_t n = read(clients[i], &byte, 1);
            CHECK(n == 0 || (n < 0 && errno == ECONNRESET));
            SYS(close(clients[i]));
        }
        SYS(close(up[0])), SYS(close(up[1]));
    }
    /* Who really has it keeps it. */
    fd = bound(&a);
    CHECK(fd >= 0);
    for (int i = 0; i < 100; i++)
        EXPECT_ERRNO(bound(&a), EADDRINUSE);
    return finish();
}
