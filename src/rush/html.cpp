#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "rush/report.hpp"

namespace doorbuster::rush {
namespace {

using Micros = LatencyHistogram::Micros;

// Everything in one file: a report is mailed around and opened years later.
constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--bg:#fff;--ink:#1b1e23;--soft:#5d6570;--line:#dfe3e8;--card:#f6f7f9;
--granted:#1f7a4d;--refused:#8a94a3;--busy:#b87503;--failed:#c0352b;--p50:#2463c4;--p99:#9a3fb5}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--ink:#e8eaed;--soft:#9aa3ae;--line:#2c3239;--card:#1c2026;
--granted:#49b882;--refused:#77818f;--busy:#e0a339;--failed:#ee6a5f;--p50:#6aa3f8;--p99:#c986e0}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:64rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.6rem;margin:0 0 .25rem}h2{font-size:1.1rem;margin:2.5rem 0 .5rem}
p{margin:.25rem 0;color:var(--soft)}
.verdict{margin:1.25rem 0;padding:.8rem 1rem;border-left:.35rem solid var(--granted);background:var(--card);color:var(--ink)}
.verdict.bad{border-color:var(--failed)}.verdict.open{border-color:var(--busy)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem}
.tile{background:var(--card);padding:.75rem 1rem}
.tile b{display:block;font-size:1.5rem;font-weight:600;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:.85rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.3rem .6rem;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:500;font-size:.85rem}
.wide{overflow-x:auto}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.key{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;font-size:.85rem;color:var(--soft);margin:.25rem 0 .5rem}
.key i{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;vertical-align:-.1rem}
code{font-size:.9em}
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// The charts' common measures, in SVG units.
constexpr double kWidth = 960;
constexpr double kHeight = 260;
constexpr double kLeft = 70;
constexpr double kRight = 16;
constexpr double kTop = 12;
constexpr double kBottom = 34;
constexpr double kInnerWidth = kWidth - kLeft - kRight;
constexpr double kInnerHeight = kHeight - kTop - kBottom;

/// 1, 2 or 5 times a power of ten, so that some four lines fit below `max`.
double round_step(double max) {
  const double power = std::pow(10, std::floor(std::log10(std::max(max, 1e-9) / 4)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor * 4.5 >= max) return power * factor;
  }
  return power * 10;
}

std::string number_label(double value) {
  return value >= 1e6    ? fmt::format("{:g} M", value / 1e6)
         : value >= 1000 ? for_people(static_cast<std::uint64_t>(std::llround(value)))
                         : fmt::format("{:g}", value);
}

class Chart {
 public:
  explicit Chart(std::string_view title) {
    out_ = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)", kWidth, kHeight,
                       escaped(title));
  }

  void horizontal(double y, const std::string& label) {
    add(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft, kWidth - kRight,
        y, y);
    add(R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)", kLeft - 8, y + 4, label);
  }
  void below(double x, const std::string& label) {
    add(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", x, kHeight - 12, label);
  }
  void base() {
    add(R"(<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>)", kLeft, kWidth - kRight,
        kHeight - kBottom, kHeight - kBottom);
  }
  void box(double x, double y, double width, double height, std::string_view color,
           const std::string& title) {
    add(R"x(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="var(--{})"><title>{}</title></rect>)x",
        x, y, width, height, color, title);
  }
  void line(const std::vector<std::pair<double, double>>& points, std::string_view color) {
    if (points.empty()) return;
    std::string path;
    for (const auto& [x, y] : points) {
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x, y);
    }
    add(R"x(<path d="{}" fill="none" stroke="var(--{})" stroke-width="2" stroke-linejoin="round"/>)x",
        path, color);
    // A line through one point would not be seen.
    if (points.size() == 1) {
      add(R"x(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="var(--{})"/>)x", points[0].first,
          points[0].second, color);
    }
  }
  void dot(double x, double y, std::string_view color, const std::string& title) {
    add(R"x(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="var(--{})"><title>{}</title></circle>)x", x,
        y, color, title);
  }

  std::string done() { return std::move(out_) + "</svg>\n"; }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  std::string out_;
};

/// A logarithmic axis of times, whole powers of ten.
class TimeAxis {
 public:
  TimeAxis(Micros low, Micros high)
      : from_(std::floor(std::log10(std::max<double>(1, static_cast<double>(low.count()))))),
        to_(std::max(from_ + 1, std::ceil(std::log10(
                                    std::max<double>(1, static_cast<double>(high.count())))))) {}

