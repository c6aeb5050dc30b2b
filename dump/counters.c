#include "counters.h"

#include "engine.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: vthread stats PID\n"
    "       vthread top [options] PID\n"
    "\n"
    "Prints what the scheduler in a process has done and what its threads do; top again and again, with what\n"
    "came in each second. The process is not stopped: the numbers are not all of the same instant.\n"
    "\n"
    "  -d, --delay SECONDS   top: between two times, 0.1 to 3600 (default 1)\n"
    "  -n, --count N         top: so many times (default: until q or Ctrl-C, or the process ends)\n"
    "  -h, --help            this text\n"
    "\n"
    "Exit status: 0; 1 when the process cannot be read; 2 when used wrongly.\n";

#define DELAYS_MOST 64
#define CAUSES_MOST 256

struct cause {
    char name[64];
    uint64_t n;
};

/* One look. */
struct sample {
    uint64_t at;
    bool started; /* the engine has */
    uint64_t living, parked, running, runnable, bound, blocked, kinds[WAITS];
    uint64_t created, peak;
    uint64_t places, idle, carriers, spares;
    uint64_t mounts, direct, lodged, yields, steals, timers, sleeps, parks, parks_for[WAITS];
    uint64_t submissions, requests, batches, batch_most;
    uint64_t delay[DELAYS_MOST], delays, delay_most;
    uint64_t slots, slots_peak, resident_kb, reserved_kb;
    struct cause causes[CAUSES_MOST];
    size_t ncauses;
};

/* --- reading -------------------------------------------------------------------------------------------- */

static uint64_t entry(const char *name)
{
    uint64_t value;
    if (!engine_entry(name, &value))
        die(1, "the library in process %d has no '%s' in its table: it is of another version than this tool", target.pid, name);
    return value;
}

static uint64_t word_at(uint64_t addr)
{
    uint64_t value = 0;
    return addr && target_read(addr, &value, sizeof value) ? value : 0;
}

static uint32_t half_at(uint64_t addr)
{
    uint32_t value = 0;
    return addr && target_read(addr, &value, sizeof value) ? value : 0;
}

static uint64_t word_in(const uint8_t *p, uint64_t offset)
{
    uint64_t value;
    memcpy(&value, p + offset, sizeof value);
    return value;
}

static uint32_t half_in(const uint8_t *p, uint64_t offset)
{
    uint32_t value;
    memcpy(&value, p + offset, sizeof value);
    return value;
}

/* The engine's number of each kind of wait; UINT64_MAX for what it does not have. */
static uint64_t number_of[WAITS];

static void read_numbers(void)
{
    for (size_t i = 0; i < WAITS; i++) {
        char name[32];
        snprintf(name, sizeof name, "wait.%s", wait_names[i]);
        if (!engine_entry(name, &number_of[i]) || number_of[i] >= 16)
            number_of[i] = UINT64_MAX;
    }
}

static void read_places(struct sample *s)
{
    uint64_t size = entry("place.size"), base = word_at(entry("places"));
    uint64_t buckets = entry("stat.delay.count");
    s->places = base ? half_at(entry("nplaces")) : 0;
    s->started = s->places != 0;
    if (s->places > 4096 || buckets > DELAYS_MOST)
        die(1, "the library in process %d has data that this tool does not understand", target.pid);
    uint8_t *place = xalloc(size);
    for (uint64_t i = 0; i < s->places; i++) {
        if (!target_read(base + i * size, place, size))
            continue;
#define GET(name) word_in(place, entry("stat." #name))
        s->direct += GET(direct);
        s->lodged += GET(lodged);
        s->yields += GET(yields);
        s->steals += GET(steals);
        s->timers += GET(timers);
        s->sleeps += GET(sleeps);
        s->submissions += GET(submissions);
        s->requests += GET(requests);
        s->batches += GET(batches);
        if (GET(batch_most) > s->batch_most)
            s->batch_most = GET(batch_most);
        if (GET(delay_most) > s->delay_most)
            s->delay_most = GET(delay_most);
        s->created += GET(created);
#undef GET
        s->mounts += word_in(place, entry("place.mounts"));
        s->idle += place[entry("place.idle")];
        for (size_t k = 0; k < WAITS; k++) {
            uint64_t n = number_of[k] == UINT64_MAX ? 0 : word_in(place, entry("stat.parks") + 8 * number_of[k]);
            s->parks_for[k] += n;
            s->parks += n;
        }
        for (uint64_t b = 0; b < buckets; b++) {
            uint64_t n = word_in(place, entry("stat.delay") + 8 * b);
            s->delay[b] += n;
            s->delays += n;
        }
    }
    free(place);
    uint64_t stocks[4]; /* common, own, how many of these, size: stock.h */
    if (target_read(entry("stocks"), stocks, sizeof stocks)) {
        s->created += word_at(stocks[0] + entry("stock.created"));
        for (uint64_t i = 0; i < stocks[2] && i < 4096; i++)
            s->created += word_at(stocks[1] + i * stocks[3] + entry("stock.created"));
    }
}

