"""The two vector stores of LangChain that ../langchain.py compares; see README.md beside this folder."""