  [[nodiscard]] double y(Micros time) const {
    const double place =
        (std::log10(std::max<double>(1, static_cast<double>(time.count()))) - from_) /
        (to_ - from_);
    return kTop + kInnerHeight * (1 - std::clamp(place, 0.0, 1.0));
  }
  void draw(Chart& chart) const {
    for (int i = 0; i <= static_cast<int>(std::lround(to_ - from_)); ++i) {
      const double power = from_ + i;
      const Micros at{static_cast<std::int64_t>(std::llround(std::pow(10, power)))};
      const double micros = std::pow(10, power);
      chart.horizontal(y(at), micros >= 1e6    ? fmt::format("{:g} s", micros / 1e6)
                              : micros >= 1000 ? fmt::format("{:g} ms", micros / 1000)
                                               : fmt::format("{:g} us", micros));
    }
  }

 private:
  double from_;
  double to_;
};

std::string key(std::initializer_list<std::pair<std::string_view, std::string_view>> colors) {
  std::string out = "<div class=\"key\">";
  for (const auto& [color, text] : colors) {
    out += fmt::format(R"x(<span><i style="background:var(--{})"></i>{}</span>)x", color, text);
  }
  return out + "</div>\n";
}

double bin_length(const RushReport& report) {
  return report.timeline.size() > 1 ? report.timeline[1].from_s - report.timeline[0].from_s
                                    : std::max(report.seconds, 0.001);
}

void time_axis(const RushReport& report, Chart& chart) {
  if (report.timeline.empty()) return;
  const double all = bin_length(report) * static_cast<double>(report.timeline.size());
  const double step = round_step(all);
  for (int i = 0; i * step <= all * 1.0001; ++i) {
    const double at = i * step;
    chart.below(kLeft + kInnerWidth * at / all, fmt::format("{:g} s", at));
  }
}

std::string answers_chart(const RushReport& report) {
  const double length = bin_length(report);
  double most = 1;
  for (const TimeBin& bin : report.timeline) {
    most = std::max(
        most, static_cast<double>(bin.granted + bin.refused + bin.busy + bin.failed) / length);
  }
  Chart chart("Answers per second over time, by kind");
  const double step = round_step(most);
  for (int i = 0; i * step <= most * 1.0001; ++i) {
    const double at = i * step;
    chart.horizontal(kTop + kInnerHeight * (1 - at / most), number_label(at));
  }
  const double width = kInnerWidth / static_cast<double>(report.timeline.size());
  for (std::size_t i = 0; i < report.timeline.size(); ++i) {
    const TimeBin& bin = report.timeline[i];
    double y = kTop + kInnerHeight;
    const auto part = [&](std::uint64_t count, std::string_view color, std::string_view name) {
      if (count == 0) return;
      const double height = kInnerHeight * (static_cast<double>(count) / length) / most;
      y -= height;
      chart.box(kLeft + width * static_cast<double>(i), y, std::max(width - 0.5, 0.5), height,
                color, fmt::format("{:g} s: {} {}", bin.from_s, for_people(count), name));
    };
    part(bin.granted, "granted", "granted");
    part(bin.refused, "refused", "refused");
    part(bin.busy, "busy", "busy");
    part(bin.failed, "failed", "failed");
  }
  chart.base();
  time_axis(report, chart);
  return key({{"granted", "granted"},
              {"refused", "refused"},
              {"busy", "busy"},
              {"failed", "failed"}}) +
         chart.done();
}

std::string latency_chart(const RushReport& report) {
  Micros low = Micros::max();
  Micros high{1};
  for (const TimeBin& bin : report.timeline) {
    if (bin.p99.count() == 0) continue;
    low = std::min(low, bin.p50);
    high = std::max(high, bin.p99);
  }
  if (low == Micros::max()) return "<p>No request was answered.</p>\n";
  Chart chart("Time to answer over time, median and 99th percentile");
  const TimeAxis axis(low, high);
  axis.draw(chart);
  std::vector<std::pair<double, double>> p50;
  std::vector<std::pair<double, double>> p99;
  for (std::size_t i = 0; i < report.timeline.size(); ++i) {
    const TimeBin& bin = report.timeline[i];
    if (bin.p99.count() == 0) continue;
    const double x = kLeft + kInnerWidth * (static_cast<double>(i) + 0.5) /
                                 static_cast<double>(report.timeline.size());
    p50.emplace_back(x, axis.y(bin.p50));
    p99.emplace_back(x, axis.y(bin.p99));
  }
  chart.line(p99, "p99");
  chart.line(p50, "p50");
  chart.base();
  time_axis(report, chart);
  return key({{"p50", "p50"}, {"p99", "p99"}}) + chart.done();
}

