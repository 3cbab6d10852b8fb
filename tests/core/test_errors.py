"""Errors: they keep type, message and attributes when they are pickled for another process."""

from multiprocessing.reduction import ForkingPickler

import pytest

from ragembed import errors

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
