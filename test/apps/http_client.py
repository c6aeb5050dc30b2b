"""HTTP clients that check each answer.

http_client.py [--tls] [--close] [--proxy HOST:PORT] [--connect HOST:PORT] BASE FOLDER CONNECTIONS REQUESTS

Each of CONNECTIONS connections asks REQUESTS times for one of the files in FOLDER at BASE (http://host:port/path) and
compares the body with the file. --close makes a connection for each request, --proxy asks a proxy for the whole URL, --connect goes
there and not to the URL's host. A connection that the server closes between two requests is made again, as browsers do.
"""
import argparse
import asyncio
import os
import random
import ssl
import time
from urllib.parse import urlsplit

parser = argparse.ArgumentParser()
parser.add_argument("--tls", action="store_true")
parser.add_argument("--close", action="store_true")
parser.add_argument("--proxy")
parser.add_argument("--connect")
parser.add_argument("base")
parser.add_argument("folder")
parser.add_argument("connections", type=int)
parser.add_argument("requests", type=int)
options = parser.parse_args()
base = urlsplit(options.base)
files = {}
for name in sorted(os.listdir(options.folder)):
    with open(os.path.join(options.folder, name), "rb") as file:
        files[name] = file.read()
names = list(files)
where = (options.proxy or options.connect or base.netloc).split(":")
target = options.base if options.proxy else base.path.rstrip("/")
done = 0
tls = None
if options.tls:
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE


class Wrong(Exception):
    pass


async def body_of(reader, headers):
    if headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(parts)
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read()


async def ask(reader, writer, name):
    """The body, and whether the connection stays open."""
    connection = "close" if options.close else "keep-alive"
    writer.write(f"GET {target}/{name} HTTP/1.1\r\nHost: {base.netloc}\r\nConnection: {connection}\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    if head[0].split()[1] != "200":
        raise Wrong(f"{name}: {head[0]}")
    headers = {}
    for line in head[1:]:
        key, _, value = line.partition(":")
        headers[key.strip().lower()] = value.strip()
    body = await body_of(reader, headers)
    stays = "content-length" in headers or "transfer-encoding" in headers
    return body, stays and headers.get("connection", "").lower() != "close" and not options.close


async def client(number):
    global done
    rand = random.Random(number)
    connection = None
    for _ in range(options.requests):
        name = rand.choice(names)
        used = connection is not None
        try:
            if not used:
                connection = await asyncio.open_connection(*where, ssl=tls, limit=1 << 22)
            body, stays = await ask(*connection, name)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            if not used or getattr(error, "partial", b""):
                raise Wrong(f"{name}: {error!r}, connection {'kept' if used else 'new'}") from error
            connection = await asyncio.open_connection(*where, ssl=tls, limit=1 << 22)
            body, stays = await ask(*connection, name)
        if body != files[name]:
            at = next((i for i, (a, b) in enumerate(zip(body, files[name])) if a != b), min(len(body), len(files[name])))
            raise Wrong(f"{name}: {len(body)} bytes for {len(files[name])}, wrong from {at}: {body[at:at + 40]!r}")
        done += 1
        if not stays:
            connection[1].close()
            connection = None
    if connection:
        connection[1].close()


async def main():
    await asyncio.gather(*(client(i) for i in range(options.connections)))


start = time.monotonic()
asyncio.run(main())
took = time.monotonic() - start
print(f"{options.connections} connections, {done} requests, {done / took:.0f} a second, every byte right")
