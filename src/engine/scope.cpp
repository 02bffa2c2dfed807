#include "engine/scope.hpp"

#include <algorithm>
#include <bit>

namespace doorbuster::engine {
namespace {

/// 16 bits for each expected holder; two of them set, in one word.
std::size_t words_for(std::size_t expected) {
  return std::bit_ceil(std::max<std::size_t>(expected / 4, 16));
}

std::size_t units(const ScopeRules& rules) {
  std::size_t sum = 0;
  for (const AllotmentRules& one : rules.allotments) sum += static_cast<std::size_t>(one.quantity);
  return sum;
}

struct Place {
  std::size_t word;
  std::uint64_t bits;
};

Place place_of(MemberId member, std::size_t words) noexcept {
  std::uint64_t x = static_cast<std::uint64_t>(member.value());
  x = (x ^ (x >> 31)) * 0x7FB5D329728EA185ULL;
  x = (x ^ (x >> 27)) * 0x81DADEF4BC2DD44DULL;
  x ^= x >> 33;
  return {static_cast<std::size_t>(x >> 12) & (words - 1),
          (std::uint64_t{1} << (x & 63U)) | (std::uint64_t{1} << ((x >> 6) & 63U))};
}

}  // namespace

HolderFilter::HolderFilter(std::size_t expected) : words_(words_for(expected)) {
  for (Words& table : tables_) table = std::make_unique<std::atomic<std::uint64_t>[]>(words_);
}

void HolderFilter::set(const Words& words, MemberId member) noexcept {
  const Place place = place_of(member, words_);
  words[place.word].fetch_or(place.bits, std::memory_order_release);
}

void HolderFilter::add(MemberId member) {
  const std::lock_guard lock(mutex_);
  set(tables_[0], member);
  set(tables_[1], member);
  if (collecting_) recent_.push_back(member);
}

void HolderFilter::begin_reset() {
  const std::lock_guard lock(mutex_);
  collecting_ = true;
  recent_.clear();
}

void HolderFilter::finish_reset(const std::vector<MemberId>& holders) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t turn = turn_.load(std::memory_order_relaxed);
  // Odd while the spare table is being made: whoever still reads it from the turn before notices.
  turn_.store(turn + 1, std::memory_order_seq_cst);
  const Words& spare = tables_[(turn / 2 + 1) % 2];
  for (std::size_t i = 0; i < words_; ++i) spare[i].store(0, std::memory_order_seq_cst);
  for (const MemberId member : holders) set(spare, member);
  for (const MemberId member : recent_) set(spare, member);
  collecting_ = false;
  turn_.store(turn + 2, std::memory_order_seq_cst);
}

bool HolderFilter::may_contain(MemberId member) const noexcept {
  const Place place = place_of(member, words_);
  const std::uint64_t before = turn_.load(std::memory_order_seq_cst);
  const Words& words = tables_[(before / 2) % 2];
  const bool found = (words[place.word].load(std::memory_order_seq_cst) & place.bits) == place.bits;
  if (found) return true;
  // While a reset runs the table in use is still whole; what matters is that it was not replaced
  // meanwhile.
  return turn_.load(std::memory_order_seq_cst) / 2 != before / 2;
}

Scope::Scope(ScopeRules rules)
    : rules_(std::move(rules)),
      filter_(units(rules_)),
      flags_(rules_.allotments.size()),
      remaining_(rules_.allotments.size()) {
  for (auto& one : remaining_) one.store(-1, std::memory_order_relaxed);
}

int Scope::index_of(AllotmentId allotment) const noexcept {
  for (std::size_t i = 0; i < rules_.allotments.size(); ++i) {
    if (rules_.allotments[i].id == allotment) return static_cast<int>(i);
  }
  return -1;
}

bool Scope::raise(std::uint64_t generation, std::size_t index, Flag flag) {
  const std::lock_guard lock(flag_mutex_);
  if (generation_.load(std::memory_order_relaxed) != generation) return false;
  flags_[index].store(flag, std::memory_order_release);
  return true;
}

void Scope::lower(std::size_t index) {
  const std::lock_guard lock(flag_mutex_);
  generation_.fetch_add(1, std::memory_order_release);
  flags_[index].store(Flag::kDown, std::memory_order_release);
}

void Scope::lower_all() {
  const std::lock_guard lock(flag_mutex_);
  generation_.fetch_add(1, std::memory_order_release);
  for (auto& one : flags_) one.store(Flag::kDown, std::memory_order_release);
}

}  // namespace doorbuster::engine
