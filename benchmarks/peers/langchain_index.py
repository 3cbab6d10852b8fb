"""Index a folder of text files with LangChain's FAISS vector store: langchain_index.py DOCUMENTS STORE MODEL [SIZE].

With SIZE, documents are split into parts of at most so many characters.
"""

import sys
from pathlib import Path

from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_huggingface import HuggingFaceEmbeddings

folder, store, model, *size = sys.argv[1:]
documents = [
    Document(page_content=path.read_text(encoding="utf-8"), metadata={"source": path.name})
    for path in sorted(Path(folder).glob("*.txt"))
]
if size:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    documents = RecursiveCharacterTextSplitter(chunk_size=int(size[0]), chunk_overlap=0).split_documents(documents)
FAISS.from_documents(documents, HuggingFaceEmbeddings(model_name=model)).save_local(store)