/* What is mounted where: descriptors' addresses. */
struct mounted {
    uint64_t *thread;
    bool *placed;
    size_t n, capacity, placed_capacity;
};

static void read_carriers(struct sample *s, struct mounted *m)
{
    uint64_t size = entry("carrier.size");
    uint8_t *carrier = xalloc(size);
    s->carriers = half_at(entry("ncarriers"));
    for (uint64_t c = word_at(entry("carriers")); c && m->n < 1 << 20; c = word_in(carrier, entry("carrier.next"))) {
        if (!target_read(c, carrier, size))
            break;
        m->thread = xgrow(m->thread, &m->capacity, m->n + 1, sizeof *m->thread);
        m->placed = xgrow(m->placed, &m->placed_capacity, m->n + 1, sizeof *m->placed);
        m->thread[m->n] = word_in(carrier, entry("carrier.mounted"));
        m->placed[m->n] = word_in(carrier, entry("carrier.place")) != 0;
        s->spares += half_in(carrier, entry("carrier.tid")) && !m->thread[m->n] && !m->placed[m->n];
        m->n++;
    }
    free(carrier);
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void count_thread(struct sample *s, const uint8_t *t, bool mounted)
{
    if (!half_in(t, entry("thread.alive")))
        return;
    s->living++;
    uint32_t kind = half_in(t, entry("thread.kind"));
    if (kind == entry("kind.bound")) {
        s->bound++;
    } else if (mounted) {
        s->running++;
        s->blocked += word_in(t, entry("thread.wait_what")) != 0;
    } else if (half_in(t, entry("thread.token")) >= entry("token.blocked")) {
        uint32_t number = half_in(t, entry("thread.wait_kind"));
        s->parked++;
        for (size_t k = 0; k < WAITS; k++)
            s->kinds[k] += number_of[k] == number;
    } else {
        s->runnable++;
    }
}

static void read_threads(struct sample *s)
{
    struct mounted m = {0};
    uint64_t size = entry("thread.size"), per = entry("chunk.threads"), chunks = entry("chunks");
    uint32_t used = half_at(entry("used"));
    read_carriers(s, &m);
    if (m.n)
        qsort(m.thread, m.n, sizeof *m.thread, by_address);
    uint8_t *chunk = xalloc(size * per);
    for (uint64_t first = 0; first < used; first += per) {
        uint64_t at = word_at(chunks + first / per * 8), n = used - first < per ? used - first : per;
        if (!at || !target_read(at, chunk, n * size))
            continue;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t address = at + i * size;
            count_thread(s, chunk + i * size, m.n && bsearch(&address, m.thread, m.n, sizeof address, by_address));
        }
    }
    free(chunk);
    free(m.thread);
    free(m.placed);
}

static void read_causes(struct sample *s)
{
    uint64_t view[3]; /* causes, how many, where the peak is: stats.h */
    if (!target_read(entry("stats"), view, sizeof view))
        return;
    s->peak = word_at(view[2]);
    for (uint64_t i = 0; i < view[1] && i < CAUSES_MOST; i++) {
        uint64_t cause[2];
        if (!target_read(view[0] + i * sizeof cause, cause, sizeof cause) || !cause[1])
            continue;
        struct cause *c = &s->causes[s->ncauses++];
        c->n = cause[1];
        if (cause[0])
            target_read_text(cause[0], c->name, sizeof c->name);
        else
            strcpy(c->name, "(other)");
    }
}

struct range {
    uint64_t lo, hi;
};

static void read_slots(struct sample *s)
{
    uint64_t view[7]; /* where made, free, peak and slabs are; offsets of a slab's next, lo, hi: slot.h */
    struct range *ranges = NULL;
    size_t n = 0, capacity = 0;
    if (!target_read(entry("slots"), view, sizeof view))
        return;
    uint64_t made = word_at(view[0]), idle = word_at(view[1]);
    s->slots = made > idle ? made - idle : 0;
    s->slots_peak = word_at(view[2]);
    for (uint64_t slab = word_at(view[3]); slab && n < 1 << 20; slab = word_at(slab + view[4])) {
        ranges = xgrow(ranges, &capacity, n + 1, sizeof *ranges);
        ranges[n] = (struct range){word_at(slab + view[5]), word_at(slab + view[6])};
        s->reserved_kb += (ranges[n].hi - ranges[n].lo) / 1024;
        n++;
    }
    char path[64], line[4400];
    snprintf(path, sizeof path, "/proc/%d/smaps", target.pid);
    FILE *f = n ? fopen(path, "re") : NULL;
    bool ours = false;
    while (f && fgets(line, sizeof line, f)) {
        uint64_t lo, hi, kb;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &lo, &hi) == 2) {
            ours = false;
            for (size_t i = 0; i < n && !ours; i++)
                ours = lo >= ranges[i].lo && lo < ranges[i].hi;
        } else if (ours && sscanf(line, "Rss: %" SCNu64, &kb) == 1) {
            s->resident_kb += kb;
        }
    }
    if (f)
        fclose(f);
    free(ranges);
}

