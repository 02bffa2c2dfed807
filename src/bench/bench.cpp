#include "bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "bench/figures.hpp"
#include "bench/machine.hpp"

namespace doorbuster::bench {
namespace {

using common::fail;
using common::Result;

struct Figure {
  std::string name;
  Rows (*run)(const BenchConfig&, const common::Clock&);
};

const std::vector<Figure>& figures() {
  static const std::vector<Figure> all{
      {"sold-out", &sold_out}, {"durable", &durable}, {"rush", &rush},  {"open-loop", &open_loop},
      {"memory", &memory},     {"crowd", &crowd},     {"scale", &scale}};
  return all;
}

}  // namespace

const std::vector<std::string>& figure_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Figure& figure : figures()) list.push_back(figure.name);
    return list;
  }();
  return names;
}

void say(const std::string& text) {
  fmt::print(stderr, "bench: {}\n", text);
  std::fflush(stderr);
}

Result<int> bench(const BenchConfig& config, const common::Clock& clock) {
  pin_this_thread(kLoadCore);
  open_files();
  std::vector<Row> all;
  for (const Figure& figure : figures()) {
    const bool wanted = config.only.empty() || std::find(config.only.begin(), config.only.end(),
                                                         figure.name) != config.only.end();
    if (!wanted) continue;
    Rows rows = figure.run(config, clock);
    if (!rows) return fail(rows.error());
    std::move(rows->begin(), rows->end(), std::back_inserter(all));
  }
  if (config.as_json) {
    fmt::print("{}\n", as_json(all));
    return 0;
  }
  fmt::print("machine: {}\n", describe_machine(std::filesystem::temp_directory_path()));
  fmt::print("medians of {} alternating runs; server on core {}, load on core {}\n\n{}",
             config.runs, kServerCore, kLoadCore, as_markdown(all));
  return 0;
}

}  // namespace doorbuster::bench
