#include "engine/rules.hpp"

#include "sim/switches.hpp"

namespace doorbuster::sim {
namespace {

thread_local std::optional<engine::Rule> off;

}  // namespace

void switch_off(std::optional<engine::Rule> rule) { off = rule; }

}  // namespace doorbuster::sim

namespace doorbuster::engine {

// In place of engine/rules.cpp: the same engine objects ask this one here.
bool in_force(Rule rule) noexcept { return sim::off != rule; }

}  // namespace doorbuster::engine
