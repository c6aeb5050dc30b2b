/* What the program closes is closed, with the very first thread too: nothing that comes into being with it holds a copy. Each
 * child is a process without threads that makes its first. */
#include "check.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { CHILDREN = 300, LAPS = 8 };

static int early[2];

static void *closes(void *arg)
{
    int p[2];
    char c;

    for (int i = 0; i < LAPS; i++) {
        SYS(pipe(p));
        SYS(close(p[0]));
        EXPECT_ERRNO(write(p[1], "x", 1), EPIPE);
        SYS(close(p[1]));
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
        SYS(close(p[0]));
        EXPECT(recv(p[1], &c, 1, MSG_DONTWAIT), 0);
        SYS(close(p[1]));
    }
    /* And what was open before. */
    SYS(close(early[1]));
    EXPECT(recv(early[0], &c, 1, MSG_DONTWAIT), 0);
    SYS(close(early[0]));
    return arg;
}

int main(void)
{
    int status;

    begin(60);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = SYS(fork());
        if (child == 0) {
            SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, early));
            join(start(closes, NULL));
            _exit(0);
        }
        EXPECT(waitpid(child, &status, 0), child);
        EXPECT(status, 0);
    }
    puts("closed");
    return finish();
}
