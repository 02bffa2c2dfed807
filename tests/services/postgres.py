"""PostgreSQL with one database, `doorbuster`, that belongs to a role of the same name."""
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
from urllib.parse import quote

from .pids import Pid
from .process import Process, ServiceError, as_user, find, run

BIN = pathlib.Path("/usr/lib/postgresql/15/bin")


class Postgres(Process):
    """`fsync=False` is quicker and survives kill -9 of the server, but no test of durability may say so.

    With `tls` it takes nothing but TLS. `settings` go to the server as they are, {"max_connections": 20}.
    `password` belongs to both roles, `doorbuster` and the superuser `postgres`.
    """
    name = "postgres"
    stop_signal = signal.SIGINT   # fast: SIGTERM would wait until the last client goes
    end_signal = signal.SIGQUIT   # at once, and its shared memory goes with it

    def __init__(self, folder=None, *, fsync=True, tls=None, password=None, settings=None, **more):
        self.fsync = fsync
        self.tls = tls
        self.password = password
        self.settings = settings or {}
        super().__init__(folder, **more)

    @property
    def data(self):
        return self.folder / "data"

    def configure(self):
        # It refuses to run as root.
        self.user = "postgres" if os.geteuid() == 0 else None
        self.program = find(self.program or "postgres", "postgresql-15", BIN)
        self.password = self.password or self._old_password() or secrets.token_hex(12)
        # initdb takes it from a file only, which its own user must be able to read; the next `up` finds it there.
        self._write(self.folder / "password", self.password + "\n")
        if not (self.data / "PG_VERSION").exists():
            self._make_cluster()
        kind = "hostssl" if self.tls else "host"
        self._write(self.data / "pg_hba.conf", f"{kind} all all 127.0.0.1/32 scram-sha-256\n")
        if self.tls:
            self._write(self.data / "server.crt", self.tls.cert.read_text())
            self._write(self.data / "server.key", self.tls.key.read_text())

    def _old_password(self):
        secret = self.folder / "password"
        return secret.read_text().strip() if secret.exists() else None

    def _make_cluster(self):
        shutil.rmtree(self.data, ignore_errors=True)  # of an attempt that was interrupted
        self.data.mkdir(0o700)
        if self.user:
            shutil.chown(self.data, self.user, self.user)
            if subprocess.run(["test", "-x", self.data], cwd="/", check=False, **as_user(self.user)).returncode != 0:
                raise ServiceError(f"user {self.user} cannot get into {self.data}; choose a folder that all may pass")
        run([find("initdb", "postgresql-15", BIN), "-D", self.data, "-U", "postgres", "-A", "scram-sha-256",
             f"--pwfile={self.folder / 'password'}", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"],
            cwd="/", **(as_user(self.user) if self.user else {}))

    def _write(self, path, text):
        path.touch(0o600)
        path.write_text(text)
        if self.user:
            shutil.chown(path, self.user, self.user)

    def command(self):
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port,
            # A socket's path may not be longer than 107 bytes, and a test's folder may.
            "unix_socket_directories": "",
            # In its folder rather than in /dev/shm, where kill -9 would leave it behind.
            "dynamic_shared_memory_type": "mmap",
            "shared_buffers": "64MB", "max_wal_size": "256MB",
        }
        if not self.fsync:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        if self.tls:
            settings |= {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
        settings |= self.settings
        return [self.program, "-D", self.data, *(f"--{key}={value}" for key, value in settings.items())]

    def answers(self):
        return subprocess.run([find("pg_isready", "postgresql-client-15", BIN), "-q", "-t", "2", "-h", "127.0.0.1",
                               "-p", str(self.port)], check=False).returncode == 0

    def started(self):
        root = {"user": "postgres", "database": "postgres"}
        if not self.psql("SELECT 1 FROM pg_roles WHERE rolname = 'doorbuster'", **root):
            self.psql(f"CREATE ROLE doorbuster LOGIN PASSWORD '{self.password}'", **root)
        if not self.psql("SELECT 1 FROM pg_database WHERE datname = 'doorbuster'", **root):
            self.psql("CREATE DATABASE doorbuster OWNER doorbuster", **root)

    def psql(self, sql, *, user="doorbuster", database="doorbuster", timeout=30):
        """The rows as text, columns joined by "|"."""
        environment = {"PATH": os.environ.get("PATH", ""), "PGPASSWORD": self.password, "PGCONNECT_TIMEOUT": "5"}
        if self.tls:
            environment |= {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": str(self.tls.ca)}
        try:
            done = subprocess.run(
                [find("psql", "postgresql-client-15", BIN), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
                 "-h", "127.0.0.1", "-p", str(self.port), "-U", user, "-d", database, "-c", sql],
                capture_output=True, text=True, env=environment, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise ServiceError(f"psql: no answer in {timeout} s") from None
        if done.returncode != 0:
            raise ServiceError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def url(self, user="doorbuster", port=None):
        """`port` is that of a proxy in front of it."""
        tls = f"?sslmode=verify-full&sslrootcert={quote(str(self.tls.ca))}" if self.tls else ""
        return f"postgres://{user}:{self.password}@127.0.0.1:{port or self.port}/doorbuster{tls}"

    def describe(self):
        return super().describe() | {"url": self.url(), "superuser": self.url("postgres")}

    def _start(self):
        self._clear_up()
        super()._start()

    def _forget(self):
        super()._forget()
        self._clear_up()

    def _clear_up(self):
        """A killed server leaves its lock file, and 56 bytes of System V shared memory that the file names. Neither
        goes by itself; and where nobody takes the exit code of a process, PostgreSQL believes that it is alive."""
        lock = self.data / "postmaster.pid"
        try:
            lines = lock.read_text().splitlines()
            # Empty when it was killed in its first moments.
            if lines and Pid.of(int(lines[0])).alive():
                return
            lock.unlink()
            subprocess.run(["ipcrm", "-m", lines[6].split()[1]], capture_output=True, check=False)
        except (OSError, IndexError, ValueError):
            pass
