"""Ask many questions, for their quality: langchain_run.py STORE MODEL QUESTIONS.json RANKINGS.json.

``QUESTIONS.json`` maps ids of questions to their texts, ``RANKINGS.json`` the same ids to names of files, best first.
"""

import json
import sys
from pathlib import Path

from langchain_community.vectorstores import FAISS
from langchain_huggingface import HuggingFaceEmbeddings

store, model, questions, rankings = sys.argv[1:]
embeddings = HuggingFaceEmbeddings(model_name=model)
vectors = FAISS.load_local(store, embeddings, allow_dangerous_deserialization=True)
found = {
    key: [document.metadata["source"] for document in vectors.similarity_search(text, k=100)]
    for key, text in json.loads(Path(questions).read_text(encoding="utf-8")).items()
}
Path(rankings).write_text(json.dumps(found), encoding="utf-8")
