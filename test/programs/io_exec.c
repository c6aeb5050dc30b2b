/* A program that is started in the midst of a stream finds every byte that has not been read: none was read ahead. */
#include "check.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { BYTES = 5000 };

static const char *self;

static char byte_at(long i)
{
    return (char)('a' + i * 31 % 26);
}

/* The new program: standard input has the bytes from `from` on. */
static int rest(long from)
{
    char byte;

    for (long i = from; i < BYTES; i++) {
        EXPECT(read(STDIN_FILENO, &byte, 1), 1);
        if (byte != byte_at(i))
            return 3;
    }
    EXPECT(read(STDIN_FILENO, &byte, 1), 0);
    return 0;
}

static void run(int in, int other, long from)
{
    char text[20];

    snprintf(text, sizeof text, "%ld", from);
    if (other >= 0)
        close(other);
    if (dup2(in, STDIN_FILENO) == STDIN_FILENO)
        execl(self, self, text, (char *)NULL);
    _exit(4);
}

static void *stream(void *arg)
{
    int way = (int)(intptr_t)arg, fds[2], status;
    char data[BYTES], got[BYTES];
    long taken = 0;

    for (int i = 0; i < BYTES; i++)
        data[i] = byte_at(i);
    if (way % 2)
        SYS(pipe2(fds, O_CLOEXEC));
    else
        SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds + 0));
    if (way % 2 == 0) { /* the same order as of a pipe */
        int reader = fds[0];
        fds[0] = fds[1];
        fds[1] = reader;
    }
    write_all(fds[1], data, BYTES);
    while (taken < 40) {
        ssize_t n = way % 3 == 0 ? read(fds[0], got, 7) : way % 3 == 1 ? read(fds[0], got, 13) : -1;
        if (n < 0) {
            if (way % 2 == 0)
                EXPECT(recv(fds[0], got, 5, MSG_PEEK), 5);
            n = read(fds[0], got, 1);
        }
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            EXPECT(got[i], byte_at(taken + i));
        taken += n;
    }
    if (way < 3) { /* while a sibling waits for what is not there yet */
        pid_t child = SYS(fork());
        if (child == 0)
            run(fds[0], fds[1], taken);
        SYS(close(fds[1]));
        SYS(close(fds[0]));
        EXPECT(waitpid(child, &status, 0), child);
    } else {
        pid_t child = SYS(vfork());
        if (child == 0)
            run(fds[0], fds[1], taken);
        SYS(close(fds[1]));
        SYS(close(fds[0]));
        EXPECT(waitpid(child, &status, 0), child);
    }
    EXPECT(status, 0);
    return NULL;
}

/* And the process itself, out of a thread that has read. */
static void *become(void *arg)
{
    int fds[2];
    char data[BYTES];

    for (int i = 0; i < BYTES; i++)
        data[i] = byte_at(i);
    SYS(pipe2(fds, O_CLOEXEC));
    write_all(fds[1], data, BYTES);
    EXPECT(read(fds[0], data, 100), 100);
    run(fds[0], -1, 100);
    return arg;
}

int main(int argc, char **argv)
{
    char path[4096];

    begin(30);
    if (argc > 1) {
        int status = rest(strtol(argv[1], NULL, 0));
        if (status == 0 && strtol(argv[1], NULL, 0) == 100)
            return finish();
        return status;
    }
    ssize_t n = SYS(readlink("/proc/self/exe", path, sizeof path - 1));
    path[n] = '\0';
    self = path;
    in_threads(6, stream);
    puts("children");
    join(start(become, NULL));
    return 1;
}
