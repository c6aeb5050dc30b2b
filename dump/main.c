/* vthread-dump: what each virtual thread of a process, or of a core file, does. */
#include "counters.h"
#include "engine.h"
#include "report.h"
#include "symbols.h"
#include "target.h"
#include "unwind.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: vthread dump [options] PID\n"
                            "       vthread dump [options] --core CORE [EXECUTABLE]\n"
                            "\n"
                            "Prints every virtual thread of a process or core file: what it waits for, and its stack.\n"
                            "The process stands still for some milliseconds meanwhile; the first line says how long.\n"
                            "\n"
                            "  -g, --group       threads that do the same once, the most numerous first\n"
                            "  -j, --json        as JSON\n"
                            "  -t, --thread ID   one thread alone, without the lines about all\n"
                            "  -f, --frames      the library's own frames, too\n"
                            "  -k, --kernel      carriers and other kernel threads of the library, too\n"
                            "      --no-lines    no file names and lines: faster with much debug information\n"
                            "  -o, --output FILE instead of standard output\n"
                            "  -h, --help        this text\n"
                            "\n"
                            "Exit status: 0; 1 when the process or core cannot be read; 2 when used wrongly.\n";

static pid_t number(const char *text, const char *what)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n <= 0 || n > INT_MAX)
        die(2, "'%s' is not %s", text, what);
    return (pid_t)n;
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "stats") == 0 || strcmp(argv[1], "top") == 0))
        return counters_main(argc - 1, argv + 1);
    enum { CORE = 256, NO_LINES, INSIDE };
    static const struct option list[] = {
        {"group", no_argument, NULL, 'g'},
        {"json", no_argument, NULL, 'j'},
        {"frames", no_argument, NULL, 'f'},
        {"kernel", no_argument, NULL, 'k'},
        {"core", required_argument, NULL, CORE},
        {"no-lines", no_argument, NULL, NO_LINES},
        {"thread", required_argument, NULL, 't'},
        {"output", required_argument, NULL, 'o'},
        {"from-inside", no_argument, NULL, INSIDE},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    struct options options = {0};
    bool lines = true, kernel = false, inside = false;
    const char *core = NULL, *output = NULL;
    int c;
    while ((c = getopt_long(argc, argv, "gjfkt:o:h", list, NULL)) != -1) {
        switch (c) {
        case 'g':
            options.group = true;
            break;
        case 'j':
            options.json = true;
            break;
        case 'f':
            options.frames = true;
            break;
        case 'k':
            kernel = true;
            break;
        case 't':
            options.only = (uint32_t)number(optarg, "a thread's id");
            break;
        case 'o':
            output = optarg;
            break;
        case CORE:
            core = optarg;
            break;
        case NO_LINES:
            lines = false;
            break;
        case INSIDE:
            inside = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (options.only && (options.group || options.json))
        die(2, "--thread goes with neither --group nor --json");
    if (core ? argc - optind > 1 : argc - optind != 1) {
        fputs(usage, stderr);
        return 2;
    }
    if (output && !freopen(output, "we", stdout))
        die(1, "%s: %s", output, strerror(errno));
    static char buffer[1 << 20];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (core)
        target_open_core(core, argv[optind]);
    else
        target_open(number(argv[optind], "a process's number"), inside);
    engine_copy(kernel);
    unwind_all(options.only);
    symbols_open(lines);
    report(&options);
    if (fflush(stdout) != 0)
        die(1, "writing: %s", strerror(errno));
    return 0;
}
