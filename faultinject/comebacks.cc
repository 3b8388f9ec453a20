#include "comebacks.h"

#include <algorithm>

namespace kvfence {

void Comebacks::Failed(RequestIndex request, uint64_t launched) {
  lives_[request].state = State::kBack;
  going_.push_back({request, launched});
}

void Comebacks::PublishedWrong(RequestIndex request) {
  // Wrong before it failed is as bad as wrong afterwards, but then it isn't here yet.
  if (const auto it = lives_.find(request); it != lives_.end()) it->second.wrong = true;
}

void Comebacks::Ended(RequestIndex request, EndKind kind) {
  if (kind == EndKind::kPreempted) return;
  std::erase_if(going_, [&](const Back& back) { return back.request == request; });
  const auto it = lives_.find(request);
  if (it == lives_.end()) return;
  Life& life = it->second;
  if (kind == EndKind::kAborted) {
    life.state = State::kWithdrawn;
  } else {
    life.state = kind == EndKind::kFinished && !life.wrong ? State::kRight : State::kLost;
  }
}

std::vector<Comebacks::Back> Comebacks::BackBy(uint64_t settled) {
  std::vector<Back> back;
  std::erase_if(going_, [&](const Back& one) {
    if (one.launched > settled) return false;
    back.push_back(one);
    return true;
  });
  return back;
}

Comebacks::Counts Comebacks::counts() const {
  Counts counts;
  for (const auto& [request, life] : lives_) {
    ++counts.failed;
    counts.right += life.state == State::kRight ? 1 : 0;
    counts.withdrawn += life.state == State::kWithdrawn ? 1 : 0;
  }
  return counts;
}

}  // namespace kvfence
