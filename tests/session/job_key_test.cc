// Claim: a job key file is taken only under the rules of protocol A.1, and each refusal names the mending
// command. How: files, links, pipes, folders and a copy of a Kubernetes secret mount in a temporary folder;
// texts one edit away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sealring/crypto/kdf.h"
#include "sealring/session/identity.h"

namespace sealring {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kBase64 = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";  // bytes 0 to 31
const std::string kLine = "sealring-job-key-1 " + std::string(kBase64);

class JobKeyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sealring-key-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string make(const std::string& name, const std::string& content, mode_t mode = 0600) const {
    std::ofstream(path(name)) << content;
    EXPECT_EQ(::chmod(path(name).c_str(), mode), 0);
    return path(name);
  }
  /// The error's message; fails when the file was taken.
  static std::string refused(const std::string& path, Code code = Code::key_file) {
    const auto key = JobKey::read(path);
    EXPECT_FALSE(key) << path;
    if (key) return {};
    EXPECT_EQ(key.error().code, code);
    EXPECT_EQ(key.error().stage, "identity.key_file");
    EXPECT_THAT(key.error().message(), Not(HasSubstr(std::string(kBase64.substr(0, 8)))));  // never the key
    return key.error().message();
  }
  fs::path folder_;
};

TEST(JobKey, text) {
  const JobKey key = JobKey::parse(kLine).value();
  ASSERT_EQ(key.bytes().size(), 32u);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(key.bytes().data()[i], static_cast<std::byte>(i));
  EXPECT_FALSE(key.world());
  EXPECT_TRUE(JobKey::parse(kLine + "\n"));
  EXPECT_EQ(JobKey::parse(kLine + " world=8\n").value().world(), 8u);
  EXPECT_EQ(JobKey::parse(kLine + " world=1024").value().world(), 1024u);
  EXPECT_EQ(JobKey::parse(kLine + " world=8").value().clone().world(), 8u);
  const std::string other =
      "sealring-job-key-1 " + std::string("+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/8=");
  EXPECT_EQ(to_hex(JobKey::parse(other).value().bytes().view().first(4)), "fbffbffb");
}

TEST(JobKey, texts_one_edit_away_are_refused) {
  const std::string base(kBase64), head = "sealring-job-key-1 ";
  std::vector<std::string> wrong{"",
                                 "\n",
                                 base,
                                 "sealring-job-key-2 " + base,
                                 " " + kLine,
                                 head + " " + base,
                                 head + base.substr(1),
                                 head + "A" + base,
                                 head + base.substr(0, 43),
                                 head + base.substr(0, 43) + "A",
                                 head + base.substr(0, 42) + "9=",  // unused bits set
                                 head + base.substr(0, 42) + "==",
                                 head + std::string(43, 'A') + "=",  // all zero
                                 kLine + " ",
                                 kLine + "\n\n",
                                 kLine + "\r\n",
                                 kLine + "\nmore",
                                 kLine + " world=",
                                 kLine + " world=0",
                                 kLine + " world=08",
                                 kLine + " world=-1",
                                 kLine + " world=1025",
                                 kLine + " world=99999999999",
                                 kLine + " world=8 x",
                                 kLine + "  world=8",
                                 kLine + " size=8",
                                 std::string(kLine.size(), '\0')};
  for (std::size_t i = 0; i < base.size() - 1; ++i) {
    for (const char c : {'-', '_', '=', ' ', '\0', '\x80'}) {
      std::string text = base;
      text[i] = c;
      wrong.push_back(head + text);
    }
  }
  for (const std::string& text : wrong) {
    const auto key = JobKey::parse(text);
    ASSERT_FALSE(key) << text;
    EXPECT_EQ(key.error().code, Code::key_file);
  }
}