static void look(struct sample *s)
{
    memset(s, 0, sizeof *s);
    s->at = monotonic();
    read_places(s);
    if (!s->started)
        return;
    read_threads(s);
    read_causes(s);
    read_slots(s);
}

/* --- printing ------------------------------------------------------------------------------------------- */

static double seconds; /* between two looks; 0: there is one only */

/* A line: what, how many, and how many a second since the last look. */
static void row(const char *what, uint64_t now, uint64_t before)
{
    if (seconds > 0)
        printf("  %-30s %14" PRIu64 " %12.0f/s\n", what, now, now >= before ? (double)(now - before) / seconds : 0);
    else
        printf("  %-30s %14" PRIu64 "\n", what, now);
}

/* What is not counted but is so now. */
static void state(const char *what, uint64_t now)
{
    printf("  %-30s %14" PRIu64 "\n", what, now);
}

/* Below how many ns so many of a thousand were. */
static uint64_t share(const struct sample *s, const struct sample *before, unsigned per_mille, uint64_t *all)
{
    uint64_t n = 0, sum = 0;
    for (size_t i = 0; i < DELAYS_MOST; i++)
        sum += s->delay[i] - (before ? before->delay[i] : 0);
    *all = sum;
    for (size_t i = 0; i < DELAYS_MOST; i++)
        if ((n += s->delay[i] - (before ? before->delay[i] : 0)) * 1000 >= sum * per_mille && n)
            return UINT64_C(1) << i;
    return 0;
}

static const char *time_text(uint64_t ns, char text[32])
{
    if (ns < 10000)
        snprintf(text, 32, "%.1f us", (double)ns / 1e3);
    else if (ns < 10000000)
        snprintf(text, 32, "%.0f us", (double)ns / 1e3);
    else
        snprintf(text, 32, "%.0f ms", (double)ns / 1e6);
    return text;
}

static void print_delays(const struct sample *s, const struct sample *before)
{
    uint64_t all;
    char half[32], most[32], longest[32];
    uint64_t p50 = share(s, before, 500, &all), p99 = share(s, before, 990, &all);
    row("delays measured", s->delays, before ? before->delays : 0);
    if (all)
        printf("  %-30s 50 %%: < %s, 99 %%: < %s, longest ever: %s\n", "from runnable to running", time_text(p50, half),
               time_text(p99, most), time_text(s->delay_most, longest));
}

static void print(const struct sample *s, const struct sample *b)
{
    static const struct sample none;
    const struct sample *old = b ? b : &none;
    printf("process %d (%s)\n", target.pid, target.exe);
    if (!s->started) {
        printf("  it has made no thread yet\n");
        return;
    }
    printf("threads\n");
    state("living", s->living);
    state("running", s->running);
    state("  of them blocked in calls", s->blocked);
    state("runnable", s->runnable);
    state("bound to a kernel thread", s->bound);
    state("parked", s->parked);
    for (size_t k = 0; k < WAITS; k++) {
        char what[40];
        snprintf(what, sizeof what, "  %s", wait_names[k]);
        if (s->kinds[k])
            state(what, s->kinds[k]);
    }
    row("created", s->created, old->created);
    if (s->peak)
        state("living at the peak", s->peak);
    printf("carriers\n");
    state("places", s->places);
    state("  of them idle", s->idle);
    state("carriers", s->carriers);
    state("  of them spare", s->spares);
    printf("switches\n");
    row("mounts", s->mounts, old->mounts);
    row("  from thread to thread", s->direct, old->direct);
    row("  of a lodger", s->lodged, old->lodged);
    row("yields", s->yields, old->yields);
    row("steals", s->steals, old->steals);
    row("timers expired", s->timers, old->timers);
    row("carrier sleeps", s->sleeps, old->sleeps);
    row("parks", s->parks, old->parks);
    for (size_t k = 0; k < WAITS; k++) {
        char what[40];
        snprintf(what, sizeof what, "  %s", wait_names[k]);
        if (s->parks_for[k])
            row(what, s->parks_for[k], old->parks_for[k]);
    }
    print_delays(s, b);
    printf("input and output\n");
    row("requests", s->requests, old->requests);
    row("ring system calls", s->submissions, old->submissions);
    row("  of them with requests", s->batches, old->batches);
    uint64_t batches = s->batches - old->batches, requests = s->requests - old->requests;
    if (batches)
        printf("  %-30s %14.1f on average, %" PRIu64 " at most\n", "requests in one call", (double)requests / (double)batches,
               s->batch_most);
    /* With epoll there are requests and no batches. */
    uint64_t saved = s->batches && s->requests > s->batches ? s->requests - s->batches : 0;
    uint64_t saved_before = old->batches && old->requests > old->batches ? old->requests - old->batches : 0;
    row("system calls saved", saved, saved_before);
    printf("stacks\n");
    state("in use, and kept at hand", s->slots);
    state("  at the peak", s->slots_peak);
    state("resident KiB, TLS too", s->resident_kb);
    state("reserved KiB", s->reserved_kb);
    if (s->ncauses)
        printf("hand-offs\n");
    for (size_t i = 0; i < s->ncauses; i++) {
        uint64_t before = 0;
        for (size_t k = 0; k < old->ncauses; k++)
            if (strcmp(old->causes[k].name, s->causes[i].name) == 0)
                before = old->causes[k].n;
        row(s->causes[i].name, s->causes[i].n, before);
    }
}

