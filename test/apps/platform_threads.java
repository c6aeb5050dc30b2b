// Platform threads by the thousand, each with something to wait for: sleep, a lock, wait and notify,
// java.util.concurrent, a server that answers late. Prints what came out, which is the same in every run.
//
//   java platform_threads.java [THREADS]

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

class PlatformThreads {
    interface Body {
        void run(int number) throws Exception;
    }

    static final AtomicInteger wrong = new AtomicInteger();

    static void check(boolean right, String what) {
        if (!right && wrong.incrementAndGet() <= 10) System.out.println("wrong: " + what);
    }

    // Threads that run the body, joined.
    static void threads(int n, Body body) throws Exception {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            int number = i;
            Thread thread = new Thread(null, () -> {
                try {
                    body.run(number);
                } catch (Throwable e) {
                    check(false, "thread " + number + ": " + e);
                }
            }, "t" + i, 128 << 10);
            all.add(thread);
            thread.start();
        }
        for (Thread thread : all) thread.join();
    }

    static void sleeping(int n) throws Exception {
        AtomicInteger woken = new AtomicInteger();
        CountDownLatch asleep = new CountDownLatch(n);
        threads(n, i -> {
            asleep.countDown();
            asleep.await(); // so that all of them live at once
            long before = System.nanoTime();
            Thread.sleep(100);
            check(System.nanoTime() - before >= 100_000_000L, "a sleep was too short");
            woken.incrementAndGet();
        });
        System.out.println("sleeping: " + woken);
    }

    static long counter;

    static void locking(int n) throws Exception {
        Object monitor = new Object();
        ReentrantLock lock = new ReentrantLock();
        ReentrantReadWriteLock shared = new ReentrantReadWriteLock();
        AtomicLong sum = new AtomicLong();
        long[] under = new long[2];
        threads(n, i -> {
            for (int j = 0; j < 50; j++) {
                synchronized (monitor) {
                    counter++;
                    if (j % 10 == 0) Thread.yield();
                }
                lock.lock();
                try {
                    under[0]++;
                } finally {
                    lock.unlock();
                }
                if (j % 10 == 0) {
                    shared.writeLock().lock();
                    under[1]++;
                    shared.writeLock().unlock();
                } else {
                    shared.readLock().lock();
                    check(under[1] >= 0, "read lock");
                    shared.readLock().unlock();
                }
                sum.addAndGet(j);
            }
        });
        System.out.println("locking: " + counter + " " + under[0] + " " + under[1] + " " + sum);
    }

    static void notifying(int n) throws Exception {
        // producers and consumers over a queue of 8, by wait and notifyAll
        ArrayDeque<Integer> queue = new ArrayDeque<>();
        AtomicLong taken = new AtomicLong();
        threads(n, i -> {
            for (int j = 0; j < 20; j++) {
                synchronized (queue) {
                    if (i % 2 == 0) {
                        while (queue.size() >= 8) queue.wait();
                        queue.add(j);
                    } else {
                        while (queue.isEmpty()) queue.wait();
                        taken.addAndGet(queue.remove());
                    }
                    queue.notifyAll();
                }
            }
        });
        // a wait that nobody ends, and one that is interrupted
        AtomicInteger timeouts = new AtomicInteger(), interrupts = new AtomicInteger();
        Thread[] waiters = new Thread[n / 4];
        CountDownLatch waiting = new CountDownLatch(waiters.length);
        for (int i = 0; i < waiters.length; i++) {
            Object mine = new Object();
            waiters[i] = new Thread(() -> {
                try {
                    synchronized (mine) {
                        mine.wait(20);
                        timeouts.incrementAndGet();
                        waiting.countDown();
                        mine.wait();
                    }
                } catch (InterruptedException e) {
                    interrupts.incrementAndGet();
                }
            });
            waiters[i].start();
        }
        waiting.await();
        for (Thread waiter : waiters) waiter.interrupt();
        for (Thread waiter : waiters) waiter.join();
        System.out.println("notifying: " + taken + " " + timeouts + " " + interrupts);
    }

    static void concurrent(int n) throws Exception {
        Semaphore few = new Semaphore(10);
        AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger();
        CyclicBarrier barrier = new CyclicBarrier(n);
        AtomicInteger turns = new AtomicInteger();
        threads(n, i -> {
            few.acquire();
            most.accumulateAndGet(inside.incrementAndGet(), Math::max);
            Thread.sleep(0, 200_000);
            inside.decrementAndGet();
            few.release();
            for (int j = 0; j < 3; j++) {
                barrier.await();
                turns.incrementAndGet();
            }
        });
        check(most.get() <= 10, "more than 10 inside");

        ExecutorService pool = Executors.newFixedThreadPool(n / 2);
        List<Callable<Integer>> jobs = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            int number = i;
            jobs.add(() -> {
                LockSupport.parkNanos(2_000_000);
                return number;
            });
        }
        long sum = 0;
        for (Future<Integer> result : pool.invokeAll(jobs)) sum += result.get();
        pool.shutdown();
        check(pool.awaitTermination(60, TimeUnit.SECONDS), "the pool does not end");

        ArrayBlockingQueue<Integer> ring = new ArrayBlockingQueue<>(4);
        AtomicLong got = new AtomicLong();
        threads(n, i -> {
            if (i % 2 == 0) ring.put(i);
            else got.addAndGet(ring.take());
        });
        CompletableFuture<Integer> chain = CompletableFuture.supplyAsync(() -> 1);
        for (int i = 0; i < 100; i++) chain = chain.thenApplyAsync(x -> x + 1);

        ReentrantLock lock = new ReentrantLock();
        Condition turn = lock.newCondition();
        int[] next = {0};
        threads(100, i -> { // one after the other, by a condition
            lock.lock();
            try {
                while (next[0] != i) turn.await();
                next[0]++;
                turn.signalAll();
            } finally {
                lock.unlock();
            }
        });
        System.out.println("concurrent: " + turns + " " + sum + " " + got + " " + chain.get() + " " + next[0]);
    }

    // Answers each number, some milliseconds later, with its double: one thread for each connection.
    static void sockets(int n) throws Exception {
        AtomicInteger answers = new AtomicInteger();
        try (ServerSocket server = new ServerSocket(0, 4000, InetAddress.getLoopbackAddress())) {
            Thread acceptor = new Thread(() -> {
                try {
                    for (;;) {
                        Socket connection = server.accept();
                        new Thread(() -> {
                            try (connection) {
                                var in = new DataInputStream(connection.getInputStream());
                                var out = new DataOutputStream(connection.getOutputStream());
                                for (int number; (number = in.readInt()) >= 0;) {
                                    Thread.sleep(5);
                                    out.writeInt(number * 2);
                                }
                            } catch (IOException | InterruptedException e) {
                                check(false, "server: " + e);
                            }
                        }).start();
                    }
                } catch (IOException e) {
                    // closed
                }
            });
            acceptor.start();
            threads(n, i -> {
                try (Socket connection = new Socket(server.getInetAddress(), server.getLocalPort())) {
                    connection.setSoTimeout(60_000);
                    var in = new DataInputStream(connection.getInputStream());
                    var out = new DataOutputStream(connection.getOutputStream());
                    for (int j = 0; j < 10; j++) {
                        out.writeInt(i * 10 + j);
                        if (in.readInt() == (i * 10 + j) * 2) answers.incrementAndGet();
                    }
                    if (i % 10 == 0) {
                        connection.setSoTimeout(20);
                        try {
                            in.readInt();
                            check(false, "an answer without a question");
                        } catch (SocketTimeoutException e) {
                            // as it must be
                        }
                    }
                    out.writeInt(-1);
                }
            });
            server.close();
            acceptor.join(); // a close ends the accept
        }
        System.out.println("sockets: " + answers);
    }

    public static void main(String[] arguments) throws Exception {
        int n = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 1000;
        sleeping(n);
        locking(Math.min(n, 500));
        notifying(Math.min(n, 400));
        concurrent(Math.min(n, 1000));
        sockets(Math.min(n, 1000));
        for (int i = 0; i < 3; i++) System.gc(); // a safepoint stops all threads
        System.out.println("wrong: " + wrong);
        System.exit(wrong.get() == 0 ? 0 : 1);
    }
}
