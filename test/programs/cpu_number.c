/* The processor number that a thread sees, from the kernel or from its rseq area, is one that exists. */
#include "check.h"
#include <sys/rseq.h>
#include <sys/syscall.h>

static long processors;

static void *run(void *arg)
{
    for (int i = 0; i < 300; i++) {
        unsigned cpu, node;
        int n = sched_getcpu();
        if (n < 0 || n >= processors)
            FAIL("sched_getcpu gave %d of %ld", n, processors);
        ZERO(getcpu(&cpu, &node));
        CHECK((long)cpu < processors);
        SYS(syscall(SYS_getcpu, &cpu, &node, NULL));
        CHECK((long)cpu < processors);
        struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
        if (__rseq_size > 0) {
            int id = (int)*(volatile uint32_t *)&area->cpu_id;
            uint32_t start_id = *(volatile uint32_t *)&area->cpu_id_start;
            if (id < -2 || id >= processors || start_id >= (uint32_t)processors)
                FAIL("the rseq area says %d and %u", id, start_id);
        }
        if (i % 3 == 0)
            sched_yield();
        if (i % 50 == 0)
            sleep_us(10);
    }
    return arg;
}

int main(void)
{
    begin(20);
    processors = sysconf(_SC_NPROCESSORS_CONF);
    in_threads(16, run);
    return finish();
}
