#include "engine/local_gate.hpp"
#include "engine/tests/gate_contract.hpp"

namespace doorbuster::engine::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Gates, GateContract,
                         ::testing::Values(GateMaker{"local", make_local_gate}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace doorbuster::engine::testing