/* --- again and again ------------------------------------------------------------------------------------ */

static volatile sig_atomic_t interrupted;

static void interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

/* Waits; true if the user wants to leave. */
static bool pause_for(double s, bool keys)
{
    uint64_t until = monotonic() + (uint64_t)(s * 1e9);
    for (;;) {
        uint64_t now = monotonic();
        if (interrupted || now >= until)
            return interrupted;
        struct pollfd in = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
        char key;
        if (poll(&in, 1, (int)((until - now) / 1000000) + 1) != 1)
            continue;
        ssize_t n = read(STDIN_FILENO, &key, 1);
        if (n <= 0)
            keys = false;
        else if (key == 'q' || key == 'Q')
            return true;
    }
}

static int top(double delay, long count)
{
    static struct sample samples[2];
    struct sigaction act = {.sa_handler = interrupt};
    struct termios old, raw;
    bool keys = tcgetattr(STDIN_FILENO, &old) == 0, screen = isatty(STDOUT_FILENO);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    /* In the background a change of the terminal would stop us. */
    if (keys && tcgetpgrp(STDIN_FILENO) != getpgrp())
        keys = false;
    if (keys) {
        raw = old;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    bool gone = false;
    look(&samples[0]);
    for (long i = 1; (count == 0 || i <= count) && !pause_for(delay, keys) && !gone; i++) {
        struct sample *s = &samples[i % 2], *before = &samples[(i + 1) % 2];
        if (kill(target.pid, 0) != 0 && errno == ESRCH) {
            gone = true;
            break;
        }
        look(s);
        seconds = (double)(s->at - before->at) / 1e9;
        if (screen)
            fputs("\033[H\033[2J", stdout);
        print(s, before);
        putchar('\n');
        if (fflush(stdout) != 0)
            break;
    }
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &old);
    if (gone)
        printf("process %d has ended\n", target.pid);
    return fflush(stdout) == 0 ? 0 : 1;
}

static _Noreturn void misused(void)
{
    fputs(usage, stderr);
    exit(2);
}

int counters_main(int argc, char **argv)
{
    static const struct option list[] = {
        {"delay", required_argument, NULL, 'd'},
        {"count", required_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    bool again = strcmp(argv[0], "top") == 0;
    double delay = 1;
    long count = 0;
    int c;
    char *end;
    while ((c = getopt_long(argc, argv, "d:n:h", list, NULL)) != -1) {
        if (c == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (!again || !(c == 'd' || c == 'n'))
            misused();
        if (c == 'd') {
            delay = strtod(optarg, &end);
            if (*end || end == optarg || !(delay >= 0.1 && delay <= 3600))
                die(2, "--delay takes 0.1 to 3600 seconds, not '%s'", optarg);
        } else {
            count = strtol(optarg, &end, 10);
            if (*end || end == optarg || count < 1 || count > INT_MAX)
                die(2, "--count takes a number from 1, not '%s'", optarg);
        }
    }
    if (argc - optind != 1)
        misused();
    errno = 0;
    long pid = strtol(argv[optind], &end, 10);
    if (errno || end == argv[optind] || *end || pid <= 0 || pid > INT_MAX)
        die(2, "'%s' is not a process's number", argv[optind]);
    target_open((pid_t)pid, false);
    if (!engine_table())
        die(1, "process %d does not run with libvthread.so", target.pid);
    read_numbers();
    if (again)
        return top(delay, count);
    static struct sample s;
    look(&s);
    print(&s, NULL);
    return fflush(stdout) == 0 ? 0 : 1;
}
