"""Errors: they keep type, message and attributes when they are pickled; they name how this copy was installed."""

import json
import shutil
import sys
from importlib import metadata
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

from ragembed import errors, version

KINDS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


def made(kind):
    return kind("ray", "ray", "a cluster") if kind is errors.MissingExtraError else kind("what happened")


@pytest.mark.parametrize("kind", KINDS)
def test_errors_can_be_pickled(kind):
    sent = made(kind)
    arrived = ForkingPickler.loads(ForkingPickler.dumps(sent))
    assert type(arrived) is kind
    assert str(arrived) == str(sent)
    assert vars(arrived) == vars(sent)


@pytest.fixture
def installed(monkeypatch):
    """A function that sets how this copy is installed, as in an active environment."""

    def install(source, installer="pip", python="/my env/bin/python", active="/my env"):
        class Copy:
            def read_text(self, name):
                return installer if name == "INSTALLER" else source and json.dumps(source)

        monkeypatch.setattr(metadata, "distributions", lambda name: [Copy()])
        monkeypatch.setattr(sys, "executable", python)
        monkeypatch.setattr(sys, "prefix", str(Path(python).parents[1]))
        monkeypatch.setenv("VIRTUAL_ENV", active)
        monkeypatch.setattr(shutil, "which", lambda name: f"{active}/bin/{name}")

    caches = (version._origin, version.pip_install)
    for each in caches:
        each.cache_clear()
    yield install
    for each in caches:
        each.cache_clear()


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'ragembed[serve]'"),
        ({"url": "file:///my%20clone", "dir_info": {"editable": True}}, "pip install -e '/my clone[serve]'"),
        ({"url": "file:///clone", "dir_info": {}}, "pip install '/clone[serve]'"),
        (
            {"url": "file:///dist/ragembed-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'ragembed[serve] @ file:///dist/ragembed-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.org/r.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}, "subdirectory": "py"},
            "pip install 'ragembed[serve] @ git+https://example.org/r.git@12ab#subdirectory=py'",
        ),
        (
            {"url": "ssh://it's/r", "vcs_info": {"vcs": "git", "commit_id": "12ab", "requested_revision": "main"}},
            """pip install 'ragembed[serve] @ git+ssh://it'"'"'s/r@main'""",
        ),
    ],
)
def test_the_error_of_a_missing_extra_installs_it_from_where_this_copy_comes(source, command, installed):
    installed(source)
    assert str(errors.MissingExtraError("mcp", "serve", "it")).endswith(f"is not installed: {command}")


@pytest.mark.parametrize(
    ("installer", "active", "command"),
    [
        ("pip", "/my env", "pip install"),
        ("pip", "/another", "'/my env/bin/python' -m pip install"),
        ("uv", "/my env", "uv pip install"),
        ("uv", "/another", "uv pip install --python '/my env/bin/python'"),
    ],
)
def test_commands_install_into_the_environment_of_this_copy(installer, active, command, installed):
    installed(None, installer, active=active)
    assert version.install_command("serve") == f"{command} 'ragembed[serve]'"
    assert version.upgrade_command() == f"{command} --upgrade ragembed"
