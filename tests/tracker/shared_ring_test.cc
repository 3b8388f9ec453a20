// The ring by itself, on plain memory, so that TSan sees both ends: a reader gets whole frames of
// the present boot in their order or learns that it lost some (I-90), at any speed of either side.
#include "tracker/shared_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "kvfence/rng.h"

namespace kvfence {
namespace {

using Look = RingReader::Look;

struct Ring {
  explicit Ring(size_t capacity) : words(capacity) {}
  RingWriter Writer() { return RingWriter(&head, words, nullptr); }
  RingReader Reader() { return RingReader(&head, words, nullptr); }

  RingHead head{};
  std::vector<SharedWord> words;
};

// A frame that tells its number, its boot and, word for word, that it's whole.
std::vector<uint64_t> FrameOf(uint64_t boot, uint64_t number) {
  std::vector<uint64_t> frame = {boot, number};
  for (uint64_t i = 0; i < Mix64(number) % 13; ++i) frame.push_back(Mix64(number ^ i << 32));
  return frame;
}

TEST(SharedRing, FramesComeOutAsTheyWentInAroundTheEnd) {
  Ring ring(64);
  RingWriter writer = ring.Writer();
  RingReader reader = ring.Reader();
  EXPECT_EQ(reader.Join(), 0u) << "nobody writes yet";
  writer.Begin(7);
  EXPECT_TRUE(reader.BootChanged());
  EXPECT_EQ(reader.Join(), 7u);
  std::vector<uint64_t> frame;
  for (uint64_t number = 0; number < 200; ++number) {
    EXPECT_EQ(reader.Peek(&frame), Look::kNothing);
    writer.Append(FrameOf(7, number), false);
    ASSERT_EQ(reader.Peek(&frame), Look::kFrame);
    EXPECT_EQ(frame, FrameOf(7, number));
    ASSERT_EQ(reader.Peek(&frame), Look::kFrame) << "looking moves nothing";
    reader.Pass();
  }
}

TEST(SharedRing, AFrameFillsTheRingAndNoLargerOneFits) {
  Ring ring(16);
  RingWriter writer = ring.Writer();
  writer.Begin(1);
  RingReader reader = ring.Reader();
  reader.Join();
  EXPECT_TRUE(writer.Fits(15));
  EXPECT_FALSE(writer.Fits(16));
  std::vector<uint64_t> frame;
  writer.Append(std::vector<uint64_t>(15, 4), false);
  ASSERT_EQ(reader.Peek(&frame), Look::kFrame);
  EXPECT_EQ(frame, std::vector<uint64_t>(15, 4));
  writer.Append(std::vector<uint64_t>(1, 5), false);
  EXPECT_EQ(reader.Peek(&frame), Look::kOverrun);
  EXPECT_DEATH(writer.Append(std::vector<uint64_t>(16, 4), false), "I-90");
}

TEST(SharedRing, ANewBootBeginsBehindAHalfWrittenFrame) {
  Ring ring(64);
  bool die = false;
  struct Died {};
  RingWriter killed(&ring.head, ring.words, [&](WritePoint point) {
    if (die && point == WritePoint::kHalfWritten) throw Died();
  });
  killed.Begin(1);
  RingReader reader = ring.Reader();
  reader.Join();
  killed.Append(FrameOf(1, 3), false);
  die = true;
  EXPECT_THROW(killed.Append(FrameOf(1, 4), false), Died);
  std::vector<uint64_t> frame;
  ASSERT_EQ(reader.Peek(&frame), Look::kFrame);
  reader.Pass();
  EXPECT_EQ(reader.Peek(&frame), Look::kNothing) << "half a frame is none";

  RingWriter writer = ring.Writer();
  writer.Begin(2);
  EXPECT_EQ(reader.Peek(&frame), Look::kOtherBoot);
  EXPECT_EQ(reader.Join(), 2u);
  EXPECT_EQ(reader.Peek(&frame), Look::kNothing);
  writer.Append(FrameOf(2, 1), false);
  ASSERT_EQ(reader.Peek(&frame), Look::kFrame);
  EXPECT_EQ(frame, FrameOf(2, 1));
}

TEST(SharedRing, SkipsToANewerSnapshotOnly) {
  Ring ring(64);
  RingWriter writer = ring.Writer();
  writer.Begin(1);
  RingReader reader = ring.Reader();
  reader.Join();
  EXPECT_FALSE(reader.SkipToSnapshot());
  writer.Append(FrameOf(1, 1), false);
  writer.Append(FrameOf(1, 2), true);
  EXPECT_TRUE(reader.SkipToSnapshot());
  std::vector<uint64_t> frame;
  ASSERT_EQ(reader.Peek(&frame), Look::kFrame);
  EXPECT_EQ(frame, FrameOf(1, 2));
  EXPECT_TRUE(reader.SkipToSnapshot()) << "still there";
  reader.Pass();
  EXPECT_FALSE(reader.SkipToSnapshot());
  writer.Begin(2);
  reader.Join();
  EXPECT_FALSE(reader.SkipToSnapshot()) << "another boot's";
}

// One reader of the test below: what it gets must be whole, of the boot it joined, and in order but
// for skips; it goes on until it has seen the last frame of the last boot.
void ReadToTheEnd(Ring& ring, uint64_t last_boot, uint64_t last, std::atomic<uint64_t>* whole) {
  RingReader reader = ring.Reader();
  uint64_t boot = reader.Join();
  uint64_t next = 0;
  std::vector<uint64_t> frame;
  for (;;) {
    switch (reader.Peek(&frame)) {
      case Look::kNothing:
        if (reader.BootChanged()) {
          boot = reader.Join();
          next = 0;
        }
        std::this_thread::yield();
        continue;
      case Look::kOtherBoot:
        boot = reader.Join();
        next = 0;
        continue;
      case Look::kOverrun:
        reader.SkipToSnapshot();
        continue;
      case Look::kDamaged:
        FAIL() << "nothing here is damaged";
      case Look::kFrame:
        break;
    }
    ASSERT_GE(frame.size(), 2u);
    ASSERT_EQ(frame, FrameOf(boot, frame[1])) << "torn, or of another boot";
    ASSERT_GE(frame[1], next) << "backwards";
    next = frame[1] + 1;
    whole->fetch_add(1, std::memory_order_relaxed);
    if (boot == last_boot && frame[1] == last) return;
    reader.Pass();
  }
}

TEST(SharedRing, I90ReadersOfAnySpeedGetWholeFrames) {
  constexpr uint64_t kFrames = 4000;
  constexpr uint64_t kBoots = 3;
  Ring ring(256);
  std::atomic<uint64_t> whole{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] { ReadToTheEnd(ring, kBoots, kFrames, &whole); });
  }
  for (uint64_t boot = 1; boot <= kBoots; ++boot) {
    RingWriter writer = ring.Writer();
    writer.Begin(boot);
    for (uint64_t number = 1; number <= kFrames; ++number) {
      writer.Append(FrameOf(boot, number), number % 8 == 0 || number == kFrames);
      if (number % 64 == 0) std::this_thread::yield();
    }
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_GE(whole.load(), 3u) << "each saw the last one";
}

}  // namespace
}  // namespace kvfence
