"""The mathematics of PPO and of the blend: pure functions on tensors.

Nothing here imports Ray, vLLM or the configuration, reads files, or logs.

Legend of shapes: B sequences (prompts × n), T response length, V vocabulary, N tokens, H hidden
size. A response mask is (B, T), 1 (or True) on response tokens. Values at masked positions of any
input are ignored, NaN and infinity included. Half precision is computed in float32.

Arguments are checked: shapes that do not fit one another, parameters out of range, unknown names of
variants, and fewer tokens than a statistic needs are a ``ValueError``.
"""
