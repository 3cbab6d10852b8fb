"""The code search semble, with static vectors from a file, because its own model is a download."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from worker import Request, main


def search(request: Request) -> None:
    """Index a folder, and write the results of each query: path, text, first and last line."""
    from model2vec import StaticModel
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(request["tokenizer"])
    tokenizer.no_truncation()
    StaticModel(vectors=np.load(request["vectors"]), tokenizer=tokenizer).save_pretrained(request["model"])
    os.environ["SEMBLE_MODEL_NAME"] = request["model"]
    from semble import SembleIndex

    index = SembleIndex.from_path(request["folder"])
    file = Path(request["queries"])
    answers = []
    for query in json.loads(file.read_text(encoding="utf-8")):
        chunks = [result.chunk for result in index.search(query, request["k"])]
        answers.append([[each.file_path, each.content, each.start_line, each.end_line] for each in chunks])
    file.with_suffix(".answers.json").write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main({"search": search}, {})
