import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ragembed.distributed import stages
from ragembed.distributed.stages import plan_blocks
from ragembed.distributed.work import balanced
from ragembed.documents.discovery import FileCandidate
from ragembed.indexes.writing import writer


def encoded_by_the_writer(sizes, hashes, known, batch):
    """Return the batches that the writer encodes, reimplemented from the indexing run and the writer."""
    seen, waiting, batches, start = set(known), [], [], 0
    for size, following in zip(sizes, [*sizes[1:], batch], strict=bool(sizes)):
        waiting += range(start, start + size)
        start += size
        if len(waiting) + following > batch:
            first = {}
            for chunk in waiting:
                first.setdefault(hashes[chunk], chunk)
            missing = [chunk for key, chunk in first.items() if key not in seen]
            batches += [missing[j : j + batch] for j in range(0, len(missing), batch)]
            seen |= set(first)
            waiting = []
    return batches


@given(
    st.lists(st.integers(1, 20), max_size=12),
    st.integers(1, 9),
    st.integers(1, 60),
    st.sets(st.integers(0, 60), max_size=5),
    st.randoms(use_true_random=False),
)
def test_blocks_match_the_batches_of_one_process(sizes, batch, distinct, known, rng):
    hashes = [rng.randrange(distinct).to_bytes(16, "big") for _ in range(sum(sizes))]
    kept = {number.to_bytes(16, "big") for number in known}
    before = stages.BATCH
    stages.BATCH = batch
    try:
        made = plan_blocks(sizes, hashes, lambda asked: kept & set(asked))
    finally:
        stages.BATCH = before
    assert [made.of(i).tolist() for i in range(len(made))] == encoded_by_the_writer(sizes, hashes, kept, batch)
    assert [bytes(first) for first in made.first] == [hashes[made.of(i)[0]] for i in range(len(made))]


def test_block_size_equals_writer_batch_size():
    assert stages.BATCH is writer.BATCH


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.data())
def test_shards_have_all_files_in_order_and_none_is_empty(sizes, data):
    from pathlib import Path

    files = [FileCandidate(Path(str(i)), Path(), size, 0) for i, size in enumerate(sizes)]
    number = data.draw(st.integers(1, len(files)))
    shards = balanced(files, number)
    assert [file for shard in shards for file in shard] == files
    assert len(shards) == number
    assert all(shards)
    heaviest = (
        max(sum(file.size + 1 for file in shard) for shard in shards if len(shard) > 1) if number < len(files) else 0
    )
    assert heaviest <= np.sum([file.size + 1 for file in files]) / number + 2 * (max(sizes) + 1)
