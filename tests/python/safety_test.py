"""Claim: nothing is sent in clear by mistake, and installing sealring cannot break `import torch`.

How: scripts in processes of their own, with the package as installed, damaged, or built for another PyTorch.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import sealring
from conftest import SLOW, free_port

PACKAGE = pathlib.Path(sealring.__file__).parent
HERE = str(PACKAGE.parent)


def environment(**variables):
    ours = ("SEALRING_", "_SEALRING", "TORCH_DISTRIBUTED")
    out = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    out["PYTHONPATH"] = HERE
    out["OMP_NUM_THREADS"] = "1"
    out.update({k: str(v) for k, v in variables.items() if v is not None})
    return out


def python(code, *arguments, timeout=60 * SLOW, **variables):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def spawn_script(script, world, key, *prefix):
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *prefix, str(script)],
            env=environment(
                RANK=rank,
                WORLD_SIZE=world,
                LOCAL_RANK=rank,
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
                SEALRING_JOB_KEY_FILE=key,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(world)
    ]


# --- require ---

ONE_RANK = """
import os, sys, torch, torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
import sealring
def refused(make):
    try:
        make()
    except RuntimeError as problem:
        assert "SR-E115" in str(problem) and "REQUIRED" in str(problem), problem
        print(problem)
    else:
        raise SystemExit("it was made")
"""


def test_require_refuses_every_other_group_and_names_the_line(key_file, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        ONE_RANK
        + """
