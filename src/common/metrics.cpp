#include "common/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "common/result.hpp"

namespace doorbuster::common {
namespace {

class CounterImpl final : public Counter {
 public:
  // Relaxed: a count orders nothing else.
  void add(std::int64_t n) noexcept override { count_.fetch_add(n, std::memory_order_relaxed); }
  std::int64_t value() const noexcept override { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> count_{0};
};

class GaugeImpl final : public Gauge {
 public:
  void set(double value) noexcept override { value_.store(value, std::memory_order_relaxed); }
  double value() const noexcept override { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class HistogramImpl final : public Histogram {
 public:
  explicit HistogramImpl(prometheus::Histogram& histogram) : histogram_(histogram) {}
  void observe(double value) noexcept override { histogram_.Observe(value); }

 private:
  prometheus::Histogram& histogram_;
};

class MetricsImpl final : public Metrics {
 public:
  Counter& counter(const std::string& name, const std::string& help,
                   const Labels& labels) override {
    const std::lock_guard lock(mutex_);
    check_name(name, prometheus::MetricType::Counter);
    return find_or_make<CounterImpl>(counters_[name], help, labels);
  }

  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels) override {
    const std::lock_guard lock(mutex_);
    check_name(name, prometheus::MetricType::Gauge);
    return find_or_make<GaugeImpl>(gauges_[name], help, labels);
  }

  Histogram& histogram(const std::string& name, const std::string& help,
                       const std::vector<double>& buckets, const Labels& labels) override {
    const std::lock_guard lock(mutex_);
    check_name(name, prometheus::MetricType::Histogram);
    DOORBUSTER_ENSURE(
        !buckets.empty() && std::adjacent_find(buckets.begin(), buckets.end(),
                                               std::greater_equal<>()) == buckets.end(),
        "a histogram's bounds rise");
    HistogramFamily& family = histograms_[name];
    if (family.buckets.empty()) family.buckets = buckets;
    DOORBUSTER_ENSURE(family.buckets == buckets, "a histogram has one set of bounds");
    std::unique_ptr<HistogramImpl>& one = family.members[labels];
    if (!one) {
      auto& registered = prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
      one = std::make_unique<HistogramImpl>(registered.Add(labels, buckets));
    }
    return *one;
  }

  std::string text() const override {
    std::vector<prometheus::MetricFamily> families = registry_.Collect();
    {
      const std::lock_guard lock(mutex_);
      collect(counters_, prometheus::MetricType::Counter, families,
              [](prometheus::ClientMetric& metric, const CounterImpl& one) {
                metric.counter.value = static_cast<double>(one.value());
              });
      collect(gauges_, prometheus::MetricType::Gauge, families,
              [](prometheus::ClientMetric& metric, const GaugeImpl& one) {
                metric.gauge.value = one.value();
              });
    }
    std::sort(families.begin(), families.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return prometheus::TextSerializer().Serialize(families);
  }

  std::vector<std::string> names() const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> sorted;
    for (const auto& [name, type] : types_) sorted.push_back(name);
    return sorted;
  }

 private:
  template <class T>
  struct Family {
    std::string help;
    std::map<Labels, std::unique_ptr<T>> members;
  };

  struct HistogramFamily {
    std::vector<double> buckets;
    std::map<Labels, std::unique_ptr<HistogramImpl>> members;
  };

  /// Two kinds under one name would make the whole page unreadable for Prometheus.
  void check_name(const std::string& name, prometheus::MetricType type) {
    DOORBUSTER_ENSURE(types_.emplace(name, type).first->second == type,
                      "a metric's name has one type");
  }

  template <class T>
  static T& find_or_make(Family<T>& family, const std::string& help, const Labels& labels) {
    if (family.help.empty()) family.help = help;
    std::unique_ptr<T>& one = family.members[labels];
    if (!one) one = std::make_unique<T>();
    return *one;
  }

  template <class T, class F>
  static void collect(const std::map<std::string, Family<T>>& from, prometheus::MetricType type,
                      std::vector<prometheus::MetricFamily>& to, F&& fill) {
    for (const auto& [name, family] : from) {
      prometheus::MetricFamily out;
      out.name = name;
      out.help = family.help;
      out.type = type;
      for (const auto& [labels, one] : family.members) {
        prometheus::ClientMetric metric;
        for (const auto& [key, value] : labels) metric.label.push_back({key, value});
        fill(metric, *one);
        out.metric.push_back(std::move(metric));
      }
      to.push_back(std::move(out));
    }
  }

  mutable std::mutex mutex_;
  std::map<std::string, Family<CounterImpl>> counters_;  // Guarded by mutex_.
  std::map<std::string, Family<GaugeImpl>> gauges_;      // Guarded by mutex_.
  std::map<std::string, HistogramFamily> histograms_;    // Guarded by mutex_.
  std::map<std::string, prometheus::MetricType> types_;  // Guarded by mutex_.
  prometheus::Registry registry_;                        // histograms; its own locks
};

}  // namespace

std::unique_ptr<Metrics> make_metrics() { return std::make_unique<MetricsImpl>(); }

const std::vector<double>& time_buckets() {
  static const std::vector<double> buckets{0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002,
                                           0.005,   0.01,   0.02,   0.05,   0.1,   0.2,
                                           0.5,     1,      2,      5,      10};
  return buckets;
}

}  // namespace doorbuster::common
