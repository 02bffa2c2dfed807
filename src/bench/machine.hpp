#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/result.hpp"

namespace doorbuster::bench {

/// What is measured runs on one core, what measures it on another; on a machine of one core both
/// share it.
inline constexpr int kServerCore = 0;
inline constexpr int kLoadCore = 1;
void pin_this_thread(int core);

/// Of this process: the open files it may have, raised as far as the hard limit goes.
std::size_t open_files();

/// One that nobody listens on at this moment. Errors: kIo.
[[nodiscard]] common::Result<std::uint16_t> free_port();

/// A folder that goes with the object.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A child on the server's core. It ends with the object, by its own process id, and with this
/// process, should that die.
class Process {
 public:
  /// Runs a program; its output goes to `log`. Errors: kIo (the program cannot be started shows as
  /// a child that ends at once).
  [[nodiscard]] static common::Result<std::unique_ptr<Process>> exec(
      const std::vector<std::string>& words, const std::filesystem::path& log);
  /// Runs `body` in a copy of this process, which ends when it returns. Only what needs no lock and
  /// no other thread.
  [[nodiscard]] static common::Result<std::unique_ptr<Process>> fork(
      const std::function<void()>& body);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool alive();
  /// Time on a processor so far, all threads.
  [[nodiscard]] std::chrono::nanoseconds cpu() const;
  /// Memory of its own that is in use: what it would give back by ending.
  [[nodiscard]] std::int64_t private_bytes() const;

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

/// What everybody else takes of the two cores while something is measured: beside a compiler, a
/// ratio of times says nothing. Begins with the object.
class Neighbours {
 public:
  /// `server` works on its core, this process on the load's.
  explicit Neighbours(const Process& server) : server_(&server), begun_(read()) {}
  /// This process works on the server's core, and nothing of ours on the other one.
  Neighbours() : begun_(read()) {}
  /// Their part of the time so far, of the core where they took more: 0 to 1. Good to 10 ms.
  [[nodiscard]] double share() const;

 private:
  struct Reading {
    double wall_s = 0;
    std::array<double, 2> busy_s{};  ///< the server's core, the load's
    double server_s = 0;
    double own_s = 0;
  };
  [[nodiscard]] Reading read() const;
  const Process* server_ = nullptr;
  Reading begun_;
};

/// Measures until the neighbours took less than kQuiet, or `tries` times; then the quietest counts.
/// `measure` gives a Result of something with a member `neighbours`.
inline constexpr double kQuiet = 0.04;
template <class F>
auto measure_quietly(int tries, F&& measure) -> decltype(measure()) {
  auto best = measure();
  for (int i = 1; i < tries && best && best->neighbours > kQuiet; ++i) {
    auto again = measure();
    if (!again) return again;
    if (again->neighbours < best->neighbours) best = std::move(again);
  }
  return best;
}

/// This process's time on a processor so far, all threads.
[[nodiscard]] double own_cpu_seconds();
/// This process's memory, as private_bytes() of a child.
[[nodiscard]] std::int64_t own_private_bytes();

/// "2 x Intel(R) Xeon(R) ..., 24 GB, Linux 6.1, ext4": what a table's reader has to know.
[[nodiscard]] std::string describe_machine(const std::filesystem::path& data_folder);

}  // namespace doorbuster::bench
