"""A slow network: a program that passes connections on, with latency and a limit of bandwidth.

Each request waits for the latency, and so does a new connection: both are round trips. Answers
share the bandwidth. They go from socket to socket within the kernel, so that the proxy leaves the
processors to what is measured.
"""

import fcntl
import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress

PIECE = 2**18
F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)  # named from Python 3.10 on, on Linux
_METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")


class Network:
    """What the connections share.

    Attributes
    ----------
    latency
        Seconds that each request waits.
    bandwidth
        Bytes a second of all answers together; None: no limit.
    requests, bytes
        Requests and bytes of answers so far.
    """

    def __init__(self) -> None:
        self.latency = 0.0
        self.bandwidth: float | None = None
        self.requests = self.bytes = 0
        self._free = 0.0
        self._lock = threading.Lock()

    def count_request(self) -> None:
        """Count a request."""
        with self._lock:
            self.requests += 1

    def take(self, count: int) -> None:
        """Wait until so many bytes have gone through."""
        with self._lock:
            self.bytes += count
            if self.bandwidth is None:
                return
            self._free = max(self._free, time.monotonic()) + count / self.bandwidth
            pause = self._free - time.monotonic()
        time.sleep(max(pause, 0))


def send_requests(client: socket.socket, server: socket.socket, network: Network) -> None:
    """Pass on what a client sends, late."""
    with suppress(OSError):
        while data := client.recv(PIECE):
            if data.startswith(_METHODS):
                network.count_request()
                time.sleep(network.latency)
            server.sendall(data)
    with suppress(OSError):
        server.shutdown(socket.SHUT_WR)


def send_answers(server: socket.socket, client: socket.socket, network: Network) -> None:
    """Pass on what the server answers."""
    output, into = os.pipe()
    fcntl.fcntl(into, F_SETPIPE_SZ, PIECE)
    with suppress(OSError):
        while count := os.splice(server.fileno(), into, PIECE):
            network.take(count)
            while count:
                count -= os.splice(output, client.fileno(), count)
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
    os.close(output)
    os.close(into)


def serve(client: socket.socket, port: int, network: Network) -> None:
    """Pass one connection on."""
    time.sleep(network.latency)
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender = threading.Thread(target=send_requests, args=(client, server, network), daemon=True)
        sender.start()
        send_answers(server, client, network)
        sender.join()


def accept(listener: socket.socket, port: int, network: Network) -> None:
    """Pass all connections on."""
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, port, network), daemon=True).start()


def main(port: int) -> None:
    """Print the port, then answer each line of settings with what went through before."""
    network = Network()
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        print(listener.getsockname()[1], flush=True)
        threading.Thread(target=accept, args=(listener, port, network), daemon=True).start()
        for line in sys.stdin:
            settings = json.loads(line)
            print(json.dumps([network.requests, network.bytes]), flush=True)
            network.latency, network.bandwidth = settings


if __name__ == "__main__":
    main(int(sys.argv[1]))
