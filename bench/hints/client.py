#!/usr/bin/env python3
"""An open-loop client of an HTTP service: requests come at random moments of a fixed seed, whether or not those before are
answered. It looks all the time, so its own times are exact.

    client.py PORT SECONDS MEAN_MS [SEED]

Prints one line of JSON: for each request microseconds from when it was due ("client") and what the answer's headers say.
"""
import json
import random
import selectors
import socket
import sys
import time

WORDS = [f"word{i % 97}" for i in range(900)]


def request():
    body = json.dumps({"text": " ".join(WORDS)}).encode()
    return b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def header(answer, name):
    return float(answer.split(name + b": ")[1].split(b"\r\n")[0])


class Client:
    def __init__(self, port):
        self.port = port
        self.selector = selectors.DefaultSelector()
        self.free = []
        self.due = {}  # by connection: when its request was due
        self.partial = {}
        self.results = {"client": [], "own": [], "gpu": [], "lead": []}

    def connection(self):
        if self.free:
            return self.free.pop()
        made = socket.create_connection(("127.0.0.1", self.port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        self.selector.register(made, selectors.EVENT_READ)
        return made

    def send(self, due, words):
        connection = self.connection()
        self.due[connection], self.partial[connection] = due, b""
        connection.send(words)

    def look(self):
        for key, _ in self.selector.select(0):
            connection = key.fileobj
            more = connection.recv(65536)
            if not more:
                raise SystemExit("client.py: the service has hung up")
            self.partial[connection] += more
            if not self.partial[connection].endswith(b"\r\n\r\nOK"):
                continue
            now = time.perf_counter()
            answer = self.partial.pop(connection)
            self.results["client"].append(round((now - self.due.pop(connection)) * 1e6, 1))
            for name, of in ((b"X-Own-Us", "own"), (b"X-Gpu-Us", "gpu"), (b"X-Lead-Us", "lead")):
                self.results[of].append(header(answer, name))
            self.free.append(connection)

    def run(self, seconds, mean_s, seed):
        gaps = random.Random(seed)
        words = request()
        began = time.perf_counter()
        due = began + 0.05
        while due < began + seconds:
            while time.perf_counter() < due:
                self.look()
            self.send(due, words)
            due += gaps.expovariate(1 / mean_s)
        limit = time.perf_counter() + 5
        while self.due and time.perf_counter() < limit:
            self.look()


if __name__ == "__main__":
    client = Client(int(sys.argv[1]))
    client.run(float(sys.argv[2]), float(sys.argv[3]) / 1000, int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    print(json.dumps({**client.results, "unanswered": len(client.due)}))
