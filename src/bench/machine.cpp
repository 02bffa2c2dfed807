#include "bench/machine.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>

namespace doorbuster::bench {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;

/// What a process is given to end by itself.
constexpr std::chrono::seconds kEndPatience{10};

std::int64_t private_bytes_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/smaps_rollup");
  std::int64_t kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:")) {
      kilobytes += std::strtoll(line.c_str() + line.find(':') + 1, nullptr, 10);
    }
  }
  return kilobytes * 1024;
}

/// How long each core has worked since the machine began; all of them count when there is one.
std::array<double, 2> busy_seconds() {
  std::array<double, 2> busy{};
  const auto tick = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    for (const int core : {kServerCore, kLoadCore}) {
      const std::string name = fmt::format("cpu{} ", core);
      if (!line.starts_with(name)) continue;
      // user nice system idle iowait irq softirq steal
      std::istringstream fields(line.substr(name.size()));
      for (int i = 0; i < 8; ++i) {
        double value = 0;
        fields >> value;
        if (i != 3 && i != 4) busy[static_cast<std::size_t>(core)] += value / tick;
      }
    }
  }
  return busy;
}

double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

/// In the child, before anything else of it.
void begin_child() {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  pin_this_thread(kServerCore);
}

/// The value behind "name : " in a file of such lines.
std::string field_of(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    return line.substr(std::min(line.find_first_not_of(" \t", colon + 1), line.size()));
  }
  return "?";
}

std::string file_system_of(const std::filesystem::path& folder) {
  struct statfs about{};
  if (::statfs(folder.c_str(), &about) != 0) return "unknown file system";
  switch (about.f_type) {
    case 0xEF53:
      return "ext4";
    case 0x01021994:
      return "tmpfs";
    case 0x794c7630:
      return "overlayfs";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    default:
      return fmt::format("file system {:x}", static_cast<unsigned long>(about.f_type));
  }
}

}  // namespace

void pin_this_thread(int core) {
  if (std::thread::hardware_concurrency() < 2) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

std::size_t open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max;
}

Result<std::uint16_t> free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  if (!bound) return fail(ErrorCode::kIo, "no free port on loopback");
  return ntohs(address.sin_port);
}

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "doorbuster-bench-XXXXXX").string();
  DOORBUSTER_ENSURE(::mkdtemp(name.data()) != nullptr, "a folder for the figures can be made");
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<std::unique_ptr<Process>> Process::exec(const std::vector<std::string>& words,
                                               const std::filesystem::path& log) {
  // All memory is taken before the fork: a thread that held the allocator's lock is not there
  // afterwards.
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const std::string log_name = log.string();
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ErrorCode::kIo, "no process can be started");
  if (pid == 0) {
    begin_child();
    const int out = ::open(log_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  return std::unique_ptr<Process>(new Process(pid));
}

Result<std::unique_ptr<Process>> Process::fork(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ErrorCode::kIo, "no process can be started");
  if (pid == 0) {
    begin_child();
    body();
    ::_exit(0);
  }
  return std::unique_ptr<Process>(new Process(pid));
}

Process::~Process() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGTERM);
  const auto end = std::chrono::steady_clock::now() + kEndPatience;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

bool Process::alive() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
  return pid_ > 0;
}

std::chrono::nanoseconds Process::cpu() const {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

std::int64_t Process::private_bytes() const { return private_bytes_of(std::to_string(pid_)); }

Neighbours::Reading Neighbours::read() const {
  return {
      .wall_s = seconds_of(CLOCK_MONOTONIC),
      .busy_s = busy_seconds(),
      .server_s = server_ == nullptr ? 0 : std::chrono::duration<double>(server_->cpu()).count(),
      .own_s = own_cpu_seconds()};
}

double Neighbours::share() const {
  const Reading now = read();
  const double wall = std::max(1e-9, now.wall_s - begun_.wall_s);
  const double own = now.own_s - begun_.own_s;
  const double on_servers = now.busy_s[0] - begun_.busy_s[0];
  const double on_loads = now.busy_s[1] - begun_.busy_s[1];
  const double others =
      server_ == nullptr ? on_servers - own
                         : std::max(on_servers - (now.server_s - begun_.server_s), on_loads - own);
  return std::clamp(others / wall, 0.0, 1.0);
}

double own_cpu_seconds() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

std::int64_t own_private_bytes() { return private_bytes_of("self"); }

std::string describe_machine(const std::filesystem::path& data_folder) {
  utsname system{};
  ::uname(&system);
  const double gigabytes =
      std::strtod(field_of("/proc/meminfo", "MemTotal").c_str(), nullptr) / 1024 / 1024;
  return fmt::format("{} x {}, {:.0f} GB, Linux {}, data on {}",
                     std::thread::hardware_concurrency(), field_of("/proc/cpuinfo", "model name"),
                     gigabytes, system.release, file_system_of(data_folder));
}

}  // namespace doorbuster::bench
