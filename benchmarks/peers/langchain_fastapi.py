"""A search service with LangChain and FastAPI: one endpoint that searches a FAISS store."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from langchain_faiss import load

app = FastAPI()
request = json.loads(sys.argv[2])
store = load(request)


@app.get("/search")
def search(q: str, k: int = 10) -> list[dict[str, Any]]:
    """Return the nearest texts."""
    found = store.similarity_search_with_score(q, k=k)
    return [{"text": hit.page_content, "metadata": hit.metadata, "score": float(score)} for hit, score in found]


if __name__ == "__main__":
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        print(f"serving http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