TEST(JobKey, what_is_derived_from_it) {
  const JobKey key = JobKey::parse(kLine).value(), other = JobKey::generate();
  EXPECT_EQ(key.fingerprint().size(), 16u);
  EXPECT_EQ(key.fingerprint(), JobKey::parse(kLine + " world=8").value().fingerprint());
  EXPECT_NE(key.fingerprint(), other.fingerprint());
  const Identity identity = make_job_key_identity(key);
  EXPECT_EQ(identity.fingerprint, key.fingerprint());
  EXPECT_EQ(identity.description, "job key, not attested");
  // [protocol A.1, A.2] JK, job_id and the store's secret by their formulas
  const SecretBytes jk = hkdf_extract(label("job"), key.bytes().view());
  EXPECT_EQ(to_hex(identity.job_id), to_hex(hkdf_expand(jk.view(), {label("job_id")}, 16).view()));
  EXPECT_EQ(to_hex(identity.store_secret.view()),
            to_hex(hkdf_extract(label("rdv"), key.bytes().view()).view()));
  EXPECT_TRUE(identity.attester->noise_psk({}));
  EXPECT_FALSE(make_study_identity(key).attester->noise_psk({}));  // KK for all kinds but 1 and 3
  EXPECT_THAT(make_study_identity(key).description, HasSubstr("NOT CONFIDENTIAL"));
  EXPECT_EQ(make_study_identity(key).attester->kind(), IdentityKind::study);
}

