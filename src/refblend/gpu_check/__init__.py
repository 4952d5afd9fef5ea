"""One GPU checked in minutes: ``python -m refblend.gpu_check`` from a checkout.

The plain workers, without Ray, train a model of Qwen2.5-0.5B's shape for two steps: rollout by the
HF engine, log-probs, rule reward, update under FSDP2 (a group of one rank on nccl) and the weight
push, whose log-probs the engine must reproduce. What is timed is given as a share of the
matrix-multiply peak measured in the same call. Needed are torch, transformers, pydantic, pandas and
pyarrow; ``tests/gpu`` and vLLM are run where they are installed, and what is left out is named.
"""