import torch.distributed.distributed_c10d as c10d
sealring.require()
sealring.require()
refused(lambda: dist.init_process_group("gloo"))           # line A
refused(lambda: dist.init_process_group())                 # line B
refused(lambda: dist.init_process_group("cpu:gloo,cuda:sealring"))
dist.init_process_group("sealring")
refused(lambda: dist.new_group(backend="gloo"))            # line C
refused(lambda: dist.ProcessGroupGloo(dist.HashStore(), 0, 1))
refused(lambda: dist.init_device_mesh("cpu", (1, 1), backend_override={0: "gloo"}))
from torch.testing._internal.distributed.fake_pg import FakeStore
refused(lambda: dist.new_group(backend="fake"))
group = dist.new_group()
tensor = torch.ones(3)
dist.all_reduce(tensor, group=group)
from sealring import study_backend
refused(lambda: study_backend.register(job_key_file="x"))
print("end")
"""
    )
    lines = script.read_text().splitlines()
    result = subprocess.run(
        [sys.executable, str(script), str(free_port())],
        env=environment(SEALRING_JOB_KEY_FILE=key_file),
        capture_output=True,
        text=True,
        timeout=60 * SLOW,
    )
    assert result.returncode == 0 and result.stdout.endswith("end\n"), result.stdout + result.stderr
    for mark in "ABC":
        number = next(i for i, line in enumerate(lines, 1) if line.endswith(f"# line {mark}"))
        assert f"{script}:{number}" in result.stdout


def test_require_by_environment(key_file):
    code = ONE_RANK + 'refused(lambda: dist.init_process_group("gloo")); print("end")'
    result = python(code, str(free_port()), SEALRING_REQUIRE="1", SEALRING_JOB_KEY_FILE=key_file)
    assert result.returncode == 0 and "end" in result.stdout, result.stderr


def test_require_comes_too_late(key_file):
    code = ONE_RANK + 'dist.init_process_group("gloo"); refused(sealring.require); print("end")'
    result = python(code, str(free_port()), SEALRING_JOB_KEY_FILE=key_file)
    assert result.returncode == 0 and "already there" in result.stdout, result.stdout + result.stderr


def test_detail_debugging_is_refused_under_require_and_warned_of_without(key_file):
    code = ONE_RANK + 'refused(lambda: dist.init_process_group("sealring")); print("end")'
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "SEALRING_JOB_KEY_FILE": key_file}
    result = python(code, str(free_port()), SEALRING_REQUIRE="1", **detail)
    assert result.returncode == 0 and "unset TORCH_DISTRIBUTED_DEBUG" in result.stdout, (
        result.stdout + result.stderr
    )
    code = ONE_RANK + 'dist.init_process_group("sealring"); dist.barrier(); print(sealring.describe(), "end")'
    result = python(code, str(free_port()), **detail)
    assert result.returncode == 0 and "helper group of Gloo" in result.stderr, result.stdout + result.stderr
    assert "suite aes-256-gcm" in result.stdout, result.stdout


# --- run ---

SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group(BACKEND)
tensor = torch.full((4,), float(dist.get_rank() + 1))
dist.all_reduce(tensor)
group = dist.new_group(backend="gloo")
dist.all_reduce(tensor, group=group)
if "--epochs" in sys.argv:
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    model(tensor).sum().backward()
names = dist.get_backend(), dist.get_backend(group)
sys.stdout.write(f"RESULT {names[0]} {names[1]} {tensor[0].item()} {sys.argv[1:]} {__name__}\\n")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ['"gloo"', '"nccl"', "", '"cpu:gloo,cuda:nccl"', '"sealring"'])
def test_run_maps_the_backend(key_file, tmp_path, backend):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("BACKEND", backend))
    for process in spawn_script(script, 2, key_file, "-m", "sealring.run"):
        out, _ = process.communicate(timeout=60 * SLOW)
        assert process.returncode == 0, out.decode()
        assert b"RESULT sealring sealring 6.0 [] __main__" in out, out.decode()


def test_torchrun(key_file, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("BACKEND", '"gloo"'))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    ]
    result = subprocess.run(
        [*command, "-m", "sealring.run", str(script), "--epochs", "3"],
        env=environment(SEALRING_JOB_KEY_FILE=key_file),
        capture_output=True,
        text=True,
        timeout=90 * SLOW,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("RESULT sealring sealring 6.0 ['--epochs', '3'] __main__") == 2


def test_run_of_a_module_and_wrong_usage(key_file, tmp_path):
    (tmp_path / "job_module.py").write_text("import sys\nprint('MODULE', sys.argv[1:], __name__)\n")
    run = [sys.executable, "-m", "sealring.run"]
    result = subprocess.run(
        [*run, "-m", "job_module", "a"], env=environment(), cwd=tmp_path, capture_output=True, text=True
    )
    assert "MODULE ['a'] __main__" in result.stdout, result.stderr
    for wrong in ([], ["-m"], [str(tmp_path / "absent.py")]):
        result = subprocess.run([*run, *wrong], env=environment(), capture_output=True, text=True)
        assert result.returncode == 2 and result.stderr


# --- autoload ---


def installed_copy(folder, damage=None, torch_version=None):
    """The package as pip leaves it, with its entry point; then damaged."""
    package = folder / "sealring"
    shutil.copytree(PACKAGE, package, symlinks=False, ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / "sealring-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sealring\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nsealring = sealring:_autoload\n")
    library = next(package.glob("_C*.so"))
    if damage == "garbage":
        library.write_bytes(os.urandom(10000))
    if damage == "empty":
        library.write_bytes(b"")
    if damage == "cut":
        library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])
    if damage == "foreign":
        library.write_bytes(pathlib.Path("/bin/true").resolve().read_bytes())
    if damage == "missing":
        library.unlink()
    if torch_version:
        (package / "_build_info.py").write_text(f'TORCH_VERSION = "{torch_version}"\nVERSION = "0.1.0"\n')
    return folder


WITHOUT_IMPORT = """
import os, sys, torch, torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
assert torch.ones(2).sum().item() == 2
print("torch works", "sealring._C" in sys.modules)
try:
    dist.init_process_group("sealring")
    print("made", dist.get_backend())
except RuntimeError as problem:
    print("refused:", problem)