/// Where the curves have their points.
constexpr double kPercents[] = {0, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99};
/// The width of that chart: each unit to the right leaves a tenth of the answers.
constexpr double kNines = 4;

std::string percentile_chart(const RushReport& report) {
  struct Series {
    const LatencyHistogram* times;
    std::string_view color;
    std::string_view name;
  };
  const Series all[] = {{&report.grants, "granted", "grants"},
                        {&report.refusals, "refused", "refusals"}};
  if (report.all.count() == 0) return "<p>No purchase was answered.</p>\n";
  const auto x_of = [](double percent) {
    return kLeft +
           kInnerWidth * std::min(1.0, -std::log10(std::max(1 - percent / 100, 1e-9)) / kNines);
  };
  Chart chart("Time to answer by percentile, grants and refusals");
  const TimeAxis axis(report.all.percentile(1), report.all.max());
  axis.draw(chart);
  for (const Series& series : all) {
    if (series.times->count() == 0) continue;
    std::vector<std::pair<double, double>> points;
    for (const double percent : kPercents) {
      points.emplace_back(x_of(percent), axis.y(series.times->percentile(percent)));
    }
    chart.line(points, series.color);
    for (const double percent : kPercents) {
      const Micros value = series.times->percentile(percent);
      chart.dot(x_of(percent), axis.y(value), series.color,
                fmt::format("{} p{:g}: {}", series.name, percent, for_people(value)));
    }
  }
  chart.base();
  for (const double percent : {50.0, 90.0, 99.0, 99.9, 99.99}) {
    // The last label would be cut by the edge.
    chart.below(std::min(x_of(percent), kWidth - 30), fmt::format("p{:g}", percent));
  }
  return key({{"granted", "grants"}, {"refused", "refusals"}}) + chart.done();
}

std::string tile(const std::string& value, std::string_view name) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escaped(value), name);
}

std::string row(std::initializer_list<std::string> cells) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) out += fmt::format("<td>{}</td>", escaped(cell));
  return out + "</tr>\n";
}

std::string latency_row(std::string name, const LatencyHistogram& times) {
  if (times.count() == 0) return {};
  return row({std::move(name), for_people(times.count()), for_people(times.percentile(50)),
              for_people(times.percentile(90)), for_people(times.percentile(99)),
              for_people(times.percentile(99.9)), for_people(times.max())});
}

std::string verdict_box(const RushReport& report) {
  switch (report.outcome()) {
    case Outcome::kOk:
      return fmt::format(
          "<div class=\"verdict\">{}</div>\n",
          report.server
              ? "<strong>All invariants hold.</strong> Every answer was compared with the server's "
                "rows."
              : "<strong>The answers contradict no invariant.</strong> The server's rows were not "
                "asked for.");
    case Outcome::kUnverified:
      return fmt::format(
          "<div class=\"verdict open\"><strong>Not verified.</strong> The ledger could not be "
          "read: "
          "{}</div>\n",
          escaped(report.server_error));
    case Outcome::kBroken:
      break;
  }
  std::string out = "<div class=\"verdict bad\"><strong>Broken promises.</strong><ul>";
  for (const Finding& finding : report.verdict.findings) {
    out += fmt::format("<li><code>{}</code> {} ({})<ul>", code_of(finding.kind),
                       escaped(to_string(finding.kind)), for_people(finding.count));
    for (const std::string& example : finding.examples)
      out += fmt::format("<li>{}</li>", escaped(example));
    out += "</ul></li>";
  }
  return out + "</ul></div>\n";
}

