"""A server that answers each GET after a time: http_delay.py PORT SECONDS"""
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        time.sleep(float(sys.argv[2]))
        body = f"you asked for {self.path}\n".encode() * 20
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1000


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
