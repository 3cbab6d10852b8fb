"""Freed memory is returned to the system if the C library supports it."""

import ctypes
import mmap
import os
import platform
import threading
from pathlib import Path

import pytest
from threadpoolctl import ThreadpoolController

from ragembed import resources
from ragembed.resources import ONE_BLAS_THREAD


@pytest.fixture(autouse=True)
def _without_cache():
    resources._trim.cache_clear()
    yield
    resources._trim.cache_clear()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_returned_to_the_system():
    size = 64 * 1024
    parts = [ctypes.create_string_buffer(b"x" * size) for _ in range(2000)]
    for part in parts:
        part.raw = b"y" * (size + 1)
    del parts[: len(parts) - 1], part
    before = _resident()
    resources.give_back()
    assert before - _resident() > 1000 * size


@pytest.mark.parametrize("error", [OSError, TypeError])
def test_system_without_libc_is_ignored(monkeypatch, error):
    def refuse(_):
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    resources.give_back()
    assert resources._trim() is None


def test_library_without_malloc_trim_is_ignored(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    resources.give_back()
    assert resources._trim() is None


def _resident():
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE


def test_the_limit_of_blas_threads_is_removed_by_the_last_of_several_threads():
    """The second thread enters before the first one leaves, and leaves after it."""
    info = ThreadpoolController().select(user_api="blas")
    before = [library["num_threads"] for library in info.info()]
    entered, leave = threading.Event(), threading.Event()

    def second() -> None:
        with ONE_BLAS_THREAD:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=second)
    with ONE_BLAS_THREAD:
        thread.start()
        assert entered.wait(10)
    assert [library["num_threads"] for library in info.info()] == [1] * len(before)
    leave.set()
    thread.join()
    assert [library["num_threads"] for library in info.info()] == before


@pytest.fixture
def unset(monkeypatch):
    """The variables are unset, and restored after the test."""
    for variable in (*resources._KERNELS_KEPT, "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)


def test_number_of_kept_kernels_can_be_set(unset, monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    resources.configure_torch()
    assert (os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"], os.environ["LRU_CACHE_CAPACITY"]) == ("7", "64")


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_wait_as_the_environment_says_or_only_briefly(unset, monkeypatch, given, expected):
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    resources.configure_torch()
    assert os.environ.get("GOMP_SPINCOUNT") == expected
