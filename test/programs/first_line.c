/* What a thread's first line may be: functions whose state is per thread and made before the thread runs. */
#include "check.h"
#include <ctype.h>
#include <dlfcn.h>
#include <locale.h>
#include <netdb.h>
#include <wctype.h>

static void *ctype(void *arg)
{
    CHECK(isalpha('a') && !isalpha('1') && toupper('q') == 'Q' && iswalpha(L'z'));
    return arg;
}

static void *use_locale(void *arg)
{
    locale_t l = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    CHECK(uselocale(l) == LC_GLOBAL_LOCALE);
    EXPECT(MB_CUR_MAX, 6);
    sched_yield();
    CHECK(uselocale(LC_GLOBAL_LOCALE) == l);
    EXPECT(MB_CUR_MAX, 1);
    freelocale(l);
    return arg;
}

static void *set_locale(void *arg)
{
    EXPECT_STR(setlocale(LC_ALL, NULL), "C");
    return arg;
}

static void *error_text(void *arg)
{
    EXPECT_STR(strerror(ENOENT), "No such file or directory");
    EXPECT_STR(strerror(99999), "Unknown error 99999");
    return arg;
}

static void *tokens(void *arg)
{
    char text[] = "one two", *rest;
    EXPECT_STR(strtok_r(text, " ", &rest), "one");
    sched_yield();
    EXPECT_STR(strtok_r(NULL, " ", &rest), "two");
    return arg;
}

static void *dl_error(void *arg)
{
    CHECK(dlerror() == NULL);
    CHECK(dlopen("/no/such/module.so", RTLD_NOW) == NULL);
    sched_yield();
    CHECK(dlerror() != NULL);
    return arg;
}

static void *address(void *arg)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *list;
    EXPECT(getaddrinfo("127.0.0.1", "80", &hints, &list), 0);
    EXPECT(list->ai_family, AF_INET);
    freeaddrinfo(list);
    return arg;
}

static void *host(void *arg)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list;
    EXPECT(getaddrinfo("localhost", NULL, &hints, &list), 0);
    freeaddrinfo(list);
    return arg;
}

static void *local_time(void *arg)
{
    time_t t = 86400;
    EXPECT(localtime(&t)->tm_year, 70);
    return arg;
}

static void *errno_zero(void *arg)
{
    EXPECT(errno, 0);
    EXPECT_ERRNO(close(-1), EBADF);
    return arg;
}

static void *numbers(void *arg)
{
    char text[40];
    snprintf(text, sizeof text, "%.3f %d", strtod("1.5", NULL), rand() >= 0);
    EXPECT_STR(text, "1.500 1");
    return arg;
}

static void *print(void *arg)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "%s", "x");
    fclose(f);
    EXPECT_STR(text, "x");
    free(text);
    return arg;
}

static void *allocate(void *arg)
{
    free(memset(malloc(1000), 1, 1000));
    return arg;
}

int main(void)
{
    static const struct {
        const char *name;
        void *(*run)(void *);
    } all[] = {{"ctype", ctype},          {"uselocale", use_locale}, {"setlocale", set_locale}, {"strerror", error_text},
               {"strtok_r", tokens},      {"dlerror", dl_error},     {"getaddrinfo", address},  {"localhost", host},
               {"localtime", local_time}, {"errno", errno_zero},     {"strtod", numbers},       {"open_memstream", print},
               {"malloc", allocate}};

    begin(20);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        in_threads(8, all[i].run);
        puts(all[i].name);
    }
    return finish();
}
