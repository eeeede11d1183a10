# Claim: keygen makes a private key file once, shows its fingerprint and never its bytes; explain and
#   doctor tell the truth.
# How: modes and contents of the file; a second run; unwritable places; doctor with good and bad key files.

import re
import stat


def test_keygen_writes_a_private_file_once(tool, tmp_path):
    path = tmp_path / "job.key"
    made = tool("keygen", path)
    assert made.returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    match = re.fullmatch(r"sealring-job-key-1 ([A-Za-z0-9+/]{43}=)\n?", text)
    assert match
    assert match[1] not in made.stdout + made.stderr
    assert re.search(r"fingerprint [0-9a-f]{16}\b", made.stdout)
    again = tool("keygen", path)
    assert again.returncode == 1 and "SR-E106" in again.stderr
    assert path.read_text() == text


def test_two_keys_differ(tool, tmp_path):
    first, second = tool("keygen", tmp_path / "a").stdout, tool("keygen", tmp_path / "b").stdout
    assert first.split()[-1] != second.split()[-1]


def test_keygen_into_nowhere(tool, tmp_path):
    got = tool("keygen", tmp_path / "no" / "job.key")
    assert got.returncode == 1 and re.search(r"SR-E10[456]", got.stderr)


def test_explain_knows_a_code_by_all_its_names(tool):
    texts = {tool("explain", name).stdout for name in ("602", "SR-E602", "DATA_TAG", "data_tag")}
    assert len(texts) == 1
    text = texts.pop()
    assert "SR-E602  DATA_TAG" in text and "What to do:" in text and "poisoned" in text


def test_explain_all_lists_every_code(tool, root):
    declared = re.findall(
        r"\b[a-z_]+ = (\d+)", (root / "sealring/base/error.h").read_text().split("struct Error")[0]
    )
    listed = re.findall(r"^ *(\d+)  ", tool("explain", "--all").stdout, re.M)
    assert sorted(map(int, listed)) == sorted(map(int, declared))


def test_doctor_shows_machine_and_protection(tool, tmp_path):
    key = tmp_path / "job.key"
    fingerprint = tool("keygen", key).stdout.split()[-1]
    got = tool("doctor", env={"SEALRING_JOB_KEY_FILE": str(key)})
    assert got.returncode == 0
    for word in (
        "AES instructions",
        "OpenSSL 3",
        "GPU",
        "seal",
        "not attested",
        "What would be protected",
        fingerprint,
    ):
        assert word in got.stdout, word
    assert got.stdout.count("\n* ") == 1


def test_doctor_finds_a_bad_key_file(tool, tmp_path):
    key = tmp_path / "job.key"
    tool("keygen", key)
    key.chmod(0o644)
    got = tool("doctor", env={"SEALRING_JOB_KEY_FILE": str(key)})
    assert got.returncode == 1
    assert "SR-E106" in got.stdout and "chmod" in got.stdout
