"""A store with several topics, folders and languages, near-duplicates, a hostile file and a skipped one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ragembed
from ragembed import EmbedderConfig

pytest.importorskip("openTSNE", reason="openTSNE is not installed: pip install 'ragembed[papers]'")

HOSTILE = (
    "# <script>window.hacked = 1</script>\n\nlock </script><script>window.hacked=1</script> "
    "<img src=x onerror='window.hacked=1'> <!-- </pre> &lt;b&gt; \u202egnihton\u202c \x1b[31m\x07 \"quoted\"\n"
)
TOPICS = {
    "locks": "The writer holds the lock of the store number {n}, and a reader of segment {n} never waits.",
    "wings": "A shock wave meets the boundary layer on the wing {n}; supersonic air flow raises the pressure {n}.",
    "animals": "The cat {n} sleeps, the dog {n} runs, the bird flies and the fish swims in the blue water.",
}
GERMAN = (
    "Der Schreiber hält die Sperre, und die Leser warten nicht auf ihn. Das ist gut, weil es viele Leser gibt und nur "
    "einen Schreiber. Wir haben das gestern noch einmal geprüft, und es war alles in Ordnung. Heute ist das Wetter "
    "schön, und ich gehe mit meinem Hund in den Park. Wann kommt der nächste Zug nach Berlin?\n"
)
REPEATED = (
    "Every night the archive is copied to the second site, and the copy is compared with the first one byte by byte "
    "before the oldest copy is removed.\n"
)


def write_documents(docs: Path) -> None:
    for topic, text in TOPICS.items():
        (docs / topic).mkdir(parents=True)
        for n in range(16):
            (docs / topic / f"{n}.md").write_text(f"# {topic.capitalize()} {n}\n\n{text.format(n=n)}\n")
    (docs / "hostile <b>.md").write_text(HOSTILE)
    (docs / "deutsch.txt").write_text(GERMAN * 2)
    for n in range(3):
        (docs / f"copy{n}.txt").write_text(REPEATED)
    (docs / "tool.bin").write_bytes(b"\0\1\2")


@pytest.fixture(scope="session")
def _documents(made_once: Callable[[str, Callable[[Path], None]], Path], tiny_model: Path) -> Path:
    def make(folder: Path) -> None:
        write_documents(folder / "docs")
        config = EmbedderConfig(extractor="re:dim=32", model=str(tiny_model), postprocess=("center", "normalize"))
        ragembed.index(folder / "docs", store=folder / ".ragembed", embedder=config)

    return made_once("reported", make)


@pytest.fixture(scope="session")
def store(_documents: Path) -> Path:
    """A store that tests only read."""
    return _documents / ".ragembed"
