"""Ask LangChain's FAISS vector store one question: langchain_query.py STORE MODEL QUESTION."""

import json
import sys

from langchain_community.vectorstores import FAISS
from langchain_huggingface import HuggingFaceEmbeddings

store, model, question = sys.argv[1:]
embeddings = HuggingFaceEmbeddings(model_name=model)
vectors = FAISS.load_local(store, embeddings, allow_dangerous_deserialization=True)
results = [
    {"source": document.metadata["source"], "score": float(score), "text": document.page_content}
    for document, score in vectors.similarity_search_with_score(question, k=10)
]
print(json.dumps({"question": question, "results": results}, indent=2))
