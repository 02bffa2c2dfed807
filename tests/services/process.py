"""What all servers have in common: a folder, ports, a start that waits for an answer, and an end by process id."""
import atexit
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from .pids import Pid, listeners

# Below the range from which the kernel takes ports for outgoing connections: one of those could sit on a
# server's port while that server is down.
PORTS = range(15000, 32000)
PORT_TRIES = 8


class ServiceError(Exception):
    """A server did not do what was asked of it; the text has the end of its log."""


class Missing(ServiceError):
    """A program is not there; the text says which package brings it."""


class _PortTaken(Exception):
    """Somebody else got there first."""


# ---------------------------------------------------------------- nothing is left behind

class _Guard:
    """This test process' guard (see pids.guard), started with the first thing that it has to know."""

    def __init__(self):
        self.lock = threading.Lock()  # a test may start its servers from several threads at once
        self.process = None           # guarded by lock

    def tell(self, *words):
        with self.lock:
            if self.process is None:
                self.process = subprocess.Popen(
                    [sys.executable, "-IS", str(pathlib.Path(__file__).with_name("pids.py"))], text=True, cwd="/",
                    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            print(*words, file=self.process.stdin, flush=True)

    def end(self):
        with self.lock:
            if self.process:
                self.process.stdin.close()
                self.process.wait()
                self.process = None


_owner = os.getpid()  # a forked child of the test owns nothing
_guard = _Guard()
_running = []
_folders = set()


@atexit.register
def stop_all():
    """Stops all servers that this process has started, the latest first, and removes its own folders."""
    if os.getpid() != _owner:
        return
    for one in reversed(_running[:]):
        try:
            one.close()
        except ServiceError as error:  # the next one must end as well
            print(f"services: {error}", file=sys.stderr)
    for folder in list(_folders):
        remove_folder(folder)
    _guard.end()


def leave_running():
    """Nothing that has been started so far is stopped as this process ends."""
    for one in _running:
        _guard.tell("-", one.pid.pid, one.pid.start)
    _running.clear()
    _guard.end()


def scratch():
    """A new folder that is gone when this process is."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="doorbuster-services-"))
    # PostgreSQL runs as somebody else, who has to get through.
    folder.chmod(0o711)
    _folders.add(folder)
    _guard.tell("+", folder)
    return folder


def remove_folder(folder):
    shutil.rmtree(folder, ignore_errors=True)
    if folder in _folders:
        _folders.remove(folder)
        _guard.tell("-", folder)


# ---------------------------------------------------------------- ports

def port_taken(port):
    with socket.socket() as s:
        # As servers do it: what is left of a closed connection is no obstacle, a listener is.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
            s.listen(1)
        except OSError:
            return True
    return False


class Port:
    """A port that no other test on this machine takes, also while its server is down.

    The name that is held here is of the kind that leaves no file and ends with this process.
    """

    def __init__(self, wish=None):
        for number in ([wish] if wish else []) + random.sample(PORTS, 200):
            self.held = socket.socket(socket.AF_UNIX)
            try:
                self.held.bind(f"\0doorbuster-test-port-{number}")
            except OSError:
                self.held.close()
                continue
            if not port_taken(number):
                self.number = number
                return
            self.held.close()
        raise ServiceError("no free port was found in 200 tries")

    def give_back(self):
        self.held.close()


# ---------------------------------------------------------------- a server

def wait_until(what, seconds, every=0.02):
    """The first true value of what(), or False when none came in time. A connection that fails is "not yet"."""
    end = time.monotonic() + seconds
    while True:
        try:
            if value := what():
                return value
        except OSError:
            pass
        if time.monotonic() > end:
            return False
        time.sleep(every)


def find(program, package, *folders):
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(str(program), path=path)
    if not found:
        raise Missing(f"{program} is not there; package {package} brings it")
    return found


def end_of(path, characters=3000):
    try:
        return path.read_text(errors="replace")[-characters:]
    except OSError as error:
        return f"(no log: {error})"


class Process:
    """One real server on 127.0.0.1.

    `folder` holds its data, its log and its pid file; without one it gets a folder that goes with it. `port` is a
    wish: when it is taken, another one is used, so read `port` afterwards. `program` replaces the server's program.
    A server that is made is ready, or the constructor raises a ServiceError.

    Whoever derives from this says how it is started (command), how it is set up (configure, which may be called
    again with other ports), and what proves that it answers (answers).
    """
    name = "server"
    port_names = ("port",)       # attributes, one for each port that it listens on
    stop_signal = signal.SIGTERM
    end_signal = signal.SIGKILL  # what the guard uses, and what a quick end needs
    start_seconds = 60
    stop_seconds = 30
    user = None                  # the account that it runs under, when not this one
    environment = {}

    def __init__(self, folder=None, *, port=None, program=None, name=None):
        self.name = name or self.name
        self.own_folder = folder is None
        self.folder = (scratch() if folder is None else pathlib.Path(folder)).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log"
        self.program = program
        self.pid = None
        self.popen = None
        self._held = {}
        try:
            self._first_start(port)
        except BaseException:
            self.close()
            raise

    def command(self):
        raise NotImplementedError

    def configure(self):
        """Before the first start."""

    def answers(self):
        raise NotImplementedError

    def started(self):
        """After the first start: what has to be made inside of it."""

    # ---- starting

    def _first_start(self, wish):
        for _ in range(PORT_TRIES):
            for attribute in self.port_names:
                self._held[attribute] = Port(wish if attribute == "port" else None)
                setattr(self, attribute, self._held[attribute].number)
            self.configure()
            try:
                self._start()
                return self.started()
            except _PortTaken:
                wish = None
                self._give_ports_back()
        raise ServiceError(f"{self.name}: its ports were taken {PORT_TRIES} times in a row\n{end_of(self.log)}")

    def _start(self):
        command = [str(word) for word in self.command()]
        # Settings of the person who tests (PGPORT, JAVA_TOOL_OPTIONS) are not meant for a test's servers.
        environment = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "JAVA_HOME") if key in os.environ}
        with open(self.log, "ab") as out:
            try:
                self.popen = subprocess.Popen(
                    command, executable=getattr(self, "executable", None), stdin=subprocess.DEVNULL, stdout=out,
                    stderr=out, cwd=self.folder, env=environment | {"LC_ALL": "C.UTF-8"} | self.environment,
                    # Ctrl-C is for the test, which then stops its servers one by one.
                    start_new_session=True, **(as_user(self.user) if self.user else {}))
            except OSError as error:
                raise Missing(f"{self.name}: {command[0]} cannot be started: {error}") from None
        self.pid = Pid.of(self.popen.pid)
        _guard.tell("+", self.pid.pid, self.pid.start, int(self.end_signal))
        (self.folder / "pid").write_text(f"{self.pid.pid} {self.pid.start} {int(self.stop_signal)}\n")
        _running.append(self)
        self.wait_ready()

    def wait_ready(self, seconds=None):
        """Returns when it answers. Only itself counts: another server may sit on a port that it failed to get."""
        wanted = {getattr(self, attribute) for attribute in self.port_names}

        def settled():
            if not self.alive():
                return "ended"
            if wanted <= self.pid.ports():
                return "ready" if self.answers() else None
            # Not every program ends when it does not get its port. (Its own ports are read last: they were
            # among all of them, or came later.)
            taken = wanted & {port for port, _ in listeners()}
            return "taken" if taken - self.pid.ports() and self.alive() else None

        seconds = seconds or self.start_seconds
        how = wait_until(settled, seconds)
        if how == "ready":
            return
        code = self.popen.returncode if self.popen else None
        self.kill()
        if how == "taken" or any(port_taken(port) for port in wanted):
            raise _PortTaken
        raise ServiceError(f"{self.name}: {self.program} "
                           + (f"ended with {code} before it answered" if how else f"did not answer in {seconds} s")
                           + f"\n{end_of(self.log)}")

    def restart(self):
        """With the same data and on the same ports; it is stopped first when it is alive."""
        self.stop()
        try:
            self._start()
        except _PortTaken:
            raise ServiceError(f"{self.name}: somebody else has taken its port meanwhile\n{end_of(self.log)}") from None
        return self

    # ---- ending

    def alive(self):
        if self.popen:
            self.popen.poll()  # takes its exit code, so that no zombie stays
        return self.pid is not None and self.pid.alive()

    def kill(self):
        """kill -9, with all its children."""
        if self.pid:
            self.pid.kill()
        self._forget()

    def stop(self):
        """Asks it to end, and waits. One that does not is killed, and that is an error."""
        if self.alive():
            self.pid.thaw()
            self.pid.signal(self.stop_signal)
            if not wait_until(lambda: not self.alive(), self.stop_seconds):
                self.kill()
                raise ServiceError(f"{self.name} did not end in {self.stop_seconds} s\n{end_of(self.log)}")
        self._forget()

    def pause(self):
        """SIGSTOP: it holds its connections and says nothing."""
        self.pid.freeze()

    def resume(self):
        self.pid.thaw()

    def _forget(self):
        if self.popen:
            self.popen.wait()
        if self.pid and self in _running:
            _running.remove(self)
            _guard.tell("-", self.pid.pid, self.pid.start)
        (self.folder / "pid").unlink(missing_ok=True)

    def _give_ports_back(self):
        for port in self._held.values():
            port.give_back()
        self._held.clear()

    def close(self, keep=False):
        """Ends it for good. Its own folder goes as well, unless it is kept to be looked at."""
        thrown_away = self.own_folder and not keep
        try:
            # Data that nobody will read need no orderly end, which takes seconds.
            if thrown_away:
                self.kill()
            else:
                self.stop()
        finally:
            self._give_ports_back()
            if thrown_away:
                remove_folder(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- what people and programs read

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def describe(self):
        """What one needs to connect."""
        return {"address": self.address}

    def processes(self):
        return {self.name: self}


class Group:
    """Servers that are one service together."""

    def __init__(self, folder=None):
        self.own_folder = folder is None
        self.folder = (scratch() if folder is None else pathlib.Path(folder)).resolve()
        self.members = []

    def add(self, make):
        self.members.append(make())
        return self.members[-1]

    def alive(self):
        return all(one.alive() for one in self.members)

    def kill(self):
        for one in self.members:
            one.kill()

    def stop(self):
        for one in reversed(self.members):
            one.stop()

    def close(self, keep=False):
        for one in reversed(self.members):
            one.close()
        if self.own_folder and not keep:
            remove_folder(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def processes(self):
        return {one.name: one for one in self.members}


def as_user(name):
    """How subprocess starts something as another user; that user's groups, and nobody else's."""
    import pwd
    entry = pwd.getpwnam(name)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": os.getgrouplist(name, entry.pw_gid)}


def run(command, timeout=120, **more):
    """A tool that ends by itself; what it said. Its failure is ours."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=timeout, **more)
    if done.returncode != 0:
        raise ServiceError(f"{command[0]} ended with {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout
