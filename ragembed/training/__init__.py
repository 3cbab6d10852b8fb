"""Training an encoder from a dictionary, with no labels: DefSent and DefSent+.

Definitions are projected onto vectors of the entries they define. Source: Liu 2024 (DefSent+), and for DefSent,
Tsukagoshi et al. 2021 as that paper describes it.
"""