std::string server_table(const RushReport& report) {
  if (!report.server) return {};
  const ServerSide& side = *report.server;
  const Verdict& verdict = report.verdict;
  std::string out = "<h2>What the server has</h2>\n<div class=\"wide\"><table>\n";
  out += row({"units", for_people(static_cast<std::uint64_t>(side.quantity))});
  out += row({"rows that hold a unit", for_people(verdict.holding)});
  out += row({"their different slots", for_people(side.slots)});
  out += row({"their different members", for_people(side.members)});
  for (std::size_t i = 1; i < side.by_state.size(); ++i) {
    if (side.by_state[i] > 0) {
      out +=
          row({std::string(to_string(static_cast<OrderStatus>(i))), for_people(side.by_state[i])});
    }
  }
  out += row({"202, then REJECTED", for_people(verdict.rejected_after_grant)});
  out += row({"merged", for_people(verdict.merged)});
  out += row({"rows nobody was told of", for_people(verdict.untold_rows)});
  out +=
      row({"free slots", verdict.free_slot_count == 0
                             ? std::string("0")
                             : fmt::format("{}: {}", for_people(verdict.free_slot_count),
                                           ranges(verdict.free_slots, verdict.free_slot_count))});
  out += "</table></div>\n";
  if (!side.quiet) out += "<p>The ledger was still moving when it was read.</p>\n";
  return out;
}

std::string answers_table(const RushReport& report) {
  std::string out =
      "<h2>Answers by kind</h2>\n<div class=\"wide\"><table><tr><th>kind</th><th>purchases</th>"
      "<th>reads and payments</th></tr>\n";
  for (std::size_t i = 0; i < kAnswerKinds; ++i) {
    if (report.purchases[i] + report.orders[i] == 0) continue;
    std::string name(to_string(static_cast<AnswerKind>(i)));
    std::replace(name.begin(), name.end(), '_', ' ');
    out += row({std::move(name), for_people(report.purchases[i]), for_people(report.orders[i])});
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string html_report(const RushReport& report) {
  const auto seconds = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.2f} s", *value) : std::string("never");
  };
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>Rush on item {}</title><style>{}</style></head>\n<body><main>\n",
      report.item_id, kStyle);
  out += fmt::format(
      "<h1>Rush on item {}</h1>\n<p>{} &middot; {} members, {} &middot; {} connections &middot; {} "
      "&middot; seed {}</p>\n",
      report.item_id, escaped(report.url), for_people(static_cast<std::uint64_t>(report.members)),
      escaped(report.curve), for_people(static_cast<std::uint64_t>(report.connections)),
      common::to_rfc3339(report.started), report.seed);
  out += verdict_box(report);
  if (!report.stopped.empty()) {
    out +=
        fmt::format("<div class=\"verdict open\">Ended early: {}</div>\n", escaped(report.stopped));
  }
  if (!report.limited_by.empty()) {
    out += fmt::format(
        "<div class=\"verdict open\"><strong>The generator was the limit:</strong> {}</div>\n",
        escaped(report.limited_by));
  }
  const double rate = report.seconds > 0 ? static_cast<double>(report.answers) / report.seconds : 0;
  out += "<div class=\"tiles\">\n";
  out +=
      tile(for_people(report.purchases[static_cast<std::size_t>(AnswerKind::kGranted)]), "granted");
  out += tile(for_people(report.purchases[static_cast<std::size_t>(AnswerKind::kSoldOut)]),
              "told sold out");
  out += tile(for_people(static_cast<std::uint64_t>(std::llround(rate))), "answers a second");
  out += tile(for_people(report.all.percentile(50)), "median time to answer");
  out += tile(for_people(report.all.percentile(99)), "99th percentile");
  out += tile(seconds(report.sold_out_s), "until first sold out");
  out += "</div>\n";
  out += "<h2>Answers per second</h2>\n" + answers_chart(report);
  out += "<h2>Time to answer</h2>\n" + latency_chart(report);
  out += "<h2>Time to answer by percentile</h2>\n" + percentile_chart(report);
  out +=
      "<div "
      "class=\"wide\"><table><tr><th></th><th>count</th><th>p50</th><th>p90</th><th>p99</"
      "th><th>p99.9</th>"
      "<th>max</th></tr>\n";
  out += latency_row("all purchases", report.all) + latency_row("grants", report.grants) +
         latency_row("refusals", report.refusals) + latency_row("payments", report.payments);
  out += "</table></div>\n";
  out += report.open_loop
             ? "<p>Counted from the instant at which each request was due.</p>\n"
             : "<p>Counted from sending: everybody waits for a free connection first.</p>\n";
  out += server_table(report);
  out += answers_table(report);
  return out + "</main></body></html>\n";
}

}  // namespace doorbuster::rush
