// Status and Result: a refusal (bad argument, over capacity, environment), as a value.
//
// Public headers carry no third-party types and C++20 has no std::expected, hence these two small
// ones. A Status costs one null pointer when it is ok.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "kvfence/check.h"

namespace kvfence {

enum class StatusCode {
  kOk,
  kInvalidArgument,     // the caller's words are off
  kResourceExhausted,   // over a capacity that was fixed at the start
  kFailedPrecondition,  // not now
  kUnavailable,         // the environment lacks it (no GPU, no file)
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : rep_(std::make_unique<Rep>(Rep{code, std::move(message)})) {}
  static Status Invalid(std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  }

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  const std::string& message() const {
    static const std::string kEmpty;
    return rep_ ? rep_->message : kEmpty;
  }

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

// A T, or why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT: as std::expected
  Result(Status status) : state_(std::move(status)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  const Status& status() const {
    static const Status kOk;
    return ok() ? kOk : std::get<1>(state_);
  }
  T& value() & {
    KVF_CHECK(ok(), "value() of a Result that holds a Status");
    return std::get<0>(state_);
  }
  T&& value() && {
    KVF_CHECK(ok(), "value() of a Result that holds a Status");
    return std::get<0>(std::move(state_));
  }
  T* operator->() { return &value(); }
  T& operator*() & { return value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace kvfence
