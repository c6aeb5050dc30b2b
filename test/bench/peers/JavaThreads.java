// The benchmark programs with Java threads, virtual or platform.
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

public class JavaThreads {
    static boolean virtual;
    static int counter, turn;

    static Thread start(Runnable body) {
        return virtual ? Thread.ofVirtual().start(body) : Thread.ofPlatform().start(body);
    }

    static String peakRss() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status")))
            if (line.startsWith("VmHWM:"))
                return line.replaceAll("\\D", "");
        return "-1";
    }

    static void report(String format, Object... args) throws IOException {
        System.err.printf(format + " kind=%s peak_rss_kb=%s%n", join(args, virtual ? "virtual" : "platform", peakRss()));
    }

    static Object[] join(Object[] args, Object... more) {
        Object[] all = java.util.Arrays.copyOf(args, args.length + more.length);
        System.arraycopy(more, 0, all, args.length, more.length);
        return all;
    }

    static double since(long start) {
        return (System.nanoTime() - start) * 1e-9;
    }

    static void sleepers(int n, int delay, boolean quiet) throws Exception {
        Thread[] threads = new Thread[n];
        long start = System.nanoTime();
        for (int i = 0; i < n; i++)
            threads[i] = start(() -> {
                try {
                    Thread.sleep(delay);
                } catch (InterruptedException e) {
                    throw new RuntimeException(e);
                }
                if (!quiet)
                    System.out.print('.');
            });
        double created = since(start);
        for (Thread thread : threads)
            thread.join();
        double t = since(start);
        System.out.flush();
        report("sleepers n=%d delay_ms=%d seconds=%.4f create_s=%.4f ops_s=%.0f", n, delay, t, created, n / t);
    }

    static void createJoin(int m, int batch) throws Exception {
        Thread[] threads = new Thread[batch];
        long start = System.nanoTime();
        for (int left = m; left > 0; left -= batch) {
            for (int i = 0; i < batch; i++)
                threads[i] = start(() -> { });
            for (int i = 0; i < batch; i++)
                threads[i].join();
        }
        double t = since(start);
        report("createjoin m=%d batch=%d seconds=%.4f ops_s=%.0f us_each=%.3f", m, batch, t, m / t, t * 1e6 / m);
    }

    static void byCond(int me, int m, ReentrantLock lock, Condition[] wake) {
        for (int i = 0; i < m; i++) {
            lock.lock();
            while (turn != me)
                wake[me].awaitUninterruptibly();
            turn = 1 - me;
            wake[1 - me].signal();
            lock.unlock();
        }
    }

    static void byPipe(int me, int m, Pipe[] pipes) {
        ByteBuffer buf = ByteBuffer.allocateDirect(1);
        try {
            for (int i = 0; i < m; i++) {
                if (me == 1)
                    pipes[0].source().read(buf.clear());
                pipes[me].sink().write(buf.clear());
                if (me == 0)
                    pipes[1].source().read(buf.clear());
            }
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    static void byYield(int me, int m, AtomicInteger token) {
        for (int i = 0; i < m; i++) {
            while (token.get() != me)
                Thread.yield();
            token.set(1 - me);
        }
    }

    static void pingPong(String way, int m) throws Exception {
        ReentrantLock lock = new ReentrantLock();
        Condition[] wake = {lock.newCondition(), lock.newCondition()};
        Pipe[] pipes = {Pipe.open(), Pipe.open()};
        AtomicInteger token = new AtomicInteger();
        Thread[] both = new Thread[2];
        long start = System.nanoTime();
        for (int i = 0; i < 2; i++) {
            int me = i;
            both[i] = start(() -> {
                switch (way) {
                    case "cond" -> byCond(me, m, lock, wake);
                    case "pipe" -> byPipe(me, m, pipes);
                    default -> byYield(me, m, token);
                }
            });
        }
        for (Thread thread : both)
            thread.join();
        double t = since(start);
        report("pingpong by=%s m=%d seconds=%.4f ops_s=%.0f ns_round=%.1f", way, m, t, m / t, t * 1e9 / m);
    }

    static void mutexBench(int n, int m) throws Exception {
        ReentrantLock lock = new ReentrantLock();
        CountDownLatch gate = new CountDownLatch(1);
        Thread[] threads = new Thread[n];
        for (int i = 0; i < n; i++)
            threads[i] = start(() -> {
                try {
                    gate.await();
                } catch (InterruptedException e) {
                    throw new RuntimeException(e);
                }
                for (int k = 0; k < m; k++) {
                    lock.lock();
                    counter++;
                    lock.unlock();
                }
            });
        long start = System.nanoTime();
        gate.countDown();
        for (Thread thread : threads)
            thread.join();
        double t = since(start);
        report("mutexbench threads=%d m=%d seconds=%.4f ops_s=%.0f ns_op=%.1f", n, m, t, counter / t, t * 1e9 / counter);
    }

    static void serve(Socket socket, int delay) {
        byte[] buf = new byte[4096];
        try (socket) {
            socket.setTcpNoDelay(true);
            var in = socket.getInputStream();
            var out = socket.getOutputStream();
            for (int n; (n = in.read(buf)) > 0;) {
                if (delay > 0)
                    Thread.sleep(delay);
                out.write(buf, 0, n);
            }
        } catch (IOException | InterruptedException e) {
            // the peer is gone: so is this thread
        }
    }

    static void echo(int port, int delay) throws Exception {
        try (ServerSocket listener = new ServerSocket(port, 4096, InetAddress.getByName("127.0.0.1"))) {
            for (;;) {
                Socket socket = listener.accept();
                start(() -> serve(socket, delay));
            }
        }
    }

    static int number(String[] args, int i, int otherwise) {
        return args.length > i ? Integer.parseInt(args[i]) : otherwise;
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            System.err.println("usage: JavaThreads virtual|platform sleepers|createjoin|pingpong|mutexbench|echo ARGS");
            System.exit(2);
        }
        virtual = args[0].equals("virtual");
        switch (args[1]) {
            case "sleepers" -> sleepers(number(args, 2, 0), number(args, 3, 0), args.length > 4);
            case "createjoin" -> createJoin(number(args, 2, 0), number(args, 3, 1));
            case "pingpong" -> pingPong(args[2], number(args, 3, 0));
            case "mutexbench" -> mutexBench(number(args, 2, 0), number(args, 3, 0));
            case "echo" -> echo(number(args, 2, 0), number(args, 3, 0));
            default -> System.exit(2);
        }
    }
}
