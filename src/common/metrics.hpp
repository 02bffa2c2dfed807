#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace doorbuster::common {

/// A count that only grows. Callable from any thread; costs one uncontended atomic addition.
class Counter {
 public:
  virtual ~Counter() = default;
  virtual void add(std::int64_t n = 1) noexcept = 0;
  [[nodiscard]] virtual std::int64_t value() const noexcept = 0;
};

/// A value that goes up and down.
class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void set(double value) noexcept = 0;
  [[nodiscard]] virtual double value() const noexcept = 0;
};

/// A distribution with fixed buckets. In seconds where it measures time.
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void observe(double value) noexcept = 0;
};

using Labels = std::map<std::string, std::string>;

/// Makes and lists what `/metrics` shows, in Prometheus' text format. Asking twice for the same
/// name and labels gives the same object, which lives as long as the registry. Names are a
/// contract: each one is listed in docs/metrics.md, and a test compares.
class Metrics {
 public:
  Metrics() = default;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  virtual ~Metrics() = default;
  [[nodiscard]] virtual Counter& counter(const std::string& name, const std::string& help,
                                         const Labels& labels = {}) = 0;
  [[nodiscard]] virtual Gauge& gauge(const std::string& name, const std::string& help,
                                     const Labels& labels = {}) = 0;
  /// `buckets` are upper bounds, rising; a name has one set of them.
  [[nodiscard]] virtual Histogram& histogram(const std::string& name, const std::string& help,
                                             const std::vector<double>& buckets,
                                             const Labels& labels = {}) = 0;
  [[nodiscard]] virtual std::string text() const = 0;
  /// Every metric family's name, sorted.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
};

[[nodiscard]] std::unique_ptr<Metrics> make_metrics();

/// 50 us to 10 s, in steps of 1, 2, 5: for everything that measures waiting.
[[nodiscard]] const std::vector<double>& time_buckets();

}  // namespace doorbuster::common
