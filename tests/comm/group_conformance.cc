#include "comm/group_conformance.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace sluice::test {
namespace {

void expect(bool right, const std::string& what, const Group& group) {
  if (!right) throw std::runtime_error("rank " + std::to_string(group.rank()) + ": " + what);
}

// What rank r holds at place i: known to all ranks without talking. Of many magnitudes and both signs, so that another
// order of a sum gives other bits.
float value_of(int r, std::size_t i, int salt = 0) {
  std::uint64_t x =
      (i + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(r * 7919 + salt * 31 + 1) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
  const float unit = static_cast<float>(static_cast<std::int64_t>(x) >> 40) * 0x1p-23f;
  return unit * static_cast<float>(1u << ((x >> 3) % 20u));
}

float serial_sum(int ranks, std::size_t i, int salt = 0) {
  float sum = value_of(0, i, salt);
  for (int r = 1; r < ranks; ++r) sum += value_of(r, i, salt);
  return sum;
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

struct Parts {
  std::vector<std::int64_t> offsets, counts;
  std::int64_t total = 0;
  RankParts view() const { return {offsets.data(), counts.data()}; }
};

// Uneven, some of them empty, with a hole of one unit before each.
Parts uneven_parts(int ranks, std::int64_t unit) {
  Parts p;
  for (int r = 0; r < ranks; ++r) {
    p.total += unit;
    p.offsets.push_back(p.total);
    p.counts.push_back(r % 3 == 1 ? 0 : (r * 5 + 3) * unit);
    p.total += p.counts.back();
  }
  return p;
}

std::byte byte_of(int from, int to, std::int64_t i) {
  return static_cast<std::byte>(from * 59 + to * 17 + i * 3 + i / 256);
}

void all_reduce(Group& g, std::size_t count, int salt) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = value_of(g.rank(), i, salt);
  g.all_reduce_sum(data.data(), count);
  for (std::size_t i = 0; i < count; ++i) {
    expect(same_bits(data[i], serial_sum(g.size(), i, salt)), "all_reduce: element " + std::to_string(i), g);
  }
}

void sums_are_serial(Group& g) {
  for (const std::size_t count : {0u, 1u, 3u, 257u, 4096u, 4097u, 10'007u})
    all_reduce(g, count, static_cast<int>(count));
}

// Negative zero stays: a sum that began at +0 would lose it.
void sum_of_negative_zeros(Group& g) {
  std::vector<float> data(5, -0.0f);
  g.all_reduce_sum(data.data(), data.size());
  for (const float x : data) expect(same_bits(x, -0.0f), "all_reduce of -0", g);
}

// The same element alone and among others, which reach another path.
void element_is_independent(Group& g) {
  const std::size_t count = 9001;
  std::vector<float> many(count), one(1);
  for (std::size_t i = 0; i < count; ++i) many[i] = value_of(g.rank(), i);
  one[0] = many[4321];
  g.all_reduce_sum(many.data(), many.size());
  g.all_reduce_sum(one.data(), 1);
  expect(same_bits(one[0], many[4321]), "an element's sum depends on its neighbours", g);
}

void large_sum(Group& g) { all_reduce(g, 1'000'003, 5); }

void barrier_and_broadcast(Group& g) {
  for (int root = 0; root < g.size(); ++root) {
    for (const std::size_t bytes : {0u, 1u, 1000u, 70'000u}) {
      std::vector<std::byte> data(bytes);
      for (std::size_t i = 0; i < bytes && g.rank() == root; ++i)
        data[i] = byte_of(root, 0, static_cast<std::int64_t>(i));
      g.broadcast(data.data(), bytes, root);
      for (std::size_t i = 0; i < bytes; ++i) {
        expect(data[i] == byte_of(root, 0, static_cast<std::int64_t>(i)), "broadcast: byte " + std::to_string(i), g);
      }
    }
    g.barrier();
  }
}

void gather_uneven(Group& g, std::int64_t unit, bool in_place) {
  const Parts parts = uneven_parts(g.size(), unit);
  const auto mine = static_cast<std::size_t>(g.rank());
  std::vector<std::byte> receive(static_cast<std::size_t>(parts.total), std::byte{0xee}),
      send(static_cast<std::size_t>(parts.counts[mine]));
  for (std::int64_t i = 0; i < parts.counts[mine]; ++i) send[static_cast<std::size_t>(i)] = byte_of(g.rank(), 0, i);
  std::byte* const own = receive.data() + parts.offsets[mine];
  if (in_place) std::copy(send.begin(), send.end(), own);
  g.all_gather(in_place ? own : send.data(), receive.data(), parts.view());
  std::vector<std::byte> expected(receive.size(), std::byte{0xee});
  for (int r = 0; r < g.size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    for (std::int64_t i = 0; i < parts.counts[at]; ++i)
      expected[static_cast<std::size_t>(parts.offsets[at] + i)] = byte_of(r, 0, i);
  }
  expect(receive == expected, "all_gather of uneven parts", g);
}

void gathers(Group& g) {
  for (const std::int64_t unit : {1, 13, 40'000}) {
    gather_uneven(g, unit, false);
    gather_uneven(g, unit, true);
  }
}

void reduce_scatters(Group& g) {
  for (const std::int64_t unit : {1, 11, 3001}) {
    const Parts parts = uneven_parts(g.size(), unit);
    std::vector<float> send(static_cast<std::size_t>(parts.total));
    for (std::size_t i = 0; i < send.size(); ++i) send[i] = value_of(g.rank(), i);
    const auto mine = static_cast<std::size_t>(g.rank());
    std::vector<float> receive(static_cast<std::size_t>(parts.counts[mine]));
    g.reduce_scatter_sum(send.data(), receive.data(), parts.view());
    for (std::size_t i = 0; i < receive.size(); ++i) {
      const float sum = serial_sum(g.size(), static_cast<std::size_t>(parts.offsets[mine]) + i);
      expect(same_bits(receive[i], sum), "reduce_scatter: element " + std::to_string(i), g);
    }
    for (std::size_t i = 0; i < send.size(); ++i)
      expect(same_bits(send[i], value_of(g.rank(), i)), "send was changed", g);
  }
}

std::int64_t bytes_between(int from, int to, std::int64_t unit) { return (from + 2 * to) % 4 * unit; }

// In two halves, with work between them that the peers wait for.
void exchange_uneven(Group& g, std::int64_t unit, bool work) {
  Parts send, receive;
  for (int r = 0; r < g.size(); ++r) {
    send.offsets.push_back(send.total);
    send.counts.push_back(bytes_between(g.rank(), r, unit));
    send.total += send.counts.back();
    receive.offsets.push_back(receive.total);
    receive.counts.push_back(bytes_between(r, g.rank(), unit));
    receive.total += receive.counts.back();
  }
  std::vector<std::byte> out(static_cast<std::size_t>(send.total)), in(static_cast<std::size_t>(receive.total));
  for (int r = 0; r < g.size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    for (std::int64_t i = 0; i < send.counts[at]; ++i)
      out[static_cast<std::size_t>(send.offsets[at] + i)] = byte_of(g.rank(), r, i);
  }
  g.start_all_to_all({out.data(), send.view(), in.data(), receive.view()});
  double sum = 0;
  for (int i = 0; work && i < 20'000 * (g.rank() + 1); ++i)
    sum += static_cast<double>(value_of(g.rank(), static_cast<std::size_t>(i % 7)));
  expect(sum < 1e30, "work between the halves", g);
  g.finish_all_to_all();
  for (int r = 0; r < g.size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    for (std::int64_t i = 0; i < receive.counts[at]; ++i) {
      expect(in[static_cast<std::size_t>(receive.offsets[at] + i)] == byte_of(r, g.rank(), i),
             "all_to_all from " + std::to_string(r), g);
    }
  }
}

void exchanges(Group& g) {
  for (const std::int64_t unit : {0, 1, 1000, 200'000}) {
    exchange_uneven(g, unit, false);
    exchange_uneven(g, unit, true);
  }
}

// Every rank in another order of work, many small operations: what one forgets to wait for shows here.
void many_small(Group& g) {
  for (int i = 0; i < 200; ++i) {
    float x = value_of(g.rank(), static_cast<std::size_t>(i));
    g.all_reduce_sum(&x, 1);
    expect(same_bits(x, serial_sum(g.size(), static_cast<std::size_t>(i))), "small sum " + std::to_string(i), g);
    if (i % 10 == 0) exchange_uneven(g, 3, i % 20 == 0);
  }
}

// Even and odd ranks, then a part of a part, used in turn with the parent.
void splits(Group& g) {
  const std::unique_ptr<Group> half = g.split(g.rank() % 2);
  expect(half->size() == (g.size() + 1 - g.rank() % 2) / 2, "split: size", g);
  expect(half->rank() == g.rank() / 2, "split: rank", g);
  const std::unique_ptr<Group> alone = half->split(half->rank());
  expect(alone->size() == 1 && alone->rank() == 0, "split of a split", g);
  for (int round = 0; round < 3; ++round) {
    float x = value_of(g.rank(), 0), all = x, own = x;
    half->all_reduce_sum(&x, 1);
    float sum = value_of(g.rank() % 2, 0);
    for (int r = g.rank() % 2 + 2; r < g.size(); r += 2) sum += value_of(r, 0);
    expect(same_bits(x, sum), "sum over a part", g);
    g.all_reduce_sum(&all, 1);
    expect(same_bits(all, serial_sum(g.size(), 0)), "sum over the parent", g);
    alone->all_reduce_sum(&own, 1);
    expect(same_bits(own, value_of(g.rank(), 0)), "sum over one rank", g);
  }
}

}  // namespace

const std::vector<Check>& conformance_checks() {
  static const std::vector<Check> checks = {
      {"SumsAreSerial", sums_are_serial},
      {"SumOfNegativeZeros", sum_of_negative_zeros},
      {"ElementIsIndependent", element_is_independent},
      {"LargeSum", large_sum},
      {"BarrierAndBroadcast", barrier_and_broadcast},
      {"Gathers", gathers},
      {"ReduceScatters", reduce_scatters},
      {"Exchanges", exchanges},
      {"ManySmall", many_small},
      {"Splits", splits},
  };
  return checks;
}

}  // namespace sluice::test
