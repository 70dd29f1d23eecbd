"""What an installed wheel has: `gym`, the built-in components, and no other top-level package."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    script = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", script, str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files in a folder of their own, as pip lays them."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def _run(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nemo_gym", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed), "XDG_STATE_HOME": str(cwd / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_only_top_level_package_is_nemo_gym(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"nemo_gym"}


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not here")
    listed = subprocess.run(
        [git, "ls-files", "src/nemo_gym"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this tree is no git checkout")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())

    assert {name.removeprefix("src/") for name in listed.stdout.split()} <= packed


def test_the_command_and_the_type_marker_are_there(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (points,) = [n for n in archive.namelist() if n.endswith("entry_points.txt")]

        assert "gym = nemo_gym.cli.entry:main" in archive.read(points).decode()
        assert "nemo_gym/py.typed" in archive.namelist()


def test_built_in_components_are_found_with_none_of_the_checkout_around(
    installed: Path, tmp_path: Path
) -> None:
    listed = _run(installed, tmp_path, "list", "resources-servers")
    resolved = _run(
        installed, tmp_path, "env", "validate", "--resources-server", "mcqa",
        "--model-type", "openai_model", "--model", "m", "--model-url", "http://127.0.0.1:9/v1",
        "--model-api-key", "k",
    )  # fmt: skip

    assert "mcqa" in listed.stdout
    assert resolved.returncode == 0, resolved.stderr
