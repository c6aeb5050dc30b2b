/* Tells how it was started: argv, VTHREAD_* and LD_PRELOAD, whether the stub library is loaded.
 * "probe exit N", "probe kill SIG", "probe cat" instead do that. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int stub_loaded(void)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "libvthread") != NULL;
    if (maps)
        fclose(maps);
    return found;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "exit"))
        return atoi(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "kill")) {
        kill(getpid(), atoi(argv[2]));
        pause();
    }
    if (argc == 2 && !strcmp(argv[1], "cat")) {
        char buf[4096];
        size_t n;
        while ((n = fread(buf, 1, sizeof buf, stdin)) > 0)
            fwrite(buf, 1, n, stdout);
        return 0;
    }
    for (int i = 0; i < argc; i++)
        printf("argv[%d]=%s\n", i, argv[i]);
    for (char **e = environ; *e; e++) {
        if (!strncmp(*e, "VTHREAD_", 8) || !strncmp(*e, "LD_PRELOAD", 10) || !strncmp(*e, "a.b=", 4) ||
            !strncmp(*e, "BASH_", 5))
            printf("env %s\n", *e);
    }
    struct sigaction sa;
    sigaction(SIGUSR1, NULL, &sa);
    printf("usr1 %s\n", sa.sa_handler == SIG_IGN ? "ignored" : "default");
    printf("library %s\n", stub_loaded() ? "loaded" : "absent");
    return 0;
}
