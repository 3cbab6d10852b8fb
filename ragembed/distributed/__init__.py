"""Index with several workers, which are local processes or Ray actors.

A run consists of stages. Each stage is a number of tasks that exchange data through files.
"""
