// A child process with a line to it: how tests show what happens when somebody is killed.
//
// Idea: fork, so that the child runs the test's own code; a socket pair for choreography, so that
// no test waits for a time instead of an event. Fork before anything claims shared memory: a child
// shares its parent's claims. A child never outlives its test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <type_traits>

namespace kvfence::testing {

// One end of the line. Messages are PODs of a type that both ends know.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line();

  // False: the other end is gone.
  template <class T>
  bool Send(const T& message) {
    static_assert(std::is_trivially_copyable_v<T>);
    return SendBytes(&message, sizeof(message));
  }
  // Waits for a message. False: the other end is gone.
  template <class T>
  bool Receive(T* message) {
    static_assert(std::is_trivially_copyable_v<T>);
    return ReceiveBytes(message, sizeof(*message));
  }

 private:
  bool SendBytes(const void* data, size_t size);
  bool ReceiveBytes(void* data, size_t size);

  int fd_;
};

class Child {
 public:
  // The child runs `body` and exits with what it returns.
  explicit Child(const std::function<int(Line&)>& body);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();  // kills it if it still runs

  Line& line() { return *line_; }
  // Waits for its end: the exit status, or minus the signal that killed it.
  int Wait();
  void Kill();  // and waits

 private:
  pid_t pid_ = -1;
  std::unique_ptr<Line> line_;
};

// For a child: ends at once, as by kill -9.
[[noreturn]] void KillSelf();

}  // namespace kvfence::testing
