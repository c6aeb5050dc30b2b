# Ruby's threads (one kernel thread each; a timer takes turns): Thread, Mutex, Monitor, ConditionVariable, Queue,
# SizedQueue, Timeout, Thread#raise and #kill, sockets, Net::HTTP, children. Prints what came out, which is the same in
# every run.
require "net/http"
require "socket"
require "timeout"
require "monitor"

n = (ARGV[0] || 100).to_i
$wrong = Queue.new
def check(right, what)
  $wrong << what unless right
end

# values, errors, thread-local data
threads = (1..n).map { |i| Thread.new(i) { |x| Thread.current[:mine] = x; sleep 0.01; Thread.current[:mine] * 2 } }
puts "values: #{threads.sum(&:value)}"
failing = Thread.new { Thread.current.report_on_exception = false; raise ArgumentError, "as it should" }
begin
  failing.join
  check(false, "no error")
rescue ArgumentError => e
  check(e.message == "as it should", "another error")
end

# a lock, its condition, time-outs
turn, mutex, condition = 0, Mutex.new, ConditionVariable.new
ring = [n, 100].min # each turn wakes all of them
(0...ring).map do |i|
  Thread.new do
    5.times do |round|
      mutex.synchronize do
        condition.wait(mutex) until turn == round * ring + i
        turn += 1
        condition.broadcast
      end
    end
  end
end.each(&:join)
before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
mutex.synchronize { condition.wait(mutex, 0.05) }
check(Process.clock_gettime(Process::CLOCK_MONOTONIC) - before >= 0.049, "a wait too short")
puts "turns: #{turn}"

# no update is lost while threads take turns in the middle of computing
counter, monitor = 0, Monitor.new
8.times.map do
  Thread.new { 2000.times { monitor.synchronize { monitor.synchronize { counter += 1 } } } }
end.each(&:join)
sums = 4.times.map { Thread.new { (1..200_000).sum { |x| x % 7 } } }.map(&:value)
puts "counter: #{counter} #{sums.uniq}"

# queues
work, results = SizedQueue.new(10), Queue.new
workers = n.times.map do
  Thread.new do
    while (job = work.pop)
      sleep 0.001 if job % 16 == 0
      results << job * 2
    end
  end
end
1000.times { |i| work << i }
work.close
workers.each(&:join)
puts "jobs: #{results.size} #{Array.new(results.size) { results.pop }.sum}"

# interruption of what waits: Timeout, raise, kill
out = 20.times.map do
  Thread.new do
    Timeout.timeout(0.05) { sleep }
  rescue Timeout::Error
    :timeout
  end
end.map(&:value)
reader, writer = IO.pipe
blocked = [
  Thread.new { sleep }, Thread.new { Queue.new.pop }, Thread.new { reader.read(1) },
  Thread.new { IO.select([reader]) }, Thread.new { Mutex.new.tap { |m| m.lock; ConditionVariable.new.wait(m) } }
]
Thread.pass until blocked.all? { |t| t.status == "sleep" }
ensured = Queue.new
killed = 20.times.map { Thread.new { begin sleep ensure ensured << 1 end } }
Thread.pass until killed.all? { |t| t.status == "sleep" }
(blocked + killed).each(&:kill).each(&:join)
raised = 20.times.map do
  Thread.new { sleep rescue $!.message }
end
Thread.pass until raised.all? { |t| t.status == "sleep" }
raised.each { |t| t.raise("stop") }
puts "interrupted: #{out.uniq} #{ensured.size} #{raised.map(&:value).uniq}"
writer.close

# a signal, handled by the main thread while others wait
trapped = Queue.new
trap("USR1") { Thread.new { trapped << 1 } }
Process.kill("USR1", Process.pid)
trapped.pop

# a server with a thread for each connection, and Net::HTTP
server = TCPServer.new("127.0.0.1", 0)
port = server.addr[1]
acceptor = Thread.new do
  loop do
    Thread.new(server.accept) do |connection|
      while (line = connection.gets)
        path = line.split[1]
        nil until connection.gets == "\r\n"
        sleep 0.005
        body = "you asked for #{path}" * (path.size * 50)
        connection.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.size}\r\n\r\n#{body}")
      end
      connection.close
    end
  end
rescue IOError
  :closed
end
right = n.times.map do |i|
  Thread.new do
    Net::HTTP.start("127.0.0.1", port) do |http|
      (1..5).count { |j| path = "/#{i}/#{j}"; http.get(path).body == "you asked for #{path}" * (path.size * 50) }
    end
  end
end.sum(&:value)
refused = begin
  Net::HTTP.get(URI("http://127.0.0.1:1/"))
rescue Errno::ECONNREFUSED
  :refused
end
server.close
puts "answers: #{right} #{refused} #{acceptor.value}"

# children: of threads, and a fork with threads in both
outputs = 10.times.map { |i| Thread.new { `echo #{i}`.to_i + $?.exitstatus } }.sum(&:value)
pid = fork do
  exit!(10.times.map { |i| Thread.new { sleep 0.01; i } }.sum(&:value))
end
Process.wait(pid)
puts "children: #{outputs} #{$?.exitstatus}"

puts "wrong: #{$wrong.size}"
puts $wrong.pop until $wrong.empty?
