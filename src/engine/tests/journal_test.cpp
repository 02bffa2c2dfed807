#include "engine/direct_journal.hpp"
#include "engine/tests/journal_contract.hpp"

namespace doorbuster::engine::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Journals, JournalContract,
                         ::testing::Values(JournalMaker{"direct", make_direct_journal}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace doorbuster::engine::testing
