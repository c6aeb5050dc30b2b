/* Reads of a terminal that is not read by lines: VMIN and VTIME say when they end, which readiness does not show. */
#include "check.h"
#include <fcntl.h>
#include <termios.h>

static int master, terminal;

static void mode(int min, int time)
{
    struct termios t;

    SYS(tcgetattr(terminal, &t));
    cfmakeraw(&t);
    t.c_cc[VMIN] = (cc_t)min;
    t.c_cc[VTIME] = (cc_t)time;
    SYS(tcsetattr(terminal, TCSANOW, &t));
}

static void *type(void *arg)
{
    const char *text = arg;

    for (; *text; text++) {
        sleep_us(300);
        EXPECT(write(master, text, 1), 1);
    }
    return NULL;
}

static void *run(void *arg)
{
    char c[16];
    pthread_t typist;

    mode(0, 1); /* a tenth of a second for the first byte */
    EXPECT(read(terminal, c, sizeof c), 0);
    for (int i = 0; i < 5; i++) {
        typist = start(type, "a");
        long n;
        while ((n = SYS(read(terminal, c, sizeof c))) == 0) /* a loaded machine */
            ;
        EXPECT(n, 1);
        join(typist);
    }
    EXPECT(read(terminal, c, sizeof c), 0);

    mode(0, 0);
    EXPECT(read(terminal, c, sizeof c), 0);
    EXPECT(write(master, "ab", 2), 2);
    long n;
    while ((n = SYS(read(terminal, c, sizeof c))) == 0)
        ;
    CHECK(n > 0 && c[0] == 'a');
    if (n == 1)
        while (SYS(read(terminal, c, sizeof c)) == 0)
            ;

    mode(3, 0);
    typist = start(type, "abc");
    EXPECT(read(terminal, c, sizeof c), 3);
    join(typist);

    mode(9, 1); /* a tenth of a second between two bytes */
    typist = start(type, "d");
    EXPECT(read(terminal, c, sizeof c), 1);
    join(typist);

    mode(0, 1);
    FILE *f = fdopen(terminal, "r");
    CHECK(f != NULL);
    EXPECT(fgetc(f), EOF);
    CHECK(feof(f));
    clearerr(f);
    EXPECT(fread(c, 1, sizeof c, f), 0);
    fclose(f);
    return arg;
}

int main(void)
{
    begin(30);
    master = SYS(posix_openpt(O_RDWR | O_NOCTTY));
    SYS(grantpt(master));
    SYS(unlockpt(master));
    terminal = SYS(open(ptsname(master), O_RDWR | O_NOCTTY));
    join(start(run, NULL));
    return finish();
}
