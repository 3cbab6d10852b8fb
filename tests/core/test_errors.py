"""Errors: they keep type, message and attributes when they are pickled; they name how this copy was installed."""

import json
from importlib import metadata
from multiprocessing.reduction import ForkingPickler

import pytest

from ragembed import errors
from ragembed.version import install_command

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


@pytest.mark.parametrize(
    ("source", "installer", "command"),
    [
        (None, "pip", "pip install 'ragembed[serve]'"),
        (None, "uv", "uv pip install 'ragembed[serve]'"),
        ({"url": "file:///my%20clone", "dir_info": {"editable": True}}, "pip", "pip install -e '/my clone[serve]'"),
        ({"url": "file:///clone", "dir_info": {}}, "uv", "uv pip install '/clone[serve]'"),
        (
            {"url": "file:///dist/ragembed-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip",
            "pip install 'ragembed[serve] @ file:///dist/ragembed-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.org/r.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}, "subdirectory": "py"},
            "pip",
            "pip install 'ragembed[serve] @ git+https://example.org/r.git@12ab#subdirectory=py'",
        ),
    ],
)
def test_the_error_of_a_missing_extra_installs_it_from_where_this_copy_comes(source, installer, command, monkeypatch):
    class Copy:
        def read_text(self, name):
            return installer if name == "INSTALLER" else source and json.dumps(source)

    monkeypatch.setattr(metadata, "distributions", lambda name: [Copy()])
    install_command.cache_clear()
    try:
        assert str(errors.MissingExtraError("mcp", "serve", "it")).endswith(f"is not installed: {command}")
    finally:
        install_command.cache_clear()