dist.destroy_process_group() if dist.is_initialized() else None
dist.init_process_group("gloo")
"""


def test_autoload_needs_no_import_and_loads_lazily(tmp_path, key_file):
    folder = installed_copy(tmp_path / "site")
    result = python(WITHOUT_IMPORT, str(free_port()), PYTHONPATH=folder, SEALRING_JOB_KEY_FILE=key_file)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["torch works False", "made sealring"]


@pytest.mark.parametrize("damage", ["garbage", "empty", "cut", "foreign", "missing"])
def test_a_damaged_library_cannot_break_torch(tmp_path, key_file, damage):
    folder = installed_copy(tmp_path / "site", damage)
    result = python(WITHOUT_IMPORT, str(free_port()), PYTHONPATH=folder, SEALRING_JOB_KEY_FILE=key_file)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (
        "torch works" in result.stdout
        and "refused: SR-E116" in result.stdout
        and "reinstall with" in result.stdout
    )
    code = "import sealring, torch; print('imported', torch.ones(1).item())"
    assert "imported 1.0" in python(code, PYTHONPATH=folder).stdout


def test_another_torch_is_named(tmp_path, key_file):
    import torch

    folder = installed_copy(tmp_path / "site", torch_version="2.99.0")
    result = python(WITHOUT_IMPORT, str(free_port()), PYTHONPATH=folder, SEALRING_JOB_KEY_FILE=key_file)
    wanted = f"built for torch 2.99.0, found torch {torch.__version__}"
    assert result.returncode == 0 and wanted in result.stdout and "reinstall with" in result.stdout, (
        result.stderr
    )
    result = python("import sealring", PYTHONPATH=folder, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.returncode == 1 and wanted in result.stderr and "ImportError" in result.stderr


def test_a_broken_package_cannot_break_torch_but_require_is_kept(tmp_path):
    folder = installed_copy(tmp_path / "site")
    (folder / "sealring" / "autoload.py").write_text("raise ValueError('broken')\n")
    result = python("import torch; print('torch works')", PYTHONPATH=folder)
    assert "torch works" in result.stdout and "not registered" in result.stderr
    result = python("import torch; print('torch works')", PYTHONPATH=folder, SEALRING_REQUIRE="1")
    assert result.returncode == 1 and "torch works" not in result.stdout


def test_require_by_environment_needs_no_import(tmp_path, key_file):
    folder = installed_copy(tmp_path / "site")
    result = python(
        WITHOUT_IMPORT,
        str(free_port()),
        PYTHONPATH=folder,
        SEALRING_REQUIRE="1",
        SEALRING_JOB_KEY_FILE=key_file,
    )
    assert "made sealring" in result.stdout and result.returncode == 1 and "SR-E115" in result.stderr


def test_ranks_that_a_script_starts_itself(tmp_path, key_file):
    folder = installed_copy(tmp_path / "site")
    script = tmp_path / "spawns.py"
    script.write_text(f"""
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def rank(i):
    os.environ.update(RANK=str(i), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="{free_port()}")
    dist.init_process_group("gloo")
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    os.write(1, f"CHILD {{dist.get_backend()}} {{tensor[0].item()}}\\n".encode())
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
""")
    result = subprocess.run(
        [sys.executable, "-m", "sealring.run", str(script)],
        env=environment(PYTHONPATH=folder, SEALRING_JOB_KEY_FILE=key_file),
        capture_output=True,
        text=True,
        timeout=90 * SLOW,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("CHILD sealring 2.0") == 2, result.stdout + result.stderr


def test_added_import_time():
    code = (
        "import torch, time, sys; sys.modules.pop('sealring', None); b = time.process_time()\n"
        "import sealring\n"
        "print((time.process_time() - b) * 1000)"
    )
    times = [float(python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout) for _ in range(3)]
    assert min(times) < 20 * SLOW, times


# --- the study's backend ---


def test_nothing_makes_sealring_plain(key_file):
    base = ONE_RANK + 'dist.init_process_group("sealring"); print(sealring.describe()["suite"])'
    for suite in ("plain", "chained-gmac"):
        result = python(base, str(free_port()), SEALRING_JOB_KEY_FILE=key_file, SEALRING_SUITE=suite)
        assert result.returncode == 1 and "SR-E103" in result.stderr and "aes-256-gcm" in result.stderr
    code = ONE_RANK + (
        "from sealring import study_backend\n"
        'study_backend.register(suite="plain", job_key_file=os.environ["SEALRING_JOB_KEY_FILE"])\n'
        'dist.init_process_group("sealring")\n'
        'd = sealring.describe(); print(d["suite"], d["backend"])\n'
        'group = dist.new_group(backend="sealring_study")\n'
        'd = sealring.describe(group); print(d["suite"], d["backend"], dist.get_backend(group))'
    )
    result = python(code, str(free_port()), SEALRING_JOB_KEY_FILE=key_file)
    lines = result.stdout.splitlines()
    assert lines == ["aes-256-gcm sealring", "plain sealring_study sealring_study"], result.stderr
    assert result.stderr.count("DATA IS NOT PROTECTED") == 2


@pytest.mark.parametrize(
    "settings,problem",
    [
        ('suite="rot13"', "unknown suite"),
        ('algorithm="magic"', "unknown algorithm"),
        ('suite="aes-256-gcm", emulate=(1.0, 1.0, "inline")', "only suite plain"),
        ('emulate=(-1.0, 1.0, "inline")', "emulate takes"),
        ('emulate=(1.0, 1.0, "sometimes")', "emulate takes"),
    ],
)
def test_study_settings_are_checked_at_once(settings, problem):
    code = f'import sealring.study_backend as s; s.register(job_key_file="k", {settings})'
    result = python(code)
    assert result.returncode == 1 and "SR-E101" in result.stderr and problem in result.stderr
