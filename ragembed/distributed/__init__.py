"""Write the stores of a collection in parallel, with workers that are local processes or Ray actors.

A run consists of stages. Each stage is a number of tasks that exchange data through files.
"""
