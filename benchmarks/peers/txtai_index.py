"""Index a folder of text files with txtai, texts kept: txtai_index.py DOCUMENTS STORE MODEL [SIZE].

With SIZE, documents are split into parts of at most so many characters.
"""

import sys
from pathlib import Path

from txtai import Embeddings

folder, store, model, *size = sys.argv[1:]
texts = [path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.txt"))]
if size:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    splitter = RecursiveCharacterTextSplitter(chunk_size=int(size[0]), chunk_overlap=0)
    texts = [part for text in texts for part in splitter.split_text(text)]
embeddings = Embeddings(path=model, content=True)
embeddings.index(texts)
embeddings.save(store)
