/* OpenMP with more threads than processors: teams, barriers, critical sections, reductions, tasks, nesting,
 * locks. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long fibonacci(int n)
{
    if (n < 2)
        return n;
    long a, b;
#pragma omp task shared(a) if (n > 12)
    a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 12)
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    long sum = 0, in_critical = 0, singles = 0;
    omp_lock_t lock;
    omp_init_lock(&lock);

#pragma omp parallel for reduction(+ : sum) schedule(dynamic, 100)
    for (long i = 0; i < 1000000; i++)
        sum += i % 7;
    printf("reduction %ld\n", sum);

    int threads = 0, wrong = 0;
    long step = 0;
#pragma omp parallel
    {
#pragma omp single
        threads = omp_get_num_threads();
        for (int r = 0; r < rounds; r++) {
#pragma omp critical
            in_critical++;
#pragma omp atomic
            step++;
#pragma omp barrier
            if (step != (long)(r + 1) * threads)
#pragma omp atomic
                wrong++;
#pragma omp barrier
#pragma omp single
            singles++;
        }
        if (omp_get_thread_num() % 4 == 1)
            usleep(2000); /* some arrive late */
#pragma omp barrier
        omp_set_lock(&lock);
        sum++;
        omp_unset_lock(&lock);
    }
    printf("threads %d critical %ld singles %ld wrong %d sum %ld\n", threads, in_critical, singles, wrong, sum);

    long fib = 0;
#pragma omp parallel
#pragma omp single
    fib = fibonacci(24);
    printf("tasks %ld\n", fib);

    omp_set_max_active_levels(2);
    long inner = 0;
#pragma omp parallel num_threads(4) reduction(+ : inner)
#pragma omp parallel num_threads(4) reduction(+ : inner)
    inner += omp_get_level();
    printf("nested %ld\n", inner);

    long last = 0;
#pragma omp parallel for ordered schedule(static, 1)
    for (int i = 0; i < 200; i++) {
#pragma omp ordered
        {
            if (last != i)
                wrong++;
            last = i + 1;
        }
    }
    printf("ordered %ld wrong %d\n", last, wrong);
    omp_destroy_lock(&lock);
    return wrong != 0;
}
