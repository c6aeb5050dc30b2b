"""Python's servers with a thread for each request, and concurrent.futures, which asks them; prints what came out."""
import concurrent.futures
import http.client
import http.server
import queue
import socket
import socketserver
import sys
import threading
import time

CLIENTS = int(sys.argv[1])


class Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.01)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[::-1])

    def log_message(self, *arguments):
        pass


class Lines(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            time.sleep(0.002)
            self.wfile.write(line.upper())


class Datagrams(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        time.sleep(0.002)
        sock.sendto(data * 2, self.client_address)


class HttpServer(http.server.ThreadingHTTPServer):
    request_queue_size = 4000


class TcpServer(socketserver.ThreadingTCPServer):
    request_queue_size = 4000
    daemon_threads = True


class UdpServer(socketserver.ThreadingUDPServer):
    daemon_threads = True


def ask_http(address, number):
    right = 0
    connection = http.client.HTTPConnection(*address, timeout=60)
    for i in range(10):
        body = f"{number}.{i}.".encode() * (1 + number * 37 % 3000)
        connection.request("POST", "/", body)
        right += connection.getresponse().read() == body[::-1]
    connection.close()
    return right


def ask_lines(address, number):
    right = 0
    with socket.create_connection(address, timeout=60) as sock, sock.makefile("rwb") as file:
        for i in range(10):
            file.write(b"line %d of %d\n" % (i, number))
            file.flush()
            right += file.readline() == b"LINE %d OF %d\n" % (i, number)
    return right


def ask_datagram(address, number):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.connect(address)
        for _ in range(30):  # they may be lost
            sock.send(b"%d " % number)
            try:
                return sock.recv(100) == b"%d %d " % (number, number)
            except TimeoutError:
                pass
    return False


for server_class, handler, ask in ((HttpServer, Http, ask_http), (TcpServer, Lines, ask_lines), (UdpServer, Datagrams, ask_datagram)):
    with server_class(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            jobs = [pool.submit(ask, server.server_address, i) for i in range(CLIENTS)]
            print(server_class.__name__, sum(job.result() for job in concurrent.futures.as_completed(jobs)))
        server.shutdown()
        thread.join()

with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print("map", sum(pool.map(lambda x: (time.sleep(0.001), x)[1], range(500))))
    gate = threading.Event()
    first, late = pool.submit(lambda: 1), pool.submit(gate.wait)
    done, _ = concurrent.futures.wait([first, late], return_when=concurrent.futures.FIRST_COMPLETED)
    print("wait", first in done, late in done)
    try:
        late.result(0.01)
    except concurrent.futures.TimeoutError:
        print("time-out")
    gate.set()
with concurrent.futures.ProcessPoolExecutor(2) as processes, concurrent.futures.ThreadPoolExecutor(8) as pool:
    print("processes", sum(pool.map(lambda x: processes.submit(pow, x, 2).result(), range(100))))
passed = queue.Queue(5)
producers = [threading.Thread(target=lambda: [passed.put(i) for i in range(50)]) for _ in range(10)]
for thread in producers:
    thread.start()
print("queue", sum(passed.get() for _ in range(500)))
for thread in producers:
    thread.join()
