# Claim: nothing in the tree uses what the rules ban: vague names, unsafe comparisons and random numbers,
#   macros, unfinished work, paths of one machine.
# How: every file of ours is searched; each pattern is also shown to find what it bans.

import re

import pytest
from tree import CPP, ROOT, TEXT, code_of, files, hits, name, read, report

VAGUE = r"(?:utils?|commons?|misc|managers?|helpers?)"
PRODUCT = files("sealring", "cli", "python")
SECRET_LAYERS = files(
    *(f"sealring/{layer}" for layer in ("base", "crypto", "session", "transport", "control", "channel"))
)
EVERY_TEXT = [path for path in files(".", suffixes=TEXT) if path.parent != ROOT / "tests" / "tidy"]

# name -> (pattern, where, code only, a line it must find, a line it must let pass)
BANNED = {
    "memcmp": (r"\b(mem|b)cmp\s*\(", PRODUCT, True, "if (memcmp(a, b, 16))", "memcpy(a, b, 16)"),
    "== on a secret": (
        r"\b(\w+_)?(mac|hmac|secret|psk)(_\w+)?(\(\))?\s*[!=]=(?!\s*([\w.]+\.end\(|nullptr))"
        r"|[!=]=\s*(\w+_)?(mac|hmac|secret|psk)\b(?!\.)",
        SECRET_LAYERS,
        True,
        "if (peer_mac == mine)",
        "if (mac.size() == 32)",
    ),
    "libc's random numbers": (
        r"(?<![\w.>:])(std::)?(rand|srand|random|srandom|drand48|rand_r)\s*\(",
        [path for path in PRODUCT if "faulty" not in path.stem],
        True,
        "x = rand();",
        "brand(x)",
    ),
    "a predictable generator beside keys": (
        r"\b(mt19937(_64)?|minstd_rand0?|default_random_engine|random_device)\b",
        [path for path in SECRET_LAYERS if "faulty" not in path.stem],
        True,
        "std::mt19937 g;",
        "RandomBytes g;",
    ),
    "unsafe string functions": (
        r"(?<![\w.>:])(std::)?(strcpy|strcat|sprintf|gets|strtok|atoi|atol|atof)\s*\(",
        PRODUCT,
        True,
        "atoi(text)",
        "snprintf(a, 3, b)",
    ),
    "a shell": (
        r"(?<![\w.>:])(std::)?(system|popen)\s*\(",
        PRODUCT,
        True,
        "system(line)",
        "file_system(line)",
    ),
    "two bare sizes side by side": (
        r"\(.*\b(std::)?size_t \w+,\s*(const )?(std::)?size_t \w+",
        [path for path in PRODUCT if path.suffix == ".h"],
        True,
        "void f(std::size_t a, std::size_t b);",
        "void f(std::size_t a, int b);",
    ),
    "vague type names": (
        rf"\b(class|struct|namespace)\s+\w*(?i:{VAGUE})\b",
        files("sealring", "cli", "python", "tests", "fuzz", "bench"),
        True,
        "class KeyManager {",
        "class KeyTable {",
    ),
    "unfinished work": (
        r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b",
        EVERY_TEXT,
        False,
        "// TO" "DO: later",
        "// to do later",
    ),
    "paths of one machine": (
        r"(?<![\w.$}~-])/(work|root|home)(/|\b(?!\w))|\.\./shared\b",
        EVERY_TEXT,
        False,
        "see /wo" "rk/x",
        "a framework/x",
    ),
    "addresses of package registries": (
        r"pypi\.org|pythonhosted\.org|download\.pytorch|deb\.debian\.org|archive\.ubuntu",
        EVERY_TEXT,
        False,
        "https://py" "pi.org/simple",
        "https://example.org",
    ),
}


@pytest.mark.parametrize("rule", sorted(BANNED))
def test_banned(rule):
    pattern, paths, code_only, bad, good = BANNED[rule]
    assert re.search(pattern, bad) and not re.search(pattern, good)
    assert paths
    found = hits(pattern, paths, code_only)
    assert not found, report(found)


def test_no_vague_file_names():
    word = re.compile(rf"(^|[_.-]){VAGUE}($|[_.-])", re.IGNORECASE)
    assert word.search("key_utils.h") and not word.search("communicator.h")
    wrong = [
        name(path) for path in files(".", suffixes=TEXT) if any(word.search(part) for part in path.parts)
    ]
    assert not wrong, report(wrong)


def test_only_three_macros():
    allowed = re.compile(r"SR_(TRY\w*|CHECK|HOST_DEVICE)$")
    wrong = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in files("sealring", "cli", "python", "tests", "fuzz", "bench")
        for number, line in enumerate(code_of(read(path)).splitlines(), 1)
        if (match := re.match(r"\s*#\s*define\s+(\w+)", line)) and not allowed.match(match.group(1))
    ]
    assert not wrong, report(wrong)


def test_nothing_outside_the_rooms():
    """A file lies in a folder that ARCHITECTURE.md knows."""
    rooms = {
        "sealring",
        "cli",
        "python",
        "data",
        "examples",
        "results",
        "tests",
        "fuzz",
        "bench",
        "docs",
        "cmake",
        ".ci",
    }
    wrong = [name(path) for path in files(".") if path.relative_to(ROOT).parts[0] not in rooms]
    assert not wrong, report(wrong)
    kinds = {path.suffix for path in files("sealring")}
    assert kinds <= set(CPP), kinds
