"""Run the tables and figures of the papers that the methods come from, beside the published numbers.

:data:`ragembed.reproduction.papers.PAPERS` describes each table and figure once: its collections, its configurations
and the function that measures it. :func:`ragembed.reproduction.run.reproduce` runs any of them.
"""
