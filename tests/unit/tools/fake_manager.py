"""A node manager as plexrl-run sees it: shim/wire.h's job messages over SOCK_SEQPACKET, scripted by the test.

As a module: FakeManager runs in a thread of the test. As a program it stands for plexrl-nodemgr: it takes its flags,
admits every job, appends a line for each start and each message to $FAKE_MANAGER_LOG, and ends with its last job.
"""

import os
import queue
import socket
import struct
import sys
import threading

MAGIC, VERSION = 0x31785250, 1
ERROR, SUBMIT, ADMITTED, QUEUED, REFUSED, RESUME, JOIN, PARENT = 1, *range(0x100, 0x107)
EXITING = 0x20d
HEADER = struct.Struct("<IHHIIQ")
JOB_SUBMIT = struct.Struct("<Q64s64siIQQdQ")
JOB_ADMITTED = struct.Struct("<QQQQQQII")
JOB_NOTICE = struct.Struct("<QQ496s")
ERROR_BODY = struct.Struct("<II496s")
ID = struct.Struct("<QQQQ")
PARENT_BODY = struct.Struct("<QQ")

JOB_ID = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
SECRET = (0x1111111111111111, 0x2222222222222222)
JOB_ID_TEXT = "0123456789abcdeffedcba9876543210"
SECRET_TEXT = "11111111111111112222222222222222"
PROMISED = 512 << 20


def packet(kind, body):
    return HEADER.pack(MAGIC, VERSION, kind, len(body), 0, 1) + body


def admitted(simulated=0):
    return packet(ADMITTED, JOB_ADMITTED.pack(*JOB_ID, *SECRET, PROMISED, 1, simulated, 0))


def notice(kind, text):
    return packet(kind, JOB_NOTICE.pack(1 << 30, 1 << 20, text.encode()))


def error(text):
    return packet(ERROR, ERROR_BODY.pack(1, 0, text.encode()))


def parse(data):
    """(kind, dictionary of what the job asked for)"""
    magic, version, kind, size, _, _ = HEADER.unpack_from(data)
    assert magic == MAGIC and version == VERSION and size == len(data) - HEADER.size, data
    body = data[HEADER.size:]
    asked = {}
    if kind == EXITING:
        assert not body, body
        return kind, asked
    if kind == PARENT:
        asked["job"] = PARENT_BODY.unpack(body)
        return kind, asked
    if kind in (RESUME, JOIN):
        asked["job"] = ID.unpack_from(body)[:2]
        asked["secret"] = ID.unpack_from(body)[2:]
        body = body[ID.size:]
    if kind == JOIN:
        assert not body, body
        return kind, asked
    assert len(body) == JOB_SUBMIT.size, len(body)
    _, name, team, priority, flags, memory, max_wait, slowdown, gpus = JOB_SUBMIT.unpack(body)
    asked.update(name=name.rstrip(b"\0").decode(), team=team.rstrip(b"\0").decode(), priority=priority, flags=flags,
                 memory=memory, max_wait=max_wait, slowdown=slowdown, gpus=gpus)
    return kind, asked


def admit_all(kind, asked):
    return [] if kind in (EXITING, PARENT) else [admitted()]


class FakeManager:
    """Listens at `path`. For each message it calls `answer(kind, asked)`, which returns the packets to send back.

    `messages` is a queue of (kind, asked); `hangups` gets an entry for each connection that the client closed.
    """

    def __init__(self, path, answer=admit_all):
        self.answer = answer
        self.messages = queue.Queue()
        self.hangups = queue.Queue()
        self.connections = []
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        self.listener.bind(path)
        self.listener.listen(16)
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            while True:
                data = connection.recv(8192)
                if not data:
                    break
                kind, asked = parse(data)
                for out in self.answer(kind, asked):
                    connection.send(out)
                self.messages.put((kind, asked))
        except OSError:
            pass
        self.hangups.put(True)

    def die(self):
        """As a killed manager: the socket's file stays, nobody listens, every connection ends."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:  # a second time
            return
        self.accepting.join()
        self.listener.close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()


def main():
    arguments = sys.argv[1:]
    path = arguments[arguments.index("--socket") + 1]
    ready_fd = int(arguments[arguments.index("--ready-fd") + 1])
    assert "--exit-when-idle" in arguments

    def log(line):
        with open(os.environ["FAKE_MANAGER_LOG"], "a") as file:
            file.write(line + "\n")

    if os.environ.get("FAKE_MANAGER_FAILS"):
        print("GPU-0 belongs to another manager (pid 7)", file=sys.stderr)
        sys.exit(1)
    stdin = os.readlink("/proc/self/fd/0")
    log(f"start pid={os.getpid()} leader={int(os.getsid(0) == os.getpid())} ppid={os.getppid()} sid={os.getsid(0)} "
        f"stdin={stdin} stdout={os.readlink('/proc/self/fd/1')} secret={os.environ.get('PLEXRL_JOB_SECRET')} "
        f"preload={os.environ.get('LD_PRELOAD')} library_path={os.environ.get('LD_LIBRARY_PATH')}")

    def answer(kind, asked):
        log(f"message {kind:#x} {asked.get('name')}")
        return admit_all(kind, asked)

    manager = FakeManager(path, answer)
    os.write(ready_fd, b"ready\n")
    os.close(ready_fd)
    ended = 0
    while True:
        manager.hangups.get()
        ended += 1
        if ended == len(manager.connections):
            log("idle")
            os.unlink(path)
            return


if __name__ == "__main__":
    main()
