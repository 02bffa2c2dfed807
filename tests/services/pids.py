"""Processes by their id and nothing else. Run as a program it is the guard of a test process (see guard())."""
import os
import pathlib
import shutil
import signal
import sys
import time
from typing import NamedTuple


def _stat(pid):
    """State, parent and start of a process, or None."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in brackets may hold anything, so what counts begins behind the last bracket.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[19])


class Pid(NamedTuple):
    """An id is used again sooner or later; together with the start of its process it is not."""
    pid: int
    start: int

    @classmethod
    def of(cls, pid):
        found = _stat(pid)
        return cls(pid, found[2] if found else 0)

    def alive(self):
        """False for a zombie too: it holds no port and no file any more."""
        found = _stat(self.pid)
        return found is not None and found[0] not in "ZX" and found[2] == self.start

    def signal(self, number):
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            # The handle names one process for ever, so nothing can change between this look and the signal.
            if self.alive():
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)

    def family(self):
        """Itself and all below it, the oldest first."""
        parents = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (found := _stat(name)):
                parents.setdefault(found[1], []).append(Pid(int(name), found[2]))
        family = [self]
        for one in family:
            family += parents.get(one.pid, [])
        return family

    def freeze(self):
        """SIGSTOP to the whole family, parents first, so that none is born unseen; the family."""
        self.signal(signal.SIGSTOP)
        # A signal is delivered a little later than it is sent.
        end = time.monotonic() + 1
        while (found := _stat(self.pid)) and found[0] not in "TZX" and time.monotonic() < end:
            time.sleep(0.001)
        family = self.family()
        for one in family[1:]:
            one.signal(signal.SIGSTOP)
        return family

    def thaw(self):
        for one in reversed(self.family()):
            one.signal(signal.SIGCONT)

    def kill(self):
        """kill -9 of the whole family, as if the machine had gone. Returns when none of it is left."""
        family = self.freeze()
        for one in family:
            one.signal(signal.SIGKILL)
        while any(one.alive() for one in family):
            time.sleep(0.002)

    def ports(self):
        """The TCP ports on which this very process listens."""
        inodes = set()
        try:
            for name in os.listdir(f"/proc/{self.pid}/fd"):
                try:
                    inodes.add(os.readlink(f"/proc/{self.pid}/fd/{name}"))
                except OSError:
                    pass  # closed meanwhile
        except OSError:
            return set()
        return {port for port, inode in listeners() if f"socket:[{inode}]" in inodes}


def listeners():
    """(port, inode) of all TCP sockets on this machine that somebody listens on."""
    for table in map(pathlib.Path, ("/proc/net/tcp", "/proc/net/tcp6")):
        if table.exists():
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    yield int(fields[1].rpartition(":")[2], 16), fields[9]


def guard(lines, grace=3.0):
    """Reads what a test process starts and makes, and clears it away once that process is gone, however it ended.

    "+ PID START SIGNAL", "- PID START", "+ FOLDER", "- FOLDER". The test holds the other end of the pipe open; the
    kernel closes it even after kill -9, where neither atexit nor a handler of the test gets a chance. (A child's
    PR_SET_PDEATHSIG would be simpler, but comes as soon as the *thread* that started it ends, and is forgotten on a
    change of user.)
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    processes, folders = {}, {}
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if rest.startswith("/"):
            folders[rest] = word == "+"
            continue
        pid, start, *ending = map(int, rest.split())
        processes[Pid(pid, start)] = ending[0] if word == "+" else None
    left = [(one, ending) for one, ending in processes.items() if ending]
    for one, ending in left:
        one.thaw()
        one.signal(ending)
    end = time.monotonic() + grace
    while time.monotonic() < end and any(one.alive() for one, _ in left):
        time.sleep(0.02)
    for one, _ in left:
        one.kill()
    for folder, mine in folders.items():
        if mine:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(sys.stdin)
