/* stdio on slow pipes in more threads than there are carriers, while others go on; a FILE shared by many. */
#include "lateness.h"

enum { READERS = 24, LINES = 10 };

static int pipes[READERS][2];
static struct gate reading = GATE;
static int shared[2];
static FILE *shared_out;

static void *read_lines(void *arg)
{
    long id = (intptr_t)arg;
    FILE *f = fdopen(pipes[id][0], "r");
    char text[64], want[64], *line = NULL;
    size_t size = 0;

    CHECK(f != NULL);
    gate_add(&reading, 1);
    for (int i = 0; i < LINES; i++) {
        snprintf(want, sizeof want, "%ld: line %d\n", id, i);
        switch (i % 3) {
        case 0:
            CHECK(fgets(text, sizeof text, f) != NULL);
            EXPECT_STR(text, want);
            break;
        case 1:
            EXPECT(getline(&line, &size, f), (long)strlen(want));
            EXPECT_STR(line, want);
            break;
        default:
            EXPECT(fread(text, 1, strlen(want), f), (long)strlen(want));
            EXPECT(memcmp(text, want, strlen(want)), 0);
        }
    }
    CHECK(fgets(text, sizeof text, f) == NULL && feof(f));
    free(line);
    fclose(f);
    return NULL;
}

static void *write_lines(void *arg)
{
    FILE *out[READERS];

    for (int i = 0; i < READERS; i++)
        CHECK((out[i] = fdopen(pipes[i][1], "w")) != NULL);
    for (int n = 0; n < LINES; n++) {
        for (int i = 0; i < READERS; i++) {
            /* Half a line, and the rest later. */
            fprintf(out[i], "%d: li", i);
            ZERO(fflush(out[i]));
        }
        sched_yield();
        for (int i = 0; i < READERS; i++) {
            fprintf(out[i], "ne %d\n", n);
            ZERO(fflush(out[i]));
        }
    }
    for (int i = 0; i < READERS; i++)
        ZERO(fclose(out[i]));
    return arg;
}

static void *sleeper(void *arg)
{
    *(int64_t *)arg = worst_of_sleeps(200000, 10);
    return NULL;
}

static int64_t measure(void)
{
    int64_t worst;

    join(start(sleeper, &worst));
    return worst;
}

static void *print(void *arg)
{
    for (int i = 0; i < 200; i++)
        CHECK(fprintf(shared_out, "thread %d prints %d\n", (int)(intptr_t)arg, i) > 0);
    return NULL;
}

static void *check_lines(void *arg)
{
    int next[16] = {0}, id, n;
    char text[64];
    FILE *f = fdopen(shared[0], "r");

    while (fgets(text, sizeof text, f)) {
        CHECK(sscanf(text, "thread %d prints %d\n", &id, &n) == 2 && id >= 0 && id < 16);
        EXPECT(n, next[id]++);
    }
    for (int i = 0; i < 16; i++)
        EXPECT(next[i], 200);
    fclose(f);
    return arg;
}

int main(void)
{
    pthread_t readers[READERS];

    begin(30);
    start_control();
    for (int i = 0; i < READERS; i++) {
        SYS(pipe(pipes[i]));
        readers[i] = start_number(read_lines, i);
    }
    gate_wait(&reading, READERS);
    expect_punctual("while all read", measure);
    join(start(write_lines, NULL));
    for (int i = 0; i < READERS; i++)
        join(readers[i]);
    puts("lines");
    SYS(pipe(shared));
    shared_out = fdopen(shared[1], "w");
    CHECK(shared_out != NULL);
    pthread_t checker = start(check_lines, NULL);
    in_threads(16, print);
    ZERO(fclose(shared_out));
    join(checker);
    puts("a shared FILE");
    return finish();
}
