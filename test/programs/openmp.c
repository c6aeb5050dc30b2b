/* OpenMP: teams larger than the machine, nested, with barriers, critical sections, ordered loops and tasks.
 */
#include "check.h"
#include <omp.h>

static long nested_sum(void)
{
    long sum = 0;

#pragma omp parallel for num_threads(3) reduction(+ : sum)
    for (int i = 0; i < 30; i++) {
        long inner = 0;
#pragma omp parallel for num_threads(3) reduction(+ : inner)
        for (int j = 0; j < 30; j++)
            inner += i * j;
        sum += inner;
    }
    return sum;
}

static long barriers(void)
{
    long counts[8] = {0}, wrong = 0;

#pragma omp parallel num_threads(8) reduction(+ : wrong)
    for (int round = 1; round <= 20; round++) {
        counts[omp_get_thread_num()]++;
#pragma omp barrier
        for (int i = 0; i < omp_get_num_threads(); i++)
            wrong += counts[i] != round;
#pragma omp barrier
    }
    return wrong;
}

static long critical(void)
{
    long n = 0;

#pragma omp parallel num_threads(8)
    for (int i = 0; i < 200; i++) {
#pragma omp critical
        n++;
    }
    return n;
}

static long ordered(void)
{
    long last = -1, wrong = 0;

#pragma omp parallel for ordered num_threads(6) schedule(dynamic)
    for (int i = 0; i < 60; i++) {
#pragma omp ordered
        {
            wrong += last != i - 1;
            last = i;
        }
    }
    return wrong;
}

static long fibonacci(int n)
{
    long a, b;

    if (n < 2)
        return n;
#pragma omp task shared(a)
    a = fibonacci(n - 1);
#pragma omp task shared(b)
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

static void *run(void *arg)
{
    long f = 0;

    EXPECT(nested_sum(), 435L * 435);
    EXPECT(barriers(), 0);
    EXPECT(critical(), 1600);
    EXPECT(ordered(), 0);
#pragma omp parallel num_threads(4)
#pragma omp single
    f = fibonacci(13);
    EXPECT(f, 233);
    return arg;
}

int main(void)
{
    begin(60);
    omp_set_dynamic(0);
    omp_set_max_active_levels(2);
    run(NULL);
    puts("main");
    in_threads(2, run);
    puts("threads");
    return finish();
}