TEST_F(JobKeyFile, written_and_read_again) {
  const JobKey key = JobKey::generate();
  const mode_t before = ::umask(0);
  const auto written = key.write(path("job.key"));
  ::umask(0777);
  const auto strict = key.write(path("strict.key"));
  ::umask(before);
  ASSERT_TRUE(written) << written.error().message();
  ASSERT_TRUE(strict) << strict.error().message();
  for (const char* name : {"job.key", "strict.key"}) {
    struct stat status;
    ASSERT_EQ(::stat(path(name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    const auto back = JobKey::read(path(name));
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_TRUE(constant_time_equal(back->bytes().view(), key.bytes().view()));
  }
  ASSERT_TRUE(JobKey::parse(kLine + " world=8").value().write(path("world.key")));
  std::string line;
  std::getline(std::ifstream(path("world.key")), line);
  EXPECT_EQ(line, kLine + " world=8");
}

TEST_F(JobKeyFile, is_never_overwritten) {
  const std::string file = make("job.key", "precious");
  fs::create_symlink("elsewhere", path("link"));
  for (const std::string& target : {file, path("link")}) {
    const auto written = JobKey::generate().write(target);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, Code::key_file);
    EXPECT_THAT(written.error().message(), HasSubstr("not overwritten"));
  }
  std::string content;
  std::getline(std::ifstream(file), content);
  EXPECT_EQ(content, "precious");
  EXPECT_FALSE(fs::exists(path("elsewhere")));
  const auto nowhere = JobKey::generate().write(path("no/folder"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::key_file);
}

TEST_F(JobKeyFile, modes) {
  for (const mode_t mode : {0600, 0400}) {
    const auto key = JobKey::read(make("good" + std::to_string(mode), kLine + "\n", mode));
    EXPECT_TRUE(key) << key.error().message();
  }
  for (const mode_t mode : {0644, 0640, 0660, 0604, 0700, 0500, 0601, 04600, 02600, 0440}) {
    const std::string file = make("bad" + std::to_string(mode), kLine + "\n", mode);
    const std::string message = refused(file);
    EXPECT_THAT(message, HasSubstr("it must have 0600 or 0400"));
    EXPECT_THAT(message, HasSubstr("run `chmod 0600 '" + file + "'`"));
  }
  EXPECT_THAT(refused(make("shown", kLine, 0644)), HasSubstr("has mode 0644"));
}

TEST_F(JobKeyFile, owners) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing an owner needs root";
  const std::string file = make("job.key", kLine);
  ASSERT_EQ(::chown(file.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  const std::string message = refused(file);
  EXPECT_THAT(message, HasSubstr("belongs to user 12345, not to user 0 or root"));
  EXPECT_THAT(message, HasSubstr("run `sudo chown 0 '" + file + "'`"));
  // Another user takes its own file, and is told what to do about one that it may not read.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string roots = make("roots.key", kLine);
    const bool became =
        ::chmod(folder_.c_str(), 0755) == 0 && ::chown(file.c_str(), 54321, 0) == 0 && ::seteuid(54321) == 0;
    if (!became || !JobKey::read(file)) ::_exit(1);
    const auto foreign = JobKey::read(roots);
    const bool told = !foreign && foreign.error().message().find("sudo chown 54321") != std::string::npos;
    ::_exit(told ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(JobKeyFile, missing_and_not_regular) {
  EXPECT_THAT(refused(path("job.key")), HasSubstr("does not exist"));
  EXPECT_THAT(refused(path("job.key")), HasSubstr("sealring keygen '" + path("job.key") + "'"));
  EXPECT_THAT(refused(folder_.string()), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refused(path("pipe")), HasSubstr("not a regular file"));  // and does not hang
  EXPECT_THAT(refused("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(refused(path("it's")), HasSubstr("it'\\''s'"));  // the command can be pasted
  refused("");
}

TEST_F(JobKeyFile, contents) {
  EXPECT_THAT(refused(make("empty", "")), HasSubstr(path("empty") + ": the job key does not begin with"));
  EXPECT_THAT(refused(make("long", kLine + std::string(200, '\n'))), HasSubstr("longer than a job key"));
  EXPECT_THAT(refused(make("bad", "sealring-job-key-1 AAEC")), HasSubstr("not 32 bytes in base64"));
  EXPECT_THAT(refused(make("zero", "sealring-job-key-1 " + std::string(43, 'A') + "=")),
              HasSubstr("all zero"));
}

TEST_F(JobKeyFile, symbolic_links) {
  make("job.key", kLine);
  fs::create_symlink("job.key", path("link"));
  EXPECT_THAT(refused(path("link")), HasSubstr("is a symbolic link"));
  EXPECT_THAT(refused(path("link")), HasSubstr("readlink -f"));
  fs::create_symlink("nothing", path("dangling"));
  EXPECT_THAT(refused(path("dangling")), HasSubstr("is a symbolic link"));
  fs::create_directory(path("real"));
  fs::rename(path("job.key"), path("real/job.key"));
  fs::create_symlink("real", path("folder"));
  EXPECT_TRUE(JobKey::read(path("folder/job.key")));  // a folder on the way may be a link
}

/// What the kubelet makes of a secret volume.
class SecretMount : public JobKeyFile {
 protected:
  void SetUp() override {
    JobKeyFile::SetUp();
    fs::create_directory(path("..2024_01_02"));
    make("..2024_01_02/job.key", kLine, 0400);
    fs::create_symlink("..2024_01_02", path("..data"));
    fs::create_symlink("..data/job.key", path("job.key"));
  }
};

TEST_F(SecretMount, is_accepted) {
  const auto key = JobKey::read(path("job.key"));
  EXPECT_TRUE(key) << key.error().message();
  fs::current_path(folder_);
  EXPECT_TRUE(JobKey::read("job.key"));
  fs::current_path("/");
}

TEST_F(SecretMount, keeps_the_rules_of_the_file) {
  ASSERT_EQ(::chmod(path("..data/job.key").c_str(), 0644), 0);
  const std::string message = refused(path("job.key"));
  EXPECT_THAT(message, HasSubstr("defaultMode: 0400"));
  EXPECT_THAT(message, Not(HasSubstr("run `chmod")));
}

TEST_F(SecretMount, nothing_outside_of_the_mount_is_reached) {
  const auto relink = [this](const std::string& name, const std::string& target) {
    fs::remove(path(name));
    fs::create_symlink(target, path(name));
  };
  fs::create_directory(path("real"));
  make("real/job.key", kLine, 0400);
  relink("job.key", "real/job.key");  // not through ..data
  refused(path("job.key"));
  relink("job.key", "..data/other");  // another name
  refused(path("job.key"));
  relink("job.key", "..data/job.key");
  ASSERT_TRUE(JobKey::read(path("job.key")));
  for (const std::string& target :
       std::vector<std::string>{"real", "/tmp", "../x", "..", path("real"), "..2024_01_02/"}) {
    relink("..data", target);
    refused(path("job.key"));
  }
  fs::create_directory_symlink("real", path("..2025"));  // the version itself is a link
  relink("..data", "..2025");
  refused(path("job.key"));
  relink("..data", "..2024_01_02");
  relink("..2024_01_02/job.key", "../real/job.key");  // the file itself is a link
  refused(path("job.key"));
}

TEST_F(SecretMount, links_of_others_are_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing an owner needs root";
  for (const char* name : {"job.key", "..data"}) {
    ASSERT_EQ(::lchown(path(name).c_str(), 12345, static_cast<gid_t>(-1)), 0);
    refused(path("job.key"));
    ASSERT_EQ(::lchown(path(name).c_str(), 0, static_cast<gid_t>(-1)), 0);
    EXPECT_TRUE(JobKey::read(path("job.key")));
  }
}

}  // namespace
}  // namespace sealring
