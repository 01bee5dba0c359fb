#include "checkpoint/checkpoint.h"

#include "checkpoint/safetensors_writer.h"
#include "test_util.h"

namespace sluice::ckpt {
namespace {

// A folder with config.json to which shards are added.
class Folder : public TempFolder {
 public:
  Folder() { write("config.json", R"({"model_type": "toy", "eos_token_id": 3})"); }

  // Every tensor is one F32 of value `value`.
  void shard(std::string_view name, const std::vector<std::string>& tensors, float value = 1.0f) const {
    const std::vector<float> data = {value};
    SafetensorsWriter writer;
    for (const std::string& tensor : tensors) writer.add(tensor, DType::f32, {1}, data);
    writer.write(file(name));
  }
  void index(std::string_view map) const {
    write(kIndexName, R"({"metadata": {}, "weight_map": )" + std::string(map) + "}");
  }
  std::string refusal() const {
    return message_of([&] { Checkpoint::open(path()); });
  }
};

float value_of(const Checkpoint& c, std::string_view name) {
  return *reinterpret_cast<const float*>(c.find(name)->data);
}

TEST(Checkpoint, OneFile) {
  const Folder f;
  f.shard("model.safetensors", {"a", "b"});
  f.shard("reference.safetensors", {"other"});
  const auto c = Checkpoint::open(f.path());
  EXPECT_EQ(c->tensors().size(), 2u);
  EXPECT_EQ(c->tensor_bytes(), 8u);
  EXPECT_EQ(c->config().model_type(), "toy");
  EXPECT_EQ(c->generation().eos_token_ids, std::vector<std::int64_t>{3});
  EXPECT_NE(c->find("a"), nullptr);
  EXPECT_EQ(c->find("other"), nullptr);
  EXPECT_EQ(c->file_of(*c->find("b")), f.file("model.safetensors"));
  EXPECT_TRUE(c->notes().empty());
}

TEST(Checkpoint, ShardsByIndexWhateverTheirNames) {
  const Folder f;
  f.shard("model.safetensors-00001-of-00002.safetensors", {"a"}, 1);
  f.shard("part two", {"b", "c"}, 2);
  f.shard("model-extra.safetensors", {"d"});
  f.index(R"({"a": "model.safetensors-00001-of-00002.safetensors", "b": "part two", "c": "part two"})");
  f.write("generation_config.json", R"({"eos_token_id": [8, 9]})");
  const auto c = Checkpoint::open(f.path());
  EXPECT_EQ(c->tensors().size(), 3u);
  EXPECT_EQ(value_of(*c, "a"), 1.0f);
  EXPECT_EQ(value_of(*c, "c"), 2.0f);
  EXPECT_EQ(c->shards().size(), 2u);
  EXPECT_EQ(c->generation().eos_token_ids, (std::vector<std::int64_t>{8, 9}));
}

TEST(Checkpoint, ShardsWithoutIndexInOrderOfName) {
  const Folder f;
  f.shard("model-00002-of-00002.safetensors", {"b"});
  f.shard("model-00001-of-00002.safetensors", {"a"});
  f.shard("reference.safetensors", {"other"});
  const auto c = Checkpoint::open(f.path());
  ASSERT_EQ(c->tensors().size(), 2u);
  EXPECT_EQ(c->tensors()[0]->name, "a");
  EXPECT_EQ(c->tensors()[1]->shard, 1u);
}

TEST(Checkpoint, SymbolicLinksAreFollowed) {
  const Folder f;
  std::filesystem::create_directory(f.file("blobs"));
  f.shard("blobs/123", {"a"});
  std::filesystem::create_symlink("blobs/123", f.file("model.safetensors"));
  EXPECT_NE(Checkpoint::open(f.path())->find("a"), nullptr);
  std::filesystem::remove(f.file("blobs/123"));
  expect_contains(f.refusal(), "1 of 1 shards missing: model.safetensors");
}

TEST(Checkpoint, MissingShardsAreAllNamed) {
  const Folder f;
  f.shard("s1", {"a"});
  f.index(R"({"a": "s1", "b": "s2", "c": "s3", "d": "s3"})");
  const std::string m = f.refusal();
  expect_contains(m, "2 of 3 shards missing: s2, s3");
  expect_contains(m, "is the download complete?");
}

TEST(Checkpoint, MissingShardWithoutIndexShowsInTheNames) {
  const Folder f;
  f.shard("model-00001-of-00003.safetensors", {"a"});
  f.shard("model-00003-of-00003.safetensors", {"b"});
  expect_contains(f.refusal(), "found 2 shards, among them model-00001-of-00003.safetensors; expected 3 shards");
}

TEST(Checkpoint, IndexMustAgreeWithTheShards) {
  const Folder f;
  f.shard("s1", {"a"});
  f.shard("s2", {"b", "extra"});
  f.index(R"({"a": "s1", "b": "s2", "gone": "s2"})");
  expect_contains(f.refusal(), "1 tensors are not in the shard that the index names: gone in s2");
  f.index(R"({"a": "s2", "b": "s2", "extra": "s1"})");
  expect_contains(f.refusal(), "2 tensors are not in the shard that the index names: a in s2, extra in s1");
  f.index(R"({"a": "s1", "b": "s2"})");
  const auto c = Checkpoint::open(f.path());
  EXPECT_NE(c->find("extra"), nullptr);
  ASSERT_EQ(c->notes().size(), 1u);
  expect_contains(c->notes()[0], "1 tensors are in the shards but not in model.safetensors.index.json: extra");
}

TEST(Checkpoint, OneTensorInTwoShardsIsSettledByTheIndexOnly) {
  const Folder f;
  f.shard("model-a.safetensors", {"t", "u"}, 1);
  f.shard("model-b.safetensors", {"t"}, 2);
  expect_contains(f.refusal(), "model-b.safetensors: tensor \"t\" is also in " + f.file("model-a.safetensors"));
  f.index(R"({"t": "model-b.safetensors", "u": "model-a.safetensors"})");
  const auto c = Checkpoint::open(f.path());
  EXPECT_EQ(value_of(*c, "t"), 2.0f);
  EXPECT_EQ(c->tensors().size(), 2u);
  ASSERT_EQ(c->notes().size(), 1u);
  expect_contains(c->notes()[0], "1 tensors are in two shards");
}

TEST(Checkpoint, RefusesShardNamesThatLeaveTheFolder) {
  for (const char* name : {"../x", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
    const Folder f;
    f.index(std::string(R"({"t": ")") + name + "\"}");
    expect_contains(f.refusal(), "weight_map: t: found");
  }
}

TEST(Checkpoint, RefusesBadIndexFiles) {
  const auto error = [](std::string_view text) { return message_of([&] { parse_index(text, "i.json"); }); };
  expect_contains(error("[]"), "i.json: found array; expected an object");
  expect_contains(error("{}"), "i.json: weight_map: missing");
  expect_contains(error(R"({"weight_map": []})"), "i.json: weight_map: found array");
  expect_contains(error(R"({"weight_map": {}})"), "i.json: weight_map: is empty");
  expect_contains(error(R"({"weight_map": {"a": 1}})"), "i.json: weight_map: a: found 1; expected the plain name");
  expect_contains(error(R"({"weight_map": {"a": "x", "a": "y"}})"), "duplicate key");
}

TEST(Checkpoint, RefusesWhatIsNoCheckpoint) {
  const TempFolder empty;
  expect_contains(message_of([&] { Checkpoint::open(empty.file("absent")); }),
                  "absent: does not exist; expected the folder");
  expect_contains(message_of([&] { Checkpoint::open(empty.write("file", "x")); }), "file: is no folder");
  expect_contains(message_of([&] { Checkpoint::open(empty.path()); }), "config.json");
  const Folder f;
  expect_contains(f.refusal(), "has no weights; expected model.safetensors");
  f.write("pytorch_model.bin", "x");
  expect_contains(f.refusal(), "has no weights that can be read (found pytorch_model.bin)");
  f.write("model.safetensors", "short");
  expect_contains(f.refusal(), "model.safetensors: the file has 5 bytes");
  f.write("config.json", "{");
  expect_contains(f.refusal(), "config.json: not valid JSON");
  f.write("config.json", "{}");
  f.write("generation_config.json", R"({"top_k": "many"})");
  expect_contains(f.refusal(), "generation_config.json: top_k: found string");
}

TEST(Checkpoint, MappingOutlivesTheCheckpoint) {
  const Folder f;
  f.shard("model.safetensors", {"a"}, 5);
  auto c = Checkpoint::open(f.path());
  const std::shared_ptr<const void> mapping = c->mapping();
  const auto* value = reinterpret_cast<const float*>(c->find("a")->data);
  c.reset();
  EXPECT_EQ(*value, 5.0f);
}

TEST(Checkpoint, BundledModelsOpen) {
  const std::string models = std::string(SLUICE_SOURCE_DIR) + "/models/";
  for (const char* name : {"qwen3_moe", "deepseek_v3", "gpt_oss"}) {
    const auto c = Checkpoint::open(models + name);
    EXPECT_EQ(c->config().model_type(), name);
    EXPECT_EQ(c->config().dtype(), DType::bf16);
    EXPECT_EQ(c->generation().stop_strings, std::vector<std::string>{"\n\n"});
    EXPECT_EQ(c->generation().eos_token_ids, std::vector<std::int64_t>{0});
    EXPECT_EQ(c->shards().size(), 2u);
    EXPECT_TRUE(c->notes().empty());
    ASSERT_NE(c->find("lm_head.weight"), nullptr);
    EXPECT_EQ(c->find("lm_head.weight")->shape, (std::vector<std::int64_t>{1024, 256}));
  }
}

}  // namespace
}  // namespace sluice::ckpt
